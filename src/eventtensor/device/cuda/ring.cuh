// The stream inside a block: pages go from the loader through the slots of a ring in shared memory
// to the warps that run tasks, first in, first out. Both sides walk the same schedule, so a page
// has no name but its number. A second, small ring tells the tasks numbers: the tiles that the
// loader claims.
//
// Contract:
//  * full[s] ends its phase when the loader has announced the page in slot s and its bytes have
//    landed; empty[s] when every warp that runs tasks has arrived after its last read (contract of
//    bulk.cuh: each lane fences its generic reads before its warp arrives). A warp may arrive for
//    others that leave the page to it.
//  * Parities do not alias: the loader reuses a slot only after its empty phase, so a reader is at
//    most one phase behind, and the loader itself is at most one round ahead.
//  * A reader waits without a limit, and that is safe: the loader waits for nothing but landing
//    copies, pages that this block's warps release, and events that they have waited for as well
//    (bounded, there) before they ask for a page behind them. So it always comes. That needs a task
//    that holds pages to have at most SLOTS in all: slots go round, and a held one comes up again.
//  * `stop` tells the loader that the tasks are over, or given up; it lets its copies land before
//    it leaves.
#pragma once
#include "../view.h"
#include "bulk.cuh"
#include "walk.cuh"

namespace et {

constexpr uint32_t PAGE = ET_PAGE, SLOTS = ET_SLOTS;
constexpr uint32_t TOLD = 2;  // tiles that may be claimed before they are begun
constexpr uint32_t WARPS = ET_THREADS / 32;

#if ET_WIDE
constexpr uint32_t FEW_COLUMNS = 16;

// Lines of up to N columns of x have places of their own size. What has room for few lines of many
// columns has room for many lines of few: they come further ahead.
constexpr ET_FN uint32_t places_of(uint32_t columns) {
  return (ET_WIDE - 1024) / (columns * MOST_SPAN);
}
template <uint32_t N> struct Places {
  static constexpr uint32_t BYTES = N * MOST_SPAN, COUNT = places_of(N);
  static constexpr uint32_t FIRST = N == FEW_COLUMNS ? 0 : places_of(FEW_COLUMNS);  // barrier
};
constexpr uint32_t PLACES = Places<MOST_COLUMNS>::FIRST + Places<MOST_COLUMNS>::COUNT;

// Where x lies in a matrix that has a map of this number (boxes.cuh): x's first element is number
// `first` of that row.
struct InMap {
  uint32_t map, row, first;
};
constexpr uint32_t NO_MAP = ~0u;

// What the bringers bring (lines.cuh): elements of 16 bits, whichever they are.
struct LineJob {
  Matrix<uint16_t> x;
  const int64_t* begins;  // of columns, in elements, if they do not lie s1 apart
  Walk walk;
  uint32_t n;
  InMap in;
  uint32_t line;  // the number of its first one, among those of its size
};

struct Lines {
  Barrier full[PLACES], empty[PLACES];
  Barrier given;  // over once there is a job,
  Barrier taken;  // and once all bringers have one that has a map
  LineJob job;
};

// By one thread; the whole block meets afterwards.
ET_FN void lines_init(Lines& lines) {
  ET_ROLLED for (uint32_t k = 0; k < PLACES; ++k) {
    bar_init(lines.full[k], 32 * ET_BRINGERS);
    bar_init(lines.empty[k], WARPS);
  }
  bar_init(lines.given, 1);
  bar_init(lines.taken, ET_BRINGERS);
}

// Where lines lie: beside the ring, as the swizzle wants them.
ET_FN uint32_t beside_ring(uint32_t bytes) { return (bytes + SLOTS * PAGE + 1023) / 1024 * 1024; }
#endif

struct Ring {
  Barrier full[SLOTS], empty[SLOTS];
  Barrier told_full[TOLD], told_empty[TOLD];
  int64_t told[TOLD];
  Barrier begun;  // over once the tasks of the block begin, with `cells` (null: they never do)
  Cell* cells;
  uint32_t stop;
#if ET_WIDE
  Lines lines;
#endif
};

// By one thread; the whole block meets afterwards.
ET_FN void ring_init(Ring& ring) {
  ET_ROLLED for (uint32_t s = 0; s < SLOTS; ++s) {
    bar_init(ring.full[s], 1);
    bar_init(ring.empty[s], WARPS);
  }
  for (uint32_t s = 0; s < TOLD; ++s) {
    bar_init(ring.told_full[s], 1);
    bar_init(ring.told_empty[s], WARPS);
  }
  bar_init(ring.begun, 1);
  ring.stop = 0;
#if ET_WIDE
  lines_init(ring.lines);
#endif
  bar_init_done();
}

ET_FN uint32_t shared_peek(const uint32_t& word) {
  return ptx::ld_relaxed_cta_shared(shared_address(&word));
}

ET_FN void shared_set(uint32_t& word, uint32_t value) {
  ptx::st_relaxed_cta_shared(shared_address(&word), value);
}

// The reading side; the same in all threads that run tasks, and kept by each of them.
class Pages {
 public:
  Pages() = default;
  ET_FN Pages(Ring& ring, char* bytes)
      : ring_(&ring), full_(shared_address(ring.full)), empty_(shared_address(ring.empty)),
        bytes_(shared_address(bytes)), base_(bytes) {}

  // Where the page `ahead` places after the next one is, in shared memory, once it is there. It
  // stays until it is released.
  ET_FN uint32_t page(uint32_t ahead) {
    const uint32_t number = next_ + ahead, slot = number % SLOTS;
    while (!bar_over(full_ + slot * 8, number / SLOTS & 1)) {}
    return bytes_ + slot * PAGE;
  }

#if ET_WIDE
  ET_FN uint32_t beside() const { return beside_ring(bytes_); }

  // By one thread: what the lines from the next one on are of.
  ET_FN void give(const LineJob& job) {
    ring_->lines.job = job;
    ring_->lines.job.line = job.n > FEW_COLUMNS ? line_[1] : line_[0];
    bar_arrive(ring_->lines.given);
  }

  // Where the line `ahead` places after the next one is, once it is there. It stays until it is
  // released, by each warp, or by half of them twice. Boxes are there for tensor cores at once.
  template <uint32_t N, bool BOXES> ET_FN uint32_t line(uint32_t ahead) {
    using All = Places<N>;
    const uint32_t number = line_[N != FEW_COLUMNS] + ahead, place = number % All::COUNT;
    while (!bar_over(shared_address(ring_->lines.full + All::FIRST + place),
                     number / All::COUNT & 1)) {}
    if constexpr (!BOXES) fence_shared_writes();
    return beside() + place * All::BYTES;
  }
  template <uint32_t N> ET_FN void release_line(uint32_t ahead, uint32_t warps) {
    using All = Places<N>;
    const uint32_t place = (line_[N != FEW_COLUMNS] + ahead) % All::COUNT;
    if (threadIdx.x % 32 == 0)
      bar_arrive(shared_address(ring_->lines.empty + All::FIRST + place), warps);
  }
  // So many lines are behind.
  template <uint32_t N> ET_FN void advance_lines(uint32_t lines) {
    line_[N != FEW_COLUMNS] += lines;
  }
#endif

  // After this warp's last read of that page, for itself and the warps that leave it alone.
  ET_FN void release(uint32_t ahead, uint32_t warps) {
    fence_shared_reads();
    __syncwarp();
    give_back(ahead, warps);
  }
  // The same where only tensor cores have read it, and are through: they belong to the async proxy.
  ET_FN void give_back(uint32_t ahead, uint32_t warps) {
    if (threadIdx.x % 32 == 0) bar_arrive(empty_ + (next_ + ahead) % SLOTS * 8, warps);
  }

  // So many pages are behind.
  ET_FN void advance(uint32_t pages) { next_ += pages; }

  // The next page, kept until the task ends. Only at the begin of a task, before pages that go.
  template <class T> ET_FN const T* hold() {
    const uint32_t offset = page(0) - bytes_;
    ++held_;
    ++next_;
    return reinterpret_cast<const T*>(base_ + offset);
  }

  ET_FN void task_begin() { first_ = next_; held_ = 0; }

  ET_FN void task_end() {
    ET_ROLLED for (uint32_t k = 0; k < held_; ++k) release(first_ + k - next_, 1);
    held_ = 0;
  }

  // The next number that the loader tells.
  ET_FN int64_t number() {
    const uint32_t slot = heard_ % TOLD, parity = heard_ / TOLD & 1;
    while (!bar_over(ring_->told_full[slot], parity)) {}
    const int64_t found = ring_->told[slot];
    __syncwarp();
    if (threadIdx.x % 32 == 0) bar_arrive(ring_->told_empty[slot]);
    ++heard_;
    return found;
  }

  // By one thread: the tasks begin (or never do), and they are over.
  ET_FN void begin(Cell* cells) {
    ring_->cells = cells;
    bar_arrive(ring_->begun);
  }
  ET_FN void stop() { shared_set(ring_->stop, 1); }

 private:
  Ring* ring_ = nullptr;
  uint32_t full_ = 0, empty_ = 0, bytes_ = 0;
  char* base_ = nullptr;
  uint32_t next_ = 0, first_ = 0, held_ = 0, heard_ = 0;
#if ET_WIDE
  uint32_t line_[2] = {};  // of few and of many columns
#endif
};

}  // namespace et
