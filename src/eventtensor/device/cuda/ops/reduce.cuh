// Reductions by half a warp an element. A sum has sixteen lanes and a halving tree (numerics.h):
// here each lane is a thread and the tree is shuffles, so the bits are the same. What has no order
// but a winner (max, min, argmax) keeps the index, and the lowest one wins among equals.
// The result is right in the first thread of the half; `from_first` gives it to all of them. Both
// halves of a warp come here together: a shuffle among those of whom a compiler does not know it
// takes a page of instructions.
#pragma once
#include "cuda/ops/tile.cuh"

namespace et {

ET_FN int half_lane() { return threadIdx.x % LANES; }

template <class T> ET_FN T from_above(T x, int by) {
  return __shfl_down_sync(~0u, x, by, LANES);
}
ET_FN bool from_above(bool x, int by) { return from_above(int32_t(x), by) != 0; }

template <class T> ET_FN T from_first(T x) { return __shfl_sync(~0u, x, 0, LANES); }
ET_FN bool from_first(bool x) { return from_first(int32_t(x)) != 0; }

// The halving tree over the lanes.
template <class T> ET_HOT T half_tree(T sum) {
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) sum = sum + from_above(sum, by);
  return sum;
}

// sum of at(0) .. at(n-1)
template <class T, class F> ET_FN T half_sum(int64_t n, F at) {
  T sum = 0;
#pragma unroll 8
  for (int64_t k = half_lane(); k < n; k += LANES) sum = sum + T(at(k));
  return half_tree(sum);
}

template <class T> struct Found { T value; int32_t index; };  // index -1: nothing yet

// What makes x better than y. NaN beats everything in max and min, and nothing but NaN in argmax.
template <class T> struct Larger {
  static ET_FN bool better(T x, T y) { return y == y && !(y >= x); }
};
template <class T> struct Smaller {
  static ET_FN bool better(T x, T y) { return y == y && !(y <= x); }
};
template <class T> struct Earlier {
  static ET_FN bool better(T x, T y) { return before<T>(x, y); }
};

template <class Order, class T> ET_FN Found<T> winner(Found<T> a, Found<T> b) {
  if (b.index < 0) return a;
  if (a.index < 0 || Order::better(b.value, a.value)) return b;
  return !Order::better(a.value, b.value) && b.index < a.index ? b : a;
}

// The best of all lanes.
template <class Order, class T> ET_HOT Found<T> half_winner(Found<T> best) {
  ET_ROLLED for (int by = LANES / 2; by > 0; by /= 2) {
    const Found<T> other{from_above(best.value, by), from_above(best.index, by)};
    best = winner<Order>(best, other);
  }
  return best;
}

// The first of those that no other is better than.
template <class Order, class T, class F> ET_FN Found<T> half_best(int64_t n, F at) {
  Found<T> best{T(0), -1};
  if (half_lane() < n) best = {at(half_lane()), half_lane()};
#pragma unroll 2  // what is compared may be long
  for (int64_t k = half_lane() + LANES; k < n; k += LANES) {
    const T x = at(k);
    if (Order::better(x, best.value)) best = {x, int32_t(k)};
  }
  return half_winner<Order>(best);
}

template <class T, class F> ET_FN T half_max(int64_t n, F at) {
  const Found<T> best = half_best<Larger<T>, T>(n, at);
  return best.index < 0 ? lowest<T>() : best.value;
}
template <class T, class F> ET_FN T half_min(int64_t n, F at) {
  const Found<T> best = half_best<Smaller<T>, T>(n, at);
  return best.index < 0 ? highest<T>() : best.value;
}

// Numbers in the order of `before`: the same for zeros, the least for NaN.
ET_HOT uint32_t ordered(float x) {
  const uint32_t bits = float_bits(x + 0.0f);
  return x != x ? 0 : bits >> 31 != 0 ? ~bits : bits | 1u << 31;
}
// The same where 0 stands for no number.
ET_HOT uint32_t place_of(float x) { return x == x ? ordered(x) : 1u; }

// The first of the largest floats, without a branch: a thread takes its own one after the other.
class Largest {
 public:
  ET_HOT void take(float x, int32_t k) {  // if it is `before` the best, in two comparisons
    const bool wins = !(x <= best_) && x == x;
    best_ = wins ? x : best_;
    index_ = wins ? k : index_;
  }
  ET_HOT int32_t of_half() const {
    uint32_t best = ordered(best_);
    int32_t index = index_;
#pragma unroll
    for (int by = LANES / 2; by > 0; by /= 2) {
      const uint32_t x = from_above(best, by);
      const int32_t k = from_above(index, by);
      const bool wins = x > best || (x == best && k < index);
      best = wins ? x : best;
      index = wins ? k : index;
    }
    return index == INT32_MAX ? 0 : index;
  }

 private:
  float best_ = NAN;
  int32_t index_ = INT32_MAX;  // nothing yet
};

template <class T, class F> ET_FN int32_t half_arg_max(int64_t n, F at) {
  if constexpr (std::is_same_v<T, float>) {
    Largest found;
    const int32_t mine = half_lane(), whole = int32_t(n) / LANES * LANES;
#pragma unroll 8
    for (int32_t k = mine; k < whole + mine; k += LANES) found.take(at(k), k);
    if (whole + mine < n) found.take(at(whole + mine), whole + mine);
    return found.of_half();
  } else {
    const int32_t index = half_best<Earlier<T>, T>(n, at).index;
    return index < 0 ? 0 : index;
  }
}

}  // namespace et
