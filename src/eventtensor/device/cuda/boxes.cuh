// Lines of x (lines.cuh) that are boxes of a matrix which the host has described: one lane asks for
// each of them by one or two copies, and the copies do what lanes would: swap pieces, and bring
// nothing of what lies outside. sm_90.
//
// Contract (see bulk.cuh), rule by rule:
//  * x may have been written in this launch. The thread that gives the job has seen that it is
//    there; the lane that copies has seen the job, and then does fence_global_writes.
//  * Places of lines were touched by plain loads and stores, and by copies of lanes: before a job is
//    given, each thread does fence_shared_reads, then all meet.
//  * `full` of a place has as many arrivals as where lanes copy; one lane does them all.
//  * A job is begun when all bringers have taken it: it may end without the others.
//  * Copies that were asked for land before the block ends.
#pragma once
#include "ring.cuh"

namespace et {

// False if the tasks are over.
ET_HOT bool bringer_wait(const Ring& ring, uint32_t bar, uint32_t parity) {
  while (!bar_over(bar, parity))
    if (shared_peek(ring.stop) != 0) return false;
  return true;
}

// All lanes of a warp are in step; the first one does it.
class Boxes {
 public:
  ET_HOT Boxes(Ring& ring, const TensorMap* maps)
      : ring_(ring), full_(shared_address(ring.lines.full)),
        empty_(shared_address(ring.lines.empty)), beside_(ring.beside()),
        maps_(maps) {}

  // All lines of a job. False if the tasks are over.
  template <uint32_t N> ET_HOT bool bring(const LineJob& job) {
    const TensorMap& map = maps_[2 * job.in.map + (N != FEW_COLUMNS)];
    const uint32_t taken = shared_address(&ring_.lines.taken);
    const uint32_t step = line_step<N>(job.walk.span);
    first_ = next_ = job.line;
    if (!bringer_wait(ring_, taken, jobs_++ & 1) || !reached(job)) return false;
    fence_global_writes();
    for (uint32_t panel = 0; panel < job.walk.panels; panel += job.walk.round(panel))
      for (uint32_t column = 0; column < job.walk.columns; column += MOST_COLUMNS)
        for (uint32_t k = 0; k < job.walk.row; k += step, ++next_) {
          const LinePlace<N> place = place_of<N>(next_);
          if (!bringer_wait(ring_, empty_ + place.bar(), place.parity ^ 1)) return false;
          if (threadIdx.x % 32 == 0)
            line<N>(place, map, job.in.first + k / 2, job.in.row + column, step);
        }
    return true;
  }

  // Until all of the last job have landed, if nobody waits for them any more.
  template <uint32_t N> ET_HOT void land() const {
    const uint32_t count = ring_.lines.bytes / Places<N>::BYTES;
    const uint32_t open = next_ - first_ < count ? next_ - first_ : count;
    for (uint32_t number = next_ - open; number != next_; ++number)
      while (!bar_over(full_ + place_of<N>(number).bar(), place_of<N>(number).parity)) {}
  }

 private:
  // Until x is there: by the lane that asks for it, so that it need not be told. False if the tasks
  // are over.
  ET_HOT bool reached(const LineJob& job) const {
    bool there = job.target == 0;
    while (!there && shared_peek(ring_.stop) == 0)
      there = threadIdx.x % 32 != 0 || ev_reached(*job.cell, job.target);
    __syncwarp();
    return __shfl_sync(~0u, there, 0);
  }

  template <uint32_t N> ET_HOT LinePlace<N> place_of(uint32_t number) const {
    return {ring_.lines.bytes, number};
  }

  // So many bytes of K from element x of row y on: boxes of up to SOME_COLUMNS columns.
  template <uint32_t N>
  ET_HOT void line(LinePlace<N> place, const TensorMap& map, uint32_t x, uint32_t y, uint32_t k) {
    constexpr uint32_t EACH = N < SOME_COLUMNS ? N : SOME_COLUMNS;
    const uint32_t bar = full_ + place.bar(), to = beside_ + place.at * Places<N>::BYTES;
    const uint32_t halves = k > SWIZZLE ? 2 : 1;
    bar_arrive(bar, ET_BRINGERS * 32 - 1);
    bar_expect(bar, halves * N * SWIZZLE);
    for (uint32_t b = 0; b < halves; ++b)
      for (uint32_t c = 0; c < N; c += EACH)
        box_copy(to + (b * N + c) * SWIZZLE, map, x + b * SWIZZLE / 2, y + c, bar);
  }

  Ring& ring_;
  const uint32_t full_, empty_, beside_;
  const TensorMap* const maps_;
  uint32_t jobs_ = 0;
  uint32_t first_ = 0, next_ = 0;  // lines of the last job, and the next one
};

}  // namespace et
