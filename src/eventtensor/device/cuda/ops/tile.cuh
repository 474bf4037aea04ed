// Tiles in the memory of a block: how its threads share out elements, the arena for temporaries,
// unordered adds. Every thread of the block runs the same code; loops over elements are shared out.
#pragma once
#include "gathered.h"
#include "cuda/constants.cuh"
#include "cuda/sync/sync.cuh"

// Before a loop: unrolling it would cost compile time and instruction cache, and gain nothing.
#define ET_ROLLED _Pragma("unroll 1")
#define ET_UNROLLED _Pragma("unroll")

namespace et {

// A value as if it were read anew: what a compiler works out from it stays where it stands, and does
// not leave the loop to fill registers.
ET_HOT unsigned anew(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

// The number of this thread, read anew. What a compiler works out from it does not change, so it
// would leave all loops, layers included, and fill the registers for the whole kernel.
ET_HOT unsigned thread_number() { return anew(threadIdx.x); }

ET_FN int64_t thread_rank() { return thread_number(); }
ET_FN int64_t num_threads() { return ET_THREADS; }
ET_FN bool is_leader() { return thread_number() == 0; }

// The elements of a tile of rank R that a thread works on, in row-major order: neighbours in the
// block have neighbouring elements. TOGETHER threads share one element. Indices are decoded once
// and then stepped, axis by axis with carry, so that the loop divides nothing. An axis has fewer
// than 2^31 elements (no block could visit more); the kernel stops rather than visit wrong ones.
template <int R, int TOGETHER = 1> class Each {
 public:
  template <class... E> ET_FN explicit Each(E... extents) : extent_{axis(extents)...} {
    static_assert(sizeof...(E) == R && ET_THREADS % TOGETHER == 0);
#pragma unroll
    for (int k = 1; k < R; ++k)
      if (extent_[k] == 0) { extent_[0] = 0; extent_[k] = 1; }
    decode(thread_number() / TOGETHER, at_);
    decode(ET_THREADS / TOGETHER, step_);
  }
  ET_FN bool more() const { return at_[0] < extent_[0]; }
  ET_FN int64_t operator[](int k) const { return at_[k]; }
  // Where a warp goes on as long as one of its threads does: the element of this one, or another.
  ET_FN bool more_in_warp() const { return __any_sync(~0u, more()); }
  ET_FN int64_t held(int k) const { return k > 0 || more() ? at_[k] : extent_[0] - 1; }
  ET_FN bool is_leader() const { return more() && thread_number() % TOGETHER == 0; }
  ET_FN void next() {
    uint32_t carry = 0;
#pragma unroll
    for (int k = R - 1; k > 0; --k) {
      const uint32_t moved = at_[k] + step_[k] + carry;
      carry = moved >= extent_[k];
      at_[k] = carry ? moved - extent_[k] : moved;
    }
    at_[0] += step_[0] + carry;
  }

 private:
  static ET_FN uint32_t axis(int64_t extent) {
    if (extent > INT32_MAX) __trap();
    return extent < 0 ? 0 : uint32_t(extent);
  }
  ET_FN void decode(uint32_t number, uint32_t* at) const {
#pragma unroll
    for (int k = R - 1; k > 0; --k) { at[k] = number % extent_[k]; number /= extent_[k]; }
    at[0] = number;
  }

  uint32_t extent_[R], at_[R], step_[R];
};

// Elements of a thread, all of them loaded before the first is stored: as far as a compiler can
// tell, a store might change the next.
template <class T, int COUNT> struct Batch {
  T at[COUNT];
  template <class F> ET_HOT explicit Batch(const F& element) {
    ET_UNROLLED for (int n = 0; n < COUNT; ++n) at[n] = element(n);
  }
};

// A small operand on its way: a few elements a thread, asked for before a task waits and put into a
// tile while it does. The first warp has none, since its first lane polls.
template <class T, uint32_t COUNT> class RegisterPrefetch {
 public:
  template <int R> ET_HOT explicit RegisterPrefetch(const View<const T, R>& from) {
#pragma unroll
    for (uint32_t n = 0; n < EACH; ++n) {
      uint32_t e = mine() + n * SHARERS;
      if (e >= COUNT) return;
      const T* at = from.data;
      for (int k = R - 1; k >= 0; --k) {
        at += e % uint32_t(from.extent[k]) * from.stride[k];
        e /= uint32_t(from.extent[k]);
      }
      value_[n] = *at;
    }
  }
  ET_HOT void put(T* tile) const {
#pragma unroll
    for (uint32_t n = 0; n < EACH; ++n)
      if (mine() + n * SHARERS < COUNT) tile[mine() + n * SHARERS] = value_[n];
  }

 private:
  static constexpr uint32_t SHARERS = ET_THREADS - 32, EACH = (COUNT + SHARERS - 1) / SHARERS;
  // Beyond all elements for the first warp.
  ET_HOT static uint32_t mine() {
    const uint32_t me = thread_number();
    return me < 32 ? COUNT : me - 32;
  }

  T value_[EACH] = {};
};

// Where something of a tensor lies.
template <class T> ET_HOT T* global(T* at) { return ptx::in_global(at); }

// Memory for the temporaries of one task: first what the block has left of its shared memory, then
// device memory. All threads keep the same numbers, so nothing is shared. The host sizes the latter
// from the bounds of the extents (codegen/cuda/room.py), which also tell whether tasks of a call
// come to it (FAR; ET_FAR: those of any for which headers take something too). Data that breaks its
// declared bound could pass the end, and then the kernel stops rather than touch other memory.
class Arena {
 public:
  struct Mark { int64_t near_used, far_used; };

  ET_FN Arena(char* near, int64_t near_size, char* far, int64_t far_size)
      : near_(near), far_(far), near_size_(near_size), far_size_(far_size) {}

  template <class T, bool FAR = ET_FAR> ET_FN T* take(int64_t count) {
    const int64_t bytes = ((count < 1 ? 1 : count) * int64_t(sizeof(T)) + 63) / 64 * 64;
    if (FAR && !fits(bytes)) return reinterpret_cast<T*>(take_far(bytes));
    if (!fits(bytes)) __trap();
    near_used_ += bytes;
    return ptx::in_shared(reinterpret_cast<T*>(near_ + near_size_ - near_used_));
  }
  ET_FN Mark mark() const { return {near_used_, far_used_}; }
  ET_FN void rewind(Mark m) { near_used_ = m.near_used, far_used_ = m.far_used; }
  ET_FN void reset() { near_used_ = far_used_ = 0, beside_ = 0; }

  // Until the next task so many bytes before its own are for temporaries too: those of activation
  // tiles. None of these are loaded for this task, or the first of them may hold the result of a
  // product under way that ends in one pass (activation_producer.cuh).
  ET_FN void open_beside(uint32_t bytes) { beside_ = bytes; }

  // PERSISTENT_BYTES bytes at the begin of what the block has left: the same in every task of a kind,
  // so that one may leave something there for the next. Temporaries keep away from it as long as
  // they fit.
  ET_FN char* idle() const {
    if (near_used_ + PERSISTENT_BYTES > near_size_) __trap();
    return near_;
  }

 private:
  ET_FN bool fits(int64_t bytes) const { return near_used_ + bytes <= near_size_ + beside_; }
  ET_FN char* take_far(int64_t bytes) {
    if (far_used_ + bytes > far_size_) __trap();
    far_used_ += bytes;
    return far_ + far_used_ - bytes;
  }

  char *near_, *far_;
  int64_t near_size_, far_size_, near_used_ = 0, far_used_ = 0;  // near from its end on
  uint32_t beside_ = 0;
};

// Unordered: an add that other tasks may do at the same time, element by element. Elements smaller
// than a word are changed by compare-and-swap of the aligned word that holds them.
template <class S, class T> ET_FN void accumulate_atomic(S& place, T x) {
  using Word = std::conditional_t<sizeof(S) == 8, unsigned long long, unsigned int>;
  const uint64_t address = reinterpret_cast<uint64_t>(&place);
  const uint64_t skip = sizeof(S) < sizeof(Word) ? address % sizeof(Word) : 0;
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

#include "cuda/ops/histogram.cuh"
#include "cuda/ops/matmul.cuh"
#include "cuda/ops/reduce.cuh"
