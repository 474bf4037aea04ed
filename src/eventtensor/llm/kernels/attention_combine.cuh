// Combines the splits of a sequence (split-KV attention) by the threads of a block: the hand-tuned
// body of `combine` in llm/model/attention.py, whose Python body defines the result.
#pragma once
#include "attention_prologue.cuh"

namespace et::attention {

constexpr float MASKED_SCORE = -1e30f;  // of a token beyond the end

// The attention of a head over some tokens: the largest score, the sum of weights and the weighted
// values. Items of a sequence are added in order; the first one is taken unchanged.
template <int N> struct SplitSums {
  float best = MASKED_SCORE, total = 0.0f, value[N] = {};

  ET_HOT void add(float row_max, float weight, const float (&x)[N]) {
    const float less = std::exp(-std::fabs(best - row_max));
    const float old = row_max > best ? less : 1.0f, scale = row_max > best ? 1.0f : less;
    best = max(best, row_max);
    total = std::fma(weight, scale, total * old);
#pragma unroll
    for (int k = 0; k < N; ++k) value[k] = std::fma(x[k], scale, value[k] * old);
  }
};

// Adds `count` splits from `values` and `row_maxes` on. Loads of LOADS_IN_FLIGHT splits are in
// flight together.
template <int EACH>
ET_HOT void add_splits(SplitSums<EACH>& sums, const float* values, int64_t value_pitch,
                       const float* row_maxes, int64_t max_pitch, int64_t weight_at, int count) {
  constexpr int LOADS_IN_FLIGHT = EACH < 4 ? 16 : 32 / EACH;
  ET_ROLLED for (int base = 0; base < count; base += LOADS_IN_FLIGHT) {
    Floats<EACH> value[LOADS_IN_FLIGHT] = {};  // else live for the whole kernel
    float row_max[LOADS_IN_FLIGHT] = {}, weight[LOADS_IN_FLIGHT] = {};
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      if (base + k >= count) break;
      value[k] = *reinterpret_cast<const Floats<EACH>*>(values + (base + k) * value_pitch);
      row_max[k] = row_maxes[(base + k) * max_pitch];
      weight[k] = row_maxes[(base + k) * max_pitch + weight_at];
    }
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      if (base + k >= count) break;
      sums.add(row_max[k], weight[k], value[k].at);
    }
  }
}

// A thread has elements of one query head; KV: KV heads.
template <int KV, int GROUP, int HD, class T>
ET_FN void combine(View<const float, 4> part, View<const float, 4> ml, View<T, 1> out) {
  constexpr int ALL = KV * GROUP * HD;
  constexpr int MOST = ALL / ET_THREADS, EACH = MOST >= 8 ? 8 : MOST >= 4 ? 4 : MOST >= 2 ? 2 : 1;
  const Thread me;
  ET_ROLLED for (int e = EACH * me.number; e < ALL; e += EACH * ET_THREADS) {
    const float* const row_maxes = ml.data + e / (GROUP * HD) * ml.stride[1] + e / HD % GROUP;
    SplitSums<EACH> row;
    add_splits(row, part.data + e, part.stride[0], row_maxes, ml.stride[0], ml.stride[2],
              int(part.extent[0]));
    const float by = 1.0f / row.total;
#pragma unroll
    for (int n = 0; n < EACH; ++n) out.data[e + n] = cast<T>(row.value[n] * by);
  }
}

}  // namespace et::attention
