// Products of packed panels (panels.cuh) with an x of many columns, which shared memory does not
// hold: chunk by chunk of K, for ROUND panels and some columns at once, whose sums stay in
// registers. sm_80 and later.
//
// From the stream, x goes through the ring too: the loader hands over slots with nothing in them
// (blank pages), and the threads copy x there, some chunks ahead. In place, both sides are read
// where they lie. Bits are the same: a warp takes panels and a part of K that the number of panels
// alone decides, its sums go up in K, and parts are added from 0 on. Nor does a column's result
// hang on how many others there are.
#pragma once
#include "cuda/cp_async.cuh"
#include "panels.cuh"

namespace et {

constexpr uint32_t ROUND = 4;              // panels whose sums are held at once
constexpr uint32_t UNIT = 2 * STEP_BYTES;  // of a row: what warps that share a panel take in turn
constexpr uint32_t WIDE = 64;              // columns at once
constexpr uint32_t SIDES = 2;              // warps that share the columns
constexpr uint32_t PART_FLOATS = PANEL * WIDE / SIDES;  // the sums of a warp

// A product c = W x: panels of W in `chunks` blocks of `chunk` bytes a row, n columns of x.
template <class E> struct Chunked {
  float* c;
  int64_t s_row, s_col;
  Matrix<E> x;
  uint32_t panels, chunks, chunk, n;
};

// What a warp does in a round: one of its panels, one side of the columns, one of `parts` parts of
// K, so many that all warps have work. (With all columns, or two panels, a warp would load less,
// and needs more registers than a kernel has left at a call.)
ET_HOT constexpr uint32_t parts_of(uint32_t panels) {
  return SHARERS / SIDES / (panels == 1 ? 1 : panels == 2 ? 2 : ROUND);
}
static_assert(ROUND == 4 && SHARERS == SIDES * ROUND);

struct Place {
  ET_HOT explicit Place(uint32_t parts)
      : side(warp_index() % SIDES), part(warp_index() / SIDES % parts),
        panel(warp_index() / SIDES / parts) {}
  uint32_t side, part, panel;
};

// Where rows of pages begin in the same bank, odd ones have (x) or take first (W) the second step
// of a pair, so that the lanes of a load touch all banks once.
ET_HOT uint32_t step_turn(uint32_t chunk, uint32_t row) {
  return chunk % UNIT == 0 && row % 2 == 1 ? STEP_BYTES : 0;
}

// The units of bytes `begin` .. `end` - 1 of chunk j that are part `part` of K: where the first of
// them begins. Units of all chunks are taken in turn, so that short chunks keep all warps at work.
ET_HOT uint32_t first_unit(uint32_t begin, uint32_t chunk, uint32_t j, uint32_t part,
                           uint32_t parts) {
  const uint32_t units = (chunk + UNIT - 1) / UNIT, u = (begin + UNIT - 1) / UNIT;
  return (u + (part - j * units - u & parts - 1)) * UNIT;
}

// The sums of one warp: a panel by TILES tiles of 8 columns.
template <class E, int TILES> class ChunkSums {
 public:
  // Adds the units from byte `k` of a chunk on, `stride` bytes apart. `x(tile, byte)` are 16 bytes
  // of the lane's column of x, at a byte of the chunk.
  template <class At, class X>
  ET_HOT void add(Lines<At> rows, X x, uint32_t chunk, uint32_t k, uint32_t end, uint32_t stride) {
    constexpr bool shared = std::is_same_v<At, uint32_t>;
    const uint32_t turn = shared ? step_turn(chunk, warp_row()) : 0, q = warp_chunk() * 16;
#pragma unroll 1
    for (k += q; k < end; k += stride) {
      const uint32_t one = k + turn, two = k + STEP_BYTES - turn;
      const bool both = k + STEP_BYTES < chunk;
      const Eight u = load_eight(rows.low + one), v = load_eight(rows.high + one);
      const Eight u2 = both ? load_eight(rows.low + two) : u;
      const Eight v2 = both ? load_eight(rows.high + two) : v;
      step(pick(turn, u2, u), pick(turn, v2, v), x, k);
      if (both) step(pick(turn, u, u2), pick(turn, v, v2), x, k + STEP_BYTES);
    }
  }

  // As [column][row] into the warp's part, from `first` on.
  template <class Parts> ET_HOT void store(Parts parts, uint32_t first) const {
    const uint32_t g = warp_row(), q = warp_chunk();
#pragma unroll
    for (int t = 0; t < TILES; ++t)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        parts.put(first + (t * 8 + q * 2 + j % 2) * PANEL + g + j / 2 * 8, sum_[t][j]);
  }

 private:
  template <class X>
  ET_HOT void step(const Eight& low, const Eight& high, const X& x, uint32_t byte) {
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
      const Eight b = x(t, byte);
      mma<E>(sum_[t], low, high, b, 0);
      mma<E>(sum_[t], low, high, b, 1);
    }
  }

  float sum_[TILES][4] = {};
};

// A round of a product, columns c0 .. c0 + n - 1 of it.
struct Piece {
  uint32_t panel, panels, column, n;
};

// The results of a piece: the parts of K are added in their order. `room` is for PART_FLOATS floats
// of each warp.
template <class E, int TILES, class Parts>
ET_HOT void fold_piece(const Chunked<E>& p, const ChunkSums<E, TILES>& sums, uint32_t parts,
                       const Piece& a, Parts room) {
  constexpr uint32_t EACH = TILES * 8 * PANEL;  // floats of a warp
  sums.store(room, warp_index() * PART_FLOATS);
  sync();
  for (uint32_t at = threadIdx.x; at < a.panels * SIDES * EACH; at += ET_THREADS) {
    const uint32_t in = at % EACH, side = at / EACH % SIDES, which = at / EACH / SIDES;
    const uint32_t column = side * TILES * 8 + in / PANEL;
    const uint32_t first = (which * parts * SIDES + side) * PART_FLOATS + in;
    float total = room.get(first);
    for (uint32_t k = 1; k < parts; ++k) total += room.get(first + k * SIDES * PART_FLOATS);
    if (column < a.n)
      p.c[((a.panel + which) * PANEL + in % PANEL) * p.s_row + (a.column + column) * p.s_col] =
          total;
  }
  sync();
}

// ---- in place ----------------------------------------------------------------------------------

// Columns of x where they lie, beyond the last one that one again.
template <class E> struct InPlace {
  Matrix<E> x;  // from the first byte of the chunk on
  uint32_t first, last;
  bool packed;

  ET_HOT Eight operator()(int t, uint32_t byte) const {
    const uint32_t c = first + t * 8 + warp_row();
    const E* const at = x.data + (c < last ? c : last) * x.s1 + byte / sizeof(E) * x.s0;
    return packed ? *reinterpret_cast<const Eight*>(at) : gathered(at, x.s0, 8);
  }
};

template <class E> ET_FN bool lies_packed(const Matrix<E>& x) {
  return x.s0 == 1 && reinterpret_cast<uint64_t>(x.data) % 16 == 0 && x.s1 % 8 == 0;
}

struct Anywhere {
  float* at;
  ET_HOT void put(uint32_t k, float x) const { at[k] = x; }
  ET_HOT float get(uint32_t k) const { return at[k]; }
};

template <class E>
ET_COLD void chunked_piece(FromMemory w, Chunked<E> p, Piece a, uint32_t parts, Anywhere room) {
  constexpr int TILES = WIDE / SIDES / 8;
  const Place mine(parts);
  const bool packed = lies_packed(p.x);
  ChunkSums<E, TILES> sums;
  for (uint32_t j = 0; j < p.chunks && mine.panel < a.panels; ++j) {
    const Lines<const char*> rows = w.page<0>(a.panel + mine.panel, j, 0, PANEL);
    const E* const at = p.x.data + a.column * p.x.s1 + int64_t(j) * (p.chunk / sizeof(E)) * p.x.s0;
    const InPlace<E> x{{at, p.x.s0, p.x.s1}, mine.side * TILES * 8, a.n - 1, packed};
    sums.add(rows, x, p.chunk, first_unit(0, p.chunk, j, mine.part, parts), p.chunk, parts * UNIT);
  }
  fold_piece(p, sums, parts, a, room);
}

// All panels and columns of a product, with no stream. All meet last.
template <class E, uint32_t PANELS>
ET_HOT void chunked_product(Worker& worker, FromMemory w, const Chunked<E>& p) {
  const Arena::Mark mark = worker.arena.mark();
  const Anywhere room{worker.arena.take<float>(SHARERS * PART_FLOATS)};
  for (uint32_t c = 0; c < p.n; c += WIDE)
    for (uint32_t panel = 0; panel < p.panels; panel += ROUND) {
      const uint32_t left = p.panels - panel, n = p.n - c;
      const Piece a{panel, left < ROUND ? left : ROUND, c, n < WIDE ? n : WIDE};
      chunked_piece<E>(w, p, a, parts_of(PANELS), room);
    }
  worker.arena.rewind(mark);
}

// ---- the choice --------------------------------------------------------------------------------

// c = W x for packed panels: up to FEW columns as panel_matmul does it, more of them by chunks.
// No pages come for none.
template <class E, uint32_t ROW, uint32_t CHUNK, uint32_t PANELS, uint32_t FEW, class Source>
ET_HOT void wide_matmul(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col,
                        Matrix<E> x, int64_t rows, int64_t n) {
  static_assert(ROW % CHUNK == 0 && CHUNK % STEP_BYTES == 0);
  if (n < 1 || rows < 1) return sync();
  if constexpr (FEW > 0)
    if (n <= FEW)
      return panel_matmul<E, 1, ROW, CHUNK, PANELS>(w, source, c, s_row, s_col, x, rows, n);
  chunked_product<E, PANELS>(w, source, Chunked<E>{
      c, s_row, s_col, x, uint32_t(rows) / PANEL, ROW / CHUNK, CHUNK, uint32_t(n)});
}

}  // namespace et
