// Matrix products whose one operand is used up page by page: PANEL rows by some columns of K, from
// the stream or where they lie in memory. sm_80 and later.
//
// Warps share a page, and groups of them take pages in turn. A lane loads 16 bytes (8 elements of
// K) of its two rows and of its column of x, and feeds two mma.m16n8k16 (mma.cuh): K is permuted
// alike on both sides, which a sum does not see. Products of bf16 or f16 are exact in f32; the
// order of the sums is fixed by the shapes alone (steps in turn over the sums of a warp, then
// these, then the warps from 0 on), so bits do not depend on where the pages come from.
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

// The sums of one warp over one panel: TILES tiles of 8 columns, in several sums that do not wait
// for each other.
template <class E, int TILES> class PanelSums {
 public:
  static constexpr uint32_t SUMS = TILES < 4 ? 4 / TILES : 1;

  // Adds the pairs of steps `part`, `part` + SHARE, .. of a page whose rows have BYTES, against the
  // columns of x at this byte of K. All is known at compile time but where things lie.
  template <uint32_t BYTES, class At>
  ET_HOT void add(Lines<At> rows, Columns x, uint32_t k0, uint32_t n, uint32_t part) {
    const uint32_t g = warp_row(), first = part * 2 * STEP_BYTES + warp_chunk() * 16;
    // Eight lanes read two rows together. Where rows begin in the same bank, odd rows take the
    // second step of a pair first: the lanes then touch all banks once.
    constexpr bool same_bank = std::is_same_v<At, uint32_t> && BYTES % 128 == 0;
    const uint32_t turn = same_bank && g % 2 == 1 ? STEP_BYTES : 0;
    const Lines<At> at{rows.low + first, rows.high + first};
    const uint32_t column = x.at + g * x.pitch + k0 + first;
    constexpr uint32_t STRIDE = SHARE * 2 * STEP_BYTES, PAIRS = BYTES / STRIDE;
#pragma unroll 1
    for (uint32_t j = 0; j + SUMS <= PAIRS; j += SUMS) {
#pragma unroll
      for (uint32_t s = 0; s < SUMS; ++s)
        pair(s, at, (j + s) * STRIDE, turn, column, x.pitch, n);
    }
#pragma unroll
    for (uint32_t j = PAIRS / SUMS * SUMS; j < PAIRS; ++j)
      pair(j % SUMS, at, j * STRIDE, turn, column, x.pitch, n);
    constexpr uint32_t REST = BYTES % STRIDE;  // pairs, or half a one, for the first parts
    const uint32_t mine = part * 2 * STEP_BYTES;
    if (REST != 0 && mine + STEP_BYTES < REST)
      pair(PAIRS % SUMS, at, PAIRS * STRIDE, turn, column, x.pitch, n);
    else if (REST % (2 * STEP_BYTES) != 0 && mine < REST)
      step(PAIRS % SUMS, load_eight(at.low + PAIRS * STRIDE), load_eight(at.high + PAIRS * STRIDE),
           column + PAIRS * STRIDE, x.pitch, n);
  }

  // As [column][row] into the warp's part.
  ET_HOT void store(float* part) const {
    const uint32_t g = warp_row(), q = warp_chunk();
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float total = sum_[0][t][j];
#pragma unroll
        for (uint32_t s = 1; s < SUMS; ++s) total += sum_[s][t][j];
        part[(t * 8 + q * 2 + j % 2) * PANEL + g + j / 2 * 8] = total;
      }
    }
  }

 private:
  template <class At>
  ET_HOT void pair(uint32_t s, Lines<At> at, uint32_t k, uint32_t turn, uint32_t column,
                   uint32_t pitch, uint32_t n) {
    const uint32_t one = k + turn, two = k + STEP_BYTES - turn;
    const Eight u0 = load_eight(at.low + one), v0 = load_eight(at.high + one);
    const Eight u1 = load_eight(at.low + two), v1 = load_eight(at.high + two);
    step(s, pick(turn, u1, u0), pick(turn, v1, v0), column + k, pitch, n);
    step(s, pick(turn, u0, u1), pick(turn, v0, v1), column + k + STEP_BYTES, pitch, n);
  }

  // Lanes whose column is not there bring zeros.
  ET_HOT void step(uint32_t s, const Eight& u, const Eight& v, uint32_t column, uint32_t pitch,
                   uint32_t n) {
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
      Eight b{};
      if (t * 8 + uint32_t(warp_row()) < n) b = load_eight(column + t * 8 * pitch);
      mma<E>(sum_[s][t], u, v, b, 0);
      mma<E>(sum_[s][t], u, v, b, 1);
    }
  }

  float sum_[SUMS][TILES][4] = {};
};

// The result (row, column) of some panels goes to c[row * s_row + column * s_col]: the parts of the
// warps are added in their order.
ET_FN void fold_panels(const float* parts, uint32_t part, float* c, int64_t s_row, int64_t s_col,
                       uint32_t rows, uint32_t n) {
  sync();
  for (uint32_t r = 0; r < rows; r += PANEL, parts += SHARERS * part) {
    for (uint32_t at = threadIdx.x; at < PANEL * n; at += ET_THREADS) {
      const uint32_t row = r + at % PANEL, column = at / PANEL;
      float total = parts[at];
#pragma unroll
      for (uint32_t w = 1; w < SHARERS; ++w) total += parts[w * part + at];
      if (row < rows) c[row * s_row + column * s_col] = total;
    }
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

// c = W x for W of `rows` rows of ROW bytes, in pages of PANEL rows by CHUNK bytes. All meet last.
// PANELS at most; as many are summed up before they are folded as 16 KB of parts hold.
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK, uint32_t PANELS, class Source>
ET_HOT void panel_matmul(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col,
                         Matrix<E> x, int64_t rows, int64_t n) {
  constexpr uint32_t PART = PANEL * 8 * TILES, FIT = TILES < 4 ? 4 / TILES : 1;
  constexpr uint32_t BATCH = PANELS < FIT ? PANELS : FIT;
  constexpr uint32_t EACH = (ROW + CHUNK - 1) / CHUNK, LAST = ROW - (EACH - 1) * CHUNK;
  const Arena::Mark mark = w.arena.mark();
  const Columns columns = stage_columns(w.arena, x, ROW / sizeof(E), n);
  float* const parts = w.arena.take<float>(BATCH * SHARERS * PART);
  const uint32_t warp = warp_index(), turn = warp % TURNS, part_of_page = warp / TURNS;
  uint32_t panel = 0, first = 0;  // of the product: panels, and pages
  for (int64_t r = 0; r < rows; r += BATCH * PANEL) {
    const uint32_t left = rows - r < BATCH * PANEL ? uint32_t(rows - r) : BATCH * PANEL;
    float* part = parts + warp * PART;
    for (uint32_t p = 0; p < left; p += PANEL, ++panel, first += EACH, part += SHARERS * PART) {
      PanelSums<E, TILES> sums;
      for (uint32_t j = turn - first & TURNS - 1; j < EACH; j += TURNS) {
        if (LAST == CHUNK || j + 1 < EACH)
          sums.template add<CHUNK>(source.template page<CHUNK>(panel, j, first + j, left - p),
                                   columns, j * CHUNK, uint32_t(n), part_of_page);
        else
          sums.template add<LAST>(source.template page<LAST>(panel, j, first + j, left - p),
                                  columns, j * CHUNK, uint32_t(n), part_of_page);
        source.done(first + j);
      }
      sums.store(part);
    }
    fold_panels(parts, PART, c + r * s_row, s_row, s_col, left, uint32_t(n));
  }
  source.end(w, first);
  w.arena.rewind(mark);
}

}  // namespace et

#include "chunked.cuh"
