// Operands that a bulk copy brings into shared memory (hand-off `bulk`). sm_90 and later.
//
// Contract (see bulk.cuh), rule by rule:
//  * The operand was written in this launch. The leading thread has acquired the counters of its
//    writers (ev_wait), or its block has met since their tasks ran on it; then it does
//    fence_global_writes, so that its copies, of the async proxy, follow those generic writes.
//  * The copy lands in the arena, which earlier tasks touched with plain loads and stores. A task
//    that copies begins with fence_shared_reads in every thread, then they meet (the generated code
//    says so: a wait ends at a barrier), and the copy follows that barrier.
//  * One barrier (mbarrier) a block, one arrival a phase. Every thread waits for every phase, and
//    they meet before the next begins, so nobody is more than one phase behind.
//  * The wait has no limit of its own: a copy that was issued ends, and its phase with it.
#pragma once
#include "cuda/memory/bulk.cuh"
#include "cuda/ops/tile.cuh"

namespace et {

class BulkOperandLoader {
 public:
  // By all threads, once a launch, before the first task; they meet afterwards.
  ET_HOT void begin() {
    if (!is_leader()) return;
    bar_init(bar(), 1);
    bar_init_done();
  }

  // `count` elements at `from`, in shared memory where `room` is there (of the arena, taken for
  // them), else where they are or, if the task may write them (`own`), as a plain copy. Address and
  // bytes are multiples of 16.
  template <class T> ET_HOT const T* bring(T* room, const T* from, int64_t count, bool own) {
    if (count <= 0) return room;
    if (__isShared(room)) {
      if (is_leader()) {
        fence_global_writes();
        bar_expect(bar(), uint32_t(count * sizeof(T)));
        bulk_copy(room, from, uint32_t(count * sizeof(T)), bar());
      }
      while (!bar_over(bar(), phase_)) {}
      phase_ ^= 1;
    } else if (own) {
      for (int64_t k = thread_rank(); k < count; k += num_threads()) room[k] = from[k];
    } else {
      return from;
    }
    sync();
    return room;
  }

 private:
  ET_HOT static Barrier& bar() {
    __shared__ Barrier bar;
    return bar;
  }

  uint32_t phase_ = 0;
};

}  // namespace et
