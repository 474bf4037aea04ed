// Attention over a paged cache, for the threads of a block: hand-tuned bodies of `attend` and
// `combine` in models/attention.py, whose Python bodies are the meaning. Templates over the shape
// of a head and of a page, for all models. Orders of sums hang on the length of the row alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "../gathered.h"
#include "attention_rows.cuh"
#include "mma.cuh"

namespace et::attention {

constexpr float LOW = -1e30f;  // the score of what is not there

template <int N> struct alignas(4 * N) Words { uint32_t at[N]; };  // 2 N elements of 16 bits

// ---- sums of a row ------------------------------------------------------------------------------

// What some tokens of a row give for a head: the largest score, and beside it the sum of weights
// and weighted values. Splits are added to a group and groups to the row, both in order; bits do
// not hang on who does it. The first to be added is taken as it is.
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

// ---- attend: one item of a row ------------------------------------------------------------------
//
// A warp has 16 tokens at a time. Scores are q (as rows, 8 to 15 empty) times keys (as columns), so
// that lane (g, c) holds head g and tokens 2c, 2c + 1, 8 + 2c, 9 + 2c: as it must for the second
// product, values (columns of the head as rows) times weights (heads as columns). K is permuted
// alike on both sides of a product: a lane loads neighbours, straight into its fragments. The warps
// meet twice a split: for its largest scores, and for its sums.

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

// Tokens of an item that a warp takes of one split: 16 from `base` on, and 16 more every `STEP`.
// Those from `end` on are not touched: token 0 stands in for them.
struct Tokens {
  static constexpr int STEP = 16 * WARPS;
  int base, end;
  ET_HOT bool any() const { return base < end; }
};

template <int HD, int PAGE, int STEPS> struct Tile {
  static constexpr int KEY = HD / 8, VALUE = HD / 16;  // words of a token that a lane loads
  uint32_t key[STEPS][2][KEY], value[STEPS][4][VALUE];

  ET_HOT void load_keys(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
#pragma unroll
    for (int n = 0; n < 2 * STEPS; ++n) {
      const int t = at.base + n / 2 * Tokens::STEP + n % 2 * 8 + me.g;
      load_row<KEY, 4>(key[n / 2][n % 2], token(kv, t, at.end), me.c);
    }
    __syncwarp();  // no load may sink below it: all are on their way before the first is used
  }
  ET_HOT void load_values(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
#pragma unroll
    for (int n = 0; n < 4 * STEPS; ++n) {
      const bf16* const from = token(kv, number(at, n, me), at.end) + kv.stride[1];
      load_row<VALUE, 8>(value[n / 4][n % 4], from, me.g);
    }
    __syncwarp();
  }
  static ET_HOT const bf16* token(const Gathered<const bf16, 4>& kv, int t, int end) {
    const unsigned held = t < end ? t : 0;
    return kv.data + kv.rows[0][held / PAGE] + int64_t(held % PAGE) * kv.stride[2];
  }
  // Of the token that score and weight `n` of this lane belong to.
  static ET_HOT int number(Tokens at, int n, Thread me) {
    return at.base + n / 4 * Tokens::STEP + n % 4 / 2 * 8 + 2 * me.c + n % 2;
  }

  // Gives the largest. Queries are loaded every time, a few words at once: the L1 has room for
  // them, registers have none.
  ET_HOT float scores(float (&score)[4 * STEPS], const bf16* query, Tokens at, Thread me) const {
    constexpr int SOME = KEY % 4 == 0 ? 4 : 2;
    float found[2 * STEPS][4] = {}, top = LOW;
#pragma unroll
    for (int w = 0; w < KEY; w += SOME) {
      uint32_t q[SOME];
      load_row<SOME, 4>(q, query + 8 * w, me.c);
#pragma unroll
      for (int k = 0; k < SOME; k += 2)
#pragma unroll
        for (int n = 0; n < 2 * STEPS; ++n) {
          const uint32_t rows[4] = {q[k], 0, q[k + 1], 0};
          const uint32_t columns[2] = {key[n / 2][n % 2][w + k], key[n / 2][n % 2][w + k + 1]};
          ptx::mma_bf16(found[n], rows, columns);
        }
    }
#pragma unroll
    for (int n = 0; n < 4 * STEPS; ++n) {
      score[n] = number(at, n, me) < at.end ? found[n / 2][n % 2] : LOW;
      top = max(top, score[n]);
    }
    top = max(top, from_other(top, 1, me));
    return max(top, from_other(top, 2, me));
  }

  // Scores become weights beside the largest of the split; gives their sum for head g, and pairs of
  // them as the second product takes them.
  static ET_HOT float weigh(uint32_t (&weights)[STEPS][2], float (&score)[4 * STEPS], float best) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 4 * STEPS; ++n) sum += score[n] = std::exp(score[n] - best);
#pragma unroll
    for (int n = 0; n < 2 * STEPS; ++n)
      weights[n / 2][n % 2] = pair(score[2 * n], score[2 * n + 1]);
    return sum;
  }

  // Weighted values: the columns of word w, for heads 2c and 2c + 1.
  ET_HOT void mix(float (&mixed)[4], const uint32_t (&weights)[STEPS][2], int w) const {
#pragma unroll
    for (int n = 0; n < STEPS; ++n) {
      const auto& v = value[n];
      const uint32_t rows[4] = {low(v[0][w], v[1][w]), high(v[0][w], v[1][w]),
                                low(v[2][w], v[3][w]), high(v[2][w], v[3][w])};
      ptx::mma_bf16(mixed, rows, weights[n]);
    }
  }
  static ET_HOT uint32_t low(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
  static ET_HOT uint32_t high(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
  static ET_HOT uint32_t pair(float a, float b) {
    return to_bf16(a).bits | uint32_t(to_bf16(b).bits) << 16;
  }
};

// Where the warps meet: pairs of columns (w, parity of the head) by lane, the largest scores, the
// sums, and the largest of all. Between two splits it needs no barrier of its own: each place is
// read before the one of the two barriers of the next split that comes before it is written.
template <int GROUP, int HD> struct Meeting {
  static constexpr int ACROSS = (GROUP + 1) / 2;          // lanes c that have heads
  static constexpr int PAIRS = HD / 16 * 2 * 8 * ACROSS;  // of one warp
  static constexpr int FLOATS = WARPS * (2 * PAIRS + 2 * GROUP) + GROUP;

  struct alignas(8) Two { float even, odd; };
  Two* pairs;
  float *top, *sum, *best;

  ET_HOT explicit Meeting(float* room)
      : pairs(reinterpret_cast<Two*>(room)), top(room + 2 * WARPS * PAIRS),
        sum(top + WARPS * GROUP), best(sum + WARPS * GROUP) {}

  // The largest score of head g in the split.
  ET_HOT float largest(float mine, Thread me) const {
    const int head = me.g < GROUP ? me.g : 0;
    if (me.c == 0 && me.g < GROUP) top[me.warp * GROUP + head] = mine;
    sync();
    float found = LOW;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) found = max(found, top[k * GROUP + head]);
    return found;
  }

  ET_HOT void put_sum(float mine, float largest, Thread me) const {
    mine += from_other(mine, 1, me);
    mine += from_other(mine, 2, me);
    if (me.c != 0 || me.g >= GROUP) return;
    sum[me.warp * GROUP + me.g] = mine;
    if (me.warp == 0) best[me.g] = largest;
  }

  // Columns of word w, for heads 2c and 2c + 1.
  ET_HOT void put(const float (&mixed)[4], int w, Thread me) const {
    if (me.c >= ACROSS) return;
    Two* const mine = pairs + me.warp * PAIRS + me.g * ACROSS + me.c;
#pragma unroll
    for (int k = 0; k < 2; ++k) mine[(2 * w + k) * 8 * ACROSS] = {mixed[k], mixed[k + 2]};
  }

  // Of pair `at`, which is in two columns of this head, from `column` on.
  static ET_HOT int head(unsigned at) { return 2 * (at % ACROSS) + at / ACROSS / 8 % 2; }
  static ET_HOT int column(unsigned at) {
    return column_of<HD / 16, 8>(at / ACROSS / 16, at / ACROSS % 8);
  }

  // Adds what all warps have put there.
  ET_HOT void add(Sums<2>& sums, unsigned at) const {
    float value[2] = {}, total = 0.0f;
#pragma unroll
    for (int n = 0; n < WARPS; ++n) {
      value[0] += pairs[n * PAIRS + at].even;
      value[1] += pairs[n * PAIRS + at].odd;
      total += sum[n * GROUP + head(at)];
    }
    sums.add(best[head(at)], total, value);
  }
};

// `count` tokens, TOKENS a split. What is loaded of a split goes where the one before it was, as
// soon as that has been used; it comes from the L2, to which splits after it are on their way.
template <int HEADS, int HD, int TOKENS, int PAGE> struct Item {
  static constexpr int STEPS = (TOKENS + Tokens::STEP - 1) / Tokens::STEP;
  static constexpr int BYTES = TOKENS * HD * 4;                            // of a split
  static constexpr int AHEAD = BYTES < (1 << 16) ? (1 << 17) / BYTES : 2;  // splits asked for
  static constexpr int PAIRS = Meeting<HEADS, HD>::PAIRS;
  static constexpr int OWN = (PAIRS + ET_THREADS - 1) / ET_THREADS;  // pairs of a thread

  const Gathered<const bf16, 4>& kv;
  const Meeting<HEADS, HD> meeting;
  const int count;
  Tile<HD, PAGE, STEPS> tile = {};  // what has no value would be kept for the whole kernel
  Sums<2> sums[OWN];

  ET_HOT Item(float* room, const Gathered<const bf16, 4>& kv, int count)
      : kv(kv), meeting(room), count(count) {
    const Thread me;
    if (tokens(0, me).any()) {
      tile.load_keys(kv, tokens(0, me), me);
      tile.load_values(kv, tokens(0, me), me);
    }
    fetch(1, AHEAD);
  }

  ET_HOT Tokens tokens(int split, Thread me) const {
    return {split * TOKENS + me.warp * 16, min(count, (split + 1) * TOKENS)};
  }

  // Asks for what is there of some splits; a thread for the keys or the values of a page.
  ET_HOT void fetch(int split, int splits) const {
#if ET_STREAM  // it needs a GPU that has bulk copies
    const unsigned number = Thread().number;
    const int page = split * (TOKENS / PAGE) + number / 2, there = min(count - page * PAGE, PAGE);
    if (number >= 2 * splits * (TOKENS / PAGE) || there <= 0) return;
    bulk_prefetch(kv.data + kv.rows[0][page] + number % 2 * kv.stride[1], there * HD * 2);
#endif
  }

  // Heads of `q` lie `pitch` elements apart.
  ET_HOT void splits(const bf16* q, int64_t pitch) {
    const int all = (count + TOKENS - 1) / TOKENS;
    ET_ROLLED for (int split = 0; split < all; ++split) {
      const Thread me;  // anew: its addresses would fill registers through the loop
      const Tokens now = tokens(split, me), next = tokens(split + 1, me);
      float score[4 * STEPS] = {}, top = LOW;
      fetch(split + 1 + AHEAD, 1);
      if (now.any()) top = tile.scores(score, q + (me.g < HEADS ? me.g : 0) * pitch, now, me);
      if (next.any()) tile.load_keys(kv, next, me);
      mix(score, meeting.largest(top, me), now.any(), me);
      if (next.any()) tile.load_values(kv, next, me);
      sync();
      add();
    }
  }

  // What this warp has of a split goes to the meeting: 0 if nothing.
  ET_HOT void mix(float (&score)[4 * STEPS], float best, bool any, Thread me) const {
    uint32_t weights[STEPS][2] = {};
    meeting.put_sum(any ? tile.weigh(weights, score, best) : 0.0f, best, me);
#pragma unroll
    for (int w = 0; w < HD / 16; ++w) {
      float mixed[4] = {};
      if (any) tile.mix(mixed, weights, w);
      meeting.put(mixed, w, me);
    }
  }

  // What all warps have put there.
  ET_HOT void add() {
    const unsigned number = Thread().number;
#pragma unroll
    for (int k = 0; k < OWN; ++k)
      if (number + k * ET_THREADS < PAIRS) meeting.add(sums[k], number + k * ET_THREADS);
  }

  ET_HOT void store(View<float, 2> out, View<float, 2> ml) const {
#pragma unroll
    for (int k = 0; k < OWN; ++k) {
      const unsigned at = Thread().number + k * ET_THREADS;
      const int head = meeting.head(at), column = meeting.column(at);
      if (at >= PAIRS || head >= HEADS) continue;
      out.data[head * out.stride[0] + column] = sums[k].value[0];
      out.data[head * out.stride[0] + column + 1] = sums[k].value[1];
      if (column != 0) continue;
      ml.data[head] = sums[k].best;
      ml.data[ml.stride[0] + head] = sums[k].total;
    }
  }
};

// `left` tokens of the pages count. A split has TOKENS. Elements of a row are neighbours, and it
// begins at a multiple of 16 bytes. Eight heads at a time. `room` has ROOM floats.
template <int GROUP, int HD, int TOKENS, int PAGE, int ROOM>
ET_FN void attend(float* room, View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                  View<float, 2> out, View<float, 2> ml) {
  constexpr int HEADS = GROUP < 8 ? GROUP : 8;
  static_assert(ROOM >= Meeting<HEADS, HD>::FLOATS && HD % 16 == 0);
  settle(q.data);
  settle(kv.data);
  settle(out.data);
  settle(ml.data);
  {
    Item<HEADS, HD, TOKENS, PAGE> item(room, kv, left);
    item.splits(q.data, q.stride[0]);
    item.store(out, ml);
  }
  if constexpr (GROUP > 8) {
    sync();
    q.data += 8 * q.stride[0];
    out.data += 8 * out.stride[0];
    ml.data += 8;
    attend<GROUP - 8, HD, TOKENS, PAGE, ROOM>(room, q, left, kv, out, ml);
  }
}

// ---- combine: the parts of a row ----------------------------------------------------------------

template <int N> struct alignas(4 * N) Floats { float at[N]; };

// Adds parts, from `values` and `tops` on. The loads of some are on their way together.
template <int EACH>
ET_HOT void add_parts(Sums<EACH>& sums, const float* values, int64_t value_pitch, const float* tops,
                      int64_t top_pitch, int64_t weight_at, int count) {
  constexpr int FLIGHT = EACH < 4 ? 16 : 8;
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

// Parts are splits if `span` is less than SPAN: SPAN of them are a group, and the last group of a
// row has what is left besides. Else they are groups. A thread has elements of one head of queries;
// KV: heads of keys.
template <int KV, int GROUP, int HD, int SPAN, class T>
ET_FN void combine(View<const float, 4> part, View<const float, 4> ml, int32_t span,
                   View<T, 1> out) {
  constexpr int ALL = KV * GROUP * HD;
  constexpr int EACH = ALL >= 4 * ET_THREADS ? 4 : ALL >= 2 * ET_THREADS ? 2 : 1;
  const Thread me;
  const int count = int(part.extent[0]);
  ET_ROLLED for (int e = EACH * me.number; e < ALL; e += EACH * ET_THREADS) {
    const float* const values = part.data + e;
    const float* const tops = ml.data + e / (GROUP * HD) * ml.stride[1] + e / HD % GROUP;
    Sums<EACH> row;
    ET_ROLLED for (int base = 0, some; span < SPAN && base < count; base += some) {
      some = count - base < 2 * SPAN ? count - base : SPAN;
      Sums<EACH> group;
      add_parts(group, values + base * part.stride[0], part.stride[0],
                tops + base * ml.stride[0], ml.stride[0], ml.stride[2], some);
      row.add(group.best, group.total, group.value);
    }
    if (span >= SPAN)
      add_parts(row, values, part.stride[0], tops, ml.stride[0], ml.stride[2], count);
#pragma unroll
    for (int n = 0; n < EACH; ++n) out.data[e + n] = cast<T>(row.value[n] / row.total);
  }
}

}  // namespace et::attention
