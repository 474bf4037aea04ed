// How a worker comes by its tiles: owned by number (static), by ticket, or from a queue (push).
// Tiles are numbered in lexicographic order of their coordinates.
#pragma once
#include "worker.h"

namespace et {

// Tile t belongs to worker (t + shift) mod workers.
class StaticTiles {
 public:
  StaticTiles(const Worker& w, int64_t shift)
      : next_(mod(w.index - shift, w.count)), step_(w.count) {}
  int64_t next() { const int64_t t = next_; next_ += step_; return t; }

 private:
  int64_t next_, step_;
};

// Whoever comes first takes the next tile.
class TicketTiles {
 public:
  TicketTiles(Worker& w, int64_t cell) : ticket_(w.cells[cell]) {}
  int64_t next() { return tk_claim(ticket_); }

 private:
  Cell& ticket_;
};

// All tiles, for the one worker that opens a queue.
class AllTiles {
 public:
  int64_t next() { return next_++; }

 private:
  int64_t next_ = 0;
};

// The queue of one push group instance: cells head, tail, opened, then the slots. A slot holds
// 1 + the number of a task in its group; 0 means not pushed yet.
class Queue {
 public:
  static constexpr int64_t FIXED = 3;
  // A pending counter collects 1 for each complete cell and OPEN - needed from the opener; the add
  // that makes it OPEN pushes. So nobody but the opener has to know how many cells a task needs.
  static constexpr int64_t OPEN = int64_t(1) << 40;

  Queue(Worker& w, int64_t base) : cells_(w.cells + base) {}

  bool open() { return ct_first(cells_[2]); }
  int64_t claim() { return tk_claim(cells_[0]); }
  void push(int64_t task) { q_put(cells_[FIXED + tk_claim(cells_[1])], task + 1); }

  // The task in a claimed slot, once it is there; -1 if the launch is given up.
  int64_t take(Worker& w, int64_t slot) {
    const Cell& cell = cells_[FIXED + slot];
    int64_t found = q_get(cell);
    if (found != 0) return found - 1;
    Patience patience(*w.shared);
    while ((found = q_get(cell)) == 0) {
      if (aborted(w)) return -1;
      if (!patience.pause()) { fail(w, STUCK_QUEUE, -1, slot, 1, 0); return -1; }
    }
    return found - 1;
  }

 private:
  Cell* cells_;
};

// True if this add makes the pending counter complete.
inline bool pending_add(Worker& w, int64_t cell, int64_t by) {
  return ct_add(w.cells[cell], by) == Queue::OPEN;
}

// True if this claim is the one that completes the dispatched counter.
inline bool dispatched_add(Worker& w, int64_t cell, int64_t count) {
  return ct_add(w.cells[cell], 1) == count;
}

}  // namespace et
