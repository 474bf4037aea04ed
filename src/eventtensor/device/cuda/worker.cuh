// Workers: blocks of one cooperative kernel, the life of a task, bounded waits, the report of a
// failed one, and the two sets of cells. Needs the structs of codegen/cuda/abi.py (Report, Progress,
// Control, Shared, RANK), which the generated source defines before it includes this file.
#pragma once
#include "../report.h"
#include "sync.cuh"
#include "tile.cuh"

namespace et {

// The same in all threads of a block, and kept by each of them.
struct Worker {
  ET_FN Worker(const Shared& s, int64_t* board_, char* near, int64_t near_bytes)
      : index(blockIdx.x), count(gridDim.x), shared(&s), board(board_),
        arena(near, near_bytes, s.arena + blockIdx.x * s.arena_bytes, s.arena_bytes) {}

  int64_t index, count;
  Cell* cells = nullptr;
  const Shared* shared;
  int64_t* board;  // two words of shared memory, used in turn
  int turn = 0;
  Arena arena;
  int64_t call = -1;  // the task this worker is on, for reports
  int64_t coords[RANK] = {};
};

// One thread decides, all threads get the answer. A word of the board is written again only two
// barriers later, when everybody has read it.
template <class F> ET_FN int64_t for_all(Worker& w, F decide) {
  w.turn ^= 1;
  if (leads()) w.board[w.turn] = int64_t(decide());
  sync();
  return w.board[w.turn];
}

// ---- failure -------------------------------------------------------------------------------

// Keeps the first report and makes everybody leave. Always false, for `return fail(..)`.
ET_COLD bool fail(Worker& w, Fault code, int64_t what, int64_t place, int64_t expected,
                int64_t seen) {
  Control& control = *w.shared->control;
  if (ct_first(control.reported)) {
    Report& r = *w.shared->report;
    r.code = code; r.worker = w.index; r.call = w.call; r.what = what; r.place = place;
    r.expected = expected; r.seen = seen;
    for (int k = 0; k < RANK; ++k) r.coords[k] = w.coords[k];
  }
  q_put(control.abort, 1);
  return false;
}

ET_FN bool aborted(const Worker& w) { return cell_peek(w.shared->control->abort) != 0; }

ET_FN int64_t now_ns() {
  int64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// How long a wait may last: as long as some task somewhere completes or is inside its body.
class Patience {
 public:
  ET_FN explicit Patience(const Shared& shared) : shared_(shared), since_(now_ns()) {}

  // Leaves the memory system alone for a moment; false once nothing has moved for the limit.
  ET_FN bool pause() {
    __nanosleep(turns_ < 256 ? 20 : 500);
    if (++turns_ % 1024 != 0) return true;
    const int64_t seen = moved(), now = now_ns();
    if (seen != last_) { last_ = seen; since_ = now; return true; }
    return now - since_ < shared_.limit_ns;
  }

 private:
  // A number that changes while anything moves.
  ET_FN int64_t moved() {
    int64_t sum = 0;
    for (unsigned k = 0; k < gridDim.x; ++k) {
      sum += cell_peek(shared_.progress[k].done);
      if (cell_peek(shared_.progress[k].busy) != 0) sum += ++beat_;
    }
    return sum;
  }

  const Shared& shared_;
  int64_t turns_ = 0, last_ = -1, beat_ = 0, since_;
};

// ---- events --------------------------------------------------------------------------------

// By one thread: waits until the cell has reached `target`; false if the launch is given up.
ET_COLD bool wait_alone(Worker& w, Event event, int64_t index, int64_t target) {
  const Cell& cell = w.cells[event.base + index];
  if (ev_reached(cell, target)) return true;
  Patience patience(*w.shared);
  while (!ev_reached(cell, target)) {
    if (aborted(w)) return false;
    if (!patience.pause())
      return fail(w, STUCK_WAIT, event.id, index, target, cell_value(cell));
  }
  return true;
}

ET_FN bool ev_wait(Worker& w, Event event, int64_t index, int64_t target) {
  return for_all(w, [&] { return wait_alone(w, event, index, target); }) != 0;
}

// By one thread, after a sync() that all threads of the task have reached.
ET_FN void ev_notify(Worker& w, Event event, int64_t index) {
  ev_notify(w.cells[event.base + index]);
}

// ---- the life of a task --------------------------------------------------------------------

ET_FN void set_busy(Worker& w, bool busy) {
  if (leads()) cell_set(w.shared->progress[w.index].busy, busy);
}

// A header wait belongs to the grid: coordinates after the loop variables are -1.
ET_FN void grid_begin(Worker& w, int64_t call, std::initializer_list<int64_t> loops) {
  w.call = call;
  int k = 0;
  for (const int64_t c : loops) w.coords[k++] = c;
  for (; k < RANK; ++k) w.coords[k] = -1;
}

ET_FN void task_claim(Worker& w, int64_t call, std::initializer_list<int64_t> coords) {
  w.call = call;
  int k = 0;
  for (const int64_t c : coords) w.coords[k++] = c;
}

// Its waits are over.
ET_FN void task_ready(Worker& w) {
  set_busy(w, true);
  w.arena.reset();
}

ET_FN void task_end(Worker& w) {
  if (!leads()) return;
  Progress& mine = w.shared->progress[w.index];
  cell_set(mine.busy, 0);
  cell_set(mine.done, cell_peek(mine.done) + 1);
}

// ---- the life of a launch ------------------------------------------------------------------

// Takes the set whose turn it is, and clears what the launch before left in the other one.
ET_FN void launch_begin(Worker& w) {
  const Shared& s = *w.shared;
  const int64_t parity = s.control->parity, other = 1 - parity;
  w.cells = s.cells + parity * s.capacity;
  Cell* const old = s.cells + other * s.capacity;
  const int64_t used = other == 0 ? s.control->used_even : s.control->used_odd;
  for (int64_t k = w.index * lanes() + lane(); k < used; k += w.count * lanes())
    cell_clear(old[k]);
}

// The last block to leave turns the sets over: by then everybody has read the parity.
ET_FN void launch_end(Worker& w, int64_t cells) {
  sync();
  if (!leads()) return;
  Control& control = *w.shared->control;
  if (ct_add(control.left, 1) != w.count) return;
  control.left = 0;
  (control.parity == 0 ? control.used_even : control.used_odd) = cells;
  control.parity = 1 - control.parity;
}

}  // namespace et

#include "../checks.h"
