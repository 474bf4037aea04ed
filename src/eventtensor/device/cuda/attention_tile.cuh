// What a warp has of an item of attention (attention.cuh): 16 tokens at a time, what their keys and
// values give for some heads, and how the parts of the warps meet.
#pragma once
#include "../gathered.h"
#include "attention_combine.cuh"
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

// How the warps' parts meet: those of one head large ones half at a time, so that the ring has what
// others would take; those of several when all but the last strands have been put away.
constexpr ET_FN int strands_at_once(int group, int hd, int heads) {
  if (heads > 1) return WARPS - WARPS / heads;
  return (group + group % 2) * hd <= 512 ? WARPS : WARPS / 2;
}

// How the parts of the warps lie in `room`: for each of H heads of keys pairs of columns (w, parity of
// the head of queries) by lane, of so many strands AT_ONCE, then the largest scores and the sums of
// all. A head has WARPS strands, each warp the part of its last one, and has put away those before.
// Columns of a pair are neighbours, or APART: 8 lie between.
template <int GROUP, int HD, bool APART = false, int AT_ONCE = WARPS, int H = 1> struct Meeting {
  static constexpr int ACROSS = (GROUP + 1) / 2;          // lanes c that have heads
  static constexpr int PAIRS = HD / 16 * 2 * 8 * ACROSS;  // of one strand
  static constexpr int FLOATS = H * (2 * AT_ONCE * PAIRS + 2 * WARPS * GROUP);

  // Pairs of a thread. If they are several, what strands weigh is found ONCE, for all of them. EVEN:
  // heads of queries come round as often as threads do, so a thread has the same one in all.
  static constexpr int OWN = (H * PAIRS + ET_THREADS - 1) / ET_THREADS;
  static constexpr bool ONCE = OWN > 1;
  static constexpr bool EVEN = ET_THREADS % (16 * ACROSS) == 0 &&
                               (ET_THREADS % PAIRS == 0 || PAIRS % ET_THREADS == 0);

  struct alignas(8) Two { float even, odd; };
  struct Folded { float even, odd, total, best; };  // of a pair; the last two unless found ONCE
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
  // the other in all of them. So many strands have tokens.
  ET_HOT void all(const Part<HD>& part, View<float, 2> out, View<float, 2> ml,
                  bf16* mixed = nullptr, int strands = WARPS) const {
    put_sums(part, Shared::last(Thread()), Thread());
    Folded found[OWN] = {};
    ET_ROLLED for (int first = 0; first == 0 || first < strands; first += AT_ONCE) {
      const Thread me;
      const int mine = Shared::last(me) - first;
      if (first > 0) sync();
      if (mine >= 0 && mine < AT_ONCE) put_values(part, mine, me);
      sync();
      if (ONCE && first == 0) {
        weigh(me);
        sync();
      }
#pragma unroll
      for (int e = 0; e < OWN; ++e) add(found[e], first, Pair(e, me));
    }
    const Thread me;
#pragma unroll
    for (int e = 0; e < OWN; ++e)
      store(out, ml, mixed, found[e], Pair(e, me));
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

  // What each strand weighs comes where its largest score was; where sums of the first strands were,
  // that of all, the largest score, and what all is to be multiplied by. WARPS lanes have a head, by
  // whole warps; those beyond the last head look at it, and leave it alone.
  ET_HOT void weigh(Thread me) const {
    static_assert(WARP % WARPS == 0);
    ET_ROLLED for (int from = me.warp * WARP; from < H * GROUP * WARPS; from += ET_THREADS) {
      const int head = min((from + me.lane) / WARPS, H * GROUP - 1), strand = me.lane % WARPS;
      const int at = (head / GROUP * WARPS + strand) * GROUP + head % GROUP;
      float best = top[at], total = 0.0f;
#pragma unroll
      for (int by = 1; by < WARPS; by *= 2) best = larger(best, from_other(best, by, me));
      const float weight = power(top[at] - best), share = sum[at] * weight;
#pragma unroll
      for (int n = 0; n < WARPS; ++n) total += __shfl_sync(~0u, share, n, WARPS);
      if (from + me.lane >= H * GROUP * WARPS) continue;
      top[at] = weight;
      if (strand < 3) sum[at] = strand == 0 ? total : strand == 1 ? best : 1.0f / total;
    }
  }

  // The e-th pair of a thread: the head of keys, where it is among those of a strand, and the head of
  // queries.
  struct Pair {
    int key, at, head;
    ET_HOT Pair(int e, Thread me)
        : key((me.number + e * ET_THREADS) / PAIRS), at((me.number + e * ET_THREADS) % PAIRS) {
      if (EVEN) {  // the same with what is known of a thread's number
        const unsigned own = me.number;
        key = e * ET_THREADS / PAIRS + (PAIRS < ET_THREADS ? own / PAIRS : 0);
        at = e * ET_THREADS % PAIRS + (PAIRS < ET_THREADS ? own % PAIRS : own);
      }
      const unsigned from = EVEN ? me.number : at;
      head = 2 * (from % ACROSS) + from / ACROSS / 8 % 2;
    }
    ET_HOT bool there() const {
      return (H * PAIRS % ET_THREADS == 0 || key < H) && (GROUP % 2 == 0 || head < GROUP);
    }
  };

  // The largest score of a head.
  static ET_HOT float best_of(const float* tops) {
    float best = LOW;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) best = larger(best, tops[k * GROUP]);
    return best;
  }

  // What strands from this one on give of a pair, as far as they are there.
  ET_HOT void add(Folded& found, int first, Pair pair) const {
    if (!pair.there()) return;
    const float* const tops = top + pair.key * WARPS * GROUP + pair.head;
    const float* const sums = sum + pair.key * WARPS * GROUP + pair.head;
    const Two* const mine = pairs + pair.key * AT_ONCE * PAIRS + pair.at;
    if (!ONCE) found.best = best_of(tops);
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) {
      if (WARPS % AT_ONCE != 0 && first + n >= WARPS) break;
      const float own = tops[(first + n) * GROUP], weight = ONCE ? own : power(own - found.best);
      found.even += mine[n * PAIRS].even * weight;
      found.odd += mine[n * PAIRS].odd * weight;
      if (!ONCE) found.total += sums[(first + n) * GROUP] * weight;
    }
  }
  ET_HOT void store(View<float, 2> out, View<float, 2> ml, bf16* mixed, const Folded& found,
                    Pair pair) const {
    if (!pair.there()) return;
    const unsigned w = unsigned(pair.at) / ACROSS / 16, g = unsigned(pair.at) / ACROSS % 8;
    const int column = APART ? 16 * w + g : column_of<HD / 16, 8>(w, g);
    const int key = pair.key, head = pair.head;
    const float* const sums = sum + key * WARPS * GROUP + head;
    float* const to = out.data + (key * GROUP + head) * out.stride[0] + column;
    to[0] = found.even;
    to[APART ? 8 : 1] = found.odd;
    if (mixed != nullptr) {
      const float by = ONCE ? sums[2 * GROUP] : 1.0f / found.total;
      bf16* const row = mixed + (key * GROUP + head) * HD + column;
      row[0] = cast<bf16>(found.even * by);
      row[APART ? 8 : 1] = cast<bf16>(found.odd * by);
    }
    if (column != 0) return;
    ml.data[key * 2 * ml.stride[0] + head] = ONCE ? sums[GROUP] : found.best;
    ml.data[(key * 2 + 1) * ml.stride[0] + head] = ONCE ? sums[0] : found.total;
  }
};

}  // namespace et::attention
