// Stages of a product, from the pipeline, as ProducerWarp::rows, run or panels loads them.
#pragma once
#include "cuda/roles/tile_scheduler.cuh"

namespace et {

// What both kinds of stages do.
class PipelineOperand {
 public:
  ET_HOT explicit PipelineOperand(const Worker& w) : pipeline_(w.pipeline) {}
  ET_HOT void done(uint32_t number) { pipeline_.release(number, TURNS); }
  ET_HOT void end(Worker& w, uint32_t pages) {
    pipeline_.advance(pages);
    w.pipeline = pipeline_;
  }

 protected:
  PipelineConsumer pipeline_;
};

// JOINED: the panels of a stage belong to products one after the other.
template <uint32_t SPAN, uint32_t BUNDLE_, bool JOINED_ = false> struct PipelinePanels
    : PipelineOperand {
  static constexpr uint32_t BUNDLE = BUNDLE_;
  static constexpr bool JOINED = JOINED_;
  using PipelineOperand::PipelineOperand;
  template <uint32_t> using Page = PanelFill<SPAN, BUNDLE, JOINED ? 1 : BUNDLE, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, Own own) {
    return {pipeline_.wait_stage(number) + own.panel * (JOINED ? BYTES : SPAN) * PANEL, own};
  }
};

struct PipelineRows : PipelineOperand {
  static constexpr uint32_t BUNDLE = 1;
  static constexpr bool JOINED = false;
  using PipelineOperand::PipelineOperand;
  template <uint32_t BYTES> using Page = RowsFill<BYTES, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, Own own) {
    const uint32_t low = pipeline_.wait_stage(number) + warp_row() * BYTES;
    return {low, low + 8 * BYTES, own};
  }
};

}  // namespace et

#if ET_WIDE
#include "cuda/mma/gemm_wgmma.cuh"
#endif
