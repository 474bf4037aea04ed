// Products of packed panels (panels.cuh) with an x of many columns, which shared memory does not
// hold: some panels and columns at a time, whose sums stay in registers while K goes by. sm_80 and
// later.
//
// Warps share a chunk of K as they share a page: TURNS groups of them take chunks in turn, and of
// its chunk a warp takes every SHARE-th unit, for all panels of the round. What it needs of x
// nobody else needs: it brings that itself, ahead of its use, and never meets the others before the
// sums are folded. Pages come one by one and go one by one.
//
// Bits are the same in place and from the stream: a warp's sums go up in K, and parts are added
// from warp 0 on. Nor does a column's result hang on how many others there are.
#pragma once
#include "cuda/cp_async.cuh"
#include "panels.cuh"

namespace et {

constexpr uint32_t ROUND = 2;              // panels whose sums are held at once
constexpr uint32_t UNIT = 2 * STEP_BYTES;  // of a row: what the warps that share a page take in turn

constexpr uint32_t SHARE_BYTES = ET_WIDE / SHARERS;  // of the place for x, a warp's

// A product c = W x: panels of W in `chunks` blocks, n columns of x.
template <class E> struct Chunked {
  float* c;
  int64_t s_row, s_col;
  Matrix<E> x;
  uint32_t panels, chunks, n;
};

// Which chunks a warp takes, and which part of them.
struct Place {
  ET_HOT Place() : turn(warp_index() % TURNS), part(warp_index() / TURNS) {}
  uint32_t turn, part;
};

// Units of a chunk that a warp has at most.
constexpr ET_FN uint32_t units_of(uint32_t chunk) {
  return ((chunk + UNIT - 1) / UNIT + SHARE - 1) / SHARE;
}

// Where the i-th unit of a part begins in its chunk.
ET_HOT uint32_t unit_at(uint32_t part, uint32_t i) { return (part + i * SHARE) * UNIT; }

// The sums of one warp over some panels by TILES tiles of 8 columns.
template <class E, uint32_t CHUNK, int TILES> class RoundSums {
 public:
  static constexpr uint32_t FLOATS = ROUND * TILES * 8 * PANEL;
  // Units at once: all, unless two times their x is too much for a warp's share.
  static constexpr uint32_t ALL = units_of(CHUNK);
  static constexpr uint32_t GROUP = TILES > 1 && 2 * TILES * 8 * ALL * UNIT > SHARE_BYTES ? 1 : ALL;
  // What they need of x, and room for the sums.
  static constexpr uint32_t X = TILES * 8 * GROUP * UNIT, BYTES = X < 4 * FLOATS ? 4 * FLOATS : X;

  // Adds units `first` .. of the warp's part of a page to the sums of a panel of the round.
  // `x(t, i, step)` are 16 bytes of the lane's column of tile t, of the i-th of these units.
  template <class At, class X>
  ET_HOT void add(uint32_t panel, Lines<At> rows, const X& x, uint32_t part, uint32_t first) {
    // Where rows begin in the same bank, odd ones take the second step first: the lanes of a load
    // then touch all banks once.
    constexpr bool same_bank = std::is_same_v<At, uint32_t> && CHUNK % UNIT == 0;
    const uint32_t turn = same_bank && warp_row() % 2 == 1 ? STEP_BYTES : 0;
#pragma unroll
    for (uint32_t i = 0; i < GROUP; ++i) {
      const uint32_t k = unit_at(part, first + i), at = k + warp_chunk() * 16;
      if (k >= CHUNK) break;
      const bool both = CHUNK % UNIT == 0 || k + STEP_BYTES < CHUNK;
      const uint32_t one = at + turn, two = at + STEP_BYTES - turn;
      const Eight u = load_eight(rows.low + one), v = load_eight(rows.high + one);
      const Eight u2 = both ? load_eight(rows.low + two) : u;
      const Eight v2 = both ? load_eight(rows.high + two) : v;
      const Eight low[2] = {pick(turn, u2, u), pick(turn, u, u2)};
      const Eight high[2] = {pick(turn, v2, v), pick(turn, v, v2)};
#pragma unroll
      for (uint32_t s = 0; s < 2; ++s)
        if (s == 0 || both) {
          const Eight l[1] = {low[s]}, h[1] = {high[s]};
          step(panel, l, h, x, i, s);
        }
    }
  }

  // The same for two panels, so that x is read once for both. (No turns: in registers there is room
  // for one step of them.)
  template <class X>
  ET_HOT void add_two(const Lines<uint32_t> (&rows)[2], const X& x, uint32_t part,
                      uint32_t first) {
#pragma unroll
    for (uint32_t i = 0; i < GROUP; ++i)
#pragma unroll
      for (uint32_t s = 0; s < 2; ++s) {
        const uint32_t k = unit_at(part, first + i) + s * STEP_BYTES, at = k + warp_chunk() * 16;
        if (k >= CHUNK) break;
        const Eight low[2] = {load_eight(rows[0].low + at), load_eight(rows[1].low + at)};
        const Eight high[2] = {load_eight(rows[0].high + at), load_eight(rows[1].high + at)};
        step(0, low, high, x, i, s);
      }
  }

  // As [panel][column][row].
  template <class Parts> ET_HOT void store(Parts part) const {
    const uint32_t g = warp_row(), q = warp_chunk();
#pragma unroll
    for (uint32_t p = 0; p < ROUND; ++p)
#pragma unroll
      for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          part.put(((p * TILES + t) * 8 + q * 2 + j % 2) * PANEL + g + j / 2 * 8, sum_[p][t][j]);
  }

 private:
  template <uint32_t COUNT, class X>
  ET_HOT void step(uint32_t panel, const Eight (&low)[COUNT], const Eight (&high)[COUNT],
                   const X& x, uint32_t i, uint32_t s) {
    constexpr int SOME = TILES < 2 ? TILES : 2;
#pragma unroll
    for (int t = 0; t < TILES; t += SOME) {
      Eight b[SOME];
#pragma unroll
      for (int k = 0; k < SOME; ++k) b[k] = x(t + k, i, s);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (uint32_t p = 0; p < COUNT; ++p)
#pragma unroll
          for (int k = 0; k < SOME; ++k)
            mma<E>(sum_[panel + p][t + k], low[p], high[p], b[k], half);
    }
  }

  float sum_[ROUND][TILES][4] = {};
};

// Panels `panel` .. and columns `column` .. of a product.
struct Piece {
  uint32_t panel, panels, column, n;
};

// The results of a piece, from what the warps have stored: `parts(w)` are those of warp w. All meet
// before and after.
template <class E, int TILES, class Parts>
ET_HOT void fold_piece(const Chunked<E>& p, const Piece& a, const Parts& parts) {
  sync();
  for (uint32_t at = threadIdx.x; at < a.panels * TILES * 8 * PANEL; at += ET_THREADS) {
    const uint32_t row = at % PANEL, column = at / PANEL % (TILES * 8);
    const uint32_t panel = a.panel + at / PANEL / (TILES * 8);
    float total = parts(0).get(at);
#pragma unroll
    for (uint32_t w = 1; w < SHARERS; ++w) total += parts(w).get(at);
    if (column < a.n)
      p.c[(panel * PANEL + row) * p.s_row + (a.column + column) * p.s_col] = total;
  }
  sync();
}

// ---- in place ----------------------------------------------------------------------------------

// Columns of x where they lie, beyond the last one that one again.
template <class E> struct InPlace {
  Matrix<E> x;  // from the first byte of the chunk on
  uint32_t last, part;
  bool packed;

  ET_HOT Eight operator()(int t, uint32_t i, uint32_t s) const {
    const uint32_t c = t * 8 + warp_row();
    const uint32_t byte = unit_at(part, i) + s * STEP_BYTES + warp_chunk() * 16;
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

template <class E, uint32_t CHUNK, int TILES>
ET_COLD void piece_in_place(FromMemory w, Chunked<E> p, Piece a, float* room) {
  const Place me;
  const bool packed = lies_packed(p.x);
  RoundSums<E, CHUNK, TILES> sums;
  for (uint32_t j = me.turn; j < p.chunks; j += TURNS) {
    const E* const at = p.x.data + a.column * p.x.s1 + int64_t(j) * (CHUNK / sizeof(E)) * p.x.s0;
    const InPlace<E> x{{at, p.x.s0, p.x.s1}, a.n - 1, me.part, packed};
#pragma unroll
    for (uint32_t q = 0; q < ROUND; ++q) {
      if (q >= a.panels) continue;
      sums.add(q, w.page<0>(a.panel + q, j, 0, PANEL), x, me.part, 0);
    }
  }
  sums.store(Anywhere{room + warp_index() * sums.FLOATS});
  fold_piece<E, TILES>(p, a, [&](uint32_t k) { return Anywhere{room + k * sums.FLOATS}; });
}

// All panels and columns of a product, with no stream. All meet last.
template <class E, uint32_t CHUNK>
ET_HOT void chunked_product(Worker& worker, FromMemory w, const Chunked<E>& p) {
  constexpr int TILES = 1;
  using Sums = RoundSums<E, CHUNK, TILES>;
  const Arena::Mark mark = worker.arena.mark();
  float* const room = worker.arena.take<float>(SHARERS * Sums::FLOATS);
  for (uint32_t c = 0; c < p.n; c += TILES * 8)
    for (uint32_t panel = 0; panel < p.panels; panel += ROUND) {
      const uint32_t left = p.panels - panel, n = p.n - c;
      const Piece a{panel, left < ROUND ? left : ROUND, c, n < 8 * TILES ? n : 8 * TILES};
      piece_in_place<E, CHUNK, TILES>(w, p, a, room);
    }
  worker.arena.rewind(mark);
}

// c = W x for packed panels, in place or from the stream. No pages come for no columns.
template <class E, uint32_t ROW, uint32_t CHUNK, class Source>
ET_HOT void wide_matmul(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col,
                        Matrix<E> x, int64_t rows, int64_t n) {
  static_assert(ROW % CHUNK == 0 && CHUNK % STEP_BYTES == 0);
  if (n < 1 || rows < 1) return sync();
  chunked_product<E, CHUNK>(w, source, Chunked<E>{
      c, s_row, s_col, x, uint32_t(rows) / PANEL, ROW / CHUNK, uint32_t(n)});
}

}  // namespace et
