// Attention over a paged cache, for the threads of a block: hand-tuned bodies of the task kinds in
// models/attention.py, whose Python bodies are the meaning. Templates over the shape of a head and
// of a page, for all models. Orders of sums hang on the number of tokens of the row alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "../gathered.h"
#include "mma.cuh"
#include "reduce.cuh"

namespace et::attention {

constexpr int WARPS = ET_THREADS / WARP;
constexpr float LOW = -1e30f;  // the score of what is not there

template <int N> struct alignas(4 * N) Words { uint32_t at[N]; };  // 2 N elements of 16 bits

// A thread as the layout of mma.cuh sees it. Its number is read anew in every task: what compilers
// work out from it would otherwise stay in registers for the whole kernel.
struct Thread {
  int number, lane, warp, g, c;
  ET_HOT Thread() : number(threadIdx.x) {
    asm volatile("" : "+r"(number));
    lane = number % WARP;
    warp = number / WARP;
    g = lane / 4;
    c = lane % 4;
  }
};

// The value of the lane whose number differs in the bits of `by`.
ET_HOT float from_other(float x, int by, Thread me) { return __shfl_sync(~0u, x, me.lane ^ by); }

// ---- plan: the work items of all rows -----------------------------------------------------------

// first[t] .. first[t + 1] are the items of row t, by one warp.
ET_FN void item_bounds(View<const int32_t, 1> position, View<int32_t, 1> first, int split,
                       int lane) {
  const int count = int(position.extent[0]);
  int before = 0;
  if (lane == 0) first.data[0] = 0;
  ET_ROLLED for (int base = 0; base < count; base += WARP) {
    const int t = base + lane;
    int sum = t < count ? position.data[t] / split + 1 : 0;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int below = __shfl_sync(~0u, sum, lane < by ? lane : lane - by);
      if (lane >= by) sum += below;
    }
    if (t < count) first.data[t + 1] = before + sum;
    before += __shfl_sync(~0u, sum, WARP - 1);
  }
}

// The row that an item belongs to; the last one for those beyond.
ET_FN int row_of(int item, View<int32_t, 1> first) {
  int low = 0, high = int(first.extent[0]) - 2;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (item < first.data[middle + 1]) high = middle;
    else low = middle + 1;
  }
  return low;
}

ET_FN void plan(View<const int32_t, 1> position, View<const int32_t, 1> request,
                View<const int32_t, 3> table, View<int32_t, 1> first, View<int32_t, 1> row,
                View<int32_t, 1> left, View<int32_t, 2> pages, int split_tokens) {
  const Thread me;
  if (me.warp == 0) item_bounds(position, first, split_tokens, me.lane);
  sync();
  const int splits = int(table.extent[1]), each = int(table.extent[2]);
  ET_ROLLED for (int item = me.number; item < int(row.extent[0]); item += ET_THREADS) {
    const int t = row_of(item, first), beyond = item - first.data[t];
    const int split = beyond < splits ? beyond : splits - 1;
    row.data[item] = t;
    left.data[item] = position.data[t] + 1 - split * split_tokens;
    const int32_t* const from = table.data + request.data[t] * table.stride[0]
                                + split * table.stride[1];
    ET_ROLLED for (int k = 0; k < each; ++k) pages.data[int64_t(item) * each + k] = from[k];
  }
}

// ---- rotate: queries and the entry of the cache -------------------------------------------------

// Half a warp has a head. `gains` are used if NORM; the order of sums is that of the meaning of
// record. A thread loads all it needs before it stores: as far as a compiler can tell, stores might
// change it.
template <int GROUP, int HD, bool NORM, class T>
ET_HOT void rotate_head(int head, const float* x, View<const float, 2> gains,
                        View<const float, 2> rope, T* to, float eps, float scale, Thread me) {
  constexpr int HALF = HD / 2, EACH = HD / LANES;
  const bool query = head < GROUP, turns = head <= GROUP;
  const float* const gain = gains.data + (query ? 0 : gains.stride[0]);
  float cosine[EACH], sine[EACH], mine[EACH], other[EACH], norm = 1.0f;
  if (NORM) {
    const float sum = half_sum<float>(HD, [&](int64_t k) { return x[k] * x[k]; });
    norm = rsqrt(from_first(sum) / float(HD) + eps);
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int k = j * LANES + me.number % LANES, i = k < HALF ? k : k - HALF;
    const int across = k < HALF ? k + HALF : i;
    cosine[j] = rope.data[i];
    sine[j] = k < HALF ? -rope.data[rope.stride[0] + i] : rope.data[rope.stride[0] + i];
    mine[j] = NORM && turns ? x[k] * norm * gain[k] : x[k];
    other[j] = NORM && turns ? x[across] * norm * gain[across] : x[across];
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const float turned = mine[j] * cosine[j] + other[j] * sine[j];
    const float result = query ? turned * scale : turns ? turned : mine[j];
    to[j * LANES + me.number % LANES] = cast<T>(result);
  }
}

template <int GROUP, int HD, bool NORM, class T>
ET_FN void rotate(View<const float, 1> qkv, View<const float, 2> gains, View<const float, 2> rope,
                  View<T, 2> out, View<T, 2> kv, float eps, float scale) {
  const Thread me;
  ET_ROLLED for (int head = me.number / LANES; head < GROUP + 2; head += ET_THREADS / LANES) {
    T* const to = head < GROUP ? out.data + head * out.stride[0]
                               : kv.data + (head - GROUP) * kv.stride[0];
    rotate_head<GROUP, HD, NORM>(head, qkv.data + head * HD, gains, rope, to, eps, scale, me);
  }
}

// ---- attend: one split of a row -----------------------------------------------------------------
//
// A warp has 16 tokens at a time. Scores are q (as rows, 8 to 15 empty) times keys (as columns), so
// that lane (g, c) holds head g and tokens 2c, 2c + 1, 8 + 2c, 9 + 2c: as it must for the second
// product, values (columns of the head as rows) times weights (heads as columns). K is permuted
// alike on both sides of a product: a lane loads neighbours, straight into its fragments. Each warp
// has a largest score of its own; they meet once, at the end.

// `COUNT` words of a row, in loads that lanes `of` OF have side by side.
template <int COUNT, int OF> ET_HOT void load_row(uint32_t (&x)[COUNT], const bf16* row, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int j = 0; j < COUNT / WIDE; ++j) {
    const auto some = *reinterpret_cast<const Words<WIDE>*>(row + 2 * WIDE * (j * OF + of));
#pragma unroll
    for (int k = 0; k < WIDE; ++k) x[j * WIDE + k] = some.at[k];
  }
}

// The column of the head that word `w` of lane `of` begins with.
template <int COUNT, int OF> ET_HOT int column_of(int w, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  return 2 * (WIDE * (w / WIDE * OF + of) + w % WIDE);
}

// What a warp has found: for head g the largest score and its share of the sum of weights, and the
// weighted values: columns of word w, heads 2c and 2c + 1.
template <int HD> struct Part {
  float top = LOW, sum = 0.0f;
  float value[HD / 16][4] = {};
};

// ONCE: a warp has no other tile in this split.
template <int HD, int PAGE, bool ONCE> struct Tile {
  static constexpr int KEY = HD / 8, VALUE = HD / 16;  // words of a token that a lane loads
  uint32_t key[2][KEY], value[4][VALUE];

  // Tokens from `base` on; those from `count` on are not touched: token 0 stands in for them.
  ET_HOT void load(const Gathered<const bf16, 4>& kv, int base, int count, Thread me) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
      load_row<KEY, 4>(key[n], token(kv, base + 8 * n + me.g, count), me.c);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const bf16* const at = token(kv, base + n / 2 * 8 + 2 * me.c + n % 2, count) + kv.stride[1];
      load_row<VALUE, 8>(value[n], at, me.g);
    }
    __syncwarp();  // no load may sink below it: all are on their way before the first is used
  }
  static ET_HOT const bf16* token(const Gathered<const bf16, 4>& kv, int t, int count) {
    const unsigned held = t < count ? t : 0;
    return kv.data + kv.rows[0][held / PAGE] + int64_t(held % PAGE) * kv.stride[2];
  }

  ET_HOT void add(Part<HD>& part, const uint32_t (&q)[KEY], int base, int count,
                  Thread me) const {
    float score[2][4] = {};
#pragma unroll
    for (int w = 0; w < KEY; w += 2) {
      const uint32_t rows[4] = {q[w], 0, q[w + 1], 0};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t columns[2] = {key[n][w], key[n][w + 1]};
        ptx::mma_bf16(score[n], rows, columns);
      }
    }
    float weight[4], top = part.top;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int t = base + n / 2 * 8 + 2 * me.c + n % 2;
      weight[n] = t < count ? score[n / 2][n % 2] : LOW;
      top = max(top, weight[n]);
    }
    top = max(top, from_other(top, 1, me));
    top = max(top, from_other(top, 2, me));
    if (!ONCE) rescale(part, std::exp(part.top - top), me);
    part.top = top;
#pragma unroll
    for (int n = 0; n < 4; ++n) part.sum += weight[n] = std::exp(weight[n] - top);
    const uint32_t columns[2] = {pair(weight[0], weight[1]), pair(weight[2], weight[3])};
#pragma unroll
    for (int w = 0; w < VALUE; ++w) {
      const uint32_t rows[4] = {low(value[0][w], value[1][w]), high(value[0][w], value[1][w]),
                                low(value[2][w], value[3][w]), high(value[2][w], value[3][w])};
      ptx::mma_bf16(part.value[w], rows, columns);
    }
  }
  static ET_HOT uint32_t low(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
  static ET_HOT uint32_t high(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
  static ET_HOT uint32_t pair(float a, float b) {
    return to_bf16(a).bits | uint32_t(to_bf16(b).bits) << 16;
  }
  static ET_HOT void rescale(Part<HD>& part, float by, Thread me) {
    part.sum *= by;
    const float even = __shfl_sync(~0u, by, 8 * me.c);
    const float odd = __shfl_sync(~0u, by, 8 * me.c + 4);
#pragma unroll
    for (int w = 0; w < VALUE; ++w)
#pragma unroll
      for (int k = 0; k < 4; ++k) part.value[w][k] *= k % 2 == 0 ? even : odd;
  }
};

// How the parts of the warps lie in `room`: pairs of columns (w, parity of the head) by lane, then
// the largest scores and the sums.
template <int GROUP, int HD> struct Meeting {
  static constexpr int ACROSS = (GROUP + 1) / 2;          // lanes c that have heads
  static constexpr int PAIRS = HD / 16 * 2 * 8 * ACROSS;  // of one warp
  static constexpr int FLOATS = WARPS * (2 * PAIRS + 2 * GROUP);

  struct alignas(8) Two { float even, odd; };
  Two* pairs;
  float *top, *sum;

  ET_HOT explicit Meeting(float* room)
      : pairs(reinterpret_cast<Two*>(room)), top(room + 2 * WARPS * PAIRS),
        sum(top + WARPS * GROUP) {}

  ET_HOT void put(const Part<HD>& part, Thread me) const {
    float total = part.sum + from_other(part.sum, 1, me);
    total += from_other(total, 2, me);
    if (me.c == 0 && me.g < GROUP) {
      top[me.warp * GROUP + me.g] = part.top;
      sum[me.warp * GROUP + me.g] = total;
    }
    if (me.c >= ACROSS) return;
    Two* const mine = pairs + me.warp * PAIRS + me.g * ACROSS + me.c;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        mine[(2 * w + k) * 8 * ACROSS] = {part.value[w][k], part.value[w][k + 2]};
  }

  // The largest score of a head, and what the values of each warp weigh beside it.
  ET_HOT float weigh(int head, float (&scale)[WARPS]) const {
    float best = LOW;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) best = max(best, top[k * GROUP + head]);
#pragma unroll
    for (int k = 0; k < WARPS; ++k) scale[k] = std::exp(top[k * GROUP + head] - best);
    return best;
  }

  ET_HOT void fold(View<float, 2> out, View<float, 2> ml, Thread me) const {
    ET_ROLLED for (int at = me.number; at < PAIRS; at += ET_THREADS) {
      const int c = at % ACROSS, g = at / ACROSS % 8, k = at / ACROSS / 8 % 2;
      const int w = at / ACROSS / 16, head = 2 * c + k;
      if (head >= GROUP) continue;
      float scale[WARPS], even = 0.0f, odd = 0.0f, total = 0.0f;
      const float best = weigh(head, scale);
#pragma unroll
      for (int n = 0; n < WARPS; ++n) {
        even += pairs[n * PAIRS + at].even * scale[n];
        odd += pairs[n * PAIRS + at].odd * scale[n];
        total += sum[n * GROUP + head] * scale[n];
      }
      const int column = column_of<HD / 16, 8>(w, g);
      out.data[head * out.stride[0] + column] = even;
      out.data[head * out.stride[0] + column + 1] = odd;
      if (column != 0) continue;
      ml.data[head] = best;
      ml.data[ml.stride[0] + head] = total;
    }
  }
};

// `left` tokens of the pages count (all of them at most). Elements of a row are neighbours, and it
// begins at a multiple of 16 bytes.
template <int HEADS, int HD, int PAGES, int PAGE>
ET_HOT void attend_heads(float* room, const bf16* q, int64_t pitch, int32_t left,
                         const Gathered<const bf16, 4>& kv, View<float, 2> out,
                         View<float, 2> ml) {
  constexpr int STEP = 16 * WARPS;
  constexpr bool ONCE = PAGES * PAGE <= STEP;
  const Thread me;
  const int count = min(int(left), PAGES * PAGE);
  uint32_t queries[HD / 8];
  load_row<HD / 8, 4>(queries, q + (me.g < HEADS ? me.g : 0) * pitch, me.c);
  Part<HD> part;
  ET_ROLLED for (int k = 0; k < (ONCE ? 1 : (PAGES * PAGE + STEP - 1) / STEP); ++k) {
    const int base = k * STEP + me.warp * 16;
    if (base >= count) break;
    Tile<HD, PAGE, ONCE> tile;
    tile.load(kv, base, count, me);
    tile.add(part, queries, base, count, me);
  }
  const Meeting<HEADS, HD> meeting(room);
  meeting.put(part, me);
  sync();
  meeting.fold(out, ml, me);
}

// Eight heads at a time. `room` has ROOM floats.
template <int GROUP, int HD, int PAGES, int PAGE, int ROOM>
ET_FN void attend(float* room, View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                  View<float, 2> out, View<float, 2> ml) {
  constexpr int HEADS = GROUP < 8 ? GROUP : 8;
  static_assert(ROOM >= Meeting<HEADS, HD>::FLOATS && HD % 16 == 0);
  attend_heads<HEADS, HD, PAGES, PAGE>(room, q.data, q.stride[0], left, kv, out, ml);
  if constexpr (GROUP > 8) {
    sync();
    q.data += 8 * q.stride[0];
    out.data += 8 * out.stride[0];
    ml.data += 8;
    attend<GROUP - 8, HD, PAGES, PAGE, ROOM>(room, q, left, kv, out, ml);
  }
}

// ---- combine: the splits of a row ---------------------------------------------------------------

// A thread an element, some parts at a time; their loads are in flight together.
template <int GROUP, int HD, class T>
ET_FN void combine(View<const float, 3> part, View<const float, 3> ml, View<T, 1> out) {
  constexpr int FLIGHT = 8;
  const Thread me;
  const int count = int(part.extent[0]);
  ET_ROLLED for (int e = me.number; e < GROUP * HD; e += ET_THREADS) {
    const float *values = part.data + e, *tops = ml.data + e / HD;
    float best = LOW, total = 0.0f, sum = 0.0f;
    ET_ROLLED for (int base = 0; base < count; base += FLIGHT) {
      float value[FLIGHT], top[FLIGHT], weight[FLIGHT], now = best;
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const int64_t at = base + k < count ? base + k : base;
        value[k] = values[at * part.stride[0]];
        top[k] = tops[at * ml.stride[0]];
        weight[k] = tops[at * ml.stride[0] + ml.stride[1]];
      }
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        if (base + k >= count) top[k] = -INFINITY;
        now = max(now, top[k]);
      }
      const float old = std::exp(best - now);
      total *= old;
      sum *= old;
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const float scale = std::exp(top[k] - now);
        total += weight[k] * scale;
        sum += value[k] * scale;
      }
      best = now;
    }
    out.data[e] = cast<T>(sum / total);
  }
}

}  // namespace et::attention
