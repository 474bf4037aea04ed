// What the producer has beside the pipeline: hints to the L2, and tables that its lanes keep.
#pragma once
#include "cuda/mma/gemm_wide.cuh"

namespace et {

// Weights that are certain while run-time data is not: asked for as far as the L2, a page whenever
// the producer looks for its cell in vain. So few are in flight that hops stay quick.
class Hints {
 public:
#if ET_HINTS
  // The first, or with K = 1 what comes behind it.
  template <uint32_t K>
  ET_HOT void set(const void* data, int64_t bytes, int64_t skipped, uint32_t most) {
    const char* const from = static_cast<const char*>(data);
    (K == 0 ? next_ : then_) = from + skipped;
    (K == 0 ? end_ : last_) = from + bytes;
    if (K == 0) then_ = last_ = nullptr;
    pages_ = most / STAGE_BYTES;
  }
  ET_HOT void ask(int64_t blocks) {
    if (next_ >= end_) next_ = then_, end_ = last_, then_ = last_;
    if (pages_ == 0 || next_ >= end_) return;
    bulk_prefetch(next_, end_ - next_ < STAGE_BYTES ? uint32_t(end_ - next_) : STAGE_BYTES);
    next_ += blocks * STAGE_BYTES;
    --pages_;
  }

 private:
  const char *next_ = nullptr, *end_ = nullptr, *then_ = nullptr, *last_ = nullptr;
  uint32_t pages_ = 0;
#else
  ET_HOT void ask(int64_t) {}
#endif
};

// N numbers that say where operands of a grid's tiles lie, read once and kept by the lanes of the
// producer: a trip to the L2 for each tile would leave the memory idle.
template <class T, uint32_t N> class LaneTable {
 public:
  using Kept = std::conditional_t<(sizeof(T) < 4), int32_t, T>;
  LaneTable() = default;
  ET_HOT explicit LaneTable(const T* from) {
#pragma unroll
    for (uint32_t j = 0; j < EACH; ++j) {
      const uint32_t at = j * 32 + threadIdx.x % 32;
      own_[j] = at < N ? Kept(from[at]) : Kept(0);
    }
  }
  // Number k is number(k), for all that a lane keeps; true if each of these is there.
  template <class F> ET_HOT bool take(const F& number) {
    bool there = true;
#pragma unroll
    for (uint32_t j = 0; j < EACH; ++j) {
      const uint32_t at = j * 32 + threadIdx.x % 32;
      if (at < N) there = number(at, own_[j]) && there;
    }
    return there;
  }
  // By all lanes, for the same index.
  ET_HOT int64_t operator[](int64_t index) const {
    const uint32_t at = uint32_t(index);
    Kept mine = own_[0];
#pragma unroll
    for (uint32_t j = 1; j < EACH; ++j) mine = ptx::either(at / 32 == j, own_[j], mine);
    return __shfl_sync(~0u, mine, int(at % 32));
  }

 private:
  static constexpr uint32_t EACH = (N + 31) / 32;
  Kept own_[EACH] = {};
};

}  // namespace et
