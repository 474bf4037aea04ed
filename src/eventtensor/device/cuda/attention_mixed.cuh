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

template <int GROUP, int HD, int H = 1>
using Together = Meeting<GROUP, HD, true, strands_at_once(GROUP, HD, H), H>;

// Where the keys of 16 tokens lie, of which `last` and those before count: so many rows of the cache
// behind the task's first head of keys, or before it. NOWHERE: there are none.
struct Chunk {
  static constexpr int NOWHERE = INT32_MIN;
  int row = NOWHERE;
  unsigned last = 0;
};

// The places of a warp. A row of keys has pieces of 16 bytes, those of odd rows with halves
// swapped; of values they are swapped by eight rows: so neither copies nor loads meet in a bank.
template <int HD, int PAGE> struct Flow {
  static constexpr uint32_t ROW = 2 * HD, BYTES = 16 * ROW;  // of keys or values of a chunk
  static constexpr int DEPTH = IDLE_WARP / (2 * BYTES);  // chunks that are on their way
  static constexpr int KEY = HD / 8, VALUE = HD / 16;
  static_assert(DEPTH == 1 || DEPTH == 2);

  // Of those that begin there.
  static ET_HOT uint32_t place(uint32_t begin, unsigned turn) {
    return begin + turn % DEPTH * (2 * BYTES);
  }

  // A row's pieces, and the rows that a warp has at once, a piece for each lane.
  static constexpr int PIECES = HD / 8, AT_ONCE = WARP / PIECES;
  static ET_HOT uint32_t piece_at(uint32_t place, unsigned row, unsigned piece, bool values) {
    const unsigned swap = values ? row % 8 : row % 2 * 4;
    return place + (values ? BYTES : 0) + row * ROW + (piece ^ swap) * 16;
  }

  // Lanes have pieces of every AT_ONCE-th row; those of a whole chunk lie at places known beside the
  // first ones. Of others the last row that counts stands in for what is behind it.
  static ET_HOT void ask(const bf16* keys, const Chunk& chunk, uint32_t place, bool values,
                         Thread me) {
    __syncwarp();  // all lanes have read what lies there
    if (chunk.row != Chunk::NOWHERE) {
      const unsigned piece = me.lane % PIECES, first = unsigned(me.lane) / PIECES;
      const bf16* const from =
          keys + int64_t(chunk.row) * HD + (values ? PAGE * HD : 0) + piece * 8;
      const uint64_t policy = policy_once();
      if (chunk.last >= 15) {
        const bf16* const begin = from + first * HD;
#pragma unroll
        for (unsigned row = 0; row < 16; row += AT_ONCE)
          ptx::cp_async_16_once(
              piece_at(place, first + row % 8, piece, values) + row / 8 * 8 * ROW,
              begin + row * HD, policy);
      } else {
        ET_ROLLED for (unsigned row = first; row < 16; row += AT_ONCE)
          ptx::cp_async_16_once(piece_at(place, row, piece, values),
                                from + (row < chunk.last ? row : chunk.last) * HD, policy);
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

// A head of keys in the pages of an item, looked up; `head` of those that the task has.
template <int HD, int PAGE> struct Cached {
  const int64_t* pages;
  int head;
  ET_HOT Chunk chunk(int base, int end) const {
    if (base >= end) return {};
    return {int(pages[base / PAGE] / HD) + head * (2 * PAGE) + base % PAGE,
            unsigned(end - 1 - base)};
  }
};

// The tokens of a task.
template <int HD, int PAGE> struct Own {
  Cached<HD, PAGE> kv;
  int count;

  ET_HOT Chunk chunk(int base) const { return kv.chunk(base, count); }
  // What has landed of a chunk is all of it.
  template <bool VALUES> ET_HOT void complete(uint32_t, int, Thread) const {}
};

// The begin of the item that the worker's next task has, of GROUPS tasks an item. A lane has the
// number of a page.
template <int HD, int PAGE, int GROUPS, int H> struct Coming {
  int left = 0, fresh = 0;  // tokens, and how many of them are not in the cache
  int page = 0, heads;      // heads of keys from this task's to those
  int pitch;                // of pages, in rows

  ET_HOT Coming(const Tiles& tiles, const Following& items, Thread me)
      : pitch(int(items.pitch / HD)) {
    const unsigned now = unsigned(tiles.now), next = unsigned(tiles.next);
    const int64_t after = int64_t(next / GROUPS) - now / GROUPS;
    heads = (int(next % GROUPS) - int(now % GROUPS)) * H;
    if (tiles.next < 0 || after >= items.left.extent[0]) return;
    left = items.left.data[after];
    fresh = left - items.held.data[after];
    if (me.lane < items.pages.extent[1])
      page = items.pages.data[after * items.pages.stride[0] + me.lane];
  }
  ET_HOT Chunk chunk(int base, int head) const {
    if (base >= left - fresh) return {};
    return {__shfl_sync(~0u, page, base / PAGE) * pitch + (head + heads) * (2 * PAGE) +
                base % PAGE,
            unsigned(left - fresh - 1 - base)};
  }
};

// The turn of each warp's places that the next chunk of its next task has; only its lowest bits count.
ET_FN uint8_t* turns() {
  __shared__ uint8_t turn[WARPS];
  return turn;
}

// One task. Chunks are asked for DEPTH ahead; behind the last ones come those of the next task, so that
// memory is not idle while the warps meet and tasks change. (Hints to the L2 beyond them cost 1-2%.)
template <int HD, int PAGE, int HEADS, int H, class Mine> class Attended {
 public:
  using Keys = Tile<HD, PAGE>;

  // `brought`: the task before has asked for the first chunks. Else, and before anything else,
  // `begin` does.
  ET_HOT Attended(uint32_t places, const bf16* keys, const Mine& own, const Tiles& tiles,
                  const Following& items, bool brought, Thread me)
      : places_(places), keys_(keys), own_(own), coming_(tiles, items, me),
        turn_(brought ? turns()[me.warp] : 0) {}

  ET_HOT void begin(Thread me) const {
    int base = Shared::first(own_.count, me);
    ET_ROLLED for (int n = 0; n < DEPTH; ++n, base = Shared::next(base, own_.count))
      ask(own_.chunk(base), turn_ + n, me);
  }

  // `keep(part, strand)` puts away what a strand gives; that of the last one is `part`.
  template <class Q, class Keep>
  ET_HOT void all(Part<HD>& part, const Q& queries, const Keep& keep) {
    then_ = Shared::first(coming_.left, Thread());
    ET_ROLLED for (int turn = 0; turn < H; ++turn) {
      if (turn > 0) {
        keep(part, Shared::strand(turn - 1, Thread()));
        part = Part<HD>();
      }
      ET_ROLLED for (int step = 0;; step += Tokens::STEP) {
        const Thread me;  // anew: its addresses would fill registers through the loop
        const int base = step + 16 * Shared::strand(turn, me);
        if (base >= own_.count) break;
        add(part, queries, base, me);
      }
    }
    const Thread me;
    int base = Shared::first(own_.count, me);
    ET_ROLLED for (int n = 0; n < DEPTH; ++n, base = Shared::next(base, own_.count))
      if (base == Shared::NONE) ask(next_chunk(base), turn_++, me);
    if (me.lane == 0) turns()[me.warp] = uint8_t(turn_);
  }

 private:
  using Places = Flow<HD, PAGE>;
  using Shared = Share<H>;
  static constexpr int DEPTH = Places::DEPTH;

  ET_HOT void ask(const Chunk& chunk, uint32_t turn, Thread me) const {
    const uint32_t place = Places::place(places_, turn);
    ET_ROLLED for (int values = 0; values < 2; ++values)
      Places::ask(keys_, chunk, place, values != 0, me);
  }

  // What is to be asked for DEPTH chunks behind this one: of this task, then of the next.
  ET_HOT Chunk next_chunk(int base) {
#pragma unroll
    for (int n = 0; n < DEPTH; ++n) base = Shared::next(base, own_.count);
    if (base != Shared::NONE) return own_.chunk(base);
    const int first = DEPTH == 1 ? Shared::first(coming_.left, Thread()) : then_;
    then_ = Shared::next(first, coming_.left);
    return coming_.chunk(first, own_.kv.head);
  }

  template <class Q> ET_HOT void add(Part<HD>& part, const Q& queries, int base, Thread me) {
    const uint32_t place = Places::place(places_, turn_++);
    const Chunk next = next_chunk(base);
    float score[4] = {};
    Keys tile;
    Places::wait();
    own_.template complete<false>(place, base, me);
    Places::read_keys(tile.key, place, me);
    Places::ask(keys_, next, place, false, me);
    tile.scores(score, queries, me);
    uint32_t columns[2], value[Places::VALUE][4];
    part.weigh(columns, score, {base, own_.count}, me);
    Places::wait();
    own_.template complete<true>(place, base, me);
    Places::read_values(value, place, me);
    Places::ask(keys_, next, place, true, me);
#pragma unroll
    for (int w = 0; w < Places::VALUE; ++w) ptx::mma_bf16(part.value[w], value[w], columns);
  }

  uint32_t places_;  // of the warp: where they begin
  const bf16* keys_;  // of the task
  const Mine own_;
  const Coming<HD, PAGE, HEADS / H, H> coming_;
  uint32_t turn_;  // of the place that is read next
  int then_;       // where the chunk of the next task begins that is to be asked for next
};

// As attend; keys and values flow through `places`, the memory of the warp.
template <int GROUP, int HD, int PAGE, int HEADS, int ROOM>
ET_HOT void attend_mixed(const Worker& worker, uint32_t places, float* room, Tiles tiles,
                        View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                        Following following, View<float, 2> out, View<float, 2> ml) {
  static_assert(GROUP <= 8 && (HD == 64 || HD == 128) && PAGE % 16 == 0);
  static_assert(ROOM >= Together<GROUP, HD>::FLOATS);
  using Mine = Attended<HD, PAGE, HEADS, 1, Own<HD, PAGE>>;
  using Queries = QueriesOf<GROUP, Mine::Keys::KEY, Mine::Keys::SOME, true>;
  settle(q.data);
  settle(kv.data);
  settle(out.data);
  settle(ml.data);
  const Thread me;
  const bool brought = tiles.next >= 0 && tiles.now >= worker.count;  // by the task before
  Mine mine(places, kv.data, {{kv.rows[0], 0}, left}, tiles, following, brought, me);
  if (!brought) mine.begin(me);
  const Queries queries(q.data, q.stride[0]);
  Part<HD> part;
  mine.all(part, queries, [](const Part<HD>&, int) {});
  Together<GROUP, HD>(room).all(part, out, ml);
}

}  // namespace et::attention
