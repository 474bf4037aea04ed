// The producer: one warp of a block that walks the schedule ahead of the tasks and brings the
// operands that no event guards. One lane asks the barriers (one that 32 lanes ask answers more
// slowly) and issues the copies of pages without gaps; where rows lie apart every lane copies one
// of them, since a thread needs 40 ns for each copy.
#pragma once
#include "cuda/mma/gemm_wide.cuh"
#include "cuda/roles/lane_table.cuh"

namespace et {

class ProducerWarp {
 public:
  ET_HOT ProducerWarp(const Shared& s, SmemPipeline& pipeline, const TensorMap* maps = nullptr)
      : index(blockIdx.x), count(gridDim.x), shared(&s), pipeline_(pipeline), maps_(maps),
        stages_(pipeline.stages()), bars_(kept_address(&pipeline)),
        bytes_(shared_address(pipeline.memory)), cap_(most()) {}

  int64_t index, count;
  Cell* cells = nullptr;
  const Shared* shared;

  // How many bytes may be in flight from now on, two pages at least: few of them make every hop of
  // the tasks quicker, many make a long run of pages quicker. START: two pages for the first round of
  // the stages, which may come while tasks of other grids hop. At most: a warp that takes every
  // TURNS-th page asks for one when it has seen those before; with so few in flight, what was in its
  // stage has landed by then, and the barrier's parity means this page.
  ET_HOT uint32_t most() const { return stages_.count - TURNS; }
  template <bool START = false> ET_HOT void limit_bytes_in_flight(uint32_t bytes) {
    const uint32_t pages = bytes / STAGE_BYTES < 2 ? 2 : bytes / STAGE_BYTES;
    then_ = pages < most() ? pages : most();
    cap_ = START ? 2 : then_;
    slow_ = START ? stages_.count : 0;
  }

  // Rows of `row_bytes` that lie `stride` bytes apart, as pages of PANEL rows by `chunk` bytes.
  ET_HOT void rows(const void* data, int64_t rows, uint32_t row_bytes, int64_t stride,
                   uint32_t chunk) {
    const char* panel = static_cast<const char*>(data) + lane_id() * stride;
    for (int64_t left = rows; left > 0; left -= PANEL, panel += PANEL * stride) {
      const uint32_t n = left < PANEL ? uint32_t(left) : PANEL;
      for (uint32_t k = 0; k < row_bytes; k += chunk) {
        const uint32_t bytes = row_bytes - k < chunk ? row_bytes - k : chunk;
        if (!open_all(n * bytes)) return;
        if (lane_id() < n) copy_once(lane_id() * bytes, panel + k, bytes);
        advance();
      }
    }
  }

  // Bytes without gaps, as pages of `page` bytes. While the pipeline is full and nothing is in
  // flight, up to AHEAD pages are prefetched to the L2. When all stages have been filled once and
  // the next page finds room, the task of these pages has begun: no hop waits behind what it needs,
  // and up to RUSH bytes are in flight.
  template <uint32_t AHEAD, uint32_t RUSH>
  ET_HOT void run(const void* data, uint32_t bytes, uint32_t page) {
    run_on<AHEAD, RUSH>({data}, bytes, page);
    follow();
  }

  // The same by one lane; the others follow later. A stage has a piece of each of N operands.
  template <uint32_t AHEAD, uint32_t RUSH, uint32_t N>
  ET_HOT void run_on(const void* const (&data)[N], uint32_t bytes, uint32_t piece) {
    const uint32_t pages = bytes / piece;
    left_ = pages > LAST ? pages : LAST + 1;
    if (lane_id() != 0) return;
    const char *const first = static_cast<const char*>(data[0]), *asked = first;
    const uint32_t few = cap_, then = then_;
    for (uint32_t k = 0, at = 0; k < pages && stopped_ == 0; ++k, at += piece) {
      if (AHEAD != 0 && N == 1) ask(first + at, asked, first + bytes, piece, AHEAD * piece);
      if (RUSH != 0 && k == stages_.count) limit_bytes_in_flight(RUSH);
      if (!open(N * piece)) break;
#pragma unroll
      for (uint32_t e = 0; e < N; ++e)
        copy_once(e * piece, static_cast<const char*>(data[e]) + at, piece);
      advance();
    }
    cap_ = slow_ != 0 ? few : then;
    then_ = then;
  }

  // What one lane has done, the others know.
  ET_HOT void follow() {
    const uint32_t known = __shfl_sync(~0u, stage_ << 2 | round_ << 1 | stopped_, 0);
    stage_ = known >> 2;
    round_ = known >> 1 & 1;
    stopped_ = known & 1;
  }

  // Packed panels of a product with many columns (gemm_traversal.cuh), which have `stride` bytes: by
  // rounds, by passes of columns, by pages of K, by the groups of the round.
  ET_HOT void panels(const void* data, const GemmTraversal& walk, int64_t stride) {
    const char* const from = static_cast<const char*>(data);
    rounds(walk, [&](uint32_t first, uint32_t panels, uint64_t policy) {
      round(from + first * stride, stride, walk, first, panels, policy);
    });
  }

  // The same where all groups are whole and spans have MOST_SPAN bytes: bundle by bundle, or, of
  // single panels, whose pieces are too short to be copied alone, a page in one copy by a map.
  ET_HOT void panels(const void* data, const GemmTraversal& walk, int64_t stride, Paged in) {
    const uint64_t from = reinterpret_cast<uint64_t>(data) - reinterpret_cast<uint64_t>(in.data);
    const uint32_t runs = uint32_t(from / RUN), each = uint32_t(stride / RUN);
    const uint32_t y = runs % each, z = runs / each;
    groups(walk, [&](uint32_t panel, uint32_t k, uint64_t policy) {
      tma_load_3d(page(), maps_[in.map], y + k * (PIECE / RUN), z + panel, bar(), policy);
    });
  }
  template <uint32_t BUNDLE> ET_HOT void bundles(const void* data, const GemmTraversal& walk,
                                                 int64_t stride) {
    const char* const from = static_cast<const char*>(data);
    groups(walk, [&](uint32_t panel, uint32_t k, uint64_t policy) {
#pragma unroll
      for (uint32_t p = 0; p < GROUP; p += BUNDLE)
        bulk_copy(page() + p * PIECE, from + (panel + p) * stride + k * BUNDLE * PIECE,
                  BUNDLE * PIECE, bar(), policy);
    });
  }

  // So many empty pages, for a grid of tasks that wants memory.
  ET_HOT bool lend_stages(uint32_t pages) {
    if (lane_id() == 0) ET_ROLLED for (uint32_t k = 0; k < pages && open(0); ++k) advance();
    follow();
    return !stopped_;
  }

  // Rows as one page, dense.
  ET_HOT void whole(const void* data, int64_t rows, uint32_t row_bytes, int64_t stride) {
    const bool dense = rows == 1 || stride == row_bytes;
    const uint32_t pieces = dense ? 1 : uint32_t(rows);
    const uint32_t all = uint32_t(rows) * row_bytes, bytes = dense ? all : row_bytes;
    if (!open_all(all)) return;
    const char* const from = static_cast<const char*>(data);
    ET_ROLLED for (uint32_t r = lane_id(); r < pieces; r += 32)
      bulk_copy(page() + r * bytes, from + r * stride, bytes, bar());
    advance();
  }

  // Before anything that an earlier launch may have written (all but weights): the tasks of this
  // block have begun, so that launch has ended. The fence is for copies of what it wrote.
  ET_HOT void wait_for_tasks() {
    if (cells != nullptr || stopped_ != 0) return;
    while (!bar_over(pipeline_.begun, 0)) {}
    cells = pipeline_.cells;
    stopped_ = cells == nullptr;
    fence_global_writes();
    __syncwarp();
  }

  // Waits for a cell, like a worker; the worker's own wait for it is the one that is bounded. Where
  // grids wait for the same, it is looked at once: cells only count up.
  ET_HOT bool wait(Event event, int64_t at, int64_t target) {
    if (stopped_ != 0) return false;
    const Look look{event.base + at, target};
    if (look.index == last_.index && look.target <= last_.target) return true;
    last_ = look;
    bool seen = true;
    if (lane_id() == 0)
      while (!ev_reached(cells[event.base + at], target)) {
        seen = !over();
        if (!seen) break;
        __nanosleep(200);
      }
    __syncwarp();
    stopped_ = !__shfl_sync(~0u, seen, 0);
    return !stopped_;
  }

  // Polls until there(epoch) is true in all lanes; false if the tasks are over.
  template <class F> ET_HOT bool until(const F& there) {
    const uint32_t epoch = pipeline_.epoch;
    while (stopped_ == 0 && __any_sync(~0u, !there(epoch)))
      stopped_ = __shfl_sync(~0u, uint32_t(over()), 0);
    return stopped_ == 0;
  }

  // Claims the worker's next tile, which `forward_tile` then sends. At most MAX_CLAIMED_TILES are
  // claimed ahead of those that the worker has begun: nobody else can take them.
  ET_HOT int64_t claim() {
    int64_t tile = INT64_MAX;
    if (lane_id() == 0) {
      while (!stopped_ && !can_forward()) stopped_ = over();
      if (!stopped_) {
        if (!first_ && !claimed_) ticket_ = tk_claim(cells[tickets_]);
        tile = first_ ? index : count + ticket_;
      }
      pipeline_.tiles[claims_ % MAX_CLAIMED_TILES].tile = tile;
      first_ = claimed_ = false;
    }
    stopped_ = __shfl_sync(~0u, stopped_, 0);
    return __shfl_sync(~0u, tile, 0);
  }
  // Sends the worker its tile and the values looked up for it.
  template <class... T> ET_HOT void forward_tile(T... values) {
    static_assert(sizeof...(T) <= ET_TILE_VALUES);
    if (lane_id() != 0 || stopped_ != 0) return;
    const uint32_t stage = claims_++ % MAX_CLAIMED_TILES;
#if ET_TILE_VALUES
    uint32_t k = 0;
    ((pipeline_.tiles[stage].values[k++] = values), ...);
#endif
    bar_arrive(pipeline_.tile_full[stage]);
  }

  // The first tile of a worker is the one of its number. From now on the next one is claimed while
  // the last pages of one are asked for: an answer takes as long as three pages do, and nothing
  // comes meanwhile.
  ET_HOT void begin_claims(int64_t cell) {
    tickets_ = cell;
    first_ = true;
  }
  // Sends the end mark: no tile is left.
  ET_HOT void end_claims() {
    tickets_ = NONE;
    forward_tile();
  }

  ET_HOT bool stopped() const { return stopped_ != 0; }
  // No page comes any more. The copies land before the warp leaves: the memory is the block's.
  ET_HOT void finish() {
    if (lane_id() == 0)
      while (in_flight_ != 0) see_landed();
  }

 private:
  ET_HOT static uint32_t lane_id() { return threadIdx.x % 32; }
  ET_HOT uint32_t full() const { return bars_ + offsetof(SmemPipeline, full); }
  ET_HOT uint32_t empty() const { return bars_ + offsetof(SmemPipeline, empty); }
  ET_HOT uint32_t page() const { return bytes_ + stage_ * STAGE_BYTES; }  // where the next one goes
  // The full barrier that the copy's bytes complete.
  ET_HOT uint32_t bar() const { return full() + stage_ * 8; }
  ET_HOT bool over() const { return shared_peek(pipeline_.stop) != 0; }

  // Calls pages(first panel, panels, policy) for each round and pass, by one lane.
  template <class F> ET_HOT void rounds(const GemmTraversal& walk, const F& pages) {
    const uint32_t count = walk.passes() * walk.left(0) * walk.pages();
    left_ = count > LAST ? count : LAST + 1;
    if (lane_id() == 0) {
      if (walk.left(0) <= groups_for(N128)) {  // known when this is compiled
        ET_ROLLED for (uint32_t left = walk.passes(); left > 0; --left)
          pages(0, walk.panels, policy_for(left == 1));
      } else {
        for (uint32_t first = 0; first < walk.panels; first += walk.round(first))
          for (uint32_t left = walk.passes(); left > 0; --left)
            pages(first, walk.round(first), policy_for(left == 1));
      }
    }
    follow();
  }

  // The pages of a round, which has so many panels.
  ET_HOT void round(const char* from, int64_t stride, const GemmTraversal& walk, uint32_t first,
                    uint32_t panels, uint64_t policy) {
    const uint32_t piece = PANEL * walk.span, spans = walk.spans(), bundle = walk.bundle;
    ET_ROLLED for (uint32_t left = walk.along(); left > 0 && !stopped_;
                   from += spans * bundle * piece) {
      const uint32_t some = left < spans ? left : spans;
      ET_ROLLED for (uint32_t g = 0; g < panels; g += GROUP)
        group(from + g * stride, bundle * stride,
              bundle == GROUP ? 1 : walk.count(first + g) / bundle, some, bundle * piece, policy);
      left -= some;
    }
  }

  // Stages of whole groups: copy(first panel, span, policy) loads one.
  static constexpr uint32_t PIECE = PANEL * MOST_SPAN;  // bytes of a panel
  template <class F> ET_HOT void groups(const GemmTraversal& walk, const F& copy) {
    rounds(walk, [&](uint32_t first, uint32_t panels, uint64_t policy) {
      for (uint32_t k = 0; k < walk.along() && !stopped_; ++k)
        for (uint32_t g = 0; g < panels && open(GROUP * PIECE); g += GROUP) {
          copy(first + g, k, policy);
          advance();
        }
    });
  }

  // A page of up to GROUP pieces: `spans` of each of `count` bundles, span after span.
  ET_HOT void group(const char* from, int64_t stride, uint32_t count, uint32_t spans,
                    uint32_t piece, uint64_t policy) {
    if (!open(count * spans * piece)) return;
    if (count == 1) {
      bulk_copy(page(), from, spans * piece, bar(), policy);
    } else {
#pragma unroll
      for (uint32_t p = 0; p < GROUP; ++p, from += stride)
        if (p < count) {
          bulk_copy(page() + p * piece, from, piece, bar(), policy);
          if (spans == 2)
            bulk_copy(page() + (count + p) * piece, from + piece, piece, bar(), policy);
        }
    }
    advance();
  }

  // Uses the time until the next stage is free: what lies before `asked` is on its way to the L2.
  ET_HOT void ask(const char* from, const char*& asked, const char* end, uint32_t page,
                  uint32_t most) {
    if (asked < from) asked = from;
    while (!has_room() && !over() && asked < end && asked - from < most) {
      if (!idle()) continue;
      bulk_prefetch(asked, page);
      asked += page;
    }
  }

  ET_HOT bool has_room() { return bar_over(empty() + stage_ * 8, round_ ^ 1); }

  // True if nothing is on its way to the pipeline: the memory has time for more.
  ET_HOT bool idle() {
    while (in_flight_ != 0 && bar_over(full() + landed_ * 8, landed_round_)) pass_landed();
    return in_flight_ == 0;
  }

  // By the lane that asks: waits for the next stage and announces its bytes; false if the tasks are
  // over. A fresh barrier answers that the phase before its first is over.
  ET_HOT bool open(uint32_t bytes) {
    while (!has_room())
      if (over()) { stopped_ = true; return false; }
    if constexpr (COPIER_FENCES) fence_shared_reads();
    if (slow_ != 0 && --slow_ == 0) cap_ = then_;
    while (in_flight_ >= cap_) see_landed();
    ++in_flight_;
    bar_expect(bar(), bytes);
    return true;
  }

  // The same for all lanes; what the one has seen, the others follow.
  ET_HOT bool open_all(uint32_t bytes) {
    if (lane_id() == 0 && !stopped_) open(bytes);
    __syncwarp();
    stopped_ = __shfl_sync(~0u, stopped_, 0);
    return !stopped_;
  }

  ET_HOT void advance() {
    if (++stage_ == stages_.count) stage_ = 0, round_ ^= 1;
    if (--left_ != LAST || tickets_ == NONE || lane_id() != 0) return;
    if (claimed_ || !can_forward()) return;  // once a tile
    ticket_ = tk_claim(cells[tickets_]);
    claimed_ = true;
  }

  // True if the worker has begun all tiles but MAX_CLAIMED_TILES - 1.
  ET_HOT bool can_forward() const {
    return bar_over(pipeline_.tile_empty[claims_ % MAX_CLAIMED_TILES], claims_ / MAX_CLAIMED_TILES & 1 ^ 1);
  }

  static constexpr int64_t NONE = -1;
  static constexpr uint32_t LAST = 6;  // pages before whose end the next tile is claimed

  ET_HOT void copy_once(uint32_t at, const char* from, uint32_t bytes) {
    bulk_copy(page() + at, from, bytes, bar(), policy_once());
  }

  ET_HOT void see_landed() {
    while (!bar_over(full() + landed_ * 8, landed_round_)) {}
    pass_landed();
  }
  ET_HOT void pass_landed() {
    if (++landed_ == stages_.count) landed_ = 0, landed_round_ ^= 1;
    --in_flight_;
  }

  SmemPipeline& pipeline_;
  const TensorMap* const maps_;
  const StageIndex stages_;
  const uint32_t bars_, bytes_;                     // addresses in shared memory
  uint32_t stage_ = 0, round_ = 0;                   // where the next page goes
  uint32_t landed_ = 0, landed_round_ = 0, in_flight_ = 0;  // the oldest page in flight
  uint32_t cap_, then_ = 0, slow_ = 0, claims_ = 0;
  uint32_t left_ = 0;                         // pages of the product that is on its way
  // The cell where tiles are claimed, and the next ticket, if one is taken. Nothing is done with it
  // before it is wanted: the answer may be on its way.
  int64_t tickets_ = NONE, ticket_ = 0;
  uint32_t first_ = false, claimed_ = false;
  Look last_ = {-1, 0};  // the cell that it has waited for last
  uint32_t stopped_ = 0;
};

template <int N> ET_FN void grid_begin(ProducerWarp&, int64_t, const int64_t (&)[N]) {}
ET_FN void grid_begin(ProducerWarp&, int64_t, NoCoords) {}

ET_FN bool ev_wait(ProducerWarp& producer, Event event, int64_t index, int64_t target) {
  return producer.wait(event, index, target);
}

// It has no threads to spare.
template <class F> ET_FN bool all_reached(ProducerWarp&, Event, int64_t, const F&) { return false; }

}  // namespace et
