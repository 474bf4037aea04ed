// Memory for the tasks of a grid that lasts from one of its tasks to the next: IDLE bytes, a piece
// for each warp. The ring lends pages meanwhile; without a stream it is the begin of what the block
// has left.
#pragma once
#include "worker.cuh"

namespace et {

constexpr uint32_t IDLE_WARP = IDLE / (ET_THREADS / 32);

#if ET_LENDS
static_assert(PAGE % IDLE_WARP == 0);
constexpr uint32_t LENT = (IDLE + PAGE - 1) / PAGE;  // pages

// Around all tasks of a grid that this block runs, if any.
class Lent {
 public:
  ET_FN explicit Lent(Worker& w) : pages_(w.pages) { pages_.borrow(LENT); }
  ET_FN ~Lent() { pages_.give_back_lent(LENT); }
  Lent(const Lent&) = delete;

 private:
  Pages& pages_;
};
#endif

// Where the piece of this warp begins, in shared memory.
ET_FN uint32_t idle_memory(const Worker& w) {
  const uint32_t at = threadIdx.x / 32 * IDLE_WARP;
#if ET_LENDS
  return w.pages.lent(LENT - at / PAGE) + at % PAGE;
#else
  return uint32_t(__cvta_generic_to_shared(w.arena.idle())) + at;
#endif
}

}  // namespace et
