// Products of 16-bit matrices on tensor cores: mma.sync m16n8k16 with sums in f32. sm_80 and later.
//
// Meaning: products are exact, and only the order of the sums differs from the meaning of record (k
// ascending), so |c - exact| <= k * 2^-24 * sum |a||b|. The order hangs on (m, k, n) alone: bits do
// not depend on the schedule, the workers or the run.
//
// Layout: with g = lane / 4 and q = lane % 4 a fragment wants pairs of K from rows g and g + 8 of A
// and from column g of B. K may be permuted if both sides permute it alike, and rows and columns if
// the result is stored alike. So lane (g, q) loads 8 neighbours in K, chunk q of 32, and feeds two
// mma; its rows are 2g and 2g + 1, its columns g * TILES .. g * TILES + TILES - 1.
#pragma once
#include "view.h"
#include "cuda/sync/sync.cuh"

namespace et {

template <class T> inline constexpr bool is_16bit =
    std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

constexpr int WARP = 32;
constexpr int K_STEP = 32;  // of K: what one load of each lane covers

ET_FN int warp_index() { return thread_number() / WARP; }
ET_FN int warp_row() { return thread_number() % WARP / 4; }    // g
ET_FN int warp_chunk() { return thread_number() % 4; }         // q

struct alignas(16) Eight { uint32_t pair[4]; };  // eight 16-bit elements

template <class T>
ET_FN void mma(float (&c)[4], const Eight& upper, const Eight& lower, const Eight& b, int half) {
  const uint32_t rows[4] = {upper.pair[2 * half], lower.pair[2 * half],
                            upper.pair[2 * half + 1], lower.pair[2 * half + 1]};
  const uint32_t columns[2] = {b.pair[2 * half], b.pair[2 * half + 1]};
  if constexpr (std::is_same_v<T, bf16>) ptx::mma_bf16(c, rows, columns);
  else ptx::mma_f16(c, rows, columns);
}

// Eight elements `step` apart, zeros from `count` on. Not inlined: one copy keeps compiles short.
template <class T> ET_COLD Eight gathered(const T* p, int64_t step, int64_t count) {
  Eight x;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t low = 2 * j < count ? p[2 * j * step].bits : 0;
    const uint32_t high = 2 * j + 1 < count ? p[(2 * j + 1) * step].bits : 0;
    x.pair[j] = low | high << 16;
  }
  return x;
}

// One side of a product as rows along K: element (r, k) is data[r * row + k * step]. `packed`:
// eight of K are 16 aligned bytes. `abreast`: four neighbouring rows of one k are 8 aligned bytes.
// Rows beyond the last one repeat others: what comes of them is not stored.
template <class T> struct Side {
  ET_FN Side(const T* data_, int64_t row_, int64_t step_, int64_t rows_)
      : data(data_), row(row_), step(step_), rows(int(rows_)) {
    const uint64_t at = reinterpret_cast<uint64_t>(data_);
    packed = step == 1 && at % 16 == 0 && (rows == 1 || row % 8 == 0);
    abreast = row == 1 && at % 8 == 0 && step % 4 == 0 && rows % 4 == 0;
  }

  const T* data;
  int64_t row, step;
  int rows;
  bool packed, abreast;

  template <int COUNT> ET_FN bool direct() const { return packed || (COUNT == 4 && abreast); }

  // Elements k .. k+7 of COUNT neighbouring rows, if `direct`.
  template <int COUNT> ET_FN void load(Eight (&x)[COUNT], int r, int64_t k) const {
    if constexpr (COUNT == 4)
      if (abreast) return across(x, r < rows ? r : rows - 4, k);
#pragma unroll
    for (int t = 0; t < COUNT; ++t)
      x[t] = *reinterpret_cast<const Eight*>(at(r + t, k));
  }
  // The same for any side, zeros from `end` on.
  template <int COUNT> ET_FN void find(Eight (&x)[COUNT], int r, int64_t k, int64_t end) const {
    if (direct<COUNT>() && k + 8 <= end) return load(x, r, k);
#pragma unroll
    for (int t = 0; t < COUNT; ++t) x[t] = gathered(at(r + t, k), step, end - k);
  }

 private:
  ET_FN const T* at(int r, int64_t k) const {
    return data + (r < rows ? r : rows - 1) * row + k * step;
  }
  // Four rows that lie side by side, transposed in registers.
  ET_FN void across(Eight (&x)[4], int r, int64_t k) const {
    uint2 w[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
      w[j] = *reinterpret_cast<const uint2*>(data + r + (k + j) * step);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[0].pair[j] = __byte_perm(w[2 * j].x, w[2 * j + 1].x, 0x5410);
      x[1].pair[j] = __byte_perm(w[2 * j].x, w[2 * j + 1].x, 0x7632);
      x[2].pair[j] = __byte_perm(w[2 * j].y, w[2 * j + 1].y, 0x5410);
      x[3].pair[j] = __byte_perm(w[2 * j].y, w[2 * j + 1].y, 0x7632);
    }
  }
};

// A block of 16 x (8 * TILES) sums, held by one warp.
template <class T, int TILES> struct Sums {
  float sum[TILES][4] = {};

  ET_FN void add(const Eight (&a)[2], const Eight (&b)[TILES]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int t = 0; t < TILES; ++t) mma<T>(sum[t], a[0], a[1], b[t], half);
  }

  // Adds rows r0.. of `a` times rows c0.. of `b`, for K in [begin, end), DEPTH steps at a time.
  // Which elements meet in one mma does not depend on how they are loaded: nor do the bits.
  template <int DEPTH>
  ET_FN void add(const Side<T>& a, const Side<T>& b, int r0, int c0, int64_t begin, int64_t end) {
    const int r = r0 + 2 * warp_row(), c = c0 + TILES * warp_row(), skip = 8 * warp_chunk();
    int64_t k = begin;
    if (a.template direct<2>() && b.template direct<TILES>()) {
      const int64_t whole = begin + (end - begin) / K_STEP * K_STEP;
      for (; k < whole; k += DEPTH * K_STEP) {
        Eight x[DEPTH][2] = {}, y[DEPTH][TILES] = {};
#pragma unroll
        for (int d = 0; d < DEPTH; ++d)
          if (k + d * K_STEP < whole) {
            a.load(x[d], r, k + d * K_STEP + skip);
            b.load(y[d], c, k + d * K_STEP + skip);
          }
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) add(x[d], y[d]);
      }
      k = whole;
    }
#pragma unroll 1
    for (; k < end; k += K_STEP) {
      Eight x[2], y[TILES];
      a.find(x, r, k + skip, end);
      b.find(y, c, k + skip, end);
      add(x, y);
    }
  }

  // Every one of `parts` neighbouring warps holds a part of the same sums: folds them, in the order
  // of the parts, into part 0. All threads of the block meet. `room`: ROOM floats for each warp.
  static constexpr int ROOM = TILES * 4 * WARP;
  ET_FN void fold(int part, int parts, float* room) {
    float* const mine = room + warp_index() * ROOM + thread_number() % WARP;
    if (part > 0) each([&](int j, float& x) { mine[j * WARP] = x; });
    sync();
    if (part == 0)
      for (int p = 1; p < parts; ++p)
        each([&](int j, float& x) { x = x + mine[p * ROOM + j * WARP]; });
    sync();
  }

  // Into c (m, n, dense), from row r0 and column c0 on.
  ET_FN void store(float* c, int r0, int c0, int m, int n) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = r0 + 2 * warp_row() + j / 2, first = (2 * warp_chunk() + j % 2) * TILES + c0;
#pragma unroll
      for (int t = 0; t < TILES; ++t)
        if (r < m && first + t < n) c[int64_t(r) * n + first + t] = sum[t][j];
    }
  }

 private:
  template <class F> ET_FN void each(F f) {
#pragma unroll
    for (int j = 0; j < TILES * 4; ++j) f(j, sum[j / 4][j % 4]);
  }
};

// How the warps of a block share (m, n): blocks of 16 x width, and K in parts where 16 rows have
// fewer blocks than there are warps. By k and n alone: a row's bits do not depend on how many rows
// there are.
struct Shares {
  ET_FN Shares(int m, int64_t k, int n, int width)
      : across((n + width - 1) / width), blocks((m + 15) / 16 * across) {
    constexpr int WARPS = ET_THREADS / WARP;
    const int64_t steps = (k + K_STEP - 1) / K_STEP;
    while (parts * 2 * across <= WARPS && parts * 2 <= steps) parts *= 2;
    length = (steps + parts - 1) / parts * K_STEP;
    groups = WARPS / parts;
  }
  int across, blocks, parts = 1, groups;
  int64_t length;  // of K, in a part
};

// c (dense) = a (m, k) @ b (k, n); both sides as rows along K.
template <class T, int TILES, int DEPTH>
ET_FN void multiply(float* room, float* c, const Side<T>& a, const Side<T>& b, int64_t k) {
  const Shares shares(a.rows, k, b.rows, 8 * TILES);
  const int part = warp_index() % shares.parts;
  const int64_t begin = part * shares.length;
  const int64_t end = begin + shares.length < k ? begin + shares.length : k;
  for (int first = 0; first < shares.blocks; first += shares.groups) {
    const int block = first + warp_index() / shares.parts;
    const int r0 = block / shares.across * 16, c0 = block % shares.across * 8 * TILES;
    Sums<T, TILES> sums;
    if (block < shares.blocks) sums.template add<DEPTH>(a, b, r0, c0, begin, end);
    if (shares.parts > 1) sums.fold(part, shares.parts, room);
    if (block < shares.blocks && part == 0) sums.store(c, r0, c0, a.rows, b.rows);
  }
}

}  // namespace et
