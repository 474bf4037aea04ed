// Attention of a step of one row, for the threads of a block: hand-tuned bodies of
// models/attention_decode_single.py, whose Python bodies are the meaning. Pages of the cache are
// dealt out to the parts of a row in turn, and sixteen tokens of them to the warps of each; so the order of sums
// hangs on the length alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "attention.cuh"

namespace et::attention {

// What turns a head, near: gains of queries and of keys if NORM, then cosines and sines.
template <int HD, bool NORM>
ET_HOT void bring_angles(float* to, View<const float, 2> gains, View<const float, 2> rope,
                         Thread me) {
  if (NORM)
    ET_ROLLED for (unsigned k = me.number; k < 2 * HD; k += ET_THREADS)
      to[k] = gains.data[k / HD * gains.stride[0] + k % HD];
  if (me.number < HD)
    to[2 * HD + me.number] =
        rope.data[unsigned(me.number) / (HD / 2) * rope.stride[0] + unsigned(me.number) % (HD / 2)];
}

// ---- attend: the tokens of a part ---------------------------------------------------------------

// Pages of the cache that hold tokens of a row and are those of a part, whose k-th is number
// k * PARTS + part of the row's.
template <int PAGE, int PARTS> ET_HOT int pages_of_part(int position, int part) {
  const int all = (position + PAGE - 1) / PAGE;
  return all > part ? (all - part + PARTS - 1) / PARTS : 0;
}

#if ET_STREAM
// By the loader: keys and values of a head in the pages of a part, a page of the ring each. Warps
// that share a page, one for each sixteen tokens, ask for every TURNS-th: what was in its slot has
// landed by then, for at most FLYING are in flight (see Loader::MOST).
template <int HD, int PAGE, int PARTS>
ET_HOT void feed_part(Loader& loader, int position, View<const int32_t, 2> table,
                      View<const bf16, 4> kv, int part) {
  constexpr uint32_t BYTES = 2 * PAGE * HD * sizeof(bf16), SHARERS = (PAGE + 15) / 16;
  constexpr uint32_t TURNS = WARPS / SHARERS, FLYING = 3;
  static_assert(BYTES <= ::et::PAGE && WARPS % SHARERS == 0 && TURNS + FLYING <= SLOTS);
  const int count = pages_of_part<PAGE, PARTS>(position, part);
  ET_ROLLED for (int k = 0; k < count && !loader.stopped(); ++k) {
    const int64_t page = table.data[k * PARTS + part];
    loader.whole(kv.data + page * kv.stride[0], 1, BYTES, BYTES);
  }
}
#endif

// A row in shared memory, by its address there: half of the registers.
struct NearRow {
  uint32_t at;
  ET_HOT NearRow operator+(int elements) const { return {at + elements * uint32_t(sizeof(bf16))}; }
};
template <int COUNT, int OF> ET_HOT void load_row(uint32_t (&x)[COUNT], NearRow row, int of) {
  static_assert(COUNT % 4 == 0);
#pragma unroll
  for (int j = 0; j < COUNT / 4; ++j) {
    uint32_t some[4];
    ptx::ld_shared_v4(row.at + 16 * (OF * j + of), some);
#pragma unroll
    for (int k = 0; k < 4; ++k) x[4 * j + k] = some[k];
  }
}

// The same pages for those who attend: in the ring, or where they lie.
template <bool STREAMED, int PARTS, class Worker> struct RowPages {
  Worker& worker;
  const int32_t* table;
  const bf16* data;
  unsigned pitch;  // elements from page to page

  using Row = std::conditional_t<STREAMED, NearRow, const bf16*>;
  ET_HOT Row page(int k, int part) const {
    if constexpr (STREAMED) return {worker.pages.page(k)};
    else return data + uint64_t(unsigned(table[k * PARTS + part])) * pitch;
  }
  ET_HOT static Row row(const bf16* near) {
    if constexpr (STREAMED) return {uint32_t(__cvta_generic_to_shared(near))};
    else return near;
  }
  template <int SHARERS> ET_HOT void release(int k) const {
    if constexpr (STREAMED) worker.pages.release(k, WARPS / SHARERS);
  }
  ET_HOT void end(int count) const {
    if constexpr (STREAMED) worker.pages.advance(count);
  }
};

// What a task has near, one after the other: heads, what turns them, where the warps meet.
template <int GROUP, int HD> struct RowRoom {
  static constexpr int STRANDS = strands_at_once(GROUP, HD, 1);
  static constexpr int MEETING = STRANDS * (GROUP + GROUP % 2) * HD + 16 * GROUP;  // floats
  template <int HEADS> using Met = Meeting<HEADS, HD, false, STRANDS>;
  bf16* turned;

  ET_HOT const bf16* key() const { return turned + GROUP * PITCH<HD>; }
  ET_HOT const bf16* value() const { return key() + PITCH<HD>; }
  ET_HOT float* angles() const {
    return reinterpret_cast<float*>(turned + (GROUP + 2) * PITCH<HD>);
  }
  ET_HOT float* meeting() const { return angles() + 3 * HD; }
};

// Sixteen tokens of a page, whose keys begin at `keys`. Those from `held` on are the row's own, or
// not there: its own stands in for them.
template <int HD, int PAGE, class Row> struct Sixteen {
  Row keys;
  int held;

  ET_HOT Row key(int k, Row own) const { return k < held ? keys + k * HD : own; }
  ET_HOT Row value(int k, Row own) const { return k < held ? keys + (PAGE + k) * HD : own; }
};

// One part of a row, up to its own token at `position`.
template <int GROUP, int HD, int PAGE, int PARTS, class Pages> struct RowPart {
  static constexpr int PIECES = (PAGE + 15) / 16;  // of a page, for a warp each, in turn
  using Row = typename Pages::Row;
  using Some = Sixteen<HD, PAGE, Row>;
  RowRoom<GROUP, HD> room;
  Pages pages;
  int position, part;

  // Keys as a Tile takes them, eight tokens at a time: what lies near need not be on its way early.
  template <class Q>
  ET_HOT void scores(float (&score)[4], const Q& queries, const Some& at) const {
    using Mine = Tile<HD, PAGE>;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Thread me;  // anew each time: its addresses would fill registers
      uint32_t key[Mine::KEY];
      float found[2][4] = {};  // that do not wait for each other
      load_row<Mine::KEY, 4>(key, at.key(8 * n + me.g, Pages::row(room.key())), me.c);
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
      __syncwarp();  // no load of the others may rise above it
    }
  }

  // Values likewise, some words of all tokens at a time.
  ET_HOT void add(Part<HD>& found, float (&score)[4], const Some& at,
                  Tokens tokens) const {
    using Mine = Tile<HD, PAGE>;
    constexpr int WIDE = Mine::VALUE % 4 == 0 ? 4 : Mine::VALUE % 2 == 0 ? 2 : 1;
    const Thread me;
    const Row own = Pages::row(room.value());
    uint32_t columns[2];
    found.weigh(columns, score, tokens, me);
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

  // For HEADS of queries from FIRST on.
  template <int HEADS, int FIRST> ET_HOT void mix(Part<HD>& found) const {
    using Mine = Tile<HD, PAGE>;
    const QueriesOf<HEADS, Mine::KEY, Mine::SOME, false> queries(
        room.turned + FIRST * PITCH<HD>, PITCH<HD>);
    ET_ROLLED for (int piece = Thread().warp;; piece += WARPS) {
      const int k = unsigned(piece) / PIECES, first = (k * PARTS + part) * PAGE;
      const int base = first + 16 * (piece - k * PIECES), end = min(position + 1, first + PAGE);
      if (first > position) break;
      const bool cached = first < position;
      const Row page = cached ? pages.page(k, part) : Pages::row(room.key());
      if (base < end) {
        const Some at{page + (base - first) * HD, min(position, end) - base};
        float score[4];
        scores(score, queries, at);
        add(found, score, at, Tokens{base, end});
      }
      if (cached) pages.template release<PIECES>(k);
    }
  }

  // Eight heads at a time.
  template <int FIRST = 0> ET_HOT void heads(View<float, 2> out, View<float, 2> ml) const {
    constexpr int HEADS = GROUP - FIRST < 8 ? GROUP - FIRST : 8;
    Part<HD> found;
    mix<HEADS, FIRST>(found);
    const typename RowRoom<GROUP, HD>::template Met<HEADS> meeting(room.meeting());
    meeting.all(found, out, ml, nullptr,
                min(WARPS, PIECES * pages_of_part<PAGE, PARTS>(position + 1, part)));
    if constexpr (GROUP - FIRST > 8) {
      sync();
      out.data += 8 * out.stride[0];
      ml.data += 8;
      heads<FIRST + 8>(out, ml);
    }
  }
};

// `arrive` waits for `qkv`, which has a head of keys: its queries, the key and the value. False if
// the launch is given up. STREAMED: the loader brings the pages, which no warp may need twice then.
template <bool STREAMED, int GROUP, int HD, int PAGE, int PARTS, bool NORM, class Worker,
          class Arrive>
ET_HOT bool attend_row(Worker& worker, bf16* near, View<const float, 1> qkv,
                       View<const float, 2> gains, View<const float, 2> rope, int position,
                       View<const int32_t, 2> table, View<const bf16, 4> kv, int part,
                       View<float, 2> out, View<float, 2> ml, float eps, float scale,
                       const Arrive& arrive) {
  static_assert(HD % 16 == 0 && HD <= ET_THREADS && (!STREAMED || GROUP <= 8));
  using Room = RowRoom<GROUP, HD>;
  static_assert(Room::template Met<(GROUP < 8 ? GROUP : 8)>::FLOATS <= Room::MEETING);
  using Pages = RowPages<STREAMED, PARTS, Worker>;
  const Room room{near};
  const RowPart<GROUP, HD, PAGE, PARTS, Pages> mine{
      room, {worker, table.data, kv.data, unsigned(kv.stride[0])}, position, part};
  bring_angles<HD, NORM>(room.angles(), gains, rope, Thread());
  if (!arrive()) return false;
  {
    const Thread me;
    ET_ROLLED for (int at = 2 * me.warp; at < GROUP + 2; at += 2 * WARPS) {
      const int head = min(at + me.lane / LANES, GROUP + 1);
      turn_head<GROUP, HD, NORM>(head, qkv.data + head * HD, room.angles(),
                                 room.turned + head * PITCH<HD>, eps, scale, me);
    }
  }
  sync();
  mine.heads(out, ml);
  mine.pages.end(pages_of_part<PAGE, PARTS>(position, part));
  return true;
}

// ---- combine: the parts of a row ----------------------------------------------------------------

// COLUMNS of a head, a power of two. The lanes that have a column are neighbours.
template <int PARTS, int COLUMNS, class T>
ET_FN void combine_row(View<const float, 2> part, View<const float, 2> ml, View<T, 1> out) {
  constexpr int MANY = ET_THREADS / COLUMNS, ACROSS = MANY < PARTS ? MANY : PARTS;  // lanes
  constexpr int EACH = PARTS / ACROSS;
  static_assert(PARTS % ACROSS == 0 && ACROSS <= WARP && (ACROSS & (ACROSS - 1)) == 0);
  const Thread me;
  const int column = unsigned(me.number) / ACROSS, mine = unsigned(me.number) % ACROSS;
  const bool there = column < COLUMNS;
  float top[EACH], best = LOW, total = 0.0f, sum = 0.0f;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    top[k] = ml.data[(k * ACROSS + mine) * ml.stride[0]];
    best = larger(best, top[k]);
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) best = larger(best, from_other(best, by, me));
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int n = k * ACROSS + mine;
    const float weight = power(top[k] - best);
    total += weight * ml.data[n * ml.stride[0] + ml.stride[1]];
    sum += there ? weight * part.data[n * part.stride[0] + column] : 0.0f;
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) {
    total += from_other(total, by, me);
    sum += from_other(sum, by, me);
  }
  if (there && mine == 0) out.data[column] = cast<T>(sum / total);
}

// ---- append: the row's entry of the cache -------------------------------------------------------

// Eight lanes have a key or a value.
template <int HEADS, int GROUP, int HD, bool NORM, class T>
ET_FN void append(View<const float, 1> qkv, View<const float, 2> gains, View<const float, 2> rope,
                  View<T, 3> kv, float eps) {
  constexpr int ALL = 2 * HEADS, AT_ONCE = ET_THREADS / TURNERS;
  const Thread me;
  ET_ROLLED for (int base = 0; base < ALL; base += AT_ONCE) {
    const int at = base + unsigned(me.number) / TURNERS, held = at < ALL ? at : ALL - 1;
    const int of = held / 2, head = GROUP + held % 2;
    rotate_head<GROUP, HD, NORM>(head, at < ALL, qkv.data + (of * (GROUP + 2) + head) * HD, 1.0f,
                                 gains, rope,
                                 kv.data + of * kv.stride[0] + held % 2 * kv.stride[1], eps, 1.0f,
                                 me);
  }
}

}  // namespace et::attention
