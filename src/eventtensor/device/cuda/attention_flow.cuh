// Attention of many rows (attention.cuh): keys and values flow through shared memory that the stream
// lends (lent.cuh), by copies that run beside the warps. Each warp has places of its own there
// for 16 tokens at a time (a chunk), asks for chunks some ahead, and waits for nobody. Sums are
// those of attend_heads, in the same order.
//
// Contract: a lane waits for its own copies, then the lanes of its warp meet before any reads what
// others have copied; they meet again after the reads, before the place is asked for anew. What
// lies in a place belongs to the generic proxy.
#pragma once
#include "attention.cuh"
#include "bulk.cuh"
#include "cuda/cp_async.cuh"
#include "cuda/wgmma.cuh"
#include "lent.cuh"

namespace et::attention {

// How the warps' parts meet: large ones half at a time, so that the ring has what others would take.
template <int GROUP, int HD>
using Together = Meeting<GROUP, HD, true, (GROUP + GROUP % 2) * HD <= 512 ? WARPS : WARPS / 2>;

// Where 16 tokens lie, of which `last` and those before count; none: nullptr.
struct Chunk {
  const bf16* keys = nullptr;
  unsigned last = 0;
};

// The places of a warp. A row of keys has pieces of 16 bytes, those of odd rows with halves
// swapped; of values they are swapped by eight rows: so neither copies nor loads meet in a bank.
template <int HD, int PAGE> struct Flow {
  static constexpr uint32_t ROW = 2 * HD, BYTES = 16 * ROW;  // of keys or values of a chunk
  static constexpr int DEPTH = IDLE_WARP / (2 * BYTES);  // chunks that are on their way
  static constexpr int KEY = HD / 8, VALUE = HD / 16;
  static_assert(DEPTH >= 1);

  // Of those that begin there.
  static ET_HOT uint32_t place(uint32_t begin, unsigned turn) {
    return begin + turn % DEPTH * (2 * BYTES);
  }

  // A row's pieces, and the rows that a warp has at once, a piece for each lane.
  static constexpr int PIECES = HD / 8, AT_ONCE = WARP / PIECES;
  template <bool VALUES>
  static ET_HOT uint32_t piece_at(uint32_t place, unsigned row, unsigned piece) {
    const unsigned swap = VALUES ? row % 8 : row % 2 * 4;
    return place + (VALUES ? BYTES : 0) + row * ROW + (piece ^ swap) * 16;
  }

  template <bool VALUES> static ET_HOT void ask(const Chunk& chunk, uint32_t place, Thread me) {
    __syncwarp();  // all lanes have read what lies there
    if (chunk.keys != nullptr) {
      const unsigned piece = me.lane % PIECES, first = unsigned(me.lane) / PIECES;
      const bf16* const from = chunk.keys + (VALUES ? PAGE * HD : 0) + piece * 8;
      const uint64_t policy = policy_once();
#pragma unroll
      for (unsigned row = first, n = 0; n < 16 / AT_ONCE; ++n, row += AT_ONCE) {
        const unsigned held = row < chunk.last ? row : chunk.last;
        ptx::cp_async_16_once(piece_at<VALUES>(place, row, piece), from + held * HD, policy);
      }
    }
    ptx::cp_async_commit();
  }

  // The oldest half of a chunk has landed: of the younger ones all but one are on their way.
  static ET_HOT void wait() {
    ptx::cp_async_wait<2 * DEPTH - 1>();
    __syncwarp();
  }

  // As Tile has them.
  static ET_HOT void read_keys(uint32_t (&key)[2][KEY], uint32_t place, Thread me) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int j = 0; j < KEY / 4; ++j) {
        uint32_t some[4];
        ptx::ld_shared_v4(place + (8 * n + me.g) * ROW + (me.c + 4 * (j ^ (me.g & 1))) * 16, some);
#pragma unroll
        for (int k = 0; k < 4; ++k) key[n][4 * j + k] = some[k];
      }
  }

  // Columns 16 w to 16 w + 15 of the head as rows of a product, tokens along K.
  static ET_HOT void read_values(uint32_t (&value)[VALUE][4], uint32_t place, Thread me) {
    const unsigned token = me.lane / 16 * 8 + me.lane % 8, piece = me.lane / 8 % 2;
#pragma unroll
    for (int w = 0; w < VALUE; ++w)
      ptx::ldmatrix_x4_trans(
          place + BYTES + token * ROW + ((2 * w + piece) ^ (token % 8)) * 16, value[w]);
  }
};

// The tile of a task in its grid, and the one that its worker takes next (-1: not known).
struct Tiles { int64_t now, next; };

// The tokens of a task: the pages of an item, looked up.
template <int HD, int PAGE> struct Own {
  const Gathered<const bf16, 4>& kv;
  int count;

  ET_HOT int chunks(Thread me) const {
    const int rest = count - 16 * me.warp;
    return rest > 0 ? (rest + Tokens::STEP - 1) / Tokens::STEP : 0;
  }
  ET_HOT Chunk chunk(int n, Thread me) const {
    const int base = n * Tokens::STEP + 16 * me.warp;
    if (base >= count) return {};
    return {kv.data + kv.rows[0][base / PAGE] + base % PAGE * HD, unsigned(count - 1 - base)};
  }
  // What has landed of a chunk is all of it.
  template <bool VALUES> ET_HOT void complete(uint32_t, int, Thread) const {}
};

// The begin of the item that the worker's next task has. A lane has the number of a page.
template <int HD, int PAGE, int HEADS> struct Coming {
  int left = 0, page = 0;
  const bf16* head;
  int64_t pitch;  // of pages

  ET_HOT Coming(const Tiles& tiles, const Following& items, const bf16* mine, Thread me)
      : pitch(items.pitch) {
    const unsigned now = unsigned(tiles.now), next = unsigned(tiles.next);
    const int64_t after = int64_t(next / HEADS) - now / HEADS;
    head = mine + (int(next % HEADS) - int(now % HEADS)) * (2 * PAGE * HD);
    if (tiles.next < 0 || after >= items.left.extent[0]) return;
    left = items.left.data[after];
    if (me.lane < items.pages.extent[1])
      page = items.pages.data[after * items.pages.stride[0] + me.lane];
  }
  ET_HOT const bf16* begin(int number) const {
    return head + __shfl_sync(~0u, page, number) * pitch;
  }
  ET_HOT Chunk chunk(int n, Thread me) const {
    const int base = n * Tokens::STEP + 16 * me.warp;
    if (base >= left) return {};
    return {begin(base / PAGE) + base % PAGE * HD, unsigned(left - 1 - base)};
  }
};

// The turn of each warp's places that the next chunk of its next task has.
ET_FN uint32_t* turns() {
  __shared__ uint32_t turn[WARPS];
  return turn;
}

// One task. Chunks are asked for DEPTH ahead; behind the last ones come those of the next task, so that
// memory is not idle while the warps meet and tasks change. (Hints to the L2 beyond them cost 1-2%.)
template <int HD, int PAGE, int HEADS, class Mine> struct Attended {
  using Places = Flow<HD, PAGE>;
  using Keys = Tile<HD, PAGE>;
  static constexpr int STEP = Tokens::STEP, DEPTH = Places::DEPTH;
  uint32_t places;  // of the warp: where they begin
  Mine own;
  Coming<HD, PAGE, HEADS> coming;
  uint32_t turn;

  ET_HOT void ask(const Chunk& chunk, uint32_t n, Thread me) const {
    const uint32_t place = Places::place(places, turn + n);
    Places::template ask<false>(chunk, place, me);
    Places::template ask<true>(chunk, place, me);
  }

  // What no task before has asked for.
  ET_HOT void begin(Thread me) const {
    ET_ROLLED for (int n = 0; n < DEPTH; ++n) ask(own.chunk(n, me), n, me);
  }

  template <class Q> ET_HOT void step(Part<HD>& part, const Q& queries, int n, Thread me) const {
    const uint32_t place = Places::place(places, turn + n);
    const int mine = max(own.chunks(me), DEPTH);
    const Chunk next = n + DEPTH < mine ? own.chunk(n + DEPTH, me)
                                        : coming.chunk(n + DEPTH - mine, me);
    float score[4] = {};
    Keys tile;
    Places::wait();
    own.template complete<false>(place, n, me);
    Places::read_keys(tile.key, place, me);
    Places::template ask<false>(next, place, me);
    tile.scores(score, queries, me);
    uint32_t columns[2], value[Places::VALUE][4];
    part.weigh(columns, score, {n * STEP + me.warp * 16, own.count}, me);
    Places::wait();
    own.template complete<true>(place, n, me);
    Places::read_values(value, place, me);
    Places::template ask<true>(next, place, me);
#pragma unroll
    for (int w = 0; w < Places::VALUE; ++w) ptx::mma_bf16(part.value[w], value[w], columns);
  }

  template <class Q> ET_HOT void all(Part<HD>& part, const Q& queries) const {
    int n = 0;
    ET_ROLLED for (;; ++n) {
      const Thread me;  // anew: its addresses would fill registers through the loop
      if (n >= own.chunks(me)) break;
      step(part, queries, n, me);
    }
    const Thread me;
    ET_ROLLED for (; n < DEPTH; ++n) ask(coming.chunk(n, me), n, me);
    if (me.lane == 0) turns()[me.warp] = turn + n;
  }
};

// As attend; keys and values flow through `places`, the memory of the warp.
template <int GROUP, int HD, int PAGE, int HEADS, int ROOM>
ET_HOT void attend_many(const Worker& worker, uint32_t places, float* room, Tiles tiles,
                        View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                        Following following, View<float, 2> out, View<float, 2> ml) {
  static_assert(GROUP <= 8 && (HD == 64 || HD == 128) && PAGE % 16 == 0);
  static_assert(ROOM >= Together<GROUP, HD>::FLOATS);
  using Mine = Attended<HD, PAGE, HEADS, Own<HD, PAGE>>;
  using Queries = QueriesOf<GROUP, Mine::Keys::KEY, Mine::Keys::SOME, true>;
  settle(q.data);
  settle(kv.data);
  settle(out.data);
  settle(ml.data);
  const Thread me;
  const bool brought = tiles.next >= 0 && tiles.now >= worker.count;  // by the task before
  const Mine mine{places, {kv, left}, {tiles, following, kv.data, me},
                  brought ? turns()[me.warp] : 0};
  if (!brought) mine.begin(me);
  const Queries queries(q.data, q.stride[0]);
  Part<HD> part;
  mine.all(part, queries);
  Together<GROUP, HD>(room).all(part, out, ml);
}

}  // namespace et::attention
