// Matrix products whose one operand comes as pages of the stream: PANEL rows by some columns of K.
//
// Warps take pages in turn (several share one where there are fewer pages than warps), so that each
// has long runs of independent loads. A lane loads 16 bytes (8 elements of K) of its two rows and of
// its column of x, and feeds two mma.m16n8k16: K is permuted alike on both sides, which a sum does not
// see, so no ldmatrix and no transposition is needed. Products of bf16 or f16 are exact in f32; the
// order of the sums is fixed by the shapes alone: steps in turn over the sums of a warp, then these,
// then the warps from 0 on.
#pragma once
#include "loader.cuh"

namespace et {

constexpr uint32_t STEP_BYTES = 64;  // of a row, in one step of a warp

ET_FN void mma(float (&c)[4], bf16, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
               uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

ET_FN void mma(float (&c)[4], f16, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
               uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// How the warps share pages: TURNS groups of SHARE warps take them in turn. A page that more warps
// share is released sooner, and the loader goes on sooner; one that fewer share gives each of them
// longer runs of loads. Four of eight warps measured best (docs/tuning-log.md).
constexpr uint32_t SHARE = 4, TURNS = WARPS / SHARE;
static_assert(TURNS * SHARE == WARPS && (TURNS & TURNS - 1) == 0);

// The columns of x (k, n) in shared memory, each with K contiguous, `pitch` bytes apart. Staged in the
// arena (the plan sees to it that they fit), unless there is one and it lies there already.
struct Columns {
  uint32_t at, pitch;
};

template <class E>
ET_FN Columns stage_columns(Arena& arena, Matrix<E> x, int64_t k, int64_t n) {
  constexpr int64_t EACH = 16 / sizeof(E);
  const bool wide = x.s0 == 1 && reinterpret_cast<uint64_t>(x.data) % 16 == 0
      && x.s1 % EACH == 0 && k % EACH == 0;
  if (wide && n == 1 && __isShared(x.data)) return {shared_address(x.data), 0};
  const uint32_t bytes = uint32_t(k * sizeof(E));
  const uint32_t pitch = bytes % 128 == 64 ? bytes : (bytes + 127) / 128 * 128 + 64;
  char* const to = arena.take<char>(n * pitch);
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
  return {shared_address(to), pitch};
}

ET_HOT uint4 shared_load(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(address));
  return x;
}

// The sums of one warp over one panel: TILES tiles of 8 columns, in several sums that do not wait for
// each other.
template <class E, int TILES> class PanelSums {
 public:
  static constexpr uint32_t SUMS = TILES < 4 ? 4 / TILES : 1;

  // Adds the pairs of steps `part`, `part` + SHARE, .. of a page: PANEL rows of BYTES, against the
  // columns of x at this byte of K. All is known at compile time but where things lie.
  template <uint32_t BYTES>
  ET_HOT void add(uint32_t page, Columns x, uint32_t k0, uint32_t n, uint32_t part) {
    const uint32_t g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    // Eight lanes read two rows together. Where rows begin in the same bank, odd rows take the second
    // step of a pair first: the lanes then touch all banks once.
    const uint32_t turn = BYTES % 128 == 0 && g % 2 == 1 ? STEP_BYTES : 0;
    const uint32_t first = part * 2 * STEP_BYTES;
    const uint32_t one = page + g * BYTES + q * 16 + first + turn, two = one + STEP_BYTES - 2 * turn;
    const uint32_t column = x.at + g * x.pitch + k0 + q * 16 + first;
    constexpr uint32_t STRIDE = SHARE * 2 * STEP_BYTES, PAIRS = BYTES / STRIDE;
#pragma unroll 1
    for (uint32_t j = 0; j + SUMS <= PAIRS; j += SUMS) {
#pragma unroll
      for (uint32_t s = 0; s < SUMS; ++s)
        pair<BYTES>(s, one + (j + s) * STRIDE, two + (j + s) * STRIDE, turn != 0,
                    column + (j + s) * STRIDE, x.pitch, n);
    }
#pragma unroll
    for (uint32_t j = PAIRS / SUMS * SUMS; j < PAIRS; ++j)
      pair<BYTES>(j % SUMS, one + j * STRIDE, two + j * STRIDE, turn != 0, column + j * STRIDE,
                  x.pitch, n);
    constexpr uint32_t REST = BYTES % STRIDE;  // pairs, or half a one, for the first parts
    if (REST != 0 && first + STEP_BYTES < REST)
      pair<BYTES>(PAIRS % SUMS, one + PAIRS * STRIDE, two + PAIRS * STRIDE, turn != 0,
                  column + PAIRS * STRIDE, x.pitch, n);
    else if (REST % (2 * STEP_BYTES) != 0 && first < REST)
      step(PAIRS % SUMS, shared_load(one + PAIRS * STRIDE),
           shared_load(one + PAIRS * STRIDE + 8 * BYTES), column + PAIRS * STRIDE, x.pitch, n);
  }

  // As [column][row] into the warp's part.
  ET_HOT void store(float* part) const {
    const uint32_t g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
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
  template <uint32_t BYTES>
  ET_HOT void pair(uint32_t s, uint32_t one, uint32_t two, bool turned, uint32_t column,
                   uint32_t pitch, uint32_t n) {
    const uint4 u0 = shared_load(one), v0 = shared_load(one + 8 * BYTES);
    const uint4 u1 = shared_load(two), v1 = shared_load(two + 8 * BYTES);
    step(s, turned ? u1 : u0, turned ? v1 : v0, column, pitch, n);
    step(s, turned ? u0 : u1, turned ? v0 : v1, column + STEP_BYTES, pitch, n);
  }

  // Lanes whose column is not there bring zeros.
  ET_HOT void step(uint32_t s, uint4 u, uint4 v, uint32_t column, uint32_t pitch, uint32_t n) {
    const uint32_t g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
      uint4 b = make_uint4(0, 0, 0, 0);
      if (t * 8 + g < n) b = shared_load(column + t * 8 * pitch);
      mma(sum_[s][t], E{}, u.x, v.x, u.y, v.y, b.x, b.y);
      mma(sum_[s][t], E{}, u.z, v.z, u.w, v.w, b.z, b.w);
    }
  }

  float sum_[SUMS][TILES][4] = {};
};

// The result (row, column) of some panels goes to c[row * s_row + column * s_col]: the parts of the
// warps are added in their order.
ET_FN void fold_panels(const float* parts, uint32_t part, float* c, int64_t s_row, int64_t s_col,
                       uint32_t rows, uint32_t n) {
  sync();
  for (uint32_t r = 0; r < rows; r += PANEL, parts += WARPS * part) {
    for (uint32_t at = threadIdx.x; at < PANEL * n; at += ET_THREADS) {
      const uint32_t row = r + at % PANEL, column = at / PANEL;
      float total = parts[at];
#pragma unroll
      for (uint32_t w = 1; w < WARPS; ++w) total += parts[w * part + at];
      if (row < rows) c[row * s_row + column * s_col] = total;
    }
  }
  sync();
}

// c = W x for W of `rows` rows of ROW bytes, in pages of PANEL rows by CHUNK bytes as Loader::rows or,
// for packed panels, Loader::run brings them.
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK>
ET_HOT void stream_matmul(Worker& w, float* c, int64_t s_row, int64_t s_col, Matrix<E> x,
                          int64_t rows, int64_t n) {
  constexpr uint32_t PART = PANEL * 8 * TILES, BATCH = TILES < 4 ? 4 / TILES : 1;
  constexpr uint32_t EACH = (ROW + CHUNK - 1) / CHUNK, LAST = ROW - (EACH - 1) * CHUNK;
  const Arena::Mark mark = w.arena.mark();
  const Columns columns = stage_columns(w.arena, x, ROW / sizeof(E), n);
  float* const parts = w.arena.take<float>(BATCH * WARPS * PART);
  const uint32_t warp = threadIdx.x / 32, turn = warp % TURNS, share = warp / TURNS;
  Pages pages = w.pages;
  uint32_t first = 0;  // page of the panel
  for (int64_t r = 0; r < rows; r += BATCH * PANEL) {
    const uint32_t left = rows - r < BATCH * PANEL ? uint32_t(rows - r) : BATCH * PANEL;
    float* part = parts + warp * PART;
    for (uint32_t p = 0; p < left; p += PANEL, first += EACH, part += WARPS * PART) {
      PanelSums<E, TILES> sums;
      for (uint32_t j = turn - first & TURNS - 1; j < EACH; j += TURNS) {
        const uint32_t page = pages.page(first + j);
        if (LAST == CHUNK || j + 1 < EACH)
          sums.template add<CHUNK>(page, columns, j * CHUNK, uint32_t(n), share);
        else
          sums.template add<LAST>(page, columns, j * CHUNK, uint32_t(n), share);
        pages.release(first + j, TURNS);
      }
      sums.store(part);
    }
    fold_panels(parts, PART, c + r * s_row, s_row, s_col, left, uint32_t(n));
  }
  pages.advance(first);
  w.pages = pages;
  w.arena.rewind(mark);
}

}  // namespace et
