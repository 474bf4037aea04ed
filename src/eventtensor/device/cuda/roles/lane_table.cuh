// Tables of run-time data that the lanes of the producer warp keep.
#pragma once
#include "cuda/sync/sync.cuh"

namespace et {

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
