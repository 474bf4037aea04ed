// Attention before its first product, for the threads of a block: hand-tuned bodies of `plan` (the
// work items) and of RoPE in llm/model/attention.py, whose Python bodies define the result.
//
// GROUP: query heads of one KV head; HD: the width of a head, a multiple of 16.
#pragma once
#include "cuda/ops/reduce.cuh"

namespace et::attention {

constexpr int WARPS = ET_THREADS / WARP;

// A thread in the layout of mma.cuh. Each task reads the number anew, because compilers would
// otherwise keep what they derive from it in registers for the whole kernel.
struct Thread {
  int number, lane, warp, g, c;
  ET_HOT Thread() : number(threadIdx.x) {
    asm volatile("" : "+r"(number));
    lane = unsigned(number) % WARP;
    warp = unsigned(number) / WARP;
    g = unsigned(lane) / 4;
    c = lane & 3;
  }
};

// The value of the lane whose number differs in the bits of `by`.
ET_HOT float shuffle_xor(float x, int by, Thread me) { return __shfl_sync(~0u, x, me.lane ^ by); }

// ---- plan: the work items of all tokens ---------------------------------------------------------

// The splits of an item: the smallest power of two below SPAN with which all tokens together have
// at most FILL items, else SPAN. Each warp computes it for itself.
template <int SPAN, int FILL>
ET_FN int span_of(View<const int32_t, 1> position, int split, int lane) {
  constexpr int SMALLER = FILL == 0 || SPAN == 1 ? 0 : SPAN == 2 ? 1 : SPAN <= 4 ? 2 : 3;
  static_assert(SPAN <= 8);
  int items[SMALLER + 1] = {};
  ET_ROLLED for (int t = lane; SMALLER > 0 && t < position.extent[0]; t += WARP) {
    const int splits = position.data[t] / split + 1;
#pragma unroll
    for (int k = 0; k < SMALLER; ++k) items[k] += max(1, splits >> k);
  }
  int span = SPAN;
#pragma unroll
  for (int k = SMALLER - 1; k >= 0; --k) {
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) items[k] += __shfl_sync(~0u, items[k], lane ^ by);
    if (items[k] <= FILL) span = 1 << k;
  }
  return span;
}

// One warp writes `first`: first[t] .. first[t + 1] are the items of token t, of `span` splits
// each. The last item of a token also has the remaining splits.
ET_FN void item_bounds(View<const int32_t, 1> position, View<int32_t, 1> first, int split, int span,
                       int lane) {
  const int rows = int(position.extent[0]);
  int before = 0;
  if (lane == 0) first.data[0] = 0;
  ET_ROLLED for (int base = 0; base < rows; base += WARP) {
    const int t = base + lane;
    int sum = t < rows ? max(1, (position.data[t] / split + 1) / span) : 0;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int below = __shfl_sync(~0u, sum, lane < by ? lane : lane - by);
      if (lane >= by) sum += below;
    }
    if (t < rows) first.data[t + 1] = before + sum;
    before += __shfl_sync(~0u, sum, WARP - 1);
  }
}

// The token of an item.
ET_FN int row_of(int item, View<int32_t, 1> first) {
  int low = 0, high = int(first.extent[0]) - 2;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (item < first.data[middle + 1]) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Page `k` of an item, or the last one of its sequence.
ET_FN int32_t page_of(int item, int k, View<const int32_t, 1> request, View<const int32_t, 3> table,
                      View<int32_t, 1> first, View<int32_t, 1> row, int span) {
  const int t = row.data[item], each = int(table.extent[2]);
  const int at = (item - first.data[t]) * span * each + k;
  return table.data[request.data[t] * table.stride[0] + min(at, int(table.extent[1]) * each - 1)];
}

template <int SPAN, int FILL>
ET_FN void plan(View<const int32_t, 1> position, View<const int32_t, 1> request,
                View<const int32_t, 3> table, View<int32_t, 1> first, View<int32_t, 1> row,
                View<int32_t, 1> left, View<int32_t, 2> pages, int split_tokens) {
  constexpr int LOADS_IN_FLIGHT = 4;  // of a thread
  const Thread me;
  const int span = span_of<SPAN, FILL>(position, split_tokens, me.lane);
  if (me.warp == 0) item_bounds(position, first, split_tokens, span, me.lane);
  sync();
  const int used = first.data[position.extent[0]];
  const int items = int(row.extent[0]), width = int(pages.extent[1]);
  ET_ROLLED for (int item = me.number; item < items; item += ET_THREADS) {
    const int t = item < used ? row_of(item, first) : 0, begin = first.data[t];
    const int rest = position.data[t] + 1 - (item - begin) * span * split_tokens;
    row.data[item] = t;
    left.data[item] = item >= used ? 0 : item + 1 < first.data[t + 1] ? span * split_tokens : rest;
  }
  sync();
  ET_ROLLED for (int at = me.number; at < items * width; at += LOADS_IN_FLIGHT * ET_THREADS) {
    int32_t page[LOADS_IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      const int item = (at + k * ET_THREADS) / width, nth = (at + k * ET_THREADS) % width;
      page[k] = item < used ? page_of(item, nth, request, table, first, row, span) : 0;
    }
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k)
      if (at + k * ET_THREADS < items * width) pages.data[at + k * ET_THREADS] = page[k];
  }
}

// ---- L2 prefetch --------------------------------------------------------------------------------

constexpr int PREFETCHED_PAGES = 8;  // of a head, 16 KB each

// A hint without effect on results.
template <class T> ET_HOT void prefetch_to_l2(const T* at, int64_t elements) {
#if ET_STREAM  // it needs a GPU that has bulk copies
  bulk_prefetch(at, uint32_t(elements * sizeof(T)));
#endif
}

// ---- RoPE: queries and the entry of the cache ---------------------------------------------------

template <int N> struct alignas(4 * N) Floats { float at[N]; };

// Heads in shared memory have a few elements of padding, so that lanes of several heads do not
// conflict in a bank.
constexpr int ROPE_LANES = 8;  // of a head
ET_HOT constexpr int head_pitch(int hd) { return hd + ROPE_LANES; }

// Adds the split-K parts of a token, HEADS heads each, in order to `row` in shared memory. Returns
// the scale of the token's RMSNorm over `hidden` columns with sums of squares `ss`. The block meets
// last.
template <int PARTS, int HEADS, int HD>
ET_HOT float sum_row_parts(float* row, View<const float, 2> parts, View<const float, 1> ss,
                           float hidden, float eps) {
  constexpr int SOME = PARTS < 16 ? 16 / PARTS : 1, FOURS = HEADS * HD / 4;
  using Four = Floats<4>;
  const Thread me;
  const int first = me.number % LANES, sums = int(ss.extent[0]);
  float share = first < sums ? ss.data[first] : 0.0f;
  ET_ROLLED for (int base = me.number; base < FOURS; base += SOME * ET_THREADS) {
    Four x[SOME][PARTS] = {};  // else live for the whole kernel
#pragma unroll
    for (int n = 0; n < SOME; ++n)
#pragma unroll
      for (int k = 0; k < PARTS; ++k)
        if (base + n * ET_THREADS < FOURS)
          x[n][k] = *reinterpret_cast<const Four*>(parts.data + k * parts.stride[0] +
                                                   4 * (base + n * ET_THREADS));
#pragma unroll
    for (int n = 0; n < SOME; ++n) {
      const int at = 4 * (base + n * ET_THREADS);
#pragma unroll
      for (int k = 1; k < PARTS; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) x[n][0].at[j] += x[n][k].at[j];
      if (at < HEADS * HD)
        *reinterpret_cast<Four*>(row + at / HD * head_pitch(HD) + at % HD) = x[n][0];
    }
  }
  for (int k = first + LANES; k < sums; k += LANES) share = share + ss.data[k];
  const float sum = from_first(half_tree(share));
  sync();
  return ptx::rsqrt_approx(sum / hidden + eps);
}

// Eight lanes compute a head of `by` times x: a query head, then the key and the value. If it does
// not exist (`is_real`), they only meet the other lanes of their warp. A lane has both elements of
// each pair that RoPE rotates. NORM: RMSNorm with `gains` comes first. The order of sums is that of
// the interpreter, whose lanes k and k + 8 are one here. A thread loads everything before it
// stores, because a compiler must assume that stores change the inputs.
template <int GROUP, int HD, bool NORM, class T>
ET_HOT void apply_rope_head(int head, bool is_real, const float* x, float by,
                            View<const float, 2> gains, View<const float, 2> rope, T* to, float eps,
                            float scale, Thread me) {
  static_assert(HD % (2 * ROPE_LANES) == 0 && LANES == 2 * ROPE_LANES);
  constexpr int EACH = HD / ROPE_LANES, HALF = EACH / 2;
  const bool query = head < GROUP, rotates = head <= GROUP;
  const float* const gain = gains.data + (query ? 0 : gains.stride[0]);
  const int first = unsigned(me.lane) % ROPE_LANES;
  float mine[EACH], cosine[HALF], sine[HALF];
#pragma unroll
  for (int j = 0; j < EACH; ++j) mine[j] = x[j * ROPE_LANES + first] * by;
#pragma unroll
  for (int j = 0; j < HALF; ++j) {
    cosine[j] = rope.data[j * ROPE_LANES + first];
    sine[j] = rope.data[rope.stride[0] + j * ROPE_LANES + first];
  }
  if (NORM) {
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < EACH; ++j) sum[j % 2] = sum[j % 2] + mine[j] * mine[j];
    float all = sum[0] + sum[1];
#pragma unroll
    for (int other = ROPE_LANES / 2; other > 0; other /= 2) all = all + shuffle_xor(all, other, me);
    const float norm = ptx::rsqrt_approx(all / float(HD) + eps);
#pragma unroll
    for (int j = 0; j < EACH; ++j)
      if (rotates) mine[j] = mine[j] * norm * gain[j * ROPE_LANES + first];
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int i = j % HALF, across = (j + HALF) % EACH;
    const float rotated = mine[j] * cosine[i] + mine[across] * (j < HALF ? -sine[i] : sine[i]);
    const float result = query ? rotated * scale : rotates ? rotated : mine[j];
    if (is_real) to[j * ROPE_LANES + first] = cast<T>(result);
  }
}

// Applies RoPE to HEADS KV heads and their queries. `row` has them one after the other; `by` scales
// them.
template <int HEADS, int GROUP, int HD, bool NORM, class T>
ET_FN void apply_rope(const float* row, float by, View<const float, 2> gains,
                      View<const float, 2> rope, View<T, 3> out, View<T, 3> kv, float eps,
                      float scale) {
  constexpr int EACH = GROUP + 2, ALL = HEADS * EACH, AT_ONCE = ET_THREADS / ROPE_LANES;
  const Thread me;
  ET_ROLLED for (int base = 0; base < ALL; base += AT_ONCE) {
    const int at = base + unsigned(me.number) / ROPE_LANES, held = at < ALL ? at : ALL - 1;
    const int of = held / EACH, head = held % EACH;
    T* const to = head < GROUP ? out.data + of * out.stride[0] + head * out.stride[1]
                               : kv.data + of * kv.stride[0] + (head - GROUP) * kv.stride[1];
    apply_rope_head<GROUP, HD, NORM>(head, at < ALL, row + held * head_pitch(HD), by, gains, rope,
                                     to, eps, scale, me);
  }
}

// ---- RoPE inside of attention tasks -------------------------------------------------------------

// Heads in shared memory lie PITCH elements apart, so that they conflict in no bank: queries, then
// the new key and value.
template <int HD> constexpr int PITCH = HD + 8;

// Sixteen lanes sum in the order of reduce.cuh; all of them get the same bits. Whole warps call it.
// It is inlined, because a call would spill registers.
template <int HD> ET_HOT float sum_of_squares(const float* x, Thread me) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < HD; k += LANES) sum = sum + x[k + me.lane % LANES] * x[k + me.lane % LANES];
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) sum = sum + shuffle_xor(sum, by, me);
  return sum;
}

// apply_rope_head for data in shared memory, with few registers: a lane has TWO pairs of elements
// at once. Each half of a warp computes a head.
template <int GROUP, int HD, bool NORM>
ET_HOT void apply_rope_smem(int head, const float* x, const float* angles, bf16* to, float eps,
                            float scale, Thread me) {
  constexpr int HALF = HD / 2, TWO = 2;
  constexpr bool EVEN = HALF % (TWO * LANES) == 0;
  const float* const gain = angles + (head < GROUP ? 0 : HD);
  const float by = head < GROUP ? scale : 1.0f;
  const float norm = NORM ? ptx::rsqrt_approx(sum_of_squares<HD>(x, me) / float(HD) + eps) : 1.0f;
  ET_ROLLED for (int from = 0; from < HALF; from += TWO * LANES) {
    float low[TWO] = {}, high[TWO] = {};
#pragma unroll
    for (int n = 0; n < TWO; ++n) {
      const int i = from + n * LANES + me.lane % LANES;
      if (!EVEN && i >= HALF) continue;
      const float a = NORM && head <= GROUP ? x[i] * norm * gain[i] : x[i];
      const float b = NORM && head <= GROUP ? x[i + HALF] * norm * gain[i + HALF] : x[i + HALF];
      const float cosine = angles[2 * HD + i], sine = angles[2 * HD + HALF + i];
      low[n] = head > GROUP ? a : (a * cosine + b * -sine) * by;
      high[n] = head > GROUP ? b : (b * cosine + a * sine) * by;
    }
#pragma unroll
    for (int n = 0; n < TWO; ++n) {
      const int i = from + n * LANES + me.lane % LANES;
      if (!EVEN && i >= HALF) continue;
      to[i] = {uint16_t(ptx::cvt_bf16x2(low[n], 0.0f))};
      to[i + HALF] = {uint16_t(ptx::cvt_bf16x2(high[n], 0.0f))};
    }
  }
}

}  // namespace et::attention
