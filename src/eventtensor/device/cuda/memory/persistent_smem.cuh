// Memory for the tasks of a grid that lasts from one of its tasks to the next: PERSISTENT_BYTES, a
// piece for each warp. The pipeline lends stages meanwhile; without a pipeline it is the begin of
// what the block has left.
#pragma once
#include "cuda/roles/worker.cuh"

namespace et {

constexpr uint32_t PERSISTENT_BYTES_PER_WARP = PERSISTENT_BYTES / (ET_THREADS / 32);

#if ET_LENDS_STAGES
static_assert(STAGE_BYTES % PERSISTENT_BYTES_PER_WARP == 0);
constexpr uint32_t BORROWED_STAGES = (PERSISTENT_BYTES + STAGE_BYTES - 1) / STAGE_BYTES;  // stages

// Around all tasks of a grid that this block runs, if any.
class BorrowedStages {
 public:
  ET_FN explicit BorrowedStages(Worker& w) : pipeline_(w.pipeline) {
    pipeline_.borrow_stages(BORROWED_STAGES);
  }
  ET_FN ~BorrowedStages() { pipeline_.return_stages(BORROWED_STAGES); }
  BorrowedStages(const BorrowedStages&) = delete;

 private:
  PipelineConsumer& pipeline_;
};
#endif

// Where the piece of this warp begins, in shared memory.
ET_FN uint32_t persistent_smem(const Worker& w) {
  const uint32_t at = threadIdx.x / 32 * PERSISTENT_BYTES_PER_WARP;
#if ET_LENDS_STAGES
  return w.pipeline.lent(BORROWED_STAGES - at / STAGE_BYTES) + at % STAGE_BYTES;
#else
  return uint32_t(__cvta_generic_to_shared(w.arena.idle())) + at;
#endif
}

}  // namespace et
