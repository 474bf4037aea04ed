// Tickets that are claimed a tile ahead, for tasks that begin with the next one's data while they
// are on their own: the first tile of a worker is that of its number, the others are those after,
// in the order of claims. A worker has at most one tile that it has not begun.
//
// Contract: the word of the next tile is written by one thread when a tile begins, after the
// threads have met at the end of the task before. All of them read it after the first barrier of
// this task, and once more when it is over; it is written again only a task later, for there are
// two in turn.
#pragma once
#include "cuda/roles/worker.cuh"

namespace et {

ET_FN int64_t* prefetched_tickets() {
  __shared__ int64_t tiles[2];
  return tiles;
}

// After the first barrier of a task: the tile that this worker takes next, if the grid has so many;
// -1 if its schedule does not say.
ET_FN int64_t next_tile(const Worker& w) {
  return w.ahead < 0 ? -1 : prefetched_tickets()[w.ahead];
}

class PrefetchedTickets {
 public:
  ET_FN PrefetchedTickets(Worker& w, int64_t cell) : worker_(w), ticket_(w.cells[cell]) {
    w.ahead = -1;
  }
  ET_FN int64_t next() {
    const int64_t tile = worker_.ahead < 0 ? worker_.index : prefetched_tickets()[worker_.ahead];
    worker_.ahead = worker_.ahead == 0 ? 1 : 0;
    if (threadIdx.x == ET_THREADS - 1)  // whose warp the others need least
      prefetched_tickets()[worker_.ahead] = worker_.count + tk_claim(ticket_);
    return tile;
  }

 private:
  Worker& worker_;
  Cell& ticket_;
};

}  // namespace et
