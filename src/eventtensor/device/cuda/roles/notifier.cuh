// The notifier: a warp that notifies for the tasks of a block. A notify waits until all that the
// block has written is there for others, which takes as long as a trip to the memory; a worker that
// has more tiles of the same grid goes on to the next one meanwhile.
//
// Contract (sync.cuh): all threads that run tasks have met before one of them sends. It writes the
// cell's place and arrives at `full`; the notifier has seen that phase over before it notifies. So
// what the tasks did before is ordered before the notifier's release, which is cumulative. Cells
// are notified in the order in which they were sent, two of one message by one release.
#pragma once
#include "cuda/memory/bulk.cuh"
#include "cuda/roles/worker.cuh"

namespace et {

class NotifierWarp {
 public:
  // By one thread, before init_pipeline; the whole block meets afterwards.
  ET_FN void init() {
    ET_ROLLED for (uint32_t s = 0; s < MOST; ++s) {
      bar_init(full_[s], 1);
      bar_init(empty_[s], 1);
    }
    sent_ = 0;
  }

  // By the leading thread: one or two cells. None: none will come any more.
  ET_FN void send(Cell* cell, Cell* other = nullptr) {
    const uint32_t stage = sent_ % MOST;
    while (!bar_over(empty_[stage], sent_ / MOST & 1 ^ 1)) {}
    cells_[stage][0] = cell;
    cells_[stage][1] = other;
    bar_arrive(full_[stage]);
    ++sent_;
  }

  // By one thread: notifies until none comes any more.
  ET_FN void run() {
    ET_ROLLED for (uint32_t number = 0;; ++number) {
      const uint32_t stage = number % MOST;
      while (!bar_over(full_[stage], number / MOST & 1)) {}
      Cell *const cell = cells_[stage][0], *const other = cells_[stage][1];
      if (cell == nullptr) return;
      bar_arrive(empty_[stage]);
      if (other == nullptr) ev_notify(*cell);
      else ev_notify(*cell, *other);
    }
  }

 private:
  static constexpr uint32_t MOST = 4;  // on their way
  Barrier full_[MOST], empty_[MOST];
  Cell* cells_[MOST][2];
  uint32_t sent_;
};

static_assert(sizeof(NotifierWarp) == 136);  // MESSAGES of codegen/cuda/kernel.py

ET_FN NotifierWarp& notifier() {
  __shared__ NotifierWarp all;
  return all;
}

// Like ev_notify, by the notifier: of one event, or of two.
ET_FN void notify_async(Worker& w, Event event, int64_t index) {
  notifier().send(&w.cells[event.base + index]);
}
ET_FN void notify_async(Worker& w, Event event, int64_t index, Event other, int64_t there) {
  notifier().send(&w.cells[event.base + index], &w.cells[other.base + there]);
}

}  // namespace et
