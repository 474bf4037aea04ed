// Matrix multiplication of tiles on a CPU: for each element k ascending, one fused multiply-add a
// step, from 0 (integers wrap). Lanes are outputs. A right side that is made of dense panels of 16
// columns is read where it lies, so that weights go straight from memory into registers.
#pragma once
#include "arena.h"
#include "lanes.h"

namespace et {

// Bytes of a panel between what is multiplied and what is asked for. A Neoverse N1 alone gives 16-bit
// weights some percent less, and further ahead is worse; floats it brings as well by itself. A Xeon
// (Sapphire Rapids) gives a tenth more of both.
#if defined(__aarch64__)
template <class B> constexpr int64_t AHEAD = sizeof(B) <= 2 ? 512 : 0;
#else
template <class B> constexpr int64_t AHEAD = 3072;
#endif

// Four rows of a panel are wanted soon. What lies behind the end of a panel is mostly the next one.
template <class B> inline void prefetch(const B* rows, int64_t ldb) {
  if constexpr (AHEAD<B> != 0) {
    constexpr int64_t ROW = LANES * sizeof(B), STEP = ROW < 64 ? 64 / ROW : 1;  // rows of a line
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; r += STEP) __builtin_prefetch(rows + (AHEAD<B> / ROW + r) * ldb);
  }
}

// One copy for each pair of types keeps compiles short.
#define ET_ONCE __attribute__((noinline))

// ROWS rows of one panel: a has rows that lie along memory, `lda` apart, b and c likewise.
template <int ROWS, class T, class A, class B>
ET_ONCE void panel_rows(T* c, int64_t ldc, const A* a, int64_t lda, const B* b, int64_t ldb,
                        int64_t k) {
  using Four = typename Lanes<T>::Four;
  Lanes<T> sum[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) sum[r] = Lanes<T>::zero();
  int64_t q = 0;
  for (; q + 4 <= k; q += 4, b += 4 * ldb) {
    Four x[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) x[r] = Four::load(a + r * lda + q);
    prefetch(b, ldb);
    const auto step = [&](auto s) {
      const Lanes<T> y = Lanes<T>::load(b + s.value * ldb);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) sum[r].template add<s.value>(x[r], y);
    };
    step(std::integral_constant<int, 0>{});
    step(std::integral_constant<int, 1>{});
    step(std::integral_constant<int, 2>{});
    step(std::integral_constant<int, 3>{});
  }
  for (; q < k; ++q, b += ldb) {
    const Lanes<T> y = Lanes<T>::load(b);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) sum[r].add(T(value(a[r * lda + q])), y);
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) sum[r].store(c + r * ldc);
}

constexpr int64_t ROWS_AT_ONCE = 4;

// All rows of one panel.
template <class T, class A, class B>
inline void panel(T* c, int64_t ldc, const A* a, int64_t lda, const B* b, int64_t ldb, int64_t m,
                  int64_t k) {
  int64_t r = 0;
  for (; r + ROWS_AT_ONCE <= m; r += ROWS_AT_ONCE)
    panel_rows<ROWS_AT_ONCE>(c + r * ldc, ldc, a + r * lda, lda, b, ldb, k);
  switch (m - r) {
    case 3: return panel_rows<3>(c + r * ldc, ldc, a + r * lda, lda, b, ldb, k);
    case 2: return panel_rows<2>(c + r * ldc, ldc, a + r * lda, lda, b, ldb, k);
    case 1: return panel_rows<1>(c + r * ldc, ldc, a + r * lda, lda, b, ldb, k);
    default: return;
  }
}

// A matrix with its rows along memory, `pitch` apart.
template <class T, class B>
inline void lay_dense(T* to, int64_t pitch, Matrix<B> x, int64_t rows, int64_t columns) {
  int64_t r = 0;
  const auto rest = [&](int64_t row, int64_t c) {
    for (; c < columns; ++c) to[row * pitch + c] = value(x.data[row * x.s0 + c * x.s1]);
  };
  if (x.s0 == 1 && x.s1 != 1)
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + LANES <= columns; c += LANES)
        Lanes<T>::turn(to + r * pitch + c, pitch, x.data + r + c * x.s1, x.s1);
      for (int64_t row = r; row < r + 4; ++row) rest(row, c);
    }
  for (; r < rows; ++r) {
    int64_t c = 0;
    if (x.s1 == 1)
      for (; c + LANES <= columns; c += LANES)
        Lanes<T>::load(x.data + r * x.s0 + c).store(to + r * pitch + c);
    rest(r, c);
  }
}

// c (`down` between its rows, `across` between its columns) = a @ b, where a has dense rows.
template <class T, class A, class B>
inline void panels(Arena& arena, T* c, int64_t down, int64_t across, const A* a, int64_t lda,
                   Matrix<B> b, int64_t m, int64_t k, int64_t n) {
  // Many rows would convert 16-bit columns again and again.
  const bool in_place = b.s1 == 1 && (std::is_same_v<T, B> || m <= ROWS_AT_ONCE);
  T* const found = arena.take<T>(m * LANES);
  T* const packed = arena.take<T>(k * LANES);
  for (int64_t first = 0; first < n; first += LANES) {
    const int64_t columns = std::min<int64_t>(n - first, LANES);
    const Matrix<B> part{b.data + first * b.s1, b.s0, b.s1};
    const bool straight = columns == LANES && across == 1;
    T* const to = straight ? c + first : found;
    const int64_t next = straight ? down : LANES;
    if (in_place && columns == LANES) {
      panel(to, next, a, lda, part.data, part.s0, m, k);
    } else {
      if (columns < LANES) std::fill(packed, packed + k * LANES, T(0));  // nobody reads their sums
      lay_dense(packed, LANES, part, k, columns);
      panel(to, next, a, lda, packed, LANES, m, k);
    }
    for (int64_t r = 0; r < (straight ? 0 : m); ++r)
      for (int64_t j = 0; j < columns; ++j)
        c[r * down + (first + j) * across] = found[r * LANES + j];
  }
}

// The same for any a: rows that are not dense are copied first.
template <class T, class A, class B>
ET_ONCE void product(Arena& arena, T* c, int64_t down, int64_t across, Matrix<A> a, Matrix<B> b,
                    int64_t m, int64_t k, int64_t n) {
  if (a.s1 == 1 || k <= 1) return panels(arena, c, down, across, a.data, a.s0, b, m, k, n);
  T* const rows = arena.take<T>(m * k);
  lay_dense(rows, k, a, m, k);
  panels(arena, c, down, across, rows, k, b, m, k, n);
}

// c (m, n, dense) = a (m, k) @ b (k, n). Lanes go along the rows of a if b has too few columns to
// fill them: a product with one column is the same as one with one row.
template <class T, class A, class B>
inline void matmul(Arena& arena, T* c, Matrix<A> a, Matrix<B> b, int64_t m, int64_t k, int64_t n) {
  const Arena::Mark mark = arena.mark();
  if (n < LANES && n * ((m + LANES - 1) / LANES) < m)
    product(arena, c, 1, n, Matrix<B>{b.data, b.s1, b.s0}, Matrix<A>{a.data, a.s1, a.s0}, n, k, m);
  else
    product(arena, c, n, 1, a, b, m, k, n);
  arena.rewind(mark);
}

}  // namespace et
