// Sums by index: the threads of a block add what they find where it belongs, in shared memory, with
// atomics. Integers wrap, so the order does not matter and the bits are those of any other target.
// Lanes that meet in one bin queue up there: a warp whose elements are all alike takes 32 turns.
#pragma once
#include "cuda/ops/tile.cuh"

namespace et {

// Elements that a thread looks at before it adds any: what they are made of is loaded together.
constexpr int LOOKED_AT = 4;

// Where the sums lie. Shared memory has additions of its own; the end of the arena does not.
class Bins {
 public:
  ET_HOT explicit Bins(int32_t* sums)
      : sums_(sums), near_(__isShared(sums)), at_(near_ ? __cvta_generic_to_shared(sums) : 0) {}
  ET_HOT void add(int64_t bin, int32_t x) const {
    if (near_) ptx::red_shared_add(at_ + uint32_t(bin) * 4, uint32_t(x));
    else accumulate_atomic(sums_[bin], x);
  }

 private:
  int32_t* sums_;
  bool near_;
  uint32_t at_;
};

// sums[r * bins + index(k)] += weight_r(k) for all k; what is no bin is left out. A barrier has to
// stand before and after.
template <class I, class... W>
ET_FN void histogram(int32_t* sums, int64_t bins, int64_t n, I index, W... weight) {
  constexpr int COUNT = sizeof...(W);
  ET_ROLLED for (int64_t b = thread_rank(); b < COUNT * bins; b += num_threads()) sums[b] = 0;
  sync();
  const Bins all(sums);
  ET_ROLLED for (int64_t first = thread_rank(); first < n; first += LOOKED_AT * num_threads()) {
    int64_t bin[LOOKED_AT];
    int32_t x[LOOKED_AT][COUNT];
#pragma unroll
    for (int j = 0; j < LOOKED_AT; ++j) {
      const int64_t mine = first + j * num_threads(), k = mine < n ? mine : first;
      const int32_t found[] = {weight(k)...};
      const int64_t at = index(k);
      bin[j] = mine < n && at >= 0 && at < bins ? at : -1;
#pragma unroll
      for (int r = 0; r < COUNT; ++r) x[j][r] = found[r];
    }
#pragma unroll
    for (int j = 0; j < LOOKED_AT; ++j)
      if (bin[j] >= 0)
#pragma unroll
        for (int r = 0; r < COUNT; ++r) all.add(r * bins + bin[j], x[j][r]);
  }
}

}  // namespace et
