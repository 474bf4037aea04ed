// The words of CUDA C++ that generated code and the device headers use, for a block as fibers.
// Included before everything else; standard headers first, since some use the same words.
#pragma once
#include <cmath>
#include <initializer_list>
#include <limits>
#include <thread>
#include <type_traits>
#include "block.h"

#define __CUDACC__ 1
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static thread_local

#define threadIdx (emu::Index{unsigned(emu::block->thread())})
#define blockIdx (emu::Index{unsigned(emu::block->index())})
#define gridDim (emu::Index{unsigned(emu::block->count())})

struct uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };

namespace emu {

struct Index { unsigned x; };

// Every lane of the mask brings some words; all of them lie in what is given back.
inline const Lane (&exchange(const char* what, unsigned mask, const Lane& mine))[32] {
  const int lane = block->thread() % 32;
  if ((mask >> lane & 1) == 0) block->fault("a lane is at %s, and not in its mask", what);
  Gate& gate = block->lanes(mask);
  gate.lanes[gate.turn % 2][lane] = mine;
  const uint64_t turn = block->meet(gate, what, mask, __builtin_popcount(mask));
  return gate.lanes[turn % 2];
}

template <class T> T shuffle(const char* what, unsigned mask, T x, int from) {
  static_assert(sizeof(T) <= sizeof(Lane));
  Lane mine{};
  std::memcpy(&mine, &x, sizeof(T));
  const auto& all = exchange(what, mask, mine);
  if ((mask >> from & 1) == 0) block->fault("%s reads lane %d, not in its mask", what, from);
  std::memcpy(&x, &all[from], sizeof(T));
  return x;
}

}  // namespace emu

template <class T> T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  const int base = emu::block->thread() % 32 / width * width;
  return emu::shuffle("__shfl_sync", mask, x, base + lane % width);
}
template <class T> T __shfl_down_sync(unsigned mask, T x, int by, int width = 32) {
  const int me = emu::block->thread() % 32;
  return emu::shuffle("__shfl_down_sync", mask, x, me % width + by < width ? me + by : me);
}
inline unsigned __ballot_sync(unsigned mask, bool mine) {
  const auto& all = emu::exchange("__ballot_sync", mask, {{mine}});
  unsigned found = 0;
  for (int k = 0; k < 32; ++k) found |= (mask >> k & 1) & all[k].word[0] ? 1u << k : 0;
  return found;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned mine) {
  const auto& all = emu::exchange("__reduce_max_sync", mask, {{mine}});
  unsigned most = 0;
  for (int k = 0; k < 32; ++k)
    if ((mask >> k & 1) != 0) most = std::max(most, unsigned(all[k].word[0]));
  return most;
}
inline bool __any_sync(unsigned mask, bool mine) { return __ballot_sync(mask, mine) != 0; }
inline void __syncwarp(unsigned mask = ~0u) { emu::exchange("__syncwarp", mask, {}); }

inline void __syncthreads() {
  emu::block->meet(emu::block->barrier(0), "__syncthreads", 0, emu::block->threads());
}
inline bool __isShared(const void* p) { return emu::block->is_shared(p); }
inline size_t __cvta_generic_to_shared(const void* p) { return emu::block->handle(p); }
[[noreturn]] inline void __trap() { emu::block->fault("thread %d traps", emu::block->thread()); }
inline void __nanosleep(unsigned ns) {
  for (unsigned k = 0; k <= ns; k += 2000) emu::block->look();
}

template <class T> T atomicCAS(T* at, T old, T fresh) {
  emu::block->pass();
  __atomic_compare_exchange_n(at, &old, fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  emu::block->moved();
  return old;
}

inline int min(int a, int b) { return b < a ? b : a; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  uint32_t found = 0;
  for (int k = 0; k < 4; ++k)
    found |= uint32_t(both >> (selector >> 4 * k & 7) * 8 & 0xff) << 8 * k;
  return found;
}

namespace et::ptx {

inline float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}
float from_f16(uint16_t);  // numerics.h follows

}  // namespace et::ptx
