// Workers: blocks of one cooperative kernel, the life of a task, bounded waits, the report of a
// failed one, and the two sets of cells. Needs the structs of codegen/cuda/abi.py (Shared and what
// it points to) and RANK, which the generated source defines before it includes this file. ET_DEBUG
// and ET_TRACE switch extras on.
#pragma once
#include "report.h"
#include "cuda/constants.cuh"
#include "cuda/sync/sync.cuh"
#include "cuda/ops/tile.cuh"
#include "cuda/roles/trace.cuh"
#if ET_STREAM
#include "cuda/memory/smem_pipeline.cuh"
#endif
#if ET_BULK
#include "cuda/memory/bulk_operand.cuh"
#endif

namespace et {

// The same in all threads of a block, and kept by each of them, in registers: an acquire empties
// the L1 cache, so a worker in local memory would cost a trip to the L2 at every look. That is why
// no function that is not inlined takes one (debug builds aside).
struct Worker {
  ET_FN Worker(const Shared& s, int64_t* broadcast_slot_, char* near, int64_t near_bytes)
      : index(blockIdx.x), count(gridDim.x), shared(&s), broadcast_slot(broadcast_slot_),
        arena(near, near_bytes, s.arena + blockIdx.x * s.arena_bytes, s.arena_bytes) {}

  int64_t index, count;
  Cell* cells = nullptr;
  const Shared* shared;
  int64_t* broadcast_slot;  // two words of shared memory, used in turn
  int turn = 0;
  int ahead = -1;  // the word that holds its next tile (ticket_prefetch.cuh)
  Arena arena;
#if ET_STREAM
  PipelineConsumer pipeline;  // what the producer brings
#endif
#if ET_BULK
  BulkOperandLoader bulk_loader;  // operands that are copied in bulk
#endif
  uint32_t epoch = 0;  // the number of this launch, never 0: the tag of data that carries its flag,
                       // which has room for 16 bits
  Tracer tracer;
  int64_t done = 0;  // tasks of this launch; only that it changes matters
};

// The task that the block is on, for reports and traces: in shared memory, written by one thread.
struct Where {
  int64_t call;
  int64_t coords[RANK];
};

ET_FN Where& where() {
  __shared__ Where here;
  return here;
}

// One thread decides, all threads get the answer. A word of the broadcast_slot is written again only
// two barriers later, when everybody has read it.
template <class F> ET_FN int64_t block_broadcast(Worker& w, F decide) {
  w.turn ^= 1;
  if (is_leader()) w.broadcast_slot[w.turn] = int64_t(decide());
  sync();
  return w.broadcast_slot[w.turn];
}

// ---- failure -------------------------------------------------------------------------------

// Keeps the first report and makes everybody leave. Always false, for `return fail(..)`.
ET_COLD bool fail_at(const Shared& shared, int64_t worker, const Where& at, Fault code,
                     int64_t what, int64_t place, int64_t expected, int64_t seen) {
  Control& control = *shared.control;
  if (ct_first(control.reported)) {
    Report& r = *shared.report;
    r.code = code; r.worker = worker; r.call = at.call; r.what = what; r.place = place;
    r.expected = expected; r.seen = seen;
    for (int k = 0; k < RANK; ++k) r.coords[k] = at.coords[k];
    control.step = shared.step;
  }
  q_put(control.abort, 1);
  return false;
}

ET_FN bool fail(const Worker& w, Fault code, int64_t what, int64_t place, int64_t expected,
                int64_t seen) {
  return fail_at(*w.shared, w.index, where(), code, what, place, expected, seen);
}

ET_FN bool aborted(const Shared& shared) { return cell_peek(shared.control->abort) != 0; }
ET_FN bool aborted(const Worker& w) { return aborted(*w.shared); }

// How long a wait may last: as long as some task somewhere completes or is inside its body. One
// that waits in its body, for a chunk of an operand, is not among those.
class StallDetector {
 public:
  ET_FN StallDetector(const Shared& shared, int64_t worker)
      : shared_(shared), mine_(shared.progress[worker].busy), busy_(cell_peek(mine_)),
        since_(now_ns()) {
    if (busy_ != 0) cell_set(mine_, 0);
  }
  ET_FN ~StallDetector() {
    if (busy_ != 0) cell_set(mine_, busy_);
  }
  StallDetector(const StallDetector&) = delete;

  // Leaves the memory system alone for a moment; false once nothing has moved for the limit.
  ET_FN bool poll_backoff() {
    if (turns_ > 32) __nanosleep(turns_ < 256 ? 20 : 500);  // a poll alone takes 0.6 us
    if (++turns_ % 1024 != 0) return true;
    const int64_t now = now_ns(), seen = moved(shared_, now);
    if (seen != last_) { last_ = seen; since_ = now; return true; }
    return now - since_ < shared_.limit_ns;
  }

 private:
  // A number that changes while anything moves: while a task is inside its body, the time.
  ET_COLD static int64_t moved(const Shared& shared, int64_t now) {
    int64_t sum = 0, busy = 0;
    ET_ROLLED for (unsigned k = 0; k < gridDim.x; ++k) {
      sum += cell_peek(shared.progress[k].done);
      busy |= cell_peek(shared.progress[k].busy);
    }
    return busy != 0 ? now : sum;
  }

  const Shared& shared_;
  Cell& mine_;
  const int64_t busy_;
  int64_t turns_ = 0, last_ = -1, since_;
};

// ---- events --------------------------------------------------------------------------------

// Cells that the leading thread of this block has already seen at a target in this launch.
//
// Why it need not ask again: cells only count up within a launch, so the target is still reached.
// The acquire load that saw it synchronised with all the notifies up to the target, and the block
// barrier that followed passed that on to all threads of the block. Both come before anything that
// this block does now, and happens-before is transitive: a second acquire would order nothing more.
class SeenCells {
 public:
  ET_FN void clear() {
    ET_ROLLED for (Entry& e : entries_) e = {0, -1};
  }
  ET_FN bool has(const Cell& cell, int64_t target) const {
    const Entry& e = entries_[slot(cell)];
    return e.cell == low(cell) && e.target >= target;
  }
  ET_FN void add(const Cell& cell, int64_t target) {
    if (target <= INT32_MAX) entries_[slot(cell)] = {low(cell), int32_t(target)};
  }

 private:
  struct Entry { uint32_t cell; int32_t target; };
  static constexpr int SIZE = 16;
  // Of its place: no two cells of a launch have it in common.
  ET_FN static uint32_t low(const Cell& cell) {
    return uint32_t(reinterpret_cast<uint64_t>(&cell) / sizeof(Cell));
  }
  ET_FN static unsigned slot(const Cell& cell) { return low(cell) % SIZE; }
  Entry entries_[SIZE];
};

// Of the leading thread alone.
ET_FN SeenCells& seen_cells() {
  __shared__ SeenCells seen;
  return seen;
}

#if ET_DEBUG
// Keeps the first wait for a cell; check_waits compares it when the launch is over.
ET_COLD void note_wait(Worker& w, Event event, int64_t index, int64_t target) {
  Waited& x = w.shared->waited[event.base + index];
  if (!ct_first(x.taken)) return;
  x.event = event.id; x.index = index; x.target = target; x.call = where().call;
  for (int k = 0; k < RANK; ++k) x.coords[k] = where().coords[k];
}

// By all threads of the last worker: a cell that somebody waited for must hold exactly its count.
ET_COLD void check_waits(Worker& w, int64_t cells) {
  for (int64_t k = thread_rank(); k < cells; k += num_threads()) {
    Waited& x = w.shared->waited[k];
    const int64_t seen = cell_value(w.cells[k]);
    if (x.taken != 0 && seen != x.target && !aborted(w)) {
      Where at{x.call, {}};
      for (int c = 0; c < RANK; ++c) at.coords[c] = x.coords[c];
      fail_at(*w.shared, w.index, at, COUNT_WRONG, x.event, x.index, x.target, seen);
    }
    x.taken = 0;
  }
}

// Test hook: a sleep that the seed and the task decide, to shake the order of tasks.
ET_COLD void delay(const Worker& w) {
  if (w.shared->delay_seed == 0) return;
  uint64_t x = uint64_t(w.shared->delay_seed) * 0x9e3779b97f4a7c15u + uint64_t(where().call);
  for (int k = 0; k < RANK; ++k)
    x = (x ^ uint64_t(where().coords[k])) * 0xbf58476d1ce4e5b9u + 1;
  __nanosleep(uint32_t((x >> 40) % 50000));
}
#endif

// By the leading thread: waits until the cell of an event has reached `target`; false if the launch
// is given up. One copy for all waits, and by values, so that the worker stays in registers. The
// abort flag is looked at seldom: each look makes the next poll later.
ET_COLD bool wait_cell(const Shared& shared, const Cell* cells, const Event& event, int64_t index,
                       int64_t target) {
  const Cell& cell = cells[event.base + index];
  if (target == 0 || seen_cells().has(cell, target)) return true;  // nobody notifies, or all have
  bool reached = false;
  ET_ROLLED for (int turn = 0; turn < 64 && !reached; ++turn) reached = ev_reached(cell, target);
  if (!reached) {
    StallDetector stall(shared, blockIdx.x);
    for (int turn = 1; !ev_reached(cell, target); ++turn) {
      if (turn % 8 == 0 && aborted(shared)) return false;
      if (!stall.poll_backoff())
        return fail_at(shared, blockIdx.x, where(), STUCK_WAIT, event.id, index, target,
                       cell_value(cell));
    }
  }
  seen_cells().add(cell, target);
  return true;
}

ET_FN bool ev_wait(Worker& w, const Event& event, int64_t index, int64_t target) {
  return block_broadcast(w, [&] {
#if ET_DEBUG
    note_wait(w, event, index, target);
#endif
    return wait_cell(*w.shared, w.cells, event, index, target);
  }) != 0;
}

// A cell of an event, and its count.
struct Look { int64_t index, target; };

// True as soon as `count` cells are full: a thread acquires each, then all meet. After some tries
// false; they are then waited for one by one, which is bounded. Run-time data that says where the
// first cell of a thread is (most have no other) is read once: an acquire empties the L1.
template <class F>
ET_HOT bool all_reached(const Worker& w, const Event& event, int64_t count, const F& cell) {
  const bool some = thread_rank() < count;
  const Look first = some ? cell(thread_rank()) : Look{0, 0};
  ET_ROLLED for (int tries = 0; tries < 64; ++tries) {
    bool missing = some && !ev_reached(w.cells[event.base + first.index], first.target);
    for (int64_t k = thread_rank() + num_threads(); k < count; k += num_threads()) {
      const Look one = cell(k);
      missing = missing || !ev_reached(w.cells[event.base + one.index], one.target);
    }
    if (!sync_or(missing)) return true;
  }
  return false;
}

// By one thread, after a sync() that all threads of the task have reached.
ET_FN void ev_notify(Worker& w, Event event, int64_t index) {
  ev_notify(w.cells[event.base + index]);
}

// ---- the life of a task --------------------------------------------------------------------

ET_FN void set_busy(Worker& w, bool busy) {
  if (is_leader()) cell_set(w.shared->progress[w.index].busy, busy);
}

struct NoCoords {};  // what `{}` is where a task has no coordinates

// A header wait belongs to the grid: coordinates after the loop variables are -1.
template <int N> ET_FN void grid_begin(Worker&, int64_t call, const int64_t (&loops)[N]) {
  if (!is_leader()) return;
  where().call = call;
  for (int k = 0; k < RANK; ++k) where().coords[k] = k < N ? loops[k < N ? k : 0] : -1;
}
ET_FN void grid_begin(Worker&, int64_t call, NoCoords) {
  if (!is_leader()) return;
  where().call = call;
  for (int k = 0; k < RANK; ++k) where().coords[k] = -1;
}

// How long the thread has waited for the pipeline since the last call, if that is traced.
ET_FN uint32_t stalled(Worker& w) {
#if ET_STREAM && ET_TRACE
  return w.pipeline.stalled();
#else
  return 0;
#endif
}

ET_FN void task_claim(Worker& w, int64_t call, NoCoords) {
  if (is_leader()) where().call = call;
  w.arena.reset();
  stalled(w);
  w.tracer.claimed();
}
template <int N> ET_FN void task_claim(Worker& w, int64_t call, const int64_t (&coords)[N]) {
  if (is_leader())
    for (int k = 0; k < N; ++k) where().coords[k] = coords[k];
  task_claim(w, call, NoCoords{});
}

// Its waits are over.
ET_FN void task_ready(Worker& w) {
  set_busy(w, true);
  w.tracer.ready();
#if ET_DEBUG
  delay(w);
#endif
}

// The same where not even the first page may come, since the producer waits: a busy task would hide
// from others that nothing moves any more.
ET_FN void task_ready_for_pages(Worker& w) { w.tracer.ready(); }

ET_FN void task_end(Worker& w) {
  if (!is_leader()) return;
  w.tracer.ended(*w.shared, w.index, where().call, where().coords, stalled(w));
  Progress& mine = w.shared->progress[w.index];
  cell_set(mine.busy, 0);
  cell_set(mine.done, ++w.done);
}

}  // namespace et

#include "checks.h"
#include "cuda/roles/launch.cuh"
