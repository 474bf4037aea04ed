// Lines of x for products with many columns (walk.cuh): warps of their own, the bringers, copy them
// to places beside the ring, some ahead of those that multiply. sm_90.
//
// A line is a part of K of 16, 64 or 128 columns, as wgmma takes it: a span (256 bytes at most), or of
// 128 columns up to 128 bytes of one. The first 128 bytes of all columns lie together, then the
// others, pieces of 16 swapped (128-byte swizzle), so that neither copies nor products meet in a
// bank. Lines go up in K; columns beyond the last one are anything.
//
// Where a map says how x lies, copies bring whole boxes of it (boxes.cuh); else, and for columns that
// are gathered or lie in shared memory, the lanes of all bringers do, as is said here (ET_LANES: if
// the program has such ones).
//
// Contract:
//  * `full` of a place ends its phase when every lane of the bringers has arrived, its copies
//    landed. What they wrote belongs to the generic proxy: who has seen the phase over does a fence
//    before the tensor cores read it. `empty` ends when the warps that multiply with it have arrived
//    WARPS times, after their products are through.
//  * A job is given by one thread, after all threads may see x; or before, with the cell that tells
//    when: then the lane that asks for boxes acquires it first (it has a map). Every bringer has a
//    part in every line, so a job ends only when all of them have taken it.
#pragma once
#include "boxes.cuh"
#include "cuda/cp_async.cuh"
#include "wide.cuh"

namespace et {

class Bringer {
 public:
  ET_HOT Bringer(Ring& ring, const TensorMap* maps)
      : ring_(ring), boxes_(ring, maps), full_(shared_address(ring.lines.full)),
        empty_(shared_address(ring.lines.empty)), column_((threadIdx.x - ET_THREADS - 32) / 8),
        byte_(threadIdx.x % 8 * 16),
        place_(ring.beside() + column_ * SWIZZLE +
               (threadIdx.x % 8 ^ column_ % 8) * 16) {}

  // All jobs, until the tasks are over.
  ET_HOT void run() {
    job_.in.map = NO_MAP;
    for (uint32_t number = 0; wait(shared_address(&ring_.lines.given), number & 1); ++number) {
      job_ = ring_.lines.job;
      const uint32_t n = job_.walk.columns;
      if (!(n <= FEW_COLUMNS    ? job<FEW_COLUMNS>()
            : n <= SOME_COLUMNS ? job<SOME_COLUMNS>()
                                : job<MOST_COLUMNS>()))
        break;
    }
    if (job_.in.map == NO_MAP || !first_warp()) return;
    const uint32_t n = job_.walk.columns;
    if (n <= FEW_COLUMNS) boxes_.land<FEW_COLUMNS>();
    else if (n <= SOME_COLUMNS) boxes_.land<SOME_COLUMNS>();
    else boxes_.land<MOST_COLUMNS>();
  }

 private:
  static constexpr uint32_t SWEEP = ET_BRINGERS * 4;  // columns that all lanes copy at once

  ET_HOT static bool first_warp() { return threadIdx.x < ET_THREADS + 64; }

  // False if the tasks are over, here and below.
  ET_HOT bool wait(uint32_t bar, uint32_t parity) const { return bringer_wait(ring_, bar, parity); }

  template <uint32_t N> ET_HOT bool job() {
    if (job_.in.map != NO_MAP) {
      if (threadIdx.x % 32 == 0) bar_arrive(ring_.lines.taken);
      return !first_warp() || boxes_.bring<N>(job_);
    }
#if ET_LANES
    number_ = job_.line;
    for (uint32_t panel = 0; panel < job_.walk.panels; panel += job_.walk.round(panel))
      for (uint32_t column = 0; column < job_.walk.columns; column += MOST_COLUMNS)
        if (!pass<N>(column)) return false;
#endif
    return true;
  }

#if ET_LANES
  template <uint32_t N> ET_HOT bool pass(uint32_t column) {
    const uint32_t n = job_.walk.columns - column, left = n < N ? n : N;
    const uint64_t first = reinterpret_cast<uint64_t>(job_.x.data);
    columns_ = left > column_ ? (left - column_ + SWEEP - 1) / SWEEP : 0;
    by_copy_ = job_.x.s0 == 1 && first % 16 == 0 && !__isShared(job_.x.data);
#pragma unroll
    for (uint32_t c = 0; c < N / SWEEP; ++c) {
      const uint32_t number = column + column_ + c * SWEEP;
      begin_[c] = c < columns_ ? begin_of(job_.x, job_.begins, number) : 0;
      by_copy_ = by_copy_ && begin_[c] % 8 == 0;
    }
    const uint32_t step = line_step<N>(job_.walk.span);
    for (uint32_t k = 0; k < job_.walk.row; k += step)
      if (!line<N>(k, step)) return false;
    return true;
  }

  // A lane brings up to two pieces of each of its columns.
  template <uint32_t N> ET_HOT bool line(uint32_t k, uint32_t step) {
    const LinePlace<N> place(ring_.lines.bytes, number_++);
    const uint32_t to = place_ + place.at * Places<N>::BYTES, bar = place.bar();
    const bool first = byte_ < step, second = N <= SOME_COLUMNS && byte_ + SWIZZLE < step;
    if (!wait(empty_ + bar, place.parity ^ 1)) return false;
    if (by_copy_) {
      if (first) copy<N>(k + byte_, to);
      if (second) copy<N>(k + byte_ + SWIZZLE, to + N * SWIZZLE);
      ptx::cp_async_mbarrier_arrive(full_ + bar);
    } else {
      if (first) move<N>(k + byte_, to);
      if (second) move<N>(k + byte_ + SWIZZLE, to + N * SWIZZLE);
      bar_arrive(full_ + bar);
    }
    return true;
  }

  template <uint32_t N> ET_HOT void copy(uint32_t k, uint32_t to) const {
    const uint16_t* const from = job_.x.data + k / 2;
#pragma unroll
    for (uint32_t c = 0; c < N / SWEEP; ++c)
      if (c < columns_) ptx::cp_async_16(to + c * SWEEP * SWIZZLE, from + begin_[c]);
  }

  // By hand, where x lies in shared memory or not in pieces of 16 bytes.
  template <uint32_t N> ET_HOT void move(uint32_t k, uint32_t to) const {
    const Matrix<uint16_t> x = job_.x;
#pragma unroll
    for (uint32_t c = 0; c < N / SWEEP; ++c) {
      if (c >= columns_) continue;
      uint32_t some[4];
      const uint16_t* const from = x.data + begin_[c] + k / 2 * x.s0;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        some[j] = from[2 * j * x.s0] | uint32_t(from[(2 * j + 1) * x.s0]) << 16;
      ptx::st_shared_v4(to + c * SWEEP * SWIZZLE, some);
    }
  }
#endif

  Ring& ring_;
  Boxes boxes_;
  const uint32_t full_, empty_, column_, byte_, place_;
  LineJob job_;
  bool by_copy_ = false;
  int64_t begin_[MOST_COLUMNS / SWEEP] = {};  // of this lane's columns of the pass,
  uint32_t columns_ = 0;                      // and how many it has
  uint32_t number_ = 0;                       // of the next line
};

}  // namespace et
