// What a warp has of an item of attention (attention.cuh): 16 tokens at a time, what their keys and
// values give for some heads, and how the parts of the warps meet.
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

// `COUNT` words of a row, in loads that lanes `of` OF have side by side. What is read ONCE takes no
// room in the L1.
template <int COUNT, int OF, bool ONCE = false>
ET_HOT void load_row(uint32_t (&x)[COUNT], const bf16* row, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  const bf16* begin = row + 2 * WIDE * of;
  settle(begin);  // one address for all of them
#pragma unroll
  for (int j = 0; j < COUNT / WIDE; ++j) {
    Words<WIDE> some;
    if constexpr (ONCE && WIDE == 4) ptx::ld_global_once_v4(begin + 2 * WIDE * OF * j, some.at);
    else some = *reinterpret_cast<const Words<WIDE>*>(begin + 2 * WIDE * OF * j);
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
// touched: the last one stands in for them.
struct Tokens {
  static constexpr int STEP = 16 * WARPS;
  int base, end;
  ET_HOT bool any() const { return base < end; }
  ET_HOT Tokens next() const { return {base + STEP, end}; }
  // Of the 16, the one that score and weight `n` of this lane belong to.
  static ET_HOT int number(int n, Thread me) { return n / 2 * 8 + 2 * me.c + n % 2; }
};

// Where their keys lie. If a page has all 16 or none, it is looked up once.
template <int PAGE> struct Places {
  static constexpr bool TOGETHER = PAGE % 16 == 0;
  const Gathered<const bf16, 4>& kv;
  const bf16* first;
  unsigned base, last, stride;

  ET_HOT Places(const Gathered<const bf16, 4>& kv_, Tokens at)
      : kv(kv_), base(at.base), last(at.end - 1 - at.base), stride(unsigned(kv_.stride[2])) {
    if (TOGETHER) first = place(base);
    if (TOGETHER) settle(first);
  }
  ET_HOT const bf16* operator()(unsigned k) const {
    const unsigned held = k < last ? k : last;
    return TOGETHER ? first + held * stride : place(base + held);
  }
  ET_HOT const bf16* place(unsigned t) const {
    return kv.data + (kv.rows[0][t / PAGE] + t % PAGE * stride);
  }
};

ET_HOT float larger(float a, float b) { return ::fmaxf(a, b); }  // NaN shows in the weights
ET_HOT float power(float x) { return ptx::ex2_approx(x * 1.44269504f); }  // of e

// What a warp has found: for head g the largest score and this lane's share of the sum of weights,
// and the weighted values: columns of word w, heads 2c and 2c + 1.
template <int HD> struct Part {
  float top = LOW, sum = 0.0f;
  float value[HD / 16][4] = {};

  // The largest score is `now`.
  ET_HOT void rescale(float now, Thread me) {
    const float by = power(top - now);
    const float even = __shfl_sync(~0u, by, 8 * me.c), odd = __shfl_sync(~0u, by, 8 * me.c + 4);
    top = now;
    sum *= by;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 4; ++k) value[w][k] *= k % 2 == 0 ? even : odd;
  }

  // Adds the weights of tokens, which become columns of the product with their values.
  ET_HOT void weigh(uint32_t (&columns)[2], float (&score)[4], Tokens at, Thread me) {
    float now = top;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = at.number(n, me) < at.end - at.base ? score[n] : LOW;
      now = larger(now, score[n]);
    }
    now = larger(now, from_other(now, 1, me));
    rescale(larger(now, from_other(now, 2, me)), me);
#pragma unroll
    for (int n = 0; n < 4; ++n) sum += score[n] = power(score[n] - top);
    columns[0] = ptx::cvt_bf16x2(score[0], score[1]);
    columns[1] = ptx::cvt_bf16x2(score[2], score[3]);
  }
};

template <int HD, int PAGE> struct Tile {
  static constexpr int KEY = HD / 8, VALUE = HD / 16;  // words of a token that a lane loads
  uint32_t key[2][KEY], value[4][VALUE];

  ET_HOT void load_keys(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
    const Places<PAGE> token(kv, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) load_row<KEY, 4, true>(key[n], token(8 * n + me.g), me.c);
    __syncwarp();  // no load may sink below it: all are on their way before the first is used
  }
  ET_HOT void load_values(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
    const Places<PAGE> token(kv, at);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      load_row<VALUE, 8, true>(value[n], token(at.number(n, me)) + kv.stride[1], me.g);
    __syncwarp();
  }

  // Of all 16 tokens, there or not. `query(q, w)` are words w, .. of this lane's head of queries.
  static constexpr int SOME = KEY % 4 == 0 ? 4 : 2;
  template <class Q>
  ET_HOT void scores(float (&score)[4], const Q& query, Thread me) const {
    float found[2][4] = {};
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
    for (int n = 0; n < 4; ++n) score[n] = found[n / 2][n % 2];
  }

  // Adds weights and weighted values.
  ET_HOT void add(Part<HD>& part, float (&score)[4], Tokens at, Thread me) const {
    uint32_t columns[2];
    part.weigh(columns, score, at, me);
#pragma unroll
    for (int w = 0; w < VALUE; ++w) {
      const uint32_t rows[4] = {low(value[0][w], value[1][w]), high(value[0][w], value[1][w]),
                                low(value[2][w], value[3][w]), high(value[2][w], value[3][w])};
      ptx::mma_bf16(part.value[w], rows, columns);
    }
  }
  static ET_HOT uint32_t low(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
  static ET_HOT uint32_t high(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
};

// An item has WARPS strands: 16 tokens of every STEP are of one. The warps share H heads of keys: each
// takes H strands of its head, one after the other. So a task has H heads at once, and sums are the
// same whatever H is.
template <int H> struct Share {
  static constexpr int EACH = WARPS / H, STEP = Tokens::STEP, NONE = 1 << 30;
  static_assert(WARPS % H == 0);
  static ET_HOT int head(Thread me) { return me.warp / EACH; }
  static ET_HOT int strand(int turn, Thread me) { return turn * EACH + me.warp % EACH; }
  static ET_HOT int last(Thread me) { return strand(H - 1, me); }

  // The token that the warp's first chunk of `count` tokens begins with, and the next ones.
  static ET_HOT int first(int count, Thread me) { return held(16 * strand(0, me), count); }
  static ET_HOT int next(int base, int count) {
    if (base + STEP < count || base == NONE) return held(base + STEP, count);
    const int other = base % STEP + 16 * EACH;
    return H > 1 && other < STEP ? held(other, count) : NONE;
  }

 private:
  static ET_HOT int held(int base, int count) { return base < count ? base : NONE; }
};

// How the parts of the warps lie in `room`: for each of H heads of keys pairs of columns (w, parity of
// the head of queries) by lane, of so many strands AT_ONCE, then the largest scores and the sums of
// all. A head has WARPS strands, each warp the part of its last one, and has put away those before.
// Columns of a pair are neighbours, or APART: 8 lie between.
template <int GROUP, int HD, bool APART = false, int AT_ONCE = WARPS, int H = 1> struct Meeting {
  static constexpr int ACROSS = (GROUP + 1) / 2;          // lanes c that have heads
  static constexpr int PAIRS = HD / 16 * 2 * 8 * ACROSS;  // of one strand
  static constexpr int FLOATS = H * (2 * AT_ONCE * PAIRS + 2 * WARPS * GROUP);

  // Pairs of a thread. If they are several, what is found of one lies meanwhile where its last two
  // strands were that those of the second turn do not need, so that one loop has them all.
  static constexpr int OWN = (H * PAIRS + ET_THREADS - 1) / ET_THREADS;
  static constexpr bool ROLLED = OWN > 1 && AT_ONCE < WARPS && WARPS - AT_ONCE <= AT_ONCE - 2;

  struct alignas(8) Two { float even, odd; };
  struct Folded { float even, odd, total, best; };  // of a pair, and of its head
  Two* pairs;
  float *top, *sum;

  ET_HOT explicit Meeting(float* room)
      : pairs(reinterpret_cast<Two*>(room)), top(room + 2 * H * AT_ONCE * PAIRS),
        sum(top + H * WARPS * GROUP) {}

  // What a strand of the warp's head gives, which is not its last.
  ET_HOT void keep(const Part<HD>& part, int strand) const {
    const Thread me;
    put_sums(part, strand, me);
    put_values(part, strand, me);
  }

  // All meet between what is put and what is folded, in turns of AT_ONCE strands. What an item gives
  // that is alone in its row goes to `mixed`, if there is such a place. Heads of keys are one after
  // the other in all of them.
  ET_HOT void all(const Part<HD>& part, View<float, 2> out, View<float, 2> ml,
                  bf16* mixed = nullptr) const {
    put_sums(part, Shared::last(Thread()), Thread());
    Folded found[ROLLED ? 1 : OWN] = {};
    ET_ROLLED for (int first = 0; first < WARPS; first += AT_ONCE) {
      const Thread me;
      const int mine = Shared::last(me) - first;
      if (first > 0) sync();
      if (mine >= 0 && mine < AT_ONCE) put_values(part, mine, me);
      sync();
      if constexpr (ROLLED) {
        ET_ROLLED for (int number = me.number; number < H * PAIRS; number += ET_THREADS) {
          found[0] = first > 0 ? taken_back(number) : Folded{};
          add(found[0], first, number);
          if (first + AT_ONCE < WARPS) put_back(found[0], number);
          else store(out, ml, mixed, found[0], number);
        }
      } else {
#pragma unroll
        for (int e = 0; e < OWN; ++e) add(found[e], first, me.number + e * ET_THREADS);
      }
    }
#pragma unroll
    for (int e = 0; e < OWN && !ROLLED; ++e)
      store(out, ml, mixed, found[e], Thread().number + e * ET_THREADS);
  }

 private:
  using Shared = Share<H>;

  ET_HOT void put_sums(const Part<HD>& part, int strand, Thread me) const {
    float total = part.sum + from_other(part.sum, 1, me);
    total += from_other(total, 2, me);
    if (me.c == 0 && me.g < GROUP) {
      const int at = (Shared::head(me) * WARPS + strand) * GROUP + me.g;
      top[at] = part.top;
      sum[at] = total;
    }
  }
  ET_HOT void put_values(const Part<HD>& part, int place, Thread me) const {
    if (me.c >= ACROSS) return;
    Two* const mine = pairs + (Shared::head(me) * AT_ONCE + place) * PAIRS + me.g * ACROSS + me.c;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        mine[(2 * w + k) * 8 * ACROSS] = {part.value[w][k], part.value[w][k + 2]};
  }

  // The largest score of a head.
  static ET_HOT float best_of(const float* tops) {
    float best = LOW;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) best = larger(best, tops[k * GROUP]);
    return best;
  }

  ET_HOT Two* last_two(int number) const {
    return pairs + (number / PAIRS * AT_ONCE + AT_ONCE - 2) * PAIRS + number % PAIRS;
  }
  ET_HOT void put_back(const Folded& found, int number) const {
    last_two(number)[0].even = found.total;
    last_two(number)[PAIRS] = {found.even, found.odd};
  }
  ET_HOT Folded taken_back(int number) const {
    const Two values = last_two(number)[PAIRS];
    return {values.even, values.odd, last_two(number)[0].even, LOW};
  }

  static ET_HOT int head_of(int at) { return 2 * (at % ACROSS) + at / ACROSS / 8 % 2; }

  // What is there of a pair of strands from this one on.
  ET_HOT void add(Folded& found, int first, int number) const {
    const int key = number / PAIRS, at = number % PAIRS, head = head_of(at);
    if (key >= H || head >= GROUP) return;
    const float* const tops = top + key * WARPS * GROUP + head;
    const float* const sums = sum + key * WARPS * GROUP + head;
    const Two* const mine = pairs + key * AT_ONCE * PAIRS + at;
    found.best = best_of(tops);
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) {
      if (WARPS % AT_ONCE != 0 && first + n >= WARPS) break;
      const float scale = power(tops[(first + n) * GROUP] - found.best);
      found.even += mine[n * PAIRS].even * scale;
      found.odd += mine[n * PAIRS].odd * scale;
      found.total += sums[(first + n) * GROUP] * scale;
    }
  }
  ET_HOT void store(View<float, 2> out, View<float, 2> ml, bf16* mixed, const Folded& found,
                    int number) const {
    const int key = number / PAIRS, at = number % PAIRS;
    const int head = head_of(at), w = at / ACROSS / 16, g = at / ACROSS % 8;
    const int column = APART ? 16 * w + g : column_of<HD / 16, 8>(w, g);
    if (key >= H || head >= GROUP) return;
    float* const to = out.data + (key * GROUP + head) * out.stride[0] + column;
    to[0] = found.even;
    to[APART ? 8 : 1] = found.odd;
    if (mixed != nullptr) {
      const float by = 1.0f / found.total;
      bf16* const row = mixed + (key * GROUP + head) * HD + column;
      row[0] = cast<bf16>(found.even * by);
      row[APART ? 8 : 1] = cast<bf16>(found.odd * by);
    }
    if (column != 0) return;
    ml.data[key * 2 * ml.stride[0] + head] = found.best;
    ml.data[(key * 2 + 1) * ml.stride[0] + head] = found.total;
  }
};

}  // namespace et::attention
