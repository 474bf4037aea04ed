// How a worker comes by its tiles: owned by number (static), by ticket, or from a queue (push).
// Tiles are numbered in lexicographic order of their coordinates.
#pragma once
#if defined(__CUDACC__)
#include "cuda/roles/worker.cuh"
#else
#include "worker.h"
#endif

namespace et {

// Tile t belongs to worker (t + shift) mod workers, for shifts of 32 bits.
class StaticTiles {
 public:
  template <class W> ET_FN StaticTiles(const W& w, int64_t shift)
      : next_(first(w.index, shift, w.count)), step_(w.count) {}
  ET_FN int64_t next() { const int64_t t = next_; next_ += step_; return t; }

 private:
  // (index - shift) mod count, by short division: a long one takes four times as long on a GPU, and
  // kilobytes of code. A shift beyond 2^32 is as good as what is left of it: whatever it is, all
  // workers go by the same, and grids with equal shifts deal out their tiles alike.
  ET_FN static int64_t first(int64_t index, int64_t shift, int64_t count) {
    const int64_t t = index - int64_t(uint32_t(shift) % uint32_t(count));
    return t < 0 ? t + count : t;
  }

  int64_t next_, step_;
};

// Whoever comes first takes the next tile.
class TicketTiles {
 public:
  ET_FN TicketTiles(Worker& w, int64_t cell) : worker_(w), ticket_(w.cells[cell]) {}
  ET_FN int64_t next() {
    return block_broadcast(worker_, [&] { return tk_claim(ticket_); });
  }

 private:
  Worker& worker_;
  Cell& ticket_;
};

// All tiles, shared out among the threads of the one worker that opens a queue.
class LaneTiles {
 public:
  ET_FN int64_t next() {
    const int64_t t = next_;
    next_ += num_threads();
    return t;
  }

 private:
  int64_t next_ = thread_rank();
};

// The queue of one push group instance: cells head, tail, opened, then the slots. A slot holds
// 1 + the number of a task in its group; 0 means not pushed yet.
class Queue {
 public:
  static constexpr int64_t FIXED = 3;
  // A pending counter collects 1 for each complete cell and OPEN - needed from the opener; the add
  // that makes it OPEN pushes. So nobody but the opener has to know how many cells a task needs.
  static constexpr int64_t OPEN = int64_t(1) << 40;

  ET_FN Queue(Worker& w, int64_t base) : worker_(w), cells_(w.cells + base) {}

  // True for all threads of one worker, which then opens. Each task is opened by itself, in any
  // order, so its threads share them out.
  ET_FN bool open() {
    return block_broadcast(worker_, [&] { return ct_first(cells_[2]); }) != 0;
  }
  ET_FN int64_t claim() {
    return block_broadcast(worker_, [&] { return tk_claim(cells_[0]); });
  }

  // The task in a claimed slot, once it is there; -1 if the launch is given up.
  ET_FN int64_t take(Worker& w, int64_t slot) {
    return block_broadcast(w, [&] { return find(w, slot); });
  }

 private:
  ET_FN int64_t find(Worker& w, int64_t slot) {
    const Cell& cell = cells_[FIXED + slot];
    int64_t found = q_get(cell);
    if (found != 0) return found - 1;
    StallDetector stall(*w.shared, w.index);
    while ((found = q_get(cell)) == 0) {
      if (aborted(w)) return -1;
      if (!stall.poll_backoff()) {
        fail(w, STUCK_QUEUE, -1, slot, 1, 0);
        return -1;
      }
    }
    return found - 1;
  }

  Worker& worker_;
  Cell* cells_;
};

// What pushing needs of a worker. On a GPU it is passed by value: functions that push have many
// call sites and are not inlined, and a worker whose address they took could not stay in registers.
#if defined(__CUDACC__) && !ET_DEBUG
struct Pusher {
  ET_FN Pusher(const Worker& w) : cells(w.cells) {}
  Cell* cells;
};
#else
using Pusher = Worker&;
#endif

// Puts a task into the queue whose cells begin at `base`.
template <class W> ET_FN void queue_push(const W& w, int64_t base, int64_t task) {
  Cell* const cells = w.cells + base;
  q_put(cells[Queue::FIXED + tk_claim(cells[1])], task + 1);
}

// True if this add makes the pending counter complete.
template <class W> ET_FN bool pending_add(const W& w, int64_t cell, int64_t by) {
  return ct_add(w.cells[cell], by) == Queue::OPEN;
}

// True if this claim is the one that completes the dispatched counter.
template <class W> ET_FN bool dispatched_add(const W& w, int64_t cell, int64_t count) {
  return ct_add(w.cells[cell], 1) == count;
}

}  // namespace et
