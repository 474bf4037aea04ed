// Activation tiles for products with many columns (gemm_traversal.cuh): warps of their own, the
// activation producers, copy them to stages beside the pipeline, some ahead of the warps that
// multiply. sm_90.
//
// An activation tile (a `line` in the code) is a part of K of 16, 64 or 128 columns, as wgmma takes
// it: a span (256 bytes at most), or of 128 columns up to 128 bytes of one. The first 128 bytes of
// all columns lie together, then the others, pieces of 16 swapped (128-byte swizzle), so that
// neither copies nor products conflict in a bank. Tiles go up in K; columns beyond the last one
// hold anything.
//
// Where a tensor map describes x, TMA copies whole boxes of it (tma_activation.cuh). Columns that
// are gathered or lie in shared memory have no map: the lanes of all activation producers copy
// them, as described here (ET_COPIES_BY_LANES: the program has such columns).
//
// Contract:
//  * `full` of a stage ends its phase when every lane of the activation producers has arrived, its
//    copies landed. What they wrote belongs to the generic proxy: whoever has seen the phase over
//    does a fence before the tensor cores read it. `empty` ends when the warps that multiply with
//    the tile have arrived WARPS times, after their products have completed.
//  * A job is given by one thread, once all threads may see x; or earlier, with the cell that tells
//    when: then the lane that issues the TMA copies acquires it first (the job has a map). Every
//    activation producer has a part in every tile, so a job ends only when all of them have taken it.
#pragma once
#include "cuda/memory/tma_activation.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/mma/gemm_wide.cuh"

namespace et {

class ActivationProducer {
 public:
  ET_HOT ActivationProducer(SmemPipeline& pipeline, const TensorMap* maps)
      : pipeline_(pipeline), tma_(pipeline, maps), full_(shared_address(pipeline.lines.full)),
        empty_(shared_address(pipeline.lines.empty)), column_((threadIdx.x - ET_THREADS - 32) / 8),
        byte_(threadIdx.x % 8 * 16),
        place_(pipeline.beside() + column_ * SWIZZLE + (threadIdx.x % 8 ^ column_ % 8) * 16) {}

  // All jobs, until the tasks are over.
  ET_HOT void run() {
    job_.in.map = NO_MAP;
    for (uint32_t number = 0; wait(shared_address(&pipeline_.lines.given), number & 1); ++number) {
      job_ = pipeline_.lines.job;
      const uint32_t n = job_.walk.columns;
      if (!(n <= N16 ? job<N16>() : n <= N64 ? job<N64>() : job<N128>())) break;
    }
    if (job_.in.map == NO_MAP || !first_warp()) return;
    const uint32_t n = job_.walk.columns;
    if (n <= N16) tma_.land<N16>();
    else if (n <= N64) tma_.land<N64>();
    else tma_.land<N128>();
  }

 private:
  static constexpr uint32_t SWEEP = ET_ACTIVATION_WARPS * 4;  // columns that all lanes copy at once

  ET_HOT static bool first_warp() { return threadIdx.x < ET_THREADS + 64; }

  // False if the tasks are over, here and below.
  ET_HOT bool wait(uint32_t bar, uint32_t parity) const {
    return wait_activation(pipeline_, bar, parity);
  }

  template <uint32_t N> ET_HOT bool job() {
    if (job_.in.map != NO_MAP) {
      if (threadIdx.x % 32 == 0) bar_arrive(pipeline_.lines.taken);
      return !first_warp() || tma_.bring<N>(job_);
    }
#if ET_COPIES_BY_LANES
    number_ = job_.line;
    for (uint32_t panel = 0; panel < job_.walk.panels; panel += job_.walk.round(panel))
      for (uint32_t column = 0; column < job_.walk.columns; column += N128)
        if (!pass<N>(column)) return false;
#endif
    return true;
  }

#if ET_COPIES_BY_LANES
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
    const uint32_t step = activation_tile_k<N>(job_.walk.span);
    for (uint32_t k = 0; k < job_.walk.row; k += step)
      if (!line<N>(k, step)) return false;
    return true;
  }

  // A lane brings up to two pieces of each of its columns.
  template <uint32_t N> ET_HOT bool line(uint32_t k, uint32_t step) {
    const ActivationStage<N> place(pipeline_.lines.bytes, number_++);
    const uint32_t to = place_ + place.at * ActivationStages<N>::BYTES, bar = place.bar();
    const bool first = byte_ < step, second = N <= N64 && byte_ + SWIZZLE < step;
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

  SmemPipeline& pipeline_;
  TmaLoader tma_;
  const uint32_t full_, empty_, column_, byte_, place_;
  ActivationJob job_;
  bool by_copy_ = false;
  int64_t begin_[N128 / SWEEP] = {};          // of this lane's columns of the pass,
  uint32_t columns_ = 0;                      // and how many it has
  uint32_t number_ = 0;                       // of the next tile
};

}  // namespace et
