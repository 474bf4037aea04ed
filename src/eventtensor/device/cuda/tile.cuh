// Tiles in the memory of a block: the arena for temporaries, matrix multiplication, unordered adds.
// Every thread of the block runs the same code; loops over elements are shared out by lane().
#pragma once
#include "../view.h"
#include "sync.cuh"

namespace et {

ET_FN int64_t lane() { return threadIdx.x; }
ET_FN int64_t lanes() { return ET_THREADS; }
ET_FN bool leads() { return threadIdx.x == 0; }

// Memory for the temporaries of one task: first what the block has left of its shared memory, then
// device memory. All threads keep the same numbers, so nothing is shared. The host sizes the latter from the bounds of the extents (codegen/cuda/room.py); data that breaks its
// declared bound could pass the end, and then the kernel stops rather than touch other memory.
class Arena {
 public:
  struct Mark { int64_t near_used, far_used; };

  ET_FN Arena(char* near, int64_t near_size, char* far, int64_t far_size)
      : near_(near), far_(far), near_size_(near_size), far_size_(far_size) {}

  template <class T> ET_FN T* take(int64_t count) {
    const int64_t bytes = ((count < 1 ? 1 : count) * int64_t(sizeof(T)) + 63) / 64 * 64;
    char* at = near_ + near_used_;
    if (near_used_ + bytes <= near_size_) {
      near_used_ += bytes;
    } else {
      if (far_used_ + bytes > far_size_) __trap();
      at = far_ + far_used_;
      far_used_ += bytes;
    }
    return reinterpret_cast<T*>(at);
  }
  ET_FN Mark mark() const { return {near_used_, far_used_}; }
  ET_FN void rewind(Mark m) { near_used_ = m.near_used; far_used_ = m.far_used; }
  ET_FN void reset() { near_used_ = far_used_ = 0; }

 private:
  char *near_, *far_;
  int64_t near_size_, far_size_, near_used_ = 0, far_used_ = 0;
};

// c (m, n, dense) = a (m, k) @ b (k, n). For each element: k ascending, one fused multiply-add a
// step, from 0 (integers wrap). One thread makes one element.
template <class T, class A, class B>
__device__ __noinline__ void matmul(Arena&, T* c, Matrix<A> a, Matrix<B> b, int64_t m, int64_t k,
                                    int64_t n) {
  sync();
  for (int64_t at = lane(); at < m * n; at += lanes()) {
    const A* const row = a.data + at / n * a.s0;
    const B* const column = b.data + at % n * b.s1;
    T sum = 0;
    for (int64_t q = 0; q < k; ++q)
      sum = multiply_add(T(value(row[q * a.s1])), T(value(column[q * b.s0])), sum);
    c[at] = sum;
  }
  sync();
}

// Unordered: an add that other tasks may do at the same time, element by element. Elements smaller
// than a word are changed by compare-and-swap of the aligned word that holds them.
template <class S, class T> ET_FN void accumulate_atomic(S& place, T x) {
  using Word = std::conditional_t<sizeof(S) == 8, unsigned long long, unsigned int>;
  const uint64_t address = reinterpret_cast<uint64_t>(&place);
  const uint64_t skip = address % sizeof(Word);
  Word* const word = reinterpret_cast<Word*>(address - skip);
  Word old = atomicCAS(word, Word(0), Word(0));
  for (;;) {
    S was;
    std::memcpy(&was, reinterpret_cast<const char*>(&old) + skip, sizeof(S));
    const S now = cast<S>(value(was) + x);
    Word fresh = old;
    std::memcpy(reinterpret_cast<char*>(&fresh) + skip, &now, sizeof(S));
    const Word seen = atomicCAS(word, old, fresh);
    if (seen == old) return;
    old = seen;
  }
}

}  // namespace et
