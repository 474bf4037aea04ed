// The loader: one warp of a block that walks the schedule ahead of the tasks and brings the
// operands that no event guards. One lane asks the barriers (one that 32 lanes ask answers more
// slowly) and issues the copies of pages without gaps; where rows lie apart every lane copies one
// of them, since a thread needs 40 ns for each copy.
#pragma once
#include "chunked.cuh"

namespace et {

// How a product with many columns (chunked.cuh) uses the ring: HELD slots are blank, for x, and
// stay the tasks'; pages of W go round through the others. A slot comes up in its turn all the
// same, so with every BETWEEN pages of W the loader hands the blank ones over again. Nobody writes
// there: the tasks agree at once (they release what they go on using) as long as more of W follows.
// W comes by rounds of up to ROOM panels, by chunks in a round, and again for each pass of columns.
constexpr uint32_t HELD = SLOTS >= 8 ? 4 : 2, BETWEEN = SLOTS - HELD;
constexpr uint32_t ROOM = BETWEEN < ROUND ? BETWEEN : ROUND;
static_assert(SLOTS >= 4 && SLOTS <= 32);

// Two halves of a chunk are staged one by one where there are more columns than half of the blank
// pages have lines of a whole one. The first half has so many bytes.
ET_FN uint32_t half_chunk(uint32_t chunk) { return (chunk + 2 * UNIT - 1) / (2 * UNIT) * UNIT; }

// Columns in a pass.
ET_FN uint32_t pass_width(uint32_t n, uint32_t chunk) {
  const bool halves = 2 * PANEL * half_chunk(chunk) <= PAGE;
  const uint32_t most = halves ? HELD : HELD / 2, blocks = (n + PANEL - 1) / PANEL;
  const uint32_t passes = (blocks + most - 1) / most;
  return (blocks + passes - 1) / passes * PANEL;
}

class Loader {
 public:
  ET_HOT Loader(const Shared& s, Ring& ring, char* bytes)
      : index(blockIdx.x), count(gridDim.x), shared(&s), ring_(ring),
        full_(shared_address(ring.full)), empty_(shared_address(ring.empty)),
        bytes_(shared_address(bytes)), policy_(policy_once()) {}

  int64_t index, count;
  Cell* cells = nullptr;
  const Shared* shared;

  // How many bytes may be in flight from now on, two pages at least: few of them make every hop of
  // the tasks quicker, many make a long run of pages quicker.
  ET_HOT void flies(uint32_t bytes) { cap_ = bytes / PAGE < 2 ? 2 : bytes / PAGE; }

  // Rows of `row_bytes` that lie `stride` bytes apart, as pages of PANEL rows by `chunk` bytes.
  ET_HOT void rows(const void* data, int64_t rows, uint32_t row_bytes, int64_t stride,
                   uint32_t chunk) {
    const char* panel = static_cast<const char*>(data) + lane() * stride;
    for (int64_t left = rows; left > 0; left -= PANEL, panel += PANEL * stride) {
      const uint32_t n = left < PANEL ? uint32_t(left) : PANEL;
      for (uint32_t k = 0; k < row_bytes; k += chunk) {
        const uint32_t bytes = row_bytes - k < chunk ? row_bytes - k : chunk;
        if (!open_all(n * bytes)) return;
        if (lane() < n) copy_once(lane() * bytes, panel + k, bytes);
        advance();
      }
    }
  }

  // Bytes without gaps, as pages of `page` bytes. While the ring is full and nothing is in flight,
  // up to AHEAD pages are asked for as far as the L2.
  template <uint32_t AHEAD> ET_HOT void run(const void* data, int64_t bytes, uint32_t page) {
    if (lane() == 0) {
      const char* from = static_cast<const char*>(data);
      const char* const end = from + bytes;
      const char* asked = from;
      for (; from < end && !stopped_; from += page) {
        if (AHEAD != 0) ask(from, asked, end, page, AHEAD * page);
        const uint32_t n = end - from < page ? uint32_t(end - from) : page;
        if (!open(n)) break;
        copy_once(0, from, n);
        advance();
      }
    }
    follow();
  }

  // Packed panels of a product: for up to FEW columns one after the other, else by rounds, chunks
  // and passes.
  template <uint32_t AHEAD, uint32_t FEW>
  ET_HOT void panels(const void* data, int64_t bytes, uint32_t row_bytes, uint32_t chunk,
                     int64_t n) {
    if (n < 1) return;
    if (n <= FEW) return run<AHEAD>(data, bytes, PANEL * chunk);
    const uint32_t panel = PANEL * row_bytes, count = uint32_t(bytes / panel);
    const uint32_t width = pass_width(uint32_t(n), chunk);
    uint32_t between = 0;
    if (lane() == 0)
      for (uint32_t c = 0; c < n; c += width)
        for (uint32_t p = 0; p < count; p += ROOM) {
          const char* const from = static_cast<const char*>(data) + int64_t(p) * panel;
          const uint32_t left = count - p < ROOM ? count - p : ROOM;
          for (uint32_t k = 0; k < row_bytes && !stopped_; k += chunk)
            column(from + PANEL * k, left, panel, PANEL * chunk, between);
        }
    follow();
  }

  // Rows as one page, dense.
  ET_HOT void whole(const void* data, int64_t rows, uint32_t row_bytes, int64_t stride) {
    const bool dense = rows == 1 || stride == row_bytes;
    const uint32_t pieces = dense ? 1 : uint32_t(rows);
    const uint32_t all = uint32_t(rows) * row_bytes, bytes = dense ? all : row_bytes;
    if (!open_all(all)) return;
    const char* const from = static_cast<const char*>(data);
    ET_ROLLED for (uint32_t r = lane(); r < pieces; r += 32)
      bulk_copy(bytes_ + slot_ * PAGE + r * bytes, from + r * stride, bytes, full_ + slot_ * 8);
    advance();
  }

  // Before anything that an earlier launch may have written (all but weights): the tasks of this
  // block have begun, so that launch has ended. The fence is for copies of what it wrote.
  ET_HOT void settle() {
    if (cells != nullptr || stopped_) return;
    while (!bar_over(ring_.begun, 0)) {}
    cells = ring_.cells;
    stopped_ = cells == nullptr;
    fence_global_writes();
    __syncwarp();
  }

  // Waits for a cell, like a worker; the worker's own wait for it is the one that is bounded.
  ET_HOT bool wait(Event event, int64_t at, int64_t target) {
    bool seen = true;
    if (lane() == 0)
      while (!ev_reached(cells[event.base + at], target)) {
        seen = !over();
        if (!seen) break;
        __nanosleep(200);
      }
    __syncwarp();
    stopped_ = !__shfl_sync(~0u, seen, 0);
    return !stopped_;
  }

  // Claims a tile for the worker and tells it, at most TOLD ahead of those that it has begun: what
  // is claimed early, nobody else can take.
  ET_HOT int64_t claim(int64_t cell) {
    int64_t tile = INT64_MAX;
    if (lane() == 0) {
      const uint32_t slot = claims_ % TOLD, parity = claims_ / TOLD & 1;
      while (!stopped_ && !bar_over(ring_.told_empty[slot], parity ^ 1)) stopped_ = over();
      if (!stopped_) {
        ring_.told[slot] = tile = tk_claim(cells[cell]);
        bar_arrive(ring_.told_full[slot]);
      }
      ++claims_;
    }
    stopped_ = __shfl_sync(~0u, stopped_, 0);
    return __shfl_sync(~0u, tile, 0);
  }

  ET_HOT bool stopped() const { return stopped_; }

  // No page comes any more. The copies land before the warp leaves: the memory is the block's.
  ET_HOT void finish() {
    if (lane() == 0)
      while (flying_ != 0) see_landed();
  }

 private:
  ET_HOT static uint32_t lane() { return threadIdx.x % 32; }
  ET_HOT bool over() const { return shared_peek(ring_.stop) != 0; }

  // What one lane has done, the others know.
  ET_HOT void follow() {
    slot_ = __shfl_sync(~0u, slot_, 0);
    round_ = __shfl_sync(~0u, round_, 0);
    stopped_ = __shfl_sync(~0u, stopped_, 0);
  }

  // By one lane: a chunk of some panels, `panel` bytes apart, and blank pages in their turn.
  ET_HOT void column(const char* from, uint32_t panels, uint32_t panel, uint32_t page,
                     uint32_t& between) {
    for (uint32_t i = 0; i < panels; ++i, from += panel) {
      for (uint32_t h = 0; between == 0 && h < HELD; ++h)
        if (!blank()) return;
      between = between == 0 ? BETWEEN - 1 : between - 1;
      if (!open(page)) return;
      copy_once(0, from, page);
      advance();
    }
  }

  // The next slot goes to the tasks as it is, once it is free. It is not in flight.
  ET_HOT bool blank() {
    while (!has_room())
      if (over()) { stopped_ = true; return false; }
    while (ahead_ == SLOTS) see_landed();
    ++ahead_;
    blanks_ |= 1u << slot_;
    bar_arrive(full_ + slot_ * 8);
    advance();
    return true;
  }

  // Uses the time until the next slot is free: what lies before `asked` is on its way to the L2.
  ET_HOT void ask(const char* from, const char*& asked, const char* end, uint32_t page,
                  uint32_t most) {
    if (asked < from) asked = from;
    while (!has_room() && !over() && asked < end && asked - from < most) {
      if (!idle()) continue;
      bulk_prefetch(asked, end - asked < page ? uint32_t(end - asked) : page);
      asked += page;
    }
  }

  ET_HOT bool has_room() { return bar_over(empty_ + slot_ * 8, round_ ^ 1); }

  // True if nothing is on its way to the ring: the memory has time for more.
  ET_HOT bool idle() {
    while (flying_ != 0 && bar_over(full_ + landed_ * 8, landed_round_)) pass_landed();
    return flying_ == 0;
  }

  // By the lane that asks: waits for the next slot and announces its bytes; false if the tasks are
  // over. A fresh barrier answers that the phase before its first is over.
  ET_HOT bool open(uint32_t bytes) {
    while (!has_room())
      if (over()) { stopped_ = true; return false; }
    while (flying_ >= cap_ || ahead_ == SLOTS) see_landed();
    ++flying_;
    ++ahead_;
    blanks_ &= ~(1u << slot_);
    bar_expect(full_ + slot_ * 8, bytes);
    return true;
  }

  // The same for all lanes; what the one has seen, the others follow.
  ET_HOT bool open_all(uint32_t bytes) {
    if (lane() == 0 && !stopped_) open(bytes);
    __syncwarp();
    stopped_ = __shfl_sync(~0u, stopped_, 0);
    return !stopped_;
  }

  ET_HOT void advance() {
    if (++slot_ == SLOTS) slot_ = 0, round_ ^= 1;
  }

  ET_HOT void copy_once(uint32_t at, const char* from, uint32_t bytes) {
    bulk_copy_once(bytes_ + slot_ * PAGE + at, from, bytes, full_ + slot_ * 8, policy_);
  }

  ET_HOT void see_landed() {
    while (!bar_over(full_ + landed_ * 8, landed_round_)) {}
    pass_landed();
  }
  ET_HOT void pass_landed() {
    flying_ -= blanks_ >> landed_ & 1 ^ 1;
    --ahead_;
    if (++landed_ == SLOTS) landed_ = 0, landed_round_ ^= 1;
  }

  Ring& ring_;
  uint32_t full_, empty_, bytes_;                   // addresses in shared memory
  uint32_t slot_ = 0, round_ = 0;                   // where the next page goes
  uint32_t landed_ = 0, landed_round_ = 0;  // the oldest page that was not yet seen to have landed
  uint32_t ahead_ = 0, flying_ = 0;         // pages from there on, and those of them with bytes
  uint32_t blanks_ = 0;                     // slots whose page has none
  uint32_t cap_ = SLOTS, claims_ = 0;
  uint64_t policy_;
  bool stopped_ = false;
};

template <int N> ET_FN void grid_begin(Loader&, int64_t, const int64_t (&)[N]) {}
ET_FN void grid_begin(Loader&, int64_t, NoCoords) {}

ET_FN bool ev_wait(Loader& loader, Event event, int64_t index, int64_t target) {
  return loader.wait(event, index, target);
}

// Tiles by ticket where the loader claims: its side, and that of the threads that run them.
class ClaimingTiles {
 public:
  ET_FN ClaimingTiles(Loader& loader, int64_t cell) : loader_(loader), cell_(cell) {}
  ET_FN int64_t next() { return loader_.claim(cell_); }

 private:
  Loader& loader_;
  int64_t cell_;
};

class ToldTiles {
 public:
  ET_FN explicit ToldTiles(Worker& w) : pages_(w.pages) {}
  ET_FN int64_t next() { return pages_.number(); }

 private:
  Pages& pages_;
};

}  // namespace et
