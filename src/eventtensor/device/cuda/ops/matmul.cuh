// Matrix multiplication of tiles by a block: 16-bit operands on tensor cores, all others in the
// exact order of the meaning of record, several elements a thread.
#pragma once
#include "cuda/mma/mma.cuh"
#include "cuda/ops/tile.cuh"

namespace et {

// ---- exact: k ascending, one fused multiply-add a step, from 0 (integers wrap) ----------------

// A thread makes N x N elements: neighbouring columns, and rows that are `down` apart. Beyond the
// last row or column it takes the first one, and does not store. (Not the last one: ptxas 13.0
// makes min(i, n - 1) wrong where it finds by itself that n is constant.)
template <int N, class T, class A, class B>
ET_FN void matmul_exact(T* c, Matrix<A> a, Matrix<B> b, int m, int64_t k, int n) {
  const int down = (m + N - 1) / N, across = (n + N - 1) / N;
  for (Each<2> at(down, across); at.more(); at.next()) {
    const A* row[N];
    const B* column[N];
    T sum[N][N] = {};
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int r = int(at[0]) + j * down, s = int(at[1]) * N + j;
      row[j] = a.data + (r < m ? r : 0) * a.s0;
      column[j] = b.data + (s < n ? s : 0) * b.s1;
    }
#pragma unroll N == 1 ? 4 : 2
    for (int64_t q = 0; q < k; ++q) {
      T x[N], y[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        x[j] = value(row[j][q * a.s1]);
        y[j] = value(column[j][q * b.s0]);
      }
#pragma unroll
      for (int j = 0; j < N * N; ++j)
        sum[j / N][j % N] = multiply_add(x[j / N], y[j % N], sum[j / N][j % N]);
    }
#pragma unroll
    for (int j = 0; j < N * N; ++j) {
      const int64_t r = at[0] + j / N * down, s = at[1] * N + j % N;
      if (r < m && s < n) c[r * n + s] = sum[j / N][j % N];
    }
  }
}

template <class T, class A, class B>
ET_COLD void matmul_exact(T* c, Matrix<A> a, Matrix<B> b, int m, int64_t k, int n) {
  if (int64_t(m) * n >= 4 * ET_THREADS) matmul_exact<4>(c, a, b, m, k, n);
  else matmul_exact<1>(c, a, b, m, k, n);
}

// ---- 16 bits on tensor cores -------------------------------------------------------------------

constexpr int MMA_ROOM = 16 * ET_THREADS;  // floats; codegen/cuda/emitter.py reserves them

template <class T>
ET_COLD void matmul_16bit(float* room, float* c, Matrix<T> a, Matrix<T> b, int64_t m, int64_t k,
                          int64_t n) {
  if (m < 1 || n < 1) return;
  const Side<T> left(a.data, a.s0, a.s1, m), right(b.data, b.s1, b.s0, n);
  if (n <= 8) multiply<T, 1, 4>(room, c, left, right, k);
  else multiply<T, 4, 2>(room, c, left, right, k);
}

// c (m, n, dense) = a (m, k) @ b (k, n). The arena goes no further: the worker stays in registers.
template <class T, class A, class B>
ET_FN void matmul(Arena& arena, T* c, Matrix<A> a, Matrix<B> b, int64_t m, int64_t k, int64_t n) {
  sync();
  if constexpr (std::is_same_v<A, B> && is_16bit<A>) {
    const Arena::Mark mark = arena.mark();
    matmul_16bit(arena.take<float>(MMA_ROOM), c, a, b, m, k, n);
    arena.rewind(mark);
  } else {
    matmul_exact(c, a, b, int(m), k, int(n));
  }
  sync();
}

}  // namespace et
