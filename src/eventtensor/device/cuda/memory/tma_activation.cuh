// Activation tiles (activation_producer.cuh) that are boxes of a matrix with a tensor map: one lane
// issues one or two TMA copies for each. The copies do what lanes would do: they swap pieces, and
// load nothing of what lies outside the matrix. sm_90.
//
// Contract (see bulk.cuh), rule by rule:
//  * x may have been written in this launch. The thread that gives the job has seen that x is
//    written; the lane that copies has seen the job, and then does fence_global_writes.
//  * Plain loads and stores, and copies of lanes, have touched the stages of activation tiles:
//    before a job is given, each thread does fence_shared_reads, then all meet.
//  * `full` of a stage has as many arrivals as where lanes copy; one lane does them all.
//  * A job is begun when all activation producers have taken it: it may end without the others.
//  * Copies that were issued land before the block ends.
#pragma once
#include "cuda/memory/smem_pipeline.cuh"

namespace et {

// False if the tasks are over.
ET_HOT bool wait_activation(const SmemPipeline& pipeline, uint32_t bar, uint32_t parity) {
  while (!bar_over(bar, parity))
    if (shared_peek(pipeline.stop) != 0) return false;
  return true;
}

// All lanes of a warp are in step; the first one does it.
class TmaLoader {
 public:
  ET_HOT TmaLoader(SmemPipeline& pipeline, const TensorMap* maps)
      : pipeline_(pipeline), full_(shared_address(pipeline.lines.full)),
        empty_(shared_address(pipeline.lines.empty)), beside_(pipeline.beside()), maps_(maps) {}

  // All tiles of a job. False if the tasks are over.
  template <uint32_t N> ET_HOT bool bring(const ActivationJob& job) {
    const TensorMap& map = maps_[2 * job.in.map + (N != N16)];
    const uint32_t taken = shared_address(&pipeline_.lines.taken);
    const uint32_t step = activation_tile_k<N>(job.walk.span);
    first_ = next_ = job.line;
    if (!wait_activation(pipeline_, taken, jobs_++ & 1) || !reached(job)) return false;
    fence_global_writes();
    for (uint32_t panel = 0; panel < job.walk.panels; panel += job.walk.round(panel))
      for (uint32_t column = 0; column < job.walk.columns; column += N128)
        for (uint32_t k = 0; k < job.walk.row; k += step, ++next_) {
          const ActivationStage<N> place = place_of<N>(next_);
          if (!wait_activation(pipeline_, empty_ + place.bar(), place.parity ^ 1)) return false;
          if (threadIdx.x % 32 == 0)
            line<N>(place, map, job.in.first + k / 2, job.in.row + column, step);
        }
    return true;
  }

  // Until all of the last job have landed, if nobody waits for them any more.
  template <uint32_t N> ET_HOT void land() const {
    const uint32_t count = pipeline_.lines.bytes / ActivationStages<N>::BYTES;
    const uint32_t open = next_ - first_ < count ? next_ - first_ : count;
    for (uint32_t number = next_ - open; number != next_; ++number)
      while (!bar_over(full_ + place_of<N>(number).bar(), place_of<N>(number).parity)) {}
  }

 private:
  // Waits until x is written. The lane that issues the copies polls, so nobody has to tell it. False
  // if the tasks are over.
  ET_HOT bool reached(const ActivationJob& job) const {
    bool there = job.target == 0;
    while (!there && shared_peek(pipeline_.stop) == 0)
      there = threadIdx.x % 32 != 0 || ev_reached(*job.cell, job.target);
    __syncwarp();
    return __shfl_sync(~0u, there, 0);
  }

  template <uint32_t N> ET_HOT ActivationStage<N> place_of(uint32_t number) const {
    return {pipeline_.lines.bytes, number};
  }

  // So many bytes of K from element x of row y on: boxes of up to N64 columns.
  template <uint32_t N>
  ET_HOT void line(ActivationStage<N> place, const TensorMap& map, uint32_t x, uint32_t y,
                   uint32_t k) {
    constexpr uint32_t EACH = N < N64 ? N : N64;
    const uint32_t bar = full_ + place.bar(), to = beside_ + place.at * ActivationStages<N>::BYTES;
    const uint32_t halves = k > SWIZZLE ? 2 : 1;
    bar_arrive(bar, ET_ACTIVATION_WARPS * 32 - 1);
    bar_expect(bar, halves * N * SWIZZLE);
    for (uint32_t b = 0; b < halves; ++b)
      for (uint32_t c = 0; c < N; c += EACH)
        tma_load_2d(to + (b * N + c) * SWIZZLE, map, x + b * SWIZZLE / 2, y + c, bar);
  }

  SmemPipeline& pipeline_;
  const uint32_t full_, empty_, beside_;
  const TensorMap* const maps_;
  uint32_t jobs_ = 0;
  uint32_t first_ = 0, next_ = 0;  // tiles of the last job, and the next one
};

}  // namespace et
