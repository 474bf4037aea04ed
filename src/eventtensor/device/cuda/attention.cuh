// Attention over a paged cache, for the threads of a block: the hand-tuned body of `attend` in
// models/attention.py, whose Python body is the meaning. Templates over the shape of a head and of a
// page, for all models. Orders of sums hang on the length of the row alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "../gathered.h"
#include "attention_parts.cuh"
#include "mma.cuh"

namespace et::attention {

template <int N> struct alignas(4 * N) Words { uint32_t at[N]; };  // 2 N elements of 16 bits

// ---- attend: one item of a row ------------------------------------------------------------------
//
// A warp has 16 tokens at a time. Scores are q (as rows, 8 to 15 empty) times keys (as columns), so
// that lane (g, c) holds head g and tokens 2c, 2c + 1, 8 + 2c, 9 + 2c: as it must for the second
// product, values (columns of the head as rows) times weights (heads as columns). K is permuted
// alike on both sides of a product: a lane loads neighbours, straight into its fragments. Each warp
// has a largest score of its own, and goes on alone; they meet once, at the end.

// An address that is kept as one, where compilers would keep a base and an offset.
template <class T> ET_HOT void settle(T*& at) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+l"(at));
#endif
}

// `COUNT` words of a row, in loads that lanes `of` OF have side by side.
template <int COUNT, int OF> ET_HOT void load_row(uint32_t (&x)[COUNT], const bf16* row, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  const bf16* const begin = row + 2 * WIDE * of;  // one address for all of them
#pragma unroll
  for (int j = 0; j < COUNT / WIDE; ++j) {
    const auto some = *reinterpret_cast<const Words<WIDE>*>(begin + 2 * WIDE * OF * j);
#pragma unroll
    for (int k = 0; k < WIDE; ++k) x[j * WIDE + k] = some.at[k];
  }
}

// The column of the head that word `w` of lane `of` begins with.
template <int COUNT, int OF> ET_HOT int column_of(int w, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  return 2 * (WIDE * (w / WIDE * OF + of) + w % WIDE);
}

// Tokens of an item that a warp takes at once: 16 from `base` on. Those from `end` on are not
// touched: token 0 stands in for them.
struct Tokens {
  static constexpr int STEP = 16 * WARPS;
  int base, end;
  ET_HOT bool any() const { return base < end; }
  ET_HOT Tokens next() const { return {base + STEP, end}; }
  // Of the token that score and weight `n` of this lane belong to.
  ET_HOT int number(int n, Thread me) const { return base + n / 2 * 8 + 2 * me.c + n % 2; }
};

// What a warp has found: for head g the largest score and this lane's share of the sum of weights,
// and the weighted values: columns of word w, heads 2c and 2c + 1.
template <int HD> struct Part {
  float top = LOW, sum = 0.0f;
  float value[HD / 16][4] = {};

  // The largest score is `now`.
  ET_HOT void rescale(float now, Thread me) {
    const float by = std::exp(top - now);
    const float even = __shfl_sync(~0u, by, 8 * me.c), odd = __shfl_sync(~0u, by, 8 * me.c + 4);
    top = now;
    sum *= by;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 4; ++k) value[w][k] *= k % 2 == 0 ? even : odd;
  }
};

template <int HD, int PAGE> struct Tile {
  static constexpr int KEY = HD / 8, VALUE = HD / 16;  // words of a token that a lane loads
  uint32_t key[2][KEY], value[4][VALUE];

  ET_HOT void load_keys(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
      load_row<KEY, 4>(key[n], token(kv, at.base + 8 * n + me.g, at.end), me.c);
    __syncwarp();  // no load may sink below it: all are on their way before the first is used
  }
  ET_HOT void load_values(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
#pragma unroll
    for (int n = 0; n < 4; ++n)
      load_row<VALUE, 8>(value[n], token(kv, at.number(n, me), at.end) + kv.stride[1], me.g);
    __syncwarp();
  }
  static ET_HOT const bf16* token(const Gathered<const bf16, 4>& kv, int t, int end) {
    const unsigned held = t < end ? t : 0;
    return kv.data + kv.rows[0][held / PAGE] + int64_t(held % PAGE) * kv.stride[2];
  }

  // Gives the largest. `query(q, w)` are words w, .. of this lane's head of queries.
  static constexpr int SOME = KEY % 4 == 0 ? 4 : 2;
  template <class Q>
  ET_HOT float scores(float (&score)[4], const Q& query, Tokens at, Thread me) const {
    float found[2][4] = {}, top = LOW;
#pragma unroll
    for (int w = 0; w < KEY; w += SOME) {
      uint32_t q[SOME];
      query(q, w, me);
#pragma unroll
      for (int k = 0; k < SOME; k += 2)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t rows[4] = {q[k], 0, q[k + 1], 0};
          const uint32_t columns[2] = {key[n][w + k], key[n][w + k + 1]};
          ptx::mma_bf16(found[n], rows, columns);
        }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = at.number(n, me) < at.end ? found[n / 2][n % 2] : LOW;
      top = max(top, score[n]);
    }
    top = max(top, from_other(top, 1, me));
    return max(top, from_other(top, 2, me));
  }

  // Adds weights and weighted values, for scores of which `top` is the largest.
  ET_HOT void add(Part<HD>& part, float (&score)[4], float top, bool first, Thread me) const {
    if (first) part.top = top;
    else part.rescale(max(part.top, top), me);
#pragma unroll
    for (int n = 0; n < 4; ++n) part.sum += score[n] = std::exp(score[n] - part.top);
    const uint32_t columns[2] = {pair(score[0], score[1]), pair(score[2], score[3])};
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

  // What all warps have put there.
  ET_HOT void fold(View<float, 2> out, View<float, 2> ml, Thread me) const {
    ET_ROLLED for (unsigned at = me.number; at < PAIRS; at += ET_THREADS) {
      const int head = 2 * (at % ACROSS) + at / ACROSS / 8 % 2;
      const int column = column_of<HD / 16, 8>(at / ACROSS / 16, at / ACROSS % 8);
      if (head >= GROUP) continue;
      float scale[WARPS], even = 0.0f, odd = 0.0f, total = 0.0f;
      const float best = weigh(head, scale);
#pragma unroll
      for (int n = 0; n < WARPS; ++n) {
        even += pairs[n * PAIRS + at].even * scale[n];
        odd += pairs[n * PAIRS + at].odd * scale[n];
        total += sum[n * GROUP + head] * scale[n];
      }
      out.data[head * out.stride[0] + column] = even;
      out.data[head * out.stride[0] + column + 1] = odd;
      if (column != 0) continue;
      ml.data[head] = best;
      ml.data[ml.stride[0] + head] = total;
    }
  }
};

// Queries in registers, loaded before keys and values; or loaded every time, a few words at once:
// the L1 has room for them, registers have none.
template <int KEY, int SOME> struct HeldQueries {
  uint32_t held[KEY];
  ET_HOT HeldQueries(const bf16* query, Thread me) {
#pragma unroll
    for (int w = 0; w < KEY; w += SOME) {
      uint32_t some[SOME];
      load_row<SOME, 4>(some, query + 8 * w, me.c);
#pragma unroll
      for (int k = 0; k < SOME; ++k) held[w + k] = some[k];
    }
  }
  ET_HOT void operator()(uint32_t (&q)[SOME], int w, Thread) const {
#pragma unroll
    for (int k = 0; k < SOME; ++k) q[k] = held[w + k];
  }
};

template <int SOME> struct QueriesInPlace {
  const bf16* query;
  ET_HOT void operator()(uint32_t (&q)[SOME], int w, Thread me) const {
    load_row<SOME, 4>(q, query + 8 * w, me.c);
  }
};

// One step has all `count` tokens. Heads of `q` lie `pitch` elements apart.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_once(float* room, const bf16* q, int64_t pitch, int count,
                        const Gathered<const bf16, 4>& kv, View<float, 2> out, View<float, 2> ml) {
  using Mine = Tile<HD, PAGE>;
  const Thread me;
  const Tokens now{me.warp * 16, count};
  Part<HD> part;
  if (now.any()) {
    const HeldQueries<Mine::KEY, Mine::SOME> queries(q + (me.g < HEADS ? me.g : 0) * pitch, me);
    Mine tile;
    tile.load_keys(kv, now, me);
    tile.load_values(kv, now, me);
    float score[4];
    const float top = tile.scores(score, queries, now, me);
    tile.add(part, score, top, true, me);
  }
  const Meeting<HEADS, HD> meeting(room);
  meeting.put(part, me);
  sync();
  meeting.fold(out, ml, me);
}

// Asks for the keys and values of a page as far as the L2, if it has any of `count` tokens.
template <int HD, int PAGE>
ET_HOT void fetch_page(const Gathered<const bf16, 4>& kv, int page, int count, Thread me) {
#if ET_STREAM  // it needs a GPU that has bulk copies
  const int there = min(count - page * PAGE, PAGE);
  if (there > 0 && me.lane < 2)
    bulk_prefetch(kv.data + kv.rows[0][page] + me.lane * kv.stride[1], there * HD * 2);
#endif
}

// What is loaded comes from the L2, to which pages after it are on their way. Where registers allow
// (EARLY), it goes where the tokens before were as soon as these have been used; a wide head has
// keys or values there, and its warps wait for each other's loads. Heads of `q` lie `pitch`
// elements apart.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_heads(float* room, const bf16* q, int64_t pitch, int count,
                         const Gathered<const bf16, 4>& kv, View<float, 2> out,
                         View<float, 2> ml) {
  constexpr bool EARLY = HD <= 64;
  constexpr int STEP = Tokens::STEP, BEYOND = (1 << 16) / (HD * 4 * STEP) + 1;  // 64 KB ahead
  Part<HD> part;
  Tile<HD, PAGE> tile = {};  // what has no value would be kept for the whole kernel
  {
    const Thread me;
    const Tokens now{me.warp * 16, count};
    if (now.any()) {
      tile.load_keys(kv, now, me);
      if (EARLY) tile.load_values(kv, now, me);
    }
    ET_ROLLED for (int page = STEP / PAGE + me.warp; page < BEYOND * STEP / PAGE; page += WARPS)
      fetch_page<HD, PAGE>(kv, page, count, me);
  }
  ET_ROLLED for (int done = 0; done < count; done += STEP) {
    const Thread me;  // anew: its addresses would fill registers through the loop
    const Tokens now{done + me.warp * 16, count}, next = now.next();
    if (!now.any()) break;
    if (me.warp < STEP / PAGE)
      fetch_page<HD, PAGE>(kv, (done + BEYOND * STEP) / PAGE + me.warp, count, me);
    float score[4] = {};
    const QueriesInPlace<Tile<HD, PAGE>::SOME> queries{q + (me.g < HEADS ? me.g : 0) * pitch};
    const float top = tile.scores(score, queries, now, me);
    if (EARLY && next.any()) tile.load_keys(kv, next, me);
    if (!EARLY) tile.load_values(kv, now, me);
    tile.add(part, score, top, done == 0, me);
    if (EARLY && next.any()) tile.load_values(kv, next, me);
    if (!EARLY && next.any()) tile.load_keys(kv, next, me);
  }
  const Thread me;
  const Meeting<HEADS, HD> meeting(room);
  meeting.put(part, me);
  sync();
  meeting.fold(out, ml, me);
}

// `left` tokens of the pages count. Elements of a row are neighbours, and it begins at a multiple of
// 16 bytes. Eight heads at a time. `room` has ROOM floats.
template <int GROUP, int HD, int PAGES, int PAGE, int ROOM>
ET_FN void attend(float* room, View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                  View<float, 2> out, View<float, 2> ml) {
  constexpr int HEADS = GROUP < 8 ? GROUP : 8;
  static_assert(ROOM >= Meeting<HEADS, HD>::FLOATS && HD % 16 == 0);
  settle(q.data);
  settle(kv.data);
  settle(out.data);
  settle(ml.data);
  if constexpr (PAGES * PAGE <= Tokens::STEP)
    attend_once<HEADS, HD, PAGE>(room, q.data, q.stride[0], left, kv, out, ml);
  else
    attend_heads<HEADS, HD, PAGE>(room, q.data, q.stride[0], left, kv, out, ml);
  if constexpr (GROUP > 8) {
    sync();
    q.data += 8 * q.stride[0];
    out.data += 8 * out.stride[0];
    ml.data += 8;
    attend<GROUP - 8, HD, PAGES, PAGE, ROOM>(room, q, left, kv, out, ml);
  }
}

}  // namespace et::attention
