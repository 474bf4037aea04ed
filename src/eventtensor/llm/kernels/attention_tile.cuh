// Tiles of attention (attention.cuh): a warp multiplies 16 tokens at a time into an online softmax,
// and the block reduces the results of its warps (split softmax).
#pragma once
#include "gathered.h"
#include "attention_combine.cuh"
#include "cuda/mma/mma.cuh"

namespace et::attention {

template <int N> struct alignas(4 * N) WordVector { uint32_t at[N]; };  // 2 N elements of 16 bits

// ---- attend: one item of a sequence -------------------------------------------------------------
//
// A warp computes 16 tokens at a time. Scores are q (as rows, 8 to 15 empty) times keys (as
// columns). So lane (g, c) holds head g and tokens 2c, 2c + 1, 8 + 2c, 9 + 2c, as the second
// product needs them: values (columns of the head as rows) times weights (heads as columns). Both
// operands of a product permute K in the same way, so a lane loads neighbours straight into its
// fragments. Each warp has its own largest score; the warps meet once, at the end.

// Keeps an address in one register pair, where compilers would keep a base and an offset.
template <class T> ET_HOT void pin_address(T*& at) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+l"(at));
#endif
}

// Loads `COUNT` words of a row; lanes `of` OF load side by side. ONCE: the loads allocate nothing
// in the L1.
template <int COUNT, int OF, bool ONCE = false>
ET_HOT void load_row(uint32_t (&x)[COUNT], const bf16* row, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  const bf16* begin = row + 2 * WIDE * of;
  pin_address(begin);  // one address for all of them
#pragma unroll
  for (int j = 0; j < COUNT / WIDE; ++j) {
    WordVector<WIDE> some;
    if constexpr (ONCE && WIDE == 4) ptx::ld_global_once_v4(begin + 2 * WIDE * OF * j, some.at);
    else some = *reinterpret_cast<const WordVector<WIDE>*>(begin + 2 * WIDE * OF * j);
#pragma unroll
    for (int k = 0; k < WIDE; ++k) x[j * WIDE + k] = some.at[k];
  }
}

// The column of a head at which word `w` of lane `of` begins.
template <int COUNT, int OF> ET_HOT int column_of(int w, int of) {
  constexpr int WIDE = COUNT % 4 == 0 ? 4 : COUNT % 2 == 0 ? 2 : 1;
  return 2 * (WIDE * (w / WIDE * OF + of) + w % WIDE);
}

// The 16 tokens of an item from `base` on. No load touches tokens from `end` on: the last token
// before replaces them.
struct Tokens {
  static constexpr int STEP = 16 * WARPS;
  int base, end;
  ET_HOT bool any() const { return base < end; }
  ET_HOT Tokens next() const { return {base + STEP, end}; }
  // Which of the 16 tokens score and weight `n` of this lane belong to.
  static ET_HOT int number(int n, Thread me) { return n / 2 * 8 + 2 * me.c + n % 2; }
};

// The addresses of the keys of 16 tokens. One lookup suffices if a page has all 16 or none.
template <int PAGE> struct KeyRows {
  static constexpr bool TOGETHER = PAGE % 16 == 0;
  const Gathered<const bf16, 4>& kv;
  const bf16* first;
  unsigned base, last, stride;

  ET_HOT KeyRows(const Gathered<const bf16, 4>& kv_, Tokens at)
      : kv(kv_), base(at.base), last(at.end - 1 - at.base), stride(unsigned(kv_.stride[2])) {
    if (TOGETHER) first = place(base);
    if (TOGETHER) pin_address(first);
  }
  ET_HOT const bf16* operator()(unsigned k) const {
    const unsigned held = k < last ? k : last;
    return TOGETHER ? first + held * stride : place(base + held);
  }
  ET_HOT const bf16* place(unsigned t) const {
    return kv.data + (kv.rows[0][t / PAGE] + t % PAGE * stride);
  }
};

ET_HOT float fast_max(float a, float b) { return ::fmaxf(a, b); }  // NaN shows in the weights
ET_HOT float fast_exp(float x) { return ptx::ex2_approx(x * 1.44269504f); }  // of e

// The online softmax of a warp. Head g: the largest score and this lane's share of the sum of
// weights. `value` has the weighted values: columns of word w, heads 2c and 2c + 1.
template <int HD> struct OnlineSoftmaxState {
  float row_max = MASKED_SCORE, sum = 0.0f;
  float value[HD / 16][4] = {};

  // Rescales everything to the new largest score `now`.
  ET_HOT void rescale(float now, Thread me) {
    const float by = fast_exp(row_max - now);
    const float even = __shfl_sync(~0u, by, 8 * me.c), odd = __shfl_sync(~0u, by, 8 * me.c + 4);
    row_max = now;
    sum *= by;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 4; ++k) value[w][k] *= k % 2 == 0 ? even : odd;
  }

  // Turns scores of tokens into weights, adds them, and returns them as columns for the product
  // with values.
  ET_HOT void add_weights(uint32_t (&columns)[2], float (&score)[4], Tokens at, Thread me) {
    float now = row_max;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = at.number(n, me) < at.end - at.base ? score[n] : MASKED_SCORE;
      now = fast_max(now, score[n]);
    }
    now = fast_max(now, shuffle_xor(now, 1, me));
    rescale(fast_max(now, shuffle_xor(now, 2, me)), me);
#pragma unroll
    for (int n = 0; n < 4; ++n) sum += score[n] = fast_exp(score[n] - row_max);
    columns[0] = ptx::cvt_bf16x2(score[0], score[1]);
    columns[1] = ptx::cvt_bf16x2(score[2], score[3]);
  }
};

template <int HD, int PAGE> struct Tile {
  static constexpr int KEY = HD / 8, VALUE = HD / 16;  // words of a token for a lane
  uint32_t key[2][KEY], value[4][VALUE];

  ET_HOT void load_keys(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
    const KeyRows<PAGE> token(kv, at);
#pragma unroll
    for (int n = 0; n < 2; ++n) load_row<KEY, 4, true>(key[n], token(8 * n + me.g), me.c);
    __syncwarp();  // no load sinks below: all are issued before the first use
  }
  ET_HOT void load_values(const Gathered<const bf16, 4>& kv, Tokens at, Thread me) {
    const KeyRows<PAGE> token(kv, at);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      load_row<VALUE, 8, true>(value[n], token(at.number(n, me)) + kv.stride[1], me.g);
    __syncwarp();
  }

  // Scores of all 16 tokens, also those beyond the end. `query(q, w)` loads words w, .. of this
  // lane's query head.
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
  ET_HOT void add(OnlineSoftmaxState<HD>& part, float (&score)[4], Tokens at, Thread me) const {
    uint32_t columns[2];
    part.add_weights(columns, score, at, me);
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

// An item has WARPS KV partitions; each has 16 tokens of every STEP. The warps share H KV heads,
// and a warp computes H partitions of its head one after the other. So a task has H heads at once,
// and sums do not depend on H.
template <int H> struct KvPartitions {
  static constexpr int EACH = WARPS / H, STEP = Tokens::STEP, NONE = 1 << 30;
  static_assert(WARPS % H == 0);
  static ET_HOT int head(Thread me) { return me.warp / EACH; }
  static ET_HOT int kv_partition(int turn, Thread me) { return turn * EACH + me.warp % EACH; }
  static ET_HOT int last(Thread me) { return kv_partition(H - 1, me); }

  // The first token of the first chunk of the warp, and of the chunk after `base`.
  static ET_HOT int first(int count, Thread me) {
    return in_range(16 * kv_partition(0, me), count);
  }
  static ET_HOT int next(int base, int count) {
    if (base + STEP < count || base == NONE) return in_range(base + STEP, count);
    const int other = base % STEP + 16 * EACH;
    return H > 1 && other < STEP ? in_range(other, count) : NONE;
  }

 private:
  static ET_HOT int in_range(int base, int count) { return base < count ? base : NONE; }
};

// KV partitions that the reduction holds at once. Of one large head these are half of all, which
// leaves memory to the pipeline; of several heads all but the last ones, which stay in registers.
constexpr ET_FN int kv_partitions_at_once(int group, int hd, int heads) {
  if (heads > 1) return WARPS - WARPS / heads;
  return (group + group % 2) * hd <= 512 ? WARPS : WARPS / 2;
}

// Reduces the KV partitions of a block. `smem` has, for each of H KV heads, pairs of columns (w,
// parity of the query head) by lane of AT_ONCE partitions, then the largest scores and the sums of
// all. A head has WARPS partitions. A warp keeps the state of its last partition in registers and
// has stored those before. The two columns of a pair are neighbours, or 8 APART.
template <int GROUP, int HD, bool APART = false, int AT_ONCE = WARPS, int H = 1>
struct SplitSoftmaxReduce {
  static constexpr int ACROSS = (GROUP + 1) / 2;          // lanes c with heads
  static constexpr int PAIRS = HD / 16 * 2 * 8 * ACROSS;  // of one partition
  static constexpr int FLOATS = H * (2 * AT_ONCE * PAIRS + 2 * WARPS * GROUP);

  static constexpr int OWN = (H * PAIRS + ET_THREADS - 1) / ET_THREADS;  // pairs of a thread

  struct alignas(8) FloatPair { float even, odd; };
  struct PairSum {
    float even, odd, total, best;
  };
  FloatPair* pairs;
  float *row_max, *sum;

  ET_HOT explicit SplitSoftmaxReduce(float* smem)
      : pairs(reinterpret_cast<FloatPair*>(smem)), row_max(smem + 2 * H * AT_ONCE * PAIRS),
        sum(row_max + H * WARPS * GROUP) {}

  // Stores the state of a partition of the warp that is not its last.
  ET_HOT void store_partition(const OnlineSoftmaxState<HD>& part, int kv_partition) const {
    const Thread me;
    store_sums(part, kv_partition, me);
    store_values(part, kv_partition, me);
  }

  // Stores and reduces AT_ONCE partitions at a time; the block meets in between. `mixed`, if not
  // null, gets the normalised result of an item that is the only one of its sequence. Outputs have
  // KV heads one after the other. The first `kv_partitions` have tokens.
  ET_HOT void reduce(const OnlineSoftmaxState<HD>& part, View<float, 2> out, View<float, 2> ml,
                     bf16* mixed = nullptr, int kv_partitions = WARPS) const {
    store_sums(part, Partitions::last(Thread()), Thread());
    PairSum found[OWN] = {};
    ET_ROLLED for (int first = 0; first == 0 || first < kv_partitions; first += AT_ONCE) {
      const Thread me;
      const int mine = Partitions::last(me) - first;
      if (first > 0) sync();
      if (mine >= 0 && mine < AT_ONCE) store_values(part, mine, me);
      sync();
#pragma unroll
      for (int e = 0; e < OWN; ++e) add(found[e], first, Pair(e, me));
    }
    const Thread me;
#pragma unroll
    for (int e = 0; e < OWN; ++e)
      store(out, ml, mixed, found[e], Pair(e, me));
  }

 private:
  using Partitions = KvPartitions<H>;

  ET_HOT void store_sums(const OnlineSoftmaxState<HD>& part, int kv_partition, Thread me) const {
    float total = part.sum + shuffle_xor(part.sum, 1, me);
    total += shuffle_xor(total, 2, me);
    if (me.c == 0 && me.g < GROUP) {
      const int at = (Partitions::head(me) * WARPS + kv_partition) * GROUP + me.g;
      row_max[at] = part.row_max;
      sum[at] = total;
    }
  }
  ET_HOT void store_values(const OnlineSoftmaxState<HD>& part, int place, Thread me) const {
    if (me.c >= ACROSS) return;
    FloatPair* const mine =
        pairs + (Partitions::head(me) * AT_ONCE + place) * PAIRS + me.g * ACROSS + me.c;
#pragma unroll
    for (int w = 0; w < HD / 16; ++w)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        mine[(2 * w + k) * 8 * ACROSS] = {part.value[w][k], part.value[w][k + 2]};
  }

  // The e-th pair of a thread: its KV head, its place among the pairs of a partition, its query
  // head.
  struct Pair {
    int key, at, head;
    ET_HOT Pair(int e, Thread me) {
      const unsigned number = me.number + e * ET_THREADS;
      key = number / PAIRS;
      at = number % PAIRS;
      head = 2 * (number % ACROSS) + number / ACROSS / 8 % 2;
    }
    ET_HOT bool is_real() const {
      return (H * PAIRS % ET_THREADS == 0 || key < H) && (GROUP % 2 == 0 || head < GROUP);
    }
  };

  // The largest score of a head.
  static ET_HOT float best_of(const float* row_maxes) {
    float best = MASKED_SCORE;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) best = fast_max(best, row_maxes[k * GROUP]);
    return best;
  }

  // Adds the AT_ONCE partitions from `first` on to a pair, up to the last partition.
  ET_HOT void add(PairSum& found, int first, Pair pair) const {
    if (!pair.is_real()) return;
    const float* const row_maxes = row_max + pair.key * WARPS * GROUP + pair.head;
    const float* const sums = sum + pair.key * WARPS * GROUP + pair.head;
    const FloatPair* const mine = pairs + pair.key * AT_ONCE * PAIRS + pair.at;
    found.best = best_of(row_maxes);
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) {
      if (WARPS % AT_ONCE != 0 && first + n >= WARPS) break;
      const float weight = fast_exp(row_maxes[(first + n) * GROUP] - found.best);
      found.even += mine[n * PAIRS].even * weight;
      found.odd += mine[n * PAIRS].odd * weight;
      found.total += sums[(first + n) * GROUP] * weight;
    }
  }
  ET_HOT void store(View<float, 2> out, View<float, 2> ml, bf16* mixed, const PairSum& found,
                    Pair pair) const {
    if (!pair.is_real()) return;
    const unsigned w = unsigned(pair.at) / ACROSS / 16, g = unsigned(pair.at) / ACROSS % 8;
    const int column = APART ? 16 * w + g : column_of<HD / 16, 8>(w, g);
    const int key = pair.key, head = pair.head;
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
