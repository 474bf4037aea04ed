// The stream inside a block: pages go from the producer through the stages of a pipeline in shared
// memory to the warps that run tasks, first in, first out. Both sides walk the same schedule, so a
// page has no name but its number. A second, small pipeline sends the tasks the claimed tiles.
//
// Contract:
//  * full[s] ends its phase when the producer has announced the page in stage s and its bytes have
//    landed; empty[s] when every warp that runs tasks has arrived after its last read (contract of
//    bulk.cuh: generic reads are fenced on either side, see COPIER_FENCES). A warp may arrive for
//    others that leave the page to it.
//  * Parities do not alias: the producer reuses a stage only after its empty phase, so a reader is at
//    most one phase behind, and the producer itself is at most one round ahead.
//  * A reader waits without a limit, and that is safe: the producer waits for nothing but landing
//    copies, pages that this block's warps release, and events that they have waited for as well
//    (bounded, there) before they ask for a page behind them, or words for which some task waits
//    (bounded, too) and behind whose limit it goes on without them (best.cuh). So it always comes.
//    That needs a task that holds pages to have at most as many as there are stages, less those that
//    are lent: stages go round, and a held one comes up again.
//  * A page that is lent has no bytes: its phase is over at once. Tasks write and read it as they
//    like, and release it like one that they have read.
//  * `stop` tells the producer that the tasks are over, or given up; it lets its copies land before
//    it leaves.
#pragma once
#include "view.h"
#include "cuda/memory/bulk.cuh"
#include "cuda/mma/gemm_traversal.cuh"

namespace et {

constexpr uint32_t STAGE_BYTES = ET_STAGE_BYTES,
                   STAGES = ET_STAGES;  // at most: activation tiles may take some of the memory
constexpr uint32_t WARPS = ET_THREADS / 32;
// Who fences the reads of a stage: the producer, when it fills the stage again, once for all
// readers. But where activation tiles have producers of their own, most pages are read by tensor
// cores, which need no fence, and the producer has no time to spare: there each reader does.
constexpr bool COPIER_FENCES = ET_WIDE == 0;

#if ET_WIDE
// Activation tiles of up to N columns have stages of their own size, each with two barriers. Memory
// for few tiles of many columns holds many tiles of few columns: these are loaded further ahead.
constexpr ET_FN uint32_t activation_tile_bytes(uint32_t columns) {
  return columns * (columns <= N64 ? MOST_SPAN : SWIZZLE);
}
constexpr uint32_t AHEAD = 4;  // activation tiles of the most columns that a launch has, at most
constexpr uint32_t MOST_LINES = AHEAD * activation_tile_bytes(N128);  // bytes
static_assert(STAGES == (ET_PIPELINE_BYTES - AHEAD * activation_tile_bytes(N16)) / STAGE_BYTES);
template <uint32_t N> struct ActivationStages {
  static constexpr uint32_t BYTES = activation_tile_bytes(N),
                            LINE = BYTES / N;  // of a tile, and of one of its columns
  static constexpr uint32_t WIDTH = N == N16 ? 0 : N == N64 ? 1 : 2;
  static constexpr uint32_t MOST = MOST_LINES / BYTES;
};
// Bytes of K in an activation tile, for spans of `span` bytes: a span has one or two equal tiles.
template <uint32_t N> constexpr ET_FN uint32_t activation_tile_k(uint32_t span) {
  return span <= ActivationStages<N>::LINE ? span : span / 2;
}
template <uint32_t N> constexpr uint32_t FIRST_PLACE = 0;
template <> constexpr uint32_t FIRST_PLACE<N64> = ActivationStages<N16>::MOST;
template <> constexpr uint32_t FIRST_PLACE<N128> = FIRST_PLACE<N64> + ActivationStages<N64>::MOST;
constexpr uint32_t PLACES = FIRST_PLACE<N128> + ActivationStages<N128>::MOST;

// Where x lies in the matrix of this tensor map (tma_activation.cuh): x's first element is number
// `first` of that row.
struct InMap {
  uint32_t map, row, first;
};
constexpr uint32_t NO_MAP = ~0u;

// What the activation producers load (activation_producer.cuh): elements of any type of 16 bits.
struct ActivationJob {
  Matrix<uint16_t> x;
  const int64_t* begins;  // of columns, in elements, if they do not lie s1 apart
  GemmTraversal walk;
  InMap in;
  const Cell* cell;  // that has to reach `target` before x is there (0: it is)
  int64_t target;
  uint32_t line;  // the number of its first tile, among those of its size
};

// The stage of the activation tile of this number, with N columns; `bytes` hold all stages.
template <uint32_t N> struct ActivationStage {
  uint32_t at, parity;
  ET_FN ActivationStage(uint32_t bytes, uint32_t number) {
    const uint32_t count = bytes / ActivationStages<N>::BYTES;  // a power of two
    at = number & count - 1;
    parity = (number & count) != 0;
  }
  ET_FN uint32_t bar() const { return (FIRST_PLACE<N> + at) * 8; }
};

struct ActivationPipeline {
  uint32_t bytes;  // for all of them, a power of two
  Barrier full[PLACES], empty[PLACES];
  Barrier given;  // over once there is a job,
  Barrier taken;  // and once all activation producers have one that has a map
  ActivationJob job;
};

// By one thread; the whole block meets afterwards. Products have at most so many columns.
ET_FN void init_activation_pipeline(ActivationPipeline& lines, int64_t columns) {
  lines.bytes = columns <= N16   ? AHEAD * activation_tile_bytes(N16)
                : columns <= N64 ? AHEAD * activation_tile_bytes(N64)
                                 : MOST_LINES;
  ET_ROLLED for (uint32_t k = 0; k < PLACES; ++k) {
    bar_init(lines.full[k], 32 * ET_ACTIVATION_WARPS);
    bar_init(lines.empty[k], WARPS);
  }
  bar_init(lines.given, 1);
  bar_init(lines.taken, ET_ACTIVATION_WARPS);
}
#endif

// The stages that pages go round.
struct StageIndex {
#if ET_WIDE
  uint32_t count = 0, part = 0;  // and 2^32 / count, up
  StageIndex() = default;
  ET_FN explicit StageIndex(const ActivationPipeline& lines)
      : count((ET_PIPELINE_BYTES - lines.bytes) / STAGE_BYTES), part(~0u / count + 1) {}
  // Exact for numbers up to part.
  ET_FN uint32_t round(uint32_t number) const { return uint32_t(uint64_t(number) * part >> 32); }
#else
  static constexpr uint32_t count = STAGES;
  ET_FN uint32_t round(uint32_t number) const { return number / count; }
#endif
  ET_FN uint32_t stage(uint32_t number) const { return number - round(number) * count; }
};

// A tile that the producer has claimed, and what it has looked up for it.
struct WorkTileInfo {
  int64_t tile;
#if ET_TILE_VALUES
  int64_t values[ET_TILE_VALUES];
#endif
};

struct SmemPipeline {
  char* memory;  // of stages, and of activation tiles behind them
  Barrier full[STAGES], empty[STAGES];
  Barrier tile_full[MAX_CLAIMED_TILES], tile_empty[MAX_CLAIMED_TILES];
  WorkTileInfo tiles[MAX_CLAIMED_TILES];
  Barrier begun;  // over once the tasks of the block begin, with `cells` (null: they never do)
  Cell* cells;
  uint32_t epoch;
  uint32_t stop;
#if ET_WIDE
  ActivationPipeline lines;
  ET_FN StageIndex stages() const { return StageIndex(lines); }
  // Where activation tiles lie: at the end of the pipeline's memory, aligned for the swizzle.
  ET_FN uint32_t beside() const { return shared_address(memory) + ET_PIPELINE_BYTES - lines.bytes; }
#else
  ET_FN StageIndex stages() const { return {}; }
#endif
};

// By one thread; the whole block meets afterwards.
ET_FN void init_pipeline(SmemPipeline& pipeline, char* memory) {
  pipeline.memory = memory;
  ET_ROLLED for (uint32_t s = 0; s < STAGES; ++s) {
    bar_init(pipeline.full[s], 1);
    bar_init(pipeline.empty[s], WARPS);
  }
  for (uint32_t s = 0; s < MAX_CLAIMED_TILES; ++s) {
    bar_init(pipeline.tile_full[s], 1);
    bar_init(pipeline.tile_empty[s], WARPS);
  }
  bar_init(pipeline.begun, 1);
  pipeline.stop = 0;
  bar_init_done();
}
#if ET_WIDE
ET_FN void init_pipeline(SmemPipeline& pipeline, char* memory, int64_t columns) {
  if (shared_address(memory) % 1024 != 0) __trap();  // swizzled tiles would be read wrong
  init_activation_pipeline(pipeline.lines, columns);
  init_pipeline(pipeline, memory);
}
#endif

ET_FN uint32_t shared_peek(const uint32_t& word) {
  return ptx::ld_relaxed_cta_shared(shared_address(&word));
}

ET_FN void shared_set(uint32_t& word, uint32_t value) {
  ptx::st_relaxed_cta_shared(shared_address(&word), value);
}

// The reading side; the same in all threads that run tasks, and kept by each of them.
class PipelineConsumer {
 public:
  PipelineConsumer() = default;
  ET_FN explicit PipelineConsumer(SmemPipeline& pipeline)
      : pipeline_(&pipeline), stages_(pipeline.stages()), bars_(kept_address(&pipeline)),
        bytes_(shared_address(pipeline.memory)) {}

  // Where the page `ahead` places after the next one is, in shared memory, once it is there. It
  // stays until it is released.
  ET_FN uint32_t wait_stage(uint32_t ahead) {
    const uint32_t number = next_ + ahead, stage = stages_.stage(number);
    await(bars_ + offsetof(SmemPipeline, full) + stage * 8, stages_.round(number) & 1);
    return bytes_ + stage * STAGE_BYTES;
  }

#if ET_WIDE
  // Bytes of activation tiles. They end where the memory of the pipeline does.
  ET_FN uint32_t activation_bytes() const { return pipeline_->lines.bytes; }

  // By one thread: the job of the next activation tiles.
  ET_FN void give(const ActivationJob& job) {
    const uint32_t n = job.walk.columns;
    pipeline_->lines.job = job;
    pipeline_->lines.job.line = next_line(n <= N16 ? 0 : n <= N64 ? 1 : 2);
    bar_arrive(pipeline_->lines.given);
  }

  // Where the activation tile `ahead` places after the next one is, once it has landed. It stays
  // until it is released, by each warp, or by half of them twice. Tiles loaded by TMA need no proxy
  // fence.
  template <uint32_t N, bool BY_TMA> ET_FN uint32_t line(uint32_t ahead) {
    const ActivationStage<N> place(pipeline_->lines.bytes, next_line(ActivationStages<N>::WIDTH) + ahead);
    await(shared_address(pipeline_->lines.full) + place.bar(), place.parity);
    if constexpr (!BY_TMA) fence_shared_writes();
    return pipeline_->beside() + place.at * ActivationStages<N>::BYTES;
  }
  template <uint32_t N> ET_FN void release_activation_tile(uint32_t ahead, uint32_t warps) {
    const ActivationStage<N> place(pipeline_->lines.bytes, next_line(ActivationStages<N>::WIDTH) + ahead);
    if (threadIdx.x % 32 == 0) bar_arrive(shared_address(pipeline_->lines.empty) + place.bar(), warps);
  }
  // So many activation tiles are behind.
  template <uint32_t N> ET_FN void advance_activation_tiles(uint32_t lines) {
    lines_ = lines_ + ((lines & COUNTED) << 8 * ActivationStages<N>::WIDTH) & COUNTED * 0x10101;
  }
#endif

  // After this warp's last read of that page, for itself and the warps that leave it alone.
  ET_FN void release(uint32_t ahead, uint32_t warps) {
    if constexpr (!COPIER_FENCES) fence_shared_reads();
    __syncwarp();
    give_back(ahead, warps);
  }
  // The same where only tensor cores have read it, and are through: they belong to the async proxy.
  ET_FN void give_back(uint32_t ahead, uint32_t warps) {
    if (threadIdx.x % 32 == 0)
      bar_arrive(bars_ + offsetof(SmemPipeline, empty) + stages_.stage(next_ + ahead) * 8, warps);
  }

  // So many pages are behind.
  ET_FN void advance(uint32_t pages) { next_ += pages; }

  // The next page, kept until the task ends. Only at the begin of a task, before pages that go.
  template <class T> ET_FN const T* hold() {
    const uint32_t offset = wait_stage(0) - bytes_;
    ++held_;
    ++next_;
    return ptx::in_shared(reinterpret_cast<const T*>(pipeline_->memory + offset));
  }

  // Borrows the next stages for this block until it returns them: nothing else is taken from the
  // pipeline meanwhile. `lent` is where the one so many places before the next one is.
  ET_FN void borrow_stages(uint32_t pages) {
    ET_ROLLED for (; pages > 0; --pages, ++next_) wait_stage(0);
  }
  ET_FN uint32_t lent(uint32_t behind) const { return bytes_ + stages_.stage(next_ - behind) * STAGE_BYTES; }
  ET_FN void return_stages(uint32_t pages) {
    ET_ROLLED for (; pages > 0; --pages) release(0 - pages, 1);
  }

  ET_FN void task_begin() { first_ = next_; held_ = 0; }

  ET_FN void task_end() {
    ET_ROLLED for (uint32_t k = 0; k < held_; ++k) release(first_ + k - next_, 1);
    held_ = 0;
  }

  // The next tile that the producer has sent; then the k-th value that it has looked up for it.
  ET_FN int64_t tile() {
    const uint32_t stage = tiles_received_ % MAX_CLAIMED_TILES, parity = tiles_received_ / MAX_CLAIMED_TILES & 1;
    while (!bar_over(pipeline_->tile_full[stage], parity)) {}
    tile_ = pipeline_->tiles[stage];
    __syncwarp();
    if (threadIdx.x % 32 == 0) bar_arrive(pipeline_->tile_empty[stage]);
    ++tiles_received_;
    return tile_.tile;
  }
#if ET_TILE_VALUES
  ET_FN int64_t tile_value(uint32_t k) const { return tile_.values[k]; }
#endif

  // By one thread: the tasks begin (or never do), and they are over.
  ET_FN void begin(Cell* cells, uint32_t epoch) {
    pipeline_->cells = cells;
    pipeline_->epoch = epoch;
    bar_arrive(pipeline_->begun);
  }
  ET_FN void stop() { shared_set(pipeline_->stop, 1); }

#if ET_TRACE
  // How long this thread has waited for pages and activation tiles since the last call, in ns.
  ET_FN uint32_t stalled() {
    const uint32_t found = stalled_;
    stalled_ = 0;
    return found;
  }
#endif

 private:
  ET_FN void await(uint32_t bar, uint32_t parity) {
#if ET_TRACE
    if (ptx::mbarrier_test_wait_parity(bar, parity)) return;
    const int64_t begun = ptx::globaltimer();
    while (!bar_over(bar, parity)) {}
    stalled_ += uint32_t(ptx::globaltimer() - begun);
#else
    while (!bar_over(bar, parity)) {}
#endif
  }

  SmemPipeline* pipeline_ = nullptr;
  StageIndex stages_;
  uint32_t bars_ = 0, bytes_ = 0;
  uint32_t next_ = 0, first_ = 0, held_ = 0, tiles_received_ = 0;
  WorkTileInfo tile_ = {};
#if ET_TRACE
  uint32_t stalled_ = 0;
#endif
#if ET_WIDE
  // The next tile of N16, of N64 and of N128 columns, a byte each: only its stage and parity matter.
  static constexpr uint32_t COUNTED = 2 * ActivationStages<N16>::MOST - 1;
  static_assert(COUNTED <= 127);
  ET_FN uint32_t next_line(uint32_t width) const { return lines_ >> 8 * width & 0xff; }
  uint32_t lines_ = 0;
#endif
};

}  // namespace et
