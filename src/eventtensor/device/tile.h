// Tiles in memory: strided views, the arena for temporaries, matrix multiplication.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "view.h"

// The iterations of the next loop touch distinct elements: it may be vectorised.
#if defined(__clang__)
#define ET_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ET_INDEPENDENT _Pragma("GCC ivdep")
#else
#define ET_INDEPENDENT
#endif

namespace et {

// Memory for the temporaries of one task; grows on demand and is kept between tasks.
class Arena {
 public:
  struct Mark { size_t block, used; };

  template <class T> T* take(int64_t count) {
    const size_t bytes = (size_t(std::max<int64_t>(count, 1)) * sizeof(T) + 63) / 64 * 64;
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) { ++block_; used_ = 0; }
    if (block_ == blocks_.size()) add(bytes);
    char* const at = blocks_[block_].data + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(at);
  }
  Mark mark() const { return {block_, used_}; }
  void rewind(Mark m) { block_ = m.block; used_ = m.used; }
  void reset() { block_ = 0; used_ = 0; }

 private:
  struct Block { std::unique_ptr<char[]> own; char* data; size_t size; };

  void add(size_t bytes) {
    const size_t size = std::max<size_t>(bytes, size_t(1) << 16);
    std::unique_ptr<char[]> own(new char[size + 63]);
    const uintptr_t start = (reinterpret_cast<uintptr_t>(own.get()) + 63) / 64 * 64;
    char* const data = reinterpret_cast<char*>(start);
    blocks_.push_back({std::move(own), data, size});
    used_ = 0;
  }

  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0;
};

// Not inlined: one copy for each pair of types keeps compiles short.
template <int ROWS, class T, class A>
__attribute__((noinline)) void matmul_rows(T* c, Matrix<A> a, const T* b, int64_t ldb, int64_t r0,
                                           int64_t k, int64_t n) {
  constexpr int COLS = 16;
  int64_t c0 = 0;
  for (; c0 + COLS <= n; c0 += COLS) {  // whole blocks: the sums stay in registers
    T sum[ROWS][COLS] = {};
    for (int64_t q = 0; q < k; ++q) {
      const T* const row = b + q * ldb + c0;
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        const T x = value(a.data[(r0 + r) * a.s0 + q * a.s1]);
#pragma GCC unroll 16
        for (int j = 0; j < COLS; ++j) sum[r][j] = multiply_add(x, row[j], sum[r][j]);
      }
    }
    for (int r = 0; r < ROWS; ++r) std::copy(sum[r], sum[r] + COLS, c + (r0 + r) * n + c0);
  }
  for (int r = 0; r < ROWS; ++r)
    for (int64_t j = c0; j < n; ++j) {
      T sum = 0;
      for (int64_t q = 0; q < k; ++q)
        sum = multiply_add(T(value(a.data[(r0 + r) * a.s0 + q * a.s1])), b[q * ldb + j], sum);
      c[(r0 + r) * n + j] = sum;
    }
}

// c (m, n, dense) = a (m, k) @ b (k, n). For each element: k ascending, one fused multiply-add a
// step, from 0 (integers wrap). A right side that is not dense rows of T is packed first.
template <class T, class A, class B>
inline void matmul(Arena& arena, T* c, Matrix<A> a, Matrix<B> b, int64_t m, int64_t k,
                   int64_t n) {
  const T* rows;
  int64_t ldb = n;
  if constexpr (std::is_same_v<B, T>) {
    rows = b.s1 == 1 ? b.data : nullptr;
    if (rows != nullptr) ldb = b.s0;
  } else {
    rows = nullptr;
  }
  const Arena::Mark mark = arena.mark();
  if (rows == nullptr) {
    T* const packed = arena.take<T>(k * n);
    for (int64_t q = 0; q < k; ++q)
      for (int64_t j = 0; j < n; ++j) packed[q * n + j] = value(b.data[q * b.s0 + j * b.s1]);
    rows = packed;
  }
  int64_t r = 0;
  for (; r + 4 <= m; r += 4) matmul_rows<4>(c, a, rows, ldb, r, k, n);
  for (; r < m; ++r) matmul_rows<1>(c, a, rows, ldb, r, k, n);
  arena.rewind(mark);
}

}  // namespace et
