// Pages of a product from the stream, as Loader::rows, Loader::run or Loader::chunked brings them.
#pragma once
#include "loader.cuh"

namespace et {

class FromRing {
 public:
  ET_HOT explicit FromRing(const Worker& w) : pages_(w.pages) {}

  template <uint32_t BYTES>
  ET_HOT Lines<uint32_t> page(uint32_t, uint32_t, uint32_t number, uint32_t) {
    const uint32_t low = pages_.page(number) + warp_row() * BYTES;
    return {low, low + 8 * BYTES};
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

// The blank slots of a product, in registers.
struct Slots {
  uint32_t at[4];

  ET_HOT Slots(Pages& pages) : at{} {
#pragma unroll
    for (uint32_t h = 0; h < HELD; ++h) at[h] = pages.page(h);
  }
  ET_HOT uint32_t operator[](uint32_t k) const {
    const uint32_t low = k % 2 != 0 ? at[1] : at[0], high = k % 2 != 0 ? at[3] : at[2];
    return HELD > 2 && k / 2 != 0 ? high : low;
  }
};

// What is the same for all pieces: the blank pages are handed over `turns` times.
template <class E> struct Job {
  Chunked<E> product;
  Pages pages;
  uint32_t parts, turns;
};

// In shared memory, written by one thread: registers are for sums.
template <class E> ET_FN Job<E>& job() {
  __shared__ uint64_t here[(sizeof(Job<E>) + 7) / 8];
  return *reinterpret_cast<Job<E>*>(here);
}

// Lines of x in the blank slots: a line is a column, and as many bytes of it as are staged at once.
template <uint32_t COLUMNS> struct Buffers {
  static constexpr uint32_t HALVES = COLUMNS > PANEL * (HELD / 2) ? 2 : 1;
  static constexpr uint32_t LINES = PANEL * HALVES, EACH = COLUMNS / LINES;  // of a slot; slots
  static constexpr uint32_t COUNT = HELD / EACH, AHEAD = COUNT - 1;          // buffers

  // What is staged i-th: chunk and bytes of it.
  ET_HOT Buffers(uint32_t i, uint32_t chunk)
      : first(i % COUNT * EACH), j(i / HALVES), line(HALVES == 1 ? chunk : half_chunk(chunk)),
        last(i % HALVES + 1 == HALVES), begin(i % HALVES == 0 ? 0 : line < chunk ? line : chunk),
        end(last || line > chunk ? chunk : line) {}
  uint32_t first, j, line;
  bool last;  // of its chunk
  uint32_t begin, end;
};

// One side of the columns.
template <uint32_t COLUMNS> struct Staged {
  uint32_t at, below, begin, turn;

  ET_HOT Staged(const Slots& slots, const Buffers<COLUMNS>& b, uint32_t side)
      : below(8 * b.line), begin(b.begin), turn(step_turn(b.line, warp_row())) {
    const uint32_t line = side * (COLUMNS / SIDES);
    at = slots[b.first + line / b.LINES] + (line % b.LINES + warp_row()) * b.line;
  }
  ET_HOT Eight operator()(int t, uint32_t byte) const {
    return load_eight(at + t * below + (byte - begin ^ turn));
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

// This thread's share of x goes on its way to the buffer.
template <class E, uint32_t COLUMNS>
ET_FN void stage_x(const Chunked<E>& p, const Slots& slots, const Piece& a, Buffers<COLUMNS> b,
                   bool packed, bool shared) {
  constexpr uint32_t EACH = 16 / sizeof(E);
  const E* const x = p.x.data + (int64_t(b.j) * p.chunk + b.begin) / sizeof(E) * p.x.s0;
  for (uint32_t c = warp_index(); c < a.n; c += WARPS) {
    const uint32_t to = slots[b.first + c / b.LINES] + c % b.LINES * b.line;
    const uint32_t turn = step_turn(b.line, c);
    const E* const from = x + (a.column + c) * p.x.s1;
    for (uint32_t q = threadIdx.x % 32; q < (b.end - b.begin) / 16; q += 32) {
      const E* const at = from + q * EACH * p.x.s0;
      const uint32_t there = to + (q * 16 ^ turn);
      if (packed && !shared) ptx::cp_async_16(there, at);
      else if (packed) ptx::st_shared_v4(there, reinterpret_cast<const Eight*>(at)->pair);
      else ptx::st_shared_v4(there, eight_of(at, p.x.s0).pair);
    }
  }
}

// The page of W that comes `number` pages of W after the first, in the order of all pages.
ET_HOT uint32_t with_blanks(uint32_t number) { return (number / BETWEEN + 1) * HELD + number; }

// Before this warp looks at a page of W: it has seen the blank ones before that page, and agrees to
// their next turn if there is one.
ET_HOT void take_turns(Pages& pages, uint32_t& seen, uint32_t number, uint32_t turns) {
  while (seen < number / BETWEEN) {
    ++seen;
    for (uint32_t h = 0; h < HELD; ++h) {
      pages.page(seen * SLOTS + h);
      if (seen + 1 < turns) pages.release(seen * SLOTS + h, 1);
    }
  }
}

struct InSlot {
  uint32_t at;
  ET_HOT void put(uint32_t k, float x) const { ptx::st_shared_f32(at + 4 * k, x); }
  ET_HOT float get(uint32_t k) const { return ptx::ld_shared_f32(at + 4 * k); }
};
static_assert(SHARERS * PART_FLOATS * sizeof(float) <= PAGE);

// `w` pages of W were before this piece.
template <class E, uint32_t COLUMNS>
ET_HOT void chunked_piece(Pages& pages, const Slots& slots, const Piece& a, uint32_t w) {
  using B = Buffers<COLUMNS>;
  const Chunked<E>& p = job<E>().product;
  const uint32_t parts = job<E>().parts, chunk = p.chunk, stages = p.chunks * B::HALVES;
  const Place mine(parts);
  const bool packed = lies_packed(p.x), shared = __isShared(p.x.data);
  const auto stage = [&](uint32_t i) {
    if (i < stages) stage_x<E, COLUMNS>(p, slots, a, B(i, chunk), packed, shared);
    ptx::cp_async_commit();
  };
  ChunkSums<E, COLUMNS / SIDES / 8> sums;
  uint32_t seen = w == 0 ? 0 : (w - 1) / BETWEEN;
  ET_ROLLED for (uint32_t i = 0; i < B::AHEAD; ++i) stage(i);
  ET_ROLLED for (uint32_t i = 0; i < stages; ++i) {
    ptx::cp_async_wait<B::AHEAD - 1>();
    sync();  // all have what they asked for, and nobody reads the buffer that is filled next
    stage(i + B::AHEAD);
    const B b(i, chunk);
    take_turns(pages, seen, w + a.panels - 1, job<E>().turns);
    if (mine.panel < a.panels) {
      const uint32_t page = with_blanks(w + mine.panel);
      const uint32_t low = pages.page(page) + warp_row() * chunk;
      sums.add(Lines<uint32_t>{low, low + 8 * chunk}, Staged<COLUMNS>(slots, b, mine.side), chunk,
               first_unit(b.begin, chunk, b.j, mine.part, parts), b.end, parts * UNIT);
      if (b.last) pages.release(page, WARPS / SIDES / parts);
    }
    w += b.last ? a.panels : 0;
  }
  // The buffer that would be filled next is the one that nobody still reads.
  fold_piece(p, sums, parts, a, InSlot{slots[B(stages, chunk).first]});
}

// All panels and columns of the job; how many pages they took.
template <class E> ET_COLD uint32_t chunked_job() {
  const Chunked<E>& p = job<E>().product;
  Pages pages = job<E>().pages;
  const uint32_t width = pass_width(p.n, p.chunk), turns = job<E>().turns;
  const Slots slots(pages);
  for (uint32_t h = 0; turns > 1 && h < HELD; ++h) pages.release(h, 1);
  Piece a{};
  uint32_t done = 0;
  for (; a.column < p.n; a.column += width)
    for (a.panel = 0; a.panel < p.panels; a.panel += a.panels) {
      a.n = p.n - a.column < width ? p.n - a.column : width;
      a.panels = p.panels - a.panel < ROOM ? p.panels - a.panel : ROOM;
      if (a.n <= 16) chunked_piece<E, 16>(pages, slots, a, done);
      else if (HELD == 2 || a.n <= 32) chunked_piece<E, 32>(pages, slots, a, done);
      else chunked_piece<E, HELD == 2 ? 32 : 64>(pages, slots, a, done);
      done += a.panels * p.chunks;
    }
  for (uint32_t h = 0; h < HELD; ++h) pages.release((turns - 1) * SLOTS + h, 1);
  return done + turns * HELD;
}

// All meet last.
template <class E, uint32_t PANELS>
ET_HOT void chunked_product(Worker& w, FromRing source, const Chunked<E>& p) {
  if (leads()) {
    const uint32_t width = pass_width(p.n, p.chunk), passes = (p.n + width - 1) / width;
    const uint32_t pages = passes * p.panels * p.chunks;
    job<E>() = {p, w.pages, parts_of(PANELS), (pages + BETWEEN - 1) / BETWEEN};
  }
  sync();
  source.end(w, chunked_job<E>());
}

}  // namespace et
