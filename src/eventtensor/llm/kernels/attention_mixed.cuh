// Attention of mixed batches (prefill and decode): the KV pipeline. Asynchronous copies bring keys
// and values into shared memory that the weight pipeline lends (persistent_smem.cuh). Each warp has
// its own stages, of 16 tokens (a chunk) each; it loads some chunks ahead and waits for no other
// warp. The order of sums is that of attend_heads (attention.cuh).
//
// Contract: a lane waits for its own copies, then the lanes of its warp meet before any reads what
// others have copied. They meet again after the reads and before the stage is filled anew. The data
// of a stage belongs to the generic proxy.
#pragma once
#include "attention.cuh"
#include "cuda/memory/bulk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/memory/persistent_smem.cuh"

namespace et::attention {

template <int GROUP, int HD, int H = 1>
using PipelineReduce = SplitSoftmaxReduce<GROUP, HD, true, kv_partitions_at_once(GROUP, HD, H), H>;

// The keys of 16 tokens, of which those up to `last` count. `row`: their distance from the first KV
// head of the task, in rows of the cache. NOWHERE: the chunk is empty.
struct Chunk {
  static constexpr int NOWHERE = INT32_MIN;
  int row = NOWHERE;
  unsigned last = 0;
};

// The stages of a warp. A row of keys has pieces of 16 bytes; odd rows swap their halves, and rows
// of values swap pieces by their number modulo 8. So neither copies nor loads conflict in a bank.
template <int HD, int PAGE> struct KvPipeline {
  static constexpr uint32_t ROW = 2 * HD, BYTES = 16 * ROW;  // of keys or values of a chunk
  static constexpr int DEPTH = PERSISTENT_BYTES_PER_WARP / (2 * BYTES);  // stages of a warp
  static constexpr int KEY = HD / 8, VALUE = HD / 16;
  static_assert(DEPTH == 1 || DEPTH == 2);

  // The address of the stage of chunk number `count`, where the stages begin at `begin`.
  static ET_HOT uint32_t stage(uint32_t begin, unsigned count) {
    return begin + count % DEPTH * (2 * BYTES);
  }

  // The pieces of a row, and the rows that a warp copies at once, a piece for each lane.
  static constexpr int PIECES = HD / 8, AT_ONCE = WARP / PIECES;
  static ET_HOT uint32_t piece_at(uint32_t stage, unsigned row, unsigned piece, bool values) {
    const unsigned swap = values ? row % 8 : row % 2 * 4;
    return stage + (values ? BYTES : 0) + row * ROW + (piece ^ swap) * 16;
  }

  // A lane copies pieces of every AT_ONCE-th row. In a full chunk their distances are constants. In
  // a partial chunk the last row that counts replaces those behind it.
  static ET_HOT void issue_load(const bf16* keys, const Chunk& chunk, uint32_t stage, bool values,
                         Thread me) {
    __syncwarp();  // all lanes have read the stage
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
              piece_at(stage, first + row % 8, piece, values) + row / 8 * 8 * ROW,
              begin + row * HD, policy);
      } else {
        ET_ROLLED for (unsigned row = first; row < 16; row += AT_ONCE)
          ptx::cp_async_16_once(piece_at(stage, row, piece, values),
                                from + (row < chunk.last ? row : chunk.last) * HD, policy);
      }
    }
    ptx::cp_async_commit();
  }

  // Waits for the oldest half of a chunk; younger halves stay in flight.
  static ET_HOT void wait_oldest() {
    ptx::cp_async_wait<2 * DEPTH - 1>();
    __syncwarp();
  }

  // Reads keys into the fragments of a Tile.
  static ET_HOT void read_keys(uint32_t (&key)[2][KEY], uint32_t stage, Thread me) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int j = 0; j < KEY / 4; ++j) {
        uint32_t some[4];
        ptx::ld_shared_v4(stage + (8 * n + me.g) * ROW + (me.c + 4 * (j ^ (me.g & 1))) * 16, some);
#pragma unroll
        for (int k = 0; k < 4; ++k) key[n][4 * j + k] = some[k];
      }
  }

  // Reads columns 16 w to 16 w + 15 of the head as rows of a product, with tokens along K.
  static ET_HOT void read_values(uint32_t (&value)[VALUE][4], uint32_t stage, Thread me) {
    const unsigned token = me.lane / 16 * 8 + me.lane % 8, piece = me.lane / 8 % 2;
#pragma unroll
    for (int w = 0; w < VALUE; ++w)
      ptx::ldmatrix_x4_trans(
          stage + BYTES + token * ROW + ((2 * w + piece) ^ (token % 8)) * 16, value[w]);
  }
};

// The tile of a task in its grid, and the next one of its worker (-1: not known).
struct WorkTiles { int64_t now, next; };

// A KV head in the pages of an item. `head`: its number among those of the task.
template <int HD, int PAGE> struct CachedKv {
  const int64_t* pages;
  int head;
  ET_HOT Chunk chunk(int base, int end) const {
    if (base >= end) return {};
    return {int(pages[base / PAGE] / HD) + head * (2 * PAGE) + base % PAGE,
            unsigned(end - 1 - base)};
  }
};

// The tokens of an item, all of them in the cache.
template <int HD, int PAGE> struct ItemKv {
  CachedKv<HD, PAGE> kv;
  int count;

  ET_HOT Chunk chunk(int base) const { return kv.chunk(base, count); }
  // The copies have brought all of a chunk.
  template <bool VALUES> ET_HOT void complete(uint32_t, int, Thread) const {}
};

// The first tokens of the next task of the worker, where an item has GROUPS tasks. Each lane has
// the number of a page.
template <int HD, int PAGE, int GROUPS, int H> struct NextItemKv {
  int left = 0, num_new = 0;  // tokens, and how many of them are not in the cache
  int page = 0, heads;      // KV heads from those of this task to those of the next
  int pitch;                // of pages, in rows

  ET_HOT NextItemKv(const WorkTiles& tiles, const NextItems& items, Thread me)
      : pitch(int(items.pitch / HD)) {
    const unsigned now = unsigned(tiles.now), next = unsigned(tiles.next);
    const int64_t after = int64_t(next / GROUPS) - now / GROUPS;
    heads = (int(next % GROUPS) - int(now % GROUPS)) * H;
    if (tiles.next < 0 || after >= items.left.extent[0]) return;
    left = items.left.data[after];
    num_new = left - items.num_cached.data[after];
    if (me.lane < items.pages.extent[1])
      page = items.pages.data[after * items.pages.stride[0] + me.lane];
  }
  ET_HOT Chunk chunk(int base, int head) const {
    if (base >= left - num_new) return {};
    return {__shfl_sync(~0u, page, base / PAGE) * pitch + (head + heads) * (2 * PAGE) +
                base % PAGE,
            unsigned(left - num_new - 1 - base)};
  }
};

// For each warp, the number of chunks that it has loaded for earlier tasks; only the lowest bits
// count. The first chunk of its next task is in that stage.
ET_FN uint8_t* stage_counters() {
  __shared__ uint8_t count[WARPS];
  return count;
}

// One attention task. A warp loads DEPTH chunks ahead. After the last chunk of its task it loads
// those of the next task, so memory is not idle while the warps meet and tasks change. (L2
// prefetches beyond these chunks cost 1-2%.)
template <int HD, int PAGE, int HEADS, int H, class Kv> class AttendItem {
 public:
  using Keys = Tile<HD, PAGE>;

  // `is_prefetched`: the task before has loaded the first chunks. Otherwise the caller calls
  // `begin` before anything else.
  ET_HOT AttendItem(uint32_t stages, const bf16* keys, const Kv& kv, const WorkTiles& tiles,
                    const NextItems& items, bool is_prefetched, Thread me)
      : stages_(stages), keys_(keys), kv_(kv), next_kv_(tiles, items, me),
        stage_(is_prefetched ? stage_counters()[me.warp] : 0) {}

  ET_HOT void begin(Thread me) const {
    int base = Partitions::first(kv_.count, me);
    ET_ROLLED for (int n = 0; n < DEPTH; ++n, base = Partitions::next(base, kv_.count))
      issue_load(kv_.chunk(base), stage_ + n, me);
  }

  // Computes all KV partitions of the warp. `store(part, kv_partition)` stores the results of all
  // but the last one, which stay in `part`.
  template <class Q, class Store>
  ET_HOT void attend(OnlineSoftmaxState<HD>& part, const Q& queries, const Store& store) {
    next_base_ = Partitions::first(next_kv_.left, Thread());
    ET_ROLLED for (int k = 0; k < H; ++k) {
      if (k > 0) {
        store(part, Partitions::kv_partition(k - 1, Thread()));
        part = OnlineSoftmaxState<HD>();
      }
      ET_ROLLED for (int step = 0;; step += Tokens::STEP) {
        const Thread me;  // read anew: its addresses would fill registers through the loop
        const int base = step + 16 * Partitions::kv_partition(k, me);
        if (base >= kv_.count) break;
        add(part, queries, base, me);
      }
    }
    const Thread me;
    int base = Partitions::first(kv_.count, me);
    ET_ROLLED for (int n = 0; n < DEPTH; ++n, base = Partitions::next(base, kv_.count))
      if (base == Partitions::NONE) issue_load(next_chunk(base), stage_++, me);
    if (me.lane == 0) stage_counters()[me.warp] = uint8_t(stage_);
  }

 private:
  using Stages = KvPipeline<HD, PAGE>;
  using Partitions = KvPartitions<H>;
  static constexpr int DEPTH = Stages::DEPTH;

  ET_HOT void issue_load(const Chunk& chunk, uint32_t count, Thread me) const {
    const uint32_t stage = Stages::stage(stages_, count);
    ET_ROLLED for (int values = 0; values < 2; ++values)
      Stages::issue_load(keys_, chunk, stage, values != 0, me);
  }

  // The chunk to load DEPTH chunks after this one: of this task, then of the next one.
  ET_HOT Chunk next_chunk(int base) {
#pragma unroll
    for (int n = 0; n < DEPTH; ++n) base = Partitions::next(base, kv_.count);
    if (base != Partitions::NONE) return kv_.chunk(base);
    const int first = DEPTH == 1 ? Partitions::first(next_kv_.left, Thread()) : next_base_;
    next_base_ = Partitions::next(first, next_kv_.left);
    return next_kv_.chunk(first, kv_.kv.head);
  }

  template <class Q>
  ET_HOT void add(OnlineSoftmaxState<HD>& part, const Q& queries, int base, Thread me) {
    const uint32_t stage = Stages::stage(stages_, stage_++);
    const Chunk next = next_chunk(base);
    float score[4] = {};
    Keys tile;
    Stages::wait_oldest();
    kv_.template complete<false>(stage, base, me);
    Stages::read_keys(tile.key, stage, me);
    Stages::issue_load(keys_, next, stage, false, me);
    tile.scores(score, queries, me);
    uint32_t columns[2], value[Stages::VALUE][4];
    part.add_weights(columns, score, {base, kv_.count}, me);
    Stages::wait_oldest();
    kv_.template complete<true>(stage, base, me);
    Stages::read_values(value, stage, me);
    Stages::issue_load(keys_, next, stage, true, me);
#pragma unroll
    for (int w = 0; w < Stages::VALUE; ++w) ptx::mma_bf16(part.value[w], value[w], columns);
  }

  uint32_t stages_;  // the address of the first stage of the warp
  const bf16* keys_;  // of the task
  const Kv kv_;
  const NextItemKv<HD, PAGE, HEADS / H, H> next_kv_;
  uint32_t stage_;  // the number of the chunk to read next
  int next_base_;   // the first token of the next chunk to load for the next task
};

// Like `attend` of attention.cuh, with keys and values in `stages`, the shared memory of the warp.
template <int GROUP, int HD, int PAGE, int HEADS, int SMEM_FLOATS>
ET_HOT void attend_mixed(const Worker& worker, uint32_t stages, float* smem, WorkTiles tiles,
                        View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                        NextItems following, View<float, 2> out, View<float, 2> ml) {
  static_assert(GROUP <= 8 && (HD == 64 || HD == 128) && PAGE % 16 == 0);
  static_assert(SMEM_FLOATS >= PipelineReduce<GROUP, HD>::FLOATS);
  using Mine = AttendItem<HD, PAGE, HEADS, 1, ItemKv<HD, PAGE>>;
  using Queries = QueryLoader<GROUP, Mine::Keys::KEY, Mine::Keys::SOME, true>;
  pin_address(q.data);
  pin_address(kv.data);
  pin_address(out.data);
  pin_address(ml.data);
  const Thread me;
  const bool is_prefetched = tiles.next >= 0 && tiles.now >= worker.count;  // by the task before
  Mine mine(stages, kv.data, {{kv.rows[0], 0}, left}, tiles, following, is_prefetched, me);
  if (!is_prefetched) mine.begin(me);
  const Queries queries(q.data, q.stride[0]);
  OnlineSoftmaxState<HD> part;
  mine.attend(part, queries, [](const OnlineSoftmaxState<HD>&, int) {});
  PipelineReduce<GROUP, HD>(smem).reduce(part, out, ml);
}

}  // namespace et::attention
