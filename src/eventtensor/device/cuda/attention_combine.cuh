// Parts of a row of attention, added by the threads of a block: the hand-tuned body of `combine` in
// models/attention.py, whose Python body is the meaning.
#pragma once
#include "attention_prologue.cuh"

namespace et::attention {

constexpr float LOW = -1e30f;  // the score of what is not there

// What some tokens of a row give for a head: the largest score, and beside it the sum of weights
// and weighted values. The items of a row are added in order; the first is taken as it is.
template <int N> struct Sums {
  float best = LOW, total = 0.0f, value[N] = {};

  ET_HOT void add(float top, float weight, const float (&x)[N]) {
    const float less = std::exp(-std::fabs(best - top));
    const float old = top > best ? less : 1.0f, scale = top > best ? 1.0f : less;
    best = max(best, top);
    total = std::fma(weight, scale, total * old);
#pragma unroll
    for (int k = 0; k < N; ++k) value[k] = std::fma(x[k], scale, value[k] * old);
  }
};

// Adds parts, from `values` and `tops` on. The loads of some are on their way together.
template <int EACH>
ET_HOT void add_parts(Sums<EACH>& sums, const float* values, int64_t value_pitch, const float* tops,
                      int64_t top_pitch, int64_t weight_at, int count) {
  constexpr int FLIGHT = EACH < 4 ? 16 : 32 / EACH;
  ET_ROLLED for (int base = 0; base < count; base += FLIGHT) {
    Floats<EACH> value[FLIGHT] = {};  // what has no value would be kept for the whole kernel
    float top[FLIGHT] = {}, weight[FLIGHT] = {};
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) {
      if (base + k >= count) break;
      value[k] = *reinterpret_cast<const Floats<EACH>*>(values + (base + k) * value_pitch);
      top[k] = tops[(base + k) * top_pitch];
      weight[k] = tops[(base + k) * top_pitch + weight_at];
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) {
      if (base + k >= count) break;
      sums.add(top[k], weight[k], value[k].at);
    }
  }
}

// A thread has elements of one head of queries; KV: heads of keys.
template <int KV, int GROUP, int HD, class T>
ET_FN void combine(View<const float, 4> part, View<const float, 4> ml, View<T, 1> out) {
  constexpr int ALL = KV * GROUP * HD;
  constexpr int MOST = ALL / ET_THREADS, EACH = MOST >= 8 ? 8 : MOST >= 4 ? 4 : MOST >= 2 ? 2 : 1;
  const Thread me;
  ET_ROLLED for (int e = EACH * me.number; e < ALL; e += EACH * ET_THREADS) {
    const float* const tops = ml.data + e / (GROUP * HD) * ml.stride[1] + e / HD % GROUP;
    Sums<EACH> row;
    add_parts(row, part.data + e, part.stride[0], tops, ml.stride[0], ml.stride[2],
              int(part.extent[0]));
    const float by = 1.0f / row.total;
#pragma unroll
    for (int n = 0; n < EACH; ++n) out.data[e + n] = cast<T>(row.value[n] * by);
  }
}

}  // namespace et::attention
