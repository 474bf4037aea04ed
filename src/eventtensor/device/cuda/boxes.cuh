// Lines of x (lines.cuh) that are boxes of a matrix which the host has described: one lane asks for
// each of them by two copies, and the copies do what lanes would: swap pieces, and bring nothing of
// what lies outside. sm_90.
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

constexpr uint32_t SWIZZLE = 128;  // bytes of a column that lie together

// False if the tasks are over.
ET_HOT bool bringer_wait(const Ring& ring, uint32_t bar, uint32_t parity) {
  while (!bar_over(bar, parity))
    if (shared_peek(ring.stop) != 0) return false;
  return true;
}

// All lanes of a warp are in step; the first one does it.
class Boxes {
 public:
  ET_HOT Boxes(Ring& ring, char* bytes, const TensorMap* maps)
      : ring_(ring), full_(shared_address(ring.lines.full)),
        empty_(shared_address(ring.lines.empty)), beside_(beside_ring(shared_address(bytes))),
        maps_(maps) {}

  // All lines of a job. False if the tasks are over.
  template <uint32_t N> ET_HOT bool bring(const LineJob& job) {
    const TensorMap& map = maps_[2 * job.in.map + (N != FEW_COLUMNS)];
    const uint32_t taken = shared_address(&ring_.lines.taken);
    first_ = next_ = job.line;
    if (!bringer_wait(ring_, taken, jobs_++ & 1)) return false;
    fence_global_writes();
    for (uint32_t panel = 0; panel < job.walk.panels; panel += job.walk.round(panel))
      for (uint32_t column = 0; column < job.n; column += MOST_COLUMNS)
        for (uint32_t k = 0; k < job.walk.row; k += job.walk.span, ++next_) {
          const Place place = place_of<N>(next_);
          if (!bringer_wait(ring_, empty_ + place.bar, place.parity ^ 1)) return false;
          if (threadIdx.x % 32 == 0)
            line<N>(place, map, job.in.first + k / 2, job.in.row + column,
                    job.walk.span > SWIZZLE ? 2 : 1);
        }
    return true;
  }

  // Until all of the last job have landed, if nobody waits for them any more.
  template <uint32_t N> ET_HOT void land() const {
    const uint32_t open = next_ - first_ < Places<N>::COUNT ? next_ - first_ : Places<N>::COUNT;
    for (uint32_t number = next_ - open; number != next_; ++number)
      while (!bar_over(full_ + place_of<N>(number).bar, place_of<N>(number).parity)) {}
  }

 private:
  struct Place { uint32_t at, bar, parity; };
  template <uint32_t N> ET_HOT static Place place_of(uint32_t number) {
    const uint32_t at = number % Places<N>::COUNT;
    return {at, (Places<N>::FIRST + at) * 8, number / Places<N>::COUNT & 1};
  }

  // From element x of row y on.
  template <uint32_t N>
  ET_HOT void line(Place place, const TensorMap& map, uint32_t x, uint32_t y, uint32_t boxes) {
    const uint32_t bar = full_ + place.bar, to = beside_ + place.at * Places<N>::BYTES;
    bar_arrive(bar, ET_BRINGERS * 32 - 1);
    bar_expect(bar, boxes * N * SWIZZLE);
    for (uint32_t b = 0; b < boxes; ++b)
      box_copy(to + b * N * SWIZZLE, map, x + b * SWIZZLE / 2, y, bar);
  }

  Ring& ring_;
  const uint32_t full_, empty_, beside_;
  const TensorMap* const maps_;
  uint32_t jobs_ = 0;
  uint32_t first_ = 0, next_ = 0;  // lines of the last job, and the next one
};

}  // namespace et
