// Attention of a single decode token for the threads of a block: hand-tuned bodies of
// llm/model/attention_decode_single.py, whose Python bodies define the result. Split `part` of PARTS
// takes every PARTS-th page of the sequence, and each warp of it sixteen tokens at a time. So the
// length alone decides the order of sums.
//
// GROUP: query heads of one KV head; HD: the width of a head, a multiple of 16.
#pragma once
#include "attention.cuh"

namespace et::attention {

// Loads the tables of RoPE into shared memory: gains of queries and keys if NORM, then cosines and
// sines.
template <int HD, bool NORM>
ET_HOT void load_rope_table(float* to, View<const float, 2> gains, View<const float, 2> rope,
                         Thread me) {
  if (NORM)
    ET_ROLLED for (unsigned k = me.number; k < 2 * HD; k += ET_THREADS)
      to[k] = gains.data[k / HD * gains.stride[0] + k % HD];
  if (me.number < HD)
    to[2 * HD + me.number] =
        rope.data[unsigned(me.number) / (HD / 2) * rope.stride[0] + unsigned(me.number) % (HD / 2)];
}

// ---- attend: the tokens of a split --------------------------------------------------------------

// The number of pages of a split with tokens before `position`. Its k-th page is page k * PARTS +
// part of the sequence.
template <int PAGE, int PARTS> ET_HOT int num_split_pages(int position, int part) {
  const int all = (position + PAGE - 1) / PAGE;
  return all > part ? (all - part + PARTS - 1) / PARTS : 0;
}

#if ET_STREAM
// The producer warp loads the keys and values of a head, a page of the split into each stage of the
// pipeline. WARPS_PER_PAGE warps share a page, sixteen tokens each, and wait for every PAGE_SHARES-th
// page only. The page before in its stage has landed by then, because at most MAX_PAGES_IN_FLIGHT
// are in flight (see ProducerWarp::most).
template <int HD, int PAGE, int PARTS>
ET_HOT void produce_split(ProducerWarp& loader, int position, View<const int32_t, 2> table,
                      View<const bf16, 4> kv, int part) {
  constexpr uint32_t BYTES = 2 * PAGE * HD * sizeof(bf16), WARPS_PER_PAGE = (PAGE + 15) / 16;
  constexpr uint32_t PAGE_SHARES = WARPS / WARPS_PER_PAGE, MAX_PAGES_IN_FLIGHT = 3;
  static_assert(BYTES <= ::et::STAGE_BYTES && WARPS % WARPS_PER_PAGE == 0);
  static_assert(PAGE_SHARES + MAX_PAGES_IN_FLIGHT <= STAGES);
  const int count = num_split_pages<PAGE, PARTS>(position, part);
  ET_ROLLED for (int k = 0; k < count && !loader.stopped(); ++k) {
    const int64_t page = table.data[k * PARTS + part];
    loader.whole(kv.data + page * kv.stride[0], 1, BYTES, BYTES);
  }
}
#endif

// A row in shared memory. Its address there needs half the registers of a pointer.
struct SmemRow {
  uint32_t at;
  ET_HOT SmemRow operator+(int elements) const { return {at + elements * uint32_t(sizeof(bf16))}; }
};
template <int COUNT, int OF> ET_HOT void load_row(uint32_t (&x)[COUNT], SmemRow row, int of) {
  static_assert(COUNT % 4 == 0);
#pragma unroll
  for (int j = 0; j < COUNT / 4; ++j) {
    uint32_t some[4];
    ptx::ld_shared_v4(row.at + 16 * (OF * j + of), some);
#pragma unroll
    for (int k = 0; k < 4; ++k) x[4 * j + k] = some[k];
  }
}

// The pages of a split for the consumer warps: in the pipeline if STREAMED, else in the cache.
template <bool STREAMED, int PARTS, class Worker> struct SplitPages {
  Worker& worker;
  const int32_t* table;
  const bf16* data;
  unsigned pitch;  // elements from page to page

  using Row = std::conditional_t<STREAMED, SmemRow, const bf16*>;
  ET_HOT Row page(int k, int part) const {
    if constexpr (STREAMED) return {worker.pipeline.wait_stage(k)};
    else return data + uint64_t(unsigned(table[k * PARTS + part])) * pitch;
  }
  ET_HOT static Row row(const bf16* smem) {
    if constexpr (STREAMED) return {uint32_t(__cvta_generic_to_shared(smem))};
    else return smem;
  }
  template <int WARPS_PER_PAGE> ET_HOT void release(int k) const {
    if constexpr (STREAMED) worker.pipeline.release(k, WARPS / WARPS_PER_PAGE);
  }
  ET_HOT void end(int count) const {
    if constexpr (STREAMED) worker.pipeline.advance(count);
  }
};

// The shared memory of a task, in this order: heads after RoPE, tables of RoPE, the reduction.
template <int GROUP, int HD> struct SplitSmem {
  static constexpr int KV_PARTITIONS = kv_partitions_at_once(GROUP, HD, 1);
  static constexpr int REDUCE_FLOATS = KV_PARTITIONS * (GROUP + GROUP % 2) * HD + 16 * GROUP;
  template <int HEADS> using Reduce = SplitSoftmaxReduce<HEADS, HD, false, KV_PARTITIONS>;
  bf16* heads;

  ET_HOT const bf16* key() const { return heads + GROUP * PITCH<HD>; }
  ET_HOT const bf16* value() const { return key() + PITCH<HD>; }
  ET_HOT float* angles() const {
    return reinterpret_cast<float*>(heads + (GROUP + 2) * PITCH<HD>);
  }
  ET_HOT float* reduce() const { return angles() + 3 * HD; }
};

// Sixteen tokens of a page, whose keys begin at `keys`. The new token replaces those from `held`
// on: token `held` itself, and tokens beyond the end.
template <int HD, int PAGE, class Row> struct KvTile16 {
  Row keys;
  int held;

  ET_HOT Row key(int k, Row own) const { return k < held ? keys + k * HD : own; }
  ET_HOT Row value(int k, Row own) const { return k < held ? keys + (PAGE + k) * HD : own; }
};

// One split of the sequence, up to the new token at `position`.
template <int GROUP, int HD, int PAGE, int PARTS, class Pages> struct AttendSplit {
  static constexpr int PIECES = (PAGE + 15) / 16;  // of a page, one for each warp in turn
  using Row = typename Pages::Row;
  using Some = KvTile16<HD, PAGE, Row>;
  SplitSmem<GROUP, HD> smem;
  Pages pages;
  int position, part;

  // Scores of sixteen tokens, as a Tile computes them but eight tokens at a time: loads from shared
  // memory need no early issue.
  template <class Q>
  ET_HOT void scores(float (&score)[4], const Q& queries, const Some& at) const {
    using Mine = Tile<HD, PAGE>;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Thread me;  // read anew: its addresses would fill registers
      uint32_t key[Mine::KEY];
      float found[2][4] = {};  // two independent chains
      load_row<Mine::KEY, 4>(key, at.key(8 * n + me.g, Pages::row(smem.key())), me.c);
#pragma unroll
      for (int w = 0; w < Mine::KEY; w += Mine::SOME) {
        uint32_t q[Mine::SOME];
        queries(q, w, me);
#pragma unroll
        for (int k = 0; k < Mine::SOME; k += 2)
          ptx::mma_bf16(found[(w + k) / 2 % 2], {q[k], 0, q[k + 1], 0},
                        {key[w + k], key[w + k + 1]});
      }
      score[2 * n] = found[0][0] + found[1][0], score[2 * n + 1] = found[0][1] + found[1][1];
      __syncwarp();  // keeps later loads below
    }
  }

  // Adds weights and weighted values, some words of all tokens at a time.
  ET_HOT void add(OnlineSoftmaxState<HD>& found, float (&score)[4], const Some& at,
                  Tokens tokens) const {
    using Mine = Tile<HD, PAGE>;
    constexpr int WIDE = Mine::VALUE % 4 == 0 ? 4 : Mine::VALUE % 2 == 0 ? 2 : 1;
    const Thread me;
    const Row own = Pages::row(smem.value());
    uint32_t columns[2];
    found.add_weights(columns, score, tokens, me);
#pragma unroll
    for (int w = 0; w < Mine::VALUE; w += WIDE) {
      uint32_t value[4][WIDE];
#pragma unroll
      for (int n = 0; n < 4; ++n)
        load_row<WIDE, 8>(value[n], at.value(Tokens::number(n, me), own) + 16 * w, me.g);
#pragma unroll
      for (int k = 0; k < WIDE; ++k) {
        const uint32_t rows[4] = {Mine::low(value[0][k], value[1][k]),
                                  Mine::high(value[0][k], value[1][k]),
                                  Mine::low(value[2][k], value[3][k]),
                                  Mine::high(value[2][k], value[3][k])};
        ptx::mma_bf16(found.value[w + k], rows, columns);
      }
      __syncwarp();
    }
  }

  // Attends with query heads FIRST to FIRST + HEADS.
  template <int HEADS, int FIRST> ET_HOT void attend(OnlineSoftmaxState<HD>& found) const {
    using Mine = Tile<HD, PAGE>;
    const QueryLoader<HEADS, Mine::KEY, Mine::SOME, false> queries(
        smem.heads + FIRST * PITCH<HD>, PITCH<HD>);
    ET_ROLLED for (int piece = Thread().warp;; piece += WARPS) {
      const int k = unsigned(piece) / PIECES, first = (k * PARTS + part) * PAGE;
      const int base = first + 16 * (piece - k * PIECES), end = min(position + 1, first + PAGE);
      if (first > position) break;
      const bool cached = first < position;
      const Row page = cached ? pages.page(k, part) : Pages::row(smem.key());
      if (base < end) {
        const Some at{page + (base - first) * HD, min(position, end) - base};
        float score[4];
        scores(score, queries, at);
        add(found, score, at, Tokens{base, end});
      }
      if (cached) pages.template release<PIECES>(k);
    }
  }

  // Attends with all heads, eight at a time.
  template <int FIRST = 0> ET_HOT void attend_heads(View<float, 2> out, View<float, 2> ml) const {
    constexpr int HEADS = GROUP - FIRST < 8 ? GROUP - FIRST : 8;
    OnlineSoftmaxState<HD> found;
    attend<HEADS, FIRST>(found);
    const typename SplitSmem<GROUP, HD>::template Reduce<HEADS> reduce(smem.reduce());
    reduce.reduce(found, out, ml, nullptr,
                  min(WARPS, PIECES * num_split_pages<PAGE, PARTS>(position + 1, part)));
    if constexpr (GROUP - FIRST > 8) {
      sync();
      out.data += 8 * out.stride[0];
      ml.data += 8;
      attend_heads<FIRST + 8>(out, ml);
    }
  }
};

// `arrive` waits for `qkv`, the queries, the key and the value of one KV head. The result is false
// if the launch is aborted. STREAMED: the producer warp loads the pages; then no warp reads a page
// twice.
template <bool STREAMED, int GROUP, int HD, int PAGE, int PARTS, bool NORM, class Worker,
          class Arrive>
ET_HOT bool attend_single(Worker& worker, bf16* memory, View<const float, 1> qkv,
                       View<const float, 2> gains, View<const float, 2> rope, int position,
                       View<const int32_t, 2> table, View<const bf16, 4> kv, int part,
                       View<float, 2> out, View<float, 2> ml, float eps, float scale,
                       const Arrive& arrive) {
  static_assert(HD % 16 == 0 && HD <= ET_THREADS && (!STREAMED || GROUP <= 8));
  using Smem = SplitSmem<GROUP, HD>;
  static_assert(Smem::template Reduce<(GROUP < 8 ? GROUP : 8)>::FLOATS <= Smem::REDUCE_FLOATS);
  using Pages = SplitPages<STREAMED, PARTS, Worker>;
  const Smem smem{memory};
  const AttendSplit<GROUP, HD, PAGE, PARTS, Pages> mine{
      smem, {worker, table.data, kv.data, unsigned(kv.stride[0])}, position, part};
  load_rope_table<HD, NORM>(smem.angles(), gains, rope, Thread());
  if (!arrive()) return false;
  {
    const Thread me;
    ET_ROLLED for (int at = 2 * me.warp; at < GROUP + 2; at += 2 * WARPS) {
      const int head = min(at + me.lane / LANES, GROUP + 1);
      apply_rope_smem<GROUP, HD, NORM>(head, qkv.data + head * HD, smem.angles(),
                                       smem.heads + head * PITCH<HD>, eps, scale, me);
    }
  }
  sync();
  mine.attend_heads(out, ml);
  mine.pages.end(num_split_pages<PAGE, PARTS>(position, part));
  return true;
}

// ---- combine: the splits of a head --------------------------------------------------------------

// Combines COLUMNS columns of a head, a power of two. The lanes of a column are neighbours.
template <int PARTS, int COLUMNS, class T>
ET_FN void combine_single(View<const float, 2> part, View<const float, 2> ml, View<T, 1> out) {
  constexpr int MANY = ET_THREADS / COLUMNS, ACROSS = MANY < PARTS ? MANY : PARTS;  // lanes
  constexpr int EACH = PARTS / ACROSS;
  static_assert(PARTS % ACROSS == 0 && ACROSS <= WARP && (ACROSS & (ACROSS - 1)) == 0);
  const Thread me;
  const int column = unsigned(me.number) / ACROSS, mine = unsigned(me.number) % ACROSS;
  const bool there = column < COLUMNS;
  float row_max[EACH], best = MASKED_SCORE, total = 0.0f, sum = 0.0f;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    row_max[k] = ml.data[(k * ACROSS + mine) * ml.stride[0]];
    best = fast_max(best, row_max[k]);
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) best = fast_max(best, shuffle_xor(best, by, me));
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int n = k * ACROSS + mine;
    const float weight = fast_exp(row_max[k] - best);
    total += weight * ml.data[n * ml.stride[0] + ml.stride[1]];
    sum += there ? weight * part.data[n * part.stride[0] + column] : 0.0f;
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) {
    total += shuffle_xor(total, by, me);
    sum += shuffle_xor(sum, by, me);
  }
  if (there && mine == 0) out.data[column] = cast<T>(sum / total);
}

// ---- append: the new entry of the cache ---------------------------------------------------------

// Eight lanes write a key or a value.
template <int HEADS, int GROUP, int HD, bool NORM, class T>
ET_FN void append_kv(View<const float, 1> qkv, View<const float, 2> gains,
                     View<const float, 2> rope, View<T, 3> kv, float eps) {
  constexpr int ALL = 2 * HEADS, AT_ONCE = ET_THREADS / ROPE_LANES;
  const Thread me;
  ET_ROLLED for (int base = 0; base < ALL; base += AT_ONCE) {
    const int at = base + unsigned(me.number) / ROPE_LANES, held = at < ALL ? at : ALL - 1;
    const int of = held / 2, head = GROUP + held % 2;
    apply_rope_head<GROUP, HD, NORM>(head, at < ALL, qkv.data + (of * (GROUP + 2) + head) * HD,
                                     1.0f, gains, rope,
                                     kv.data + of * kv.stride[0] + held % 2 * kv.stride[1], eps,
                                     1.0f, me);
  }
}

}  // namespace et::attention
