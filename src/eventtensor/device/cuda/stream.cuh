// Pages of a product from the stream, as Loader::rows, Loader::run or Loader::panels brings them.
#pragma once
#include "loader.cuh"

namespace et {

// The two rows of a page that this lane reads, once it is there.
template <uint32_t BYTES> ET_HOT Lines<uint32_t> page_rows(Pages& pages, uint32_t number) {
  const uint32_t low = pages.page(number) + warp_row() * BYTES;
  return {low, low + 8 * BYTES};
}

class FromRing {
 public:
  ET_HOT explicit FromRing(const Worker& w) : pages_(w.pages) {}

  template <uint32_t BYTES>
  ET_HOT Lines<uint32_t> page(uint32_t, uint32_t, uint32_t number, uint32_t) {
    return page_rows<BYTES>(pages_, number);
  }
  ET_HOT void done(uint32_t number) { pages_.release(number, TURNS); }
  ET_HOT void end(Worker& w, uint32_t pages) {
    pages_.advance(pages);
    w.pages = pages_;
  }

 private:
  Pages pages_;
};

// ---- products with many columns (chunked.cuh) --------------------------------------------------
#if ET_WIDE

// What is the same for all pieces.
template <class E> struct Job {
  Chunked<E> product;
  Pages pages;
};

// In shared memory, written by one thread: registers are for sums.
template <class E> ET_FN Job<E>& job() {
  __shared__ uint64_t here[(sizeof(Job<E>) + 7) / 8];
  return *reinterpret_cast<Job<E>*>(here);
}

// Some units of a warp's part of x, as lines of one column; odd ones have the steps of a unit
// swapped, so that the lanes of a load touch all banks once.
template <uint32_t UNITS> struct Staged {
  uint32_t at;

  ET_HOT Eight operator()(int t, uint32_t i, uint32_t s) const {
    const uint32_t c = t * 8 + warp_row(), turn = c % 2 * STEP_BYTES;
    return load_eight(at + (c * UNITS + i) * UNIT + (s * STEP_BYTES ^ turn) + warp_chunk() * 16);
  }
};

// Eight elements `step` apart. (No call, as `gathered` is: sums are in registers all around.)
template <class E> ET_HOT Eight eight_of(const E* from, int64_t step) {
  Eight x;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    x.pair[k] = from[2 * k * step].bits | uint32_t(from[(2 * k + 1) * step].bits) << 16;
  return x;
}

// What a lane brings of x: 16 bytes of a unit of every fourth column. They lie in shared memory as
// Staged reads them.
struct Lane {
  uint32_t column, byte;
  ET_HOT Lane() : column(threadIdx.x % 32 / 8), byte(threadIdx.x % 8 * 16) {}
  template <uint32_t UNITS> ET_HOT uint32_t to(uint32_t at) const {
    return at + column * UNITS * UNIT + (byte ^ column % 2 * STEP_BYTES);
  }
};

// Units `first` .. of this warp's part of chunk j of some columns of x: how it comes where no copy
// can take it, since it lies in shared memory or not in pieces of 16 bytes.
template <class E, uint32_t CHUNK, int TILES, uint32_t UNITS>
ET_HOT void stage_by_hand(uint32_t column, uint32_t j, uint32_t part, uint32_t first,
                           uint32_t to) {
  const Chunked<E>& p = job<E>().product;
  const Lane me;
  ET_ROLLED for (uint32_t i = 0; i < UNITS; ++i) {
    const uint32_t k = unit_at(part, first + i) + me.byte;
    const int64_t element = (int64_t(j) * CHUNK + k) / sizeof(E);
    ET_ROLLED for (uint32_t c = me.column; k < CHUNK && c < TILES * 8 && column + c < p.n; c += 4) {
      const E* const from = p.x.data + element * p.x.s0 + (column + c) * p.x.s1;
      const uint32_t there = me.to<UNITS>(to) + ((c - me.column) * UNITS + i) * UNIT;
      if (lies_packed(p.x)) ptx::st_shared_v4(there, reinterpret_cast<const Eight*>(from)->pair);
      else ptx::st_shared_v4(there, eight_of(from, p.x.s0).pair);
    }
  }
}

// The same by copies that run beside.
template <class E, uint32_t CHUNK, int TILES, uint32_t UNITS>
ET_HOT void stage_by_copy(uint32_t column, uint32_t j, uint32_t part, uint32_t first,
                          uint32_t to) {
  const Chunked<E>& p = job<E>().product;
  const Lane me;
  const uint32_t left = p.n - column, there = me.to<UNITS>(to);
  const int64_t pitch = p.x.s1;
  const E* const x = p.x.data + (column + me.column) * pitch
                     + (j * CHUNK + unit_at(part, first) + me.byte) / sizeof(E);
#pragma unroll
  for (uint32_t i = 0; i < UNITS; ++i) {
    if (unit_at(part, first + i) + me.byte >= CHUNK) break;
    const E* from = x + i * (SHARE * UNIT / sizeof(E));
#pragma unroll
    for (uint32_t c = 0; c < TILES * 8; c += 4, from += 4 * pitch)
      if (c + me.column < left) ptx::cp_async_16(there + (c * UNITS + i) * UNIT, from);
  }
}

struct InShare {
  uint32_t at;
  ET_HOT void put(uint32_t k, float x) const { ptx::st_shared_f32(at + 4 * k, x); }
  ET_HOT float get(uint32_t k) const { return ptx::ld_shared_f32(at + 4 * k); }
};

// Where a warp is in a product: pages of W and steps that were before.
struct Progress {
  uint32_t pages = 0, steps = 0;
};

// A step is a group of units, of one chunk of each turn. Its x is brought some steps ahead, also
// that of later pieces. Pages stay until their last group is through.
template <class E, uint32_t CHUNK, int TILES>
ET_HOT void chunked_piece(Pages& pages, const Piece& a, Progress& at) {
  using Sums = RoundSums<E, CHUNK, TILES>;
  constexpr uint32_t GROUP = Sums::GROUP, GROUPS = units_of(CHUNK) / GROUP;
  constexpr uint32_t SIZE = Sums::BYTES, BUFFERS = SHARE_BYTES / SIZE;
  static_assert(BUFFERS >= 2);
  static_assert(ROUND * TURNS <= SLOTS);
  const Chunked<E>& p = job<E>().product;
  const uint32_t mine = pages.share(warp_index()), steps = (p.chunks + TURNS - 1) / TURNS * GROUPS;
  const Place me;
  const bool by_copy = lies_packed(p.x) && !__isShared(p.x.data);
  const auto stage = [&](uint32_t step) {
    const uint32_t piece = step / steps, in = step % steps, j = in / GROUPS * TURNS + me.turn;
    const uint32_t passes = (p.n + TILES * 8 - 1) / (TILES * 8), column = piece % passes * TILES * 8;
    const uint32_t first = in % GROUPS * GROUP, to = mine + step % BUFFERS * SIZE;
    if (j < p.chunks && piece / passes * ROUND < p.panels) {
      if (by_copy) stage_by_copy<E, CHUNK, TILES, GROUP>(column, j, me.part, first, to);
      else stage_by_hand<E, CHUNK, TILES, GROUP>(column, j, me.part, first, to);
    }
    ptx::cp_async_commit();
  };
  Sums sums;
  uint32_t w = at.pages;
  if (w == 0)
    ET_ROLLED for (uint32_t step = 0; step + 1 < BUFFERS; ++step) stage(step);
  ET_ROLLED for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t left = p.chunks - step / GROUPS * TURNS, width = left < TURNS ? left : TURNS;
    const uint32_t x = mine + (at.steps + step) % BUFFERS * SIZE;
    ptx::cp_async_wait<BUFFERS - 2>();
    __syncwarp();  // what the lanes have brought is there, and nobody reads the buffer before it
    stage(at.steps + step + BUFFERS - 1);
    const bool last = step % GROUPS + 1 == GROUPS;
    const uint32_t number = w + me.turn, first = step % GROUPS * GROUP;
    if (TILES == 4 && a.panels == 2 && me.turn < width) {
      const Lines<uint32_t> rows[2] = {page_rows<CHUNK>(pages, number),
                                       page_rows<CHUNK>(pages, number + width)};
      sums.add_two(rows, Staged<GROUP>{x}, me.part, first);
      if (last) pages.release(number, TURNS);
      if (last) pages.release(number + width, TURNS);
    } else {
#pragma unroll
      for (uint32_t q = 0; q < ROUND; ++q) {
        if (q >= a.panels || me.turn >= width) continue;
        const Lines<uint32_t> rows = page_rows<CHUNK>(pages, number + q * width);
        sums.add(q, rows, Staged<GROUP>{x}, me.part, first);
        if (last) pages.release(number + q * width, TURNS);
      }
    }
    if (last) w += width * a.panels;
  }
  at.pages = w;
  at.steps += steps;
  // The buffer of the last step is free.
  const uint32_t parts = (at.steps - 1) % BUFFERS * SIZE;
  __syncwarp();
  sums.store(InShare{mine + parts});
  fold_piece<E, TILES>(p, a, [&](uint32_t k) { return InShare{pages.share(k) + parts}; });
}

// All panels and columns of the job; how many pages they took. All pieces have as many tiles.
template <class E, uint32_t CHUNK, int TILES> ET_HOT uint32_t chunked_pieces() {
  const Chunked<E>& p = job<E>().product;
  Pages pages = job<E>().pages;
  Progress at;
  Piece a{};
  for (; a.panel < p.panels; a.panel += a.panels) {
    a.panels = p.panels - a.panel < ROUND ? p.panels - a.panel : ROUND;
    for (a.column = 0; a.column < p.n; a.column += TILES * 8) {
      a.n = p.n - a.column < TILES * 8 ? p.n - a.column : TILES * 8;
      chunked_piece<E, CHUNK, TILES>(pages, a, at);
    }
  }
  return at.pages;
}

template <class E, uint32_t CHUNK> ET_COLD uint32_t chunked_job() {
  constexpr uint32_t MOST = most_columns<E, CHUNK>();
  const uint32_t width = Passes(job<E>().product.n, MOST).width;
  if (width == 8) return chunked_pieces<E, CHUNK, 1>();
  if (width == 16) return chunked_pieces<E, CHUNK, MOST < 16 ? 1 : 2>();
  return chunked_pieces<E, CHUNK, MOST < 32 ? 1 : 4>();
}

// All meet last.
template <class E, uint32_t CHUNK>
ET_HOT void chunked_product(Worker& w, FromRing source, const Chunked<E>& p) {
  if (leads()) job<E>() = {p, w.pages};
  sync();
  source.end(w, chunked_job<E, CHUNK>());
  sync();  // nobody still looks at the job
}
#endif

}  // namespace et
