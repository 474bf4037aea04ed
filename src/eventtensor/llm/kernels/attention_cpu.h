// Attention over a paged KV cache for one thread of a CPU: the hand-tuned body of `attend` in
// llm/model/attention.py, whose Python body defines the result. It reads keys and values in place, and
// only those of existing tokens.
#pragma once
#include "gathered.h"
#include "lanes.h"

namespace et::attention {

// Sums the lanes in a halving tree, four lanes at a time.
inline float sum_lanes(const float (&lane)[LANES]) {
  typedef float Four __attribute__((vector_size(16)));
  Four part[LANES / 4];
  std::memcpy(part, lane, sizeof part);
  const Four sum = (part[0] + part[2]) + (part[1] + part[3]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

// Computes the scores of one token.
template <int GROUP, int HD>
inline void score_token(float* score, int64_t pitch, const float* query, const float* key) {
  for (int h = 0; h < GROUP; ++h) {
    float lane[LANES] = {};
    for (int k = 0; k < HD; k += LANES)
ET_UNROLL_16
      for (int l = 0; l < LANES; ++l)
        lane[l] = std::fma(query[h * HD + k + l], key[k + l], lane[l]);
    score[h * pitch] = sum_lanes(lane);
  }
}

// Turns scores into weights; returns the largest score and the sum of the weights.
template <class T>
inline void softmax_weights(float* score, int count, float& row_max, float& sum) {
  float best = score[0];
  for (int t = 1; t < count; ++t) best = max(best, score[t]);
  for (int t = 0; t < count; ++t) score[t] = et::exp(score[t] - best);
  row_max = best;
  sum = lane_sum<float>(count, [&](int64_t t) { return score[t]; });
  for (int t = 0; t < count; ++t) score[t] = value(cast<T>(score[t]));
}

// `left` tokens of the pages count, at least one. Elements of a row are neighbours.
template <int GROUP, int HD, int PAGES, int PAGE, class T>
inline void attend(const View<const T, 2>& q, int32_t left, const Gathered<const T, 4>& kv,
                   const View<float, 2>& out, const View<float, 2>& ml) {
  static_assert(HD % LANES == 0);
  constexpr int TOKENS = PAGES * PAGE;
  const int count = min<int>(left, TOKENS);
  alignas(64) float query[GROUP * HD], key[HD], weight[GROUP * TOKENS];
  for (int h = 0; h < GROUP; ++h)
    for (int k = 0; k < HD; ++k) query[h * HD + k] = value(q.data[h * q.stride[0] + k]);
  const auto token = [&](int t) {
    return kv.data + kv.rows[0][t / PAGE] + int64_t(t % PAGE) * kv.stride[2];
  };
  for (int t = 0; t < count; ++t) {
    for (int k = 0; k < HD; k += LANES) Lanes<float>::load(token(t) + k).store(key + k);
    score_token<GROUP, HD>(weight + t, TOKENS, query, key);
  }
  for (int h = 0; h < GROUP; ++h)
    softmax_weights<T>(weight + h * TOKENS, count, ml.data[h], ml.data[ml.stride[0] + h]);
  for (int k = 0; k < HD; k += LANES) {
    Lanes<float> sum[GROUP];
    for (int h = 0; h < GROUP; ++h) sum[h] = Lanes<float>::zero();
    for (int t = 0; t < count; ++t) {
      const Lanes<float> v = Lanes<float>::load(token(t) + kv.stride[1] + k);
#pragma GCC unroll 8
      for (int h = 0; h < GROUP; ++h) sum[h].add(weight[h * TOKENS + t], v);
    }
    for (int h = 0; h < GROUP; ++h) sum[h].store(out.data + h * out.stride[0] + k);
  }
}

}  // namespace et::attention
