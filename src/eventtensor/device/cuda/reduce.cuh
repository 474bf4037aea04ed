// Reductions by half a warp an element. A sum has sixteen lanes and a halving tree (numerics.h):
// here each lane is a thread and the tree is shuffles, so the bits are the same. What has no order
// but a winner (max, min, argmax) keeps the index, and the lowest one wins among equals.
// The result is right in the first thread of the half; `from_first` gives it to all of them.
#pragma once
#include "tile.cuh"

namespace et {

ET_FN int half_lane() { return threadIdx.x % LANES; }
ET_FN bool half_leads() { return half_lane() == 0; }
ET_FN unsigned half_mask() { return 0xffffu << (threadIdx.x & LANES); }

template <class T> ET_FN T from_above(T x, int by) {
  return __shfl_down_sync(half_mask(), x, by, LANES);
}
ET_FN bool from_above(bool x, int by) { return from_above(int32_t(x), by) != 0; }

template <class T> ET_FN T from_first(T x) { return __shfl_sync(half_mask(), x, 0, LANES); }
ET_FN bool from_first(bool x) { return from_first(int32_t(x)) != 0; }

// sum of at(0) .. at(n-1)
template <class T, class F> ET_FN T half_sum(int64_t n, F at) {
  T sum = 0;
#pragma unroll 4
  for (int64_t k = half_lane(); k < n; k += LANES) sum = sum + T(at(k));
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) sum = sum + from_above(sum, by);
  return sum;
}

template <class T> struct Found { T value; int32_t index; };  // index -1: nothing yet

template <class T, class Better> ET_FN Found<T> winner(Found<T> a, Found<T> b, Better better) {
  if (b.index < 0) return a;
  if (a.index < 0 || better(b.value, a.value)) return b;
  return !better(a.value, b.value) && b.index < a.index ? b : a;
}

// The first of those that no other is better than.
template <class T, class F, class Better>
ET_FN Found<T> half_best(int64_t n, F at, Better better) {
  Found<T> best{T(0), -1};
#pragma unroll 2
  for (int64_t k = half_lane(); k < n; k += LANES) {
    const T x = at(k);
    if (best.index < 0 || better(x, best.value)) best = {x, int32_t(k)};
  }
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) {
    const Found<T> other{from_above(best.value, by), from_above(best.index, by)};
    best = winner(best, other, better);
  }
  return best;
}

// NaN beats everything in max and min, and nothing but NaN in argmax.
template <class T, class F> ET_FN T half_max(int64_t n, F at) {
  const Found<T> best = half_best<T>(n, at, [](T x, T y) { return y == y && !(y >= x); });
  return best.index < 0 ? lowest<T>() : best.value;
}
template <class T, class F> ET_FN T half_min(int64_t n, F at) {
  const Found<T> best = half_best<T>(n, at, [](T x, T y) { return y == y && !(y <= x); });
  return best.index < 0 ? highest<T>() : best.value;
}
template <class T, class F> ET_FN int32_t half_arg_max(int64_t n, F at) {
  const int32_t index = half_best<T>(n, at, [](T x, T y) { return before<T>(x, y); }).index;
  return index < 0 ? 0 : index;
}

}  // namespace et
