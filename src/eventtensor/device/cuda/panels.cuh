// Matrix products whose one operand is used up page by page: PANEL rows by some columns of K, from
// the stream or where they lie in memory. sm_80 and later.
//
// Warps share a page, and groups of them take pages in turn. A lane loads 16 bytes (8 elements of
// K) of its two rows and of its column of x, and feeds two mma.m16n8k16 (mma.cuh): K is permuted
// alike on both sides, which a sum does not see. Products of bf16 or f16 are exact in f32; the
// order of the sums is fixed by the shapes alone (steps in turn over the sums of a warp, then
// these, then the warps, as trees), so bits do not depend on where the pages come from.
#pragma once
#include "worker.cuh"

namespace et {

constexpr uint32_t PANEL = 16;       // rows of a page
constexpr uint32_t STEP_BYTES = 64;  // of a row, in one step of a warp

// How the warps share pages: TURNS groups of SHARE warps take them in turn. A page that more warps
// share is released sooner, and the loader goes on sooner; one that fewer share gives each of them
// longer runs of loads. Four of eight warps measured best (docs/tuning-log.md).
constexpr uint32_t SHARE = 4, TURNS = ET_THREADS / 32 / SHARE, SHARERS = TURNS * SHARE;
static_assert(SHARERS * 32 == ET_THREADS && (TURNS & TURNS - 1) == 0);

// The columns of x (k, n) in shared memory, each with K contiguous, `pitch` bytes apart. Staged in
// the arena (the plan sees to it that they fit), unless there is one and it lies there already.
struct Columns {
  uint32_t at, pitch;
};

template <class E>
ET_FN Columns stage_columns(Arena& arena, Matrix<E> x, int64_t k, int64_t n) {
  constexpr int64_t EACH = 16 / sizeof(E);
  const bool wide = x.s0 == 1 && reinterpret_cast<uint64_t>(x.data) % 16 == 0
      && x.s1 % EACH == 0 && k % EACH == 0;
  if (wide && n == 1 && __isShared(x.data)) return {uint32_t(__cvta_generic_to_shared(x.data)), 0};
  const uint32_t bytes = uint32_t(k * sizeof(E));
  const uint32_t apart = bytes % 128 == 64 ? bytes : (bytes + 127) / 128 * 128 + 64;
  const uint32_t pitch = n == 1 ? bytes : apart;
  char* const to = arena.take<char>(n * pitch);
  if (!__isShared(to)) __trap();
  for (int64_t c = 0; c < n; ++c) {
    const E* const from = x.data + c * x.s1;
    E* const row = reinterpret_cast<E*>(to + c * pitch);
    if (wide) {
      for (int64_t q = lane(); q < k / EACH; q += lanes())
        reinterpret_cast<uint4*>(row)[q] = reinterpret_cast<const uint4*>(from)[q];
    } else {
      for (int64_t q = lane(); q < k; q += lanes()) row[q] = from[q * x.s0];
    }
  }
  sync();
  return {uint32_t(__cvta_generic_to_shared(to)), pitch};
}

// Sixteen bytes at an address in shared memory, or anywhere.
ET_HOT Eight load_eight(uint32_t address) {
  Eight x;
  ptx::ld_shared_v4(address, x.pair);
  return x;
}
ET_HOT Eight load_eight(const char* address) { return *reinterpret_cast<const Eight*>(address); }

// One of two, in registers.
ET_HOT Eight pick(uint32_t first, const Eight& a, const Eight& b) {
  Eight x;
#pragma unroll
  for (int k = 0; k < 4; ++k) x.pair[k] = first != 0 ? a.pair[k] : b.pair[k];
  return x;
}

// The two rows of a page that a lane reads.
template <class At> struct Lines { At low, high; };

// Of a row, what the warps that share a page take in one turn: two steps each.
constexpr uint32_t STRIDE = SHARE * 2 * STEP_BYTES;

// A step of a lane's rows.
struct Step { Eight low, high; };

// Two of them, as they are loaded. Eight lanes read two rows together; where rows begin in the same
// bank, odd rows turn: they load the second step first, so that the lanes touch all banks once.
struct Steps {
  Eight low[2], high[2];

  ET_HOT Step step(uint32_t turn, uint32_t h) const {
    return {pick(turn, low[1 - h], low[h]), pick(turn, high[1 - h], high[h])};
  }
};

// By how much this lane's rows turn, in a page whose rows have BYTES.
template <uint32_t BYTES, class At> ET_HOT uint32_t row_turn() {
  constexpr bool same_bank = std::is_same_v<At, uint32_t> && BYTES % (2 * STEP_BYTES) == 0;
  return same_bank && warp_row() % 2 == 1 ? STEP_BYTES : 0;
}

// A lane's column of x, from the first byte of its steps on.
class LaneColumn {
 public:
  ET_HOT LaneColumn(Columns x, uint32_t n, uint32_t first)
      : n_(n), pitch_(x.pitch), at_(x.at + warp_row() * x.pitch + first) {}

  // Sixteen bytes of it in tile t. Lanes that have no column there leave x as it is.
  ET_HOT void load(Eight& x, int t, uint32_t k) const {
    if (t * 8 + uint32_t(warp_row()) < n_) x = load_eight(at_ + t * 8 * pitch_ + k);
  }

 private:
  uint32_t n_, pitch_, at_;
};

// The sums of one warp over one panel: TILES tiles of 8 columns, in several sums that do not wait
// for each other. Steps go to them in turn.
template <class E, int TILES> class PanelSums {
 public:
  static constexpr uint32_t SUMS = TILES < 4 ? 4 / TILES : 1;

  // Adds step `s` of a page, for a tile.
  ET_HOT void add(uint32_t s, int t, const Step& w, const Eight& x) {
    mma<E>(sum_[s % SUMS][t], w.low, w.high, x, 0);
    mma<E>(sum_[s % SUMS][t], w.low, w.high, x, 1);
  }

  // As [column][row] into the warp's part, the columns that are there.
  ET_HOT void store(float* part, uint32_t n) const {
    const uint32_t g = warp_row(), q = warp_chunk();
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t column = t * 8 + q * 2 + j % 2;
        if (column < n) part[column * PANEL + g + j / 2 * 8] = total(t, j);
      }
    }
  }

 private:
  ET_HOT float total(int t, int j) const {
    const float first = SUMS == 1 ? sum_[0][t][j] : sum_[0][t][j] + sum_[1 % SUMS][t][j];
    return SUMS < 4 ? first : first + (sum_[2 % SUMS][t][j] + sum_[3 % SUMS][t][j]);
  }

  float sum_[SUMS][TILES][4] = {};
};

// The result (row, column) of up to PANELS panels goes to c[row * s_row + column * s_col]: parts of
// the warps are added as a tree.
template <uint32_t PANELS>
ET_FN void fold_panels(const float* parts, uint32_t part, float* c, int64_t s_row, int64_t s_col,
                       uint32_t rows, uint32_t n) {
  sync();
  for (uint32_t at = threadIdx.x; at < PANELS * PANEL * n; at += ET_THREADS) {
    const uint32_t panel = at / PANEL % PANELS, column = at / PANEL / PANELS;
    const uint32_t row = panel * PANEL + at % PANEL;
    if (row >= rows) continue;
    const float* const from = parts + panel * SHARERS * part + column * PANEL + at % PANEL;
    float x[SHARERS];
#pragma unroll
    for (uint32_t w = 0; w < SHARERS; ++w) x[w] = from[w * part];
#pragma unroll
    for (uint32_t half = SHARERS / 2; half > 0; half /= 2)
#pragma unroll
      for (uint32_t w = 0; w < half; ++w) x[w] += x[w + half];
    c[row * s_row + column * s_col] = x[0];
  }
  sync();
}

// Pages where they lie: rows `pitch` bytes apart, panels and chunks of K at constant distances.
struct FromMemory {
  const char* data;
  int64_t pitch, panel, chunk;

  template <uint32_t>
  ET_HOT Lines<const char*> page(uint32_t p, uint32_t j, uint32_t, uint32_t rows) const {
    const char* const at = data + p * panel + j * chunk;
    const uint32_t g = warp_row();  // rows beyond the last one repeat it, and are not stored
    return {at + (g < rows ? g : rows - 1) * pitch, at + (g + 8 < rows ? g + 8 : rows - 1) * pitch};
  }
  ET_HOT void done(uint32_t) const {}
  ET_HOT void end(Worker&, uint32_t) const {}
};

// What a warp does in a product: pages `turn`, `turn` + TURNS, .., of each the pairs of steps
// `part`, `part` + SHARE, .. All is known at compile time but where things lie.
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK, class Source> class PanelWarp {
 public:
  static constexpr uint32_t PART = PANEL * 8 * TILES;  // floats of a warp and panel

  ET_HOT PanelWarp(Source& source, Columns x, uint32_t n)
      : source_(source), turn_(warp_index() % TURNS), part_(warp_index() / TURNS),
        first_(part_ * 2 * STEP_BYTES + warp_chunk() * 16), column_(x, n, first_), n_(n) {}

  // Sums up the panels of the next `rows` rows.
  ET_HOT void panels(float* parts, uint32_t rows) {
    float* part = parts + warp_index() * PART;
    if constexpr (ROLLS) {
      roll(part, rows);
    } else {
      ET_ROLLED for (uint32_t r = 0; r < rows; r += PANEL, part += SHARERS * PART)
        panel(part, rows - r);
    }
  }

  ET_HOT uint32_t pages() const { return pages_; }

 private:
  static constexpr uint32_t EACH = (ROW + CHUNK - 1) / CHUNK, LAST = ROW - (EACH - 1) * CHUNK;
  static constexpr uint32_t MINE = EACH / TURNS, PAIRS = CHUNK / STRIDE;
  static constexpr bool ROLLS =
      TILES == 1 && LAST == CHUNK && EACH % TURNS == 0 && CHUNK % (2 * STRIDE) == 0;
  using Sums = PanelSums<E, TILES>;

  template <uint32_t BYTES> ET_HOT auto find(uint32_t j, uint32_t rows) {
    auto at = source_.template page<BYTES>(panels_, j, pages_ + j, rows);
    at.low += first_, at.high += first_;
    return at;
  }
  ET_HOT void panel_done() { ++panels_, pages_ += EACH; }

  // Where all warps have as many pages. Two pairs are in registers or on their way; a page is
  // released when it is read, and the next one begins to come before the last products of this one.
  ET_HOT void roll(float* part, uint32_t rows) {
    auto at = find<CHUNK>(turn_, rows);
    load(at, turn_, 0);
    ET_ROLLED for (uint32_t left = rows; left > 0; part += SHARERS * PART) {
      Sums sums;
      const uint32_t after = left < PANEL ? 0 : left - PANEL;
#pragma unroll (MINE <= 2 ? MINE : 1)
      for (uint32_t i = 0; i < MINE; ++i) {
        const uint32_t j = turn_ + i * TURNS;
#pragma unroll
        for (uint32_t k = 1; k < PAIRS; ++k) {
          load(at, j, k);
          add(sums, at, k - 1);
        }
        source_.done(pages_ + j);
        if (i + 1 == MINE) panel_done();
        if (i + 1 < MINE || after > 0) {
          const uint32_t next = i + 1 < MINE ? j + TURNS : turn_;
          at = find<CHUNK>(next, i + 1 < MINE ? left : after);
          load(at, next, 0);
        }
        add(sums, at, PAIRS - 1);
      }
      sums.store(part, n_);
      left = after;
    }
  }

  // Pair k of page j.
  template <class At> ET_HOT void load(Lines<At> at, uint32_t j, uint32_t k) {
    const uint32_t from = k * STRIDE, x = j * CHUNK + from;
    column_.load(x_[k % 2][0], 0, x);
    load_steps<CHUNK>(w_[k % 2], at, from);
    column_.load(x_[k % 2][1], 0, x + STEP_BYTES);
  }

  template <uint32_t BYTES, class At>
  ET_HOT static void load_steps(Steps& w, Lines<At> at, uint32_t k) {
    const uint32_t turn = row_turn<BYTES, At>(), one = k + turn, two = k + STEP_BYTES - turn;
    w.low[0] = load_eight(at.low + one), w.high[0] = load_eight(at.high + one);
    w.low[1] = load_eight(at.low + two), w.high[1] = load_eight(at.high + two);
  }

  template <class At> ET_HOT void add(Sums& sums, Lines<At>, uint32_t k) {
    const uint32_t turn = row_turn<CHUNK, At>();
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      sums.add(2 * k + h, 0, w_[k % 2].step(turn, h), x_[k % 2][h]);
  }

  // Anywhere: page after page, pair after pair.
  ET_HOT void panel(float* part, uint32_t rows) {
    Sums sums;
    ET_ROLLED for (uint32_t j = turn_ - pages_ & TURNS - 1; j < EACH; j += TURNS) {
      if (LAST == CHUNK || j + 1 < EACH) page<CHUNK>(sums, j, rows);
      else page<LAST>(sums, j, rows);
      source_.done(pages_ + j);
    }
    panel_done();
    sums.store(part, n_);
  }

  template <uint32_t BYTES> ET_HOT void page(Sums& sums, uint32_t j, uint32_t rows) {
    const auto at = find<BYTES>(j, rows);
    constexpr uint32_t J = BYTES / STRIDE, REST = BYTES % STRIDE;
#pragma unroll
    for (uint32_t k = 0; k < J; ++k) pair<BYTES>(sums, at, j, k);
    const uint32_t mine = part_ * 2 * STEP_BYTES;  // the first parts have one more, or half a one
    if (REST != 0 && mine + STEP_BYTES < REST) pair<BYTES>(sums, at, j, J);
    else if (REST % (2 * STEP_BYTES) != 0 && mine < REST)
      step(sums, 2 * J, {load_eight(at.low + J * STRIDE), load_eight(at.high + J * STRIDE)},
           j * CHUNK + J * STRIDE);
  }

  template <uint32_t BYTES, class At>
  ET_HOT void pair(Sums& sums, Lines<At> at, uint32_t j, uint32_t k) {
    const uint32_t turn = row_turn<BYTES, At>();
    Steps w;
    load_steps<BYTES>(w, at, k * STRIDE);
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      step(sums, 2 * k + h, w.step(turn, h), j * CHUNK + k * STRIDE + h * STEP_BYTES);
  }

  ET_HOT void step(Sums& sums, uint32_t s, const Step& w, uint32_t k) {
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
      Eight x{};
      column_.load(x, t, k);
      sums.add(s, t, w, x);
    }
  }

  Source& source_;
  const uint32_t turn_, part_, first_;
  const LaneColumn column_;
  const uint32_t n_;
  Steps w_[2];                       // the pairs that roll, and their x:
  Eight x_[2][2] = {};               // zeros in lanes without a column
  uint32_t panels_ = 0, pages_ = 0;  // behind
};

// c = W x for W of `rows` rows of ROW bytes, in pages of PANEL rows by CHUNK bytes. All meet last.
// PANELS at most; as many are summed up before they are folded as 16 KB of parts hold.
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK, uint32_t PANELS, class Source>
ET_HOT void panel_matmul(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col,
                         Matrix<E> x, int64_t rows, int64_t n) {
  using Mine = PanelWarp<E, TILES, ROW, CHUNK, Source>;
  constexpr uint32_t FIT = TILES < 4 ? 4 / TILES : 1, BATCH = PANELS < FIT ? PANELS : FIT;
  const Arena::Mark mark = w.arena.mark();
  const Columns columns = stage_columns(w.arena, x, ROW / sizeof(E), n);
  float* const parts = w.arena.take<float>(BATCH * SHARERS * Mine::PART);
  Mine mine(source, columns, uint32_t(n));
  for (int64_t r = 0; r < rows; r += BATCH * PANEL) {
    const uint32_t left = rows - r < BATCH * PANEL ? uint32_t(rows - r) : BATCH * PANEL;
    mine.panels(parts, left);
    fold_panels<BATCH>(parts, Mine::PART, c + r * s_row, s_row, s_col, left, uint32_t(n));
  }
  source.end(w, mine.pages());
  w.arena.rewind(mark);
}

}  // namespace et

#include "chunked.cuh"
