// What device/cuda/ptx/ptx.cuh has, for a block as fibers (block.h): the same names and meaning, with
// the order of memory that each one names. Copies land later, and a thread that looks at what
// others write lets them run.
#pragma once
#include "portable.h"

namespace et::ptx {

// ---- barriers of a block -----------------------------------------------------------------------

template <int THREADS> ET_HOT bool bar_red_or(bool mine) {
  emu::Block& b = *emu::block;
  if (b.thread() >= THREADS) b.fault("thread %d has no part in the tasks' barrier", b.thread());
  emu::Gate& gate = b.barrier(1);
  gate.any[gate.turn % 2] |= mine;
  const uint64_t turn = b.meet(gate, "the barrier of the tasks", 0, THREADS);
  return gate.any[turn % 2];
}
template <int THREADS> ET_HOT void bar_sync() { bar_red_or<THREADS>(false); }

// ---- 64-bit words in global memory ----------------------------------------------------------

// Before a change that others may see: any of them may come first, and at times other blocks.
ET_HOT void let_others() {
  const uint64_t drawn = emu::block->random();
  if (drawn % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 32 % 256));
  emu::block->pass();
}

template <class T> ET_HOT T loaded(const T* at, int order) {
  emu::block->look();
  return order == __ATOMIC_ACQUIRE ? __atomic_load_n(at, __ATOMIC_ACQUIRE)
                                   : __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T> ET_HOT void stored(T* at, T x) {
  let_others();
  __atomic_store_n(at, x, __ATOMIC_RELAXED);
  emu::block->moved();
}

ET_HOT void red_release_gpu_add_1(int64_t* at) {
  let_others();
  __atomic_fetch_add(at, 1, __ATOMIC_RELEASE);
  emu::block->moved();
}
ET_HOT void red_release_cta_add_1(int64_t* at) { red_release_gpu_add_1(at); }
ET_HOT void red_release_sys_add_1(int64_t* at) { red_release_gpu_add_1(at); }

ET_HOT void red_relaxed_gpu_add_1(int64_t* at) {
  let_others();
  __atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
  emu::block->moved();
}
ET_HOT void fence_acq_rel_gpu() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

ET_HOT int64_t ld_acquire_gpu(const int64_t* at) { return loaded(at, __ATOMIC_ACQUIRE); }
ET_HOT int64_t ld_acquire_cta(const int64_t* at) { return ld_acquire_gpu(at); }
ET_HOT int64_t ld_acquire_sys(const int64_t* at) { return ld_acquire_gpu(at); }
ET_HOT int64_t ld_relaxed_gpu(const int64_t* at) { return loaded(at, __ATOMIC_RELAXED); }
ET_HOT void st_relaxed_gpu(int64_t* at, int64_t x) { stored(at, x); }
ET_HOT void st_release_gpu(int64_t* at, int64_t x) {
  let_others();
  __atomic_store_n(at, x, __ATOMIC_RELEASE);
  emu::block->moved();
}
ET_HOT void st_release_sys(int64_t* at, int64_t x) {
  let_others();
  __atomic_store_n(at, x, __ATOMIC_RELEASE);
  emu::block->moved();
}

ET_HOT int64_t atom_relaxed_gpu_add_1(int64_t* at) {
  let_others();
  emu::block->moved();
  return __atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
}
ET_HOT int64_t atom_acq_rel_gpu_add(int64_t* at, int64_t by) {
  let_others();
  emu::block->moved();
  return __atomic_fetch_add(at, by, __ATOMIC_ACQ_REL);
}
ET_HOT int64_t atom_acq_rel_gpu_exch_1(int64_t* at) {
  let_others();
  emu::block->moved();
  return __atomic_exchange_n(at, 1, __ATOMIC_ACQ_REL);
}

ET_HOT uint32_t ld_relaxed_gpu_b32(const uint32_t* at) { return loaded(at, __ATOMIC_RELAXED); }
ET_HOT uint64_t ld_relaxed_gpu_b64(const uint64_t* at) { return loaded(at, __ATOMIC_RELAXED); }
ET_HOT void st_relaxed_gpu_b32(uint32_t* at, uint32_t x) { stored(at, x); }
ET_HOT void st_relaxed_gpu_b64(uint64_t* at, uint64_t x) { stored(at, x); }

inline void aligned_16(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) emu::block->fault("16 bytes are not aligned");
}
ET_HOT void st_relaxed_gpu_v4_b32(uint32_t* at, const uint32_t (&x)[4]) {
  aligned_16(at);
  for (int k = 0; k < 4; ++k) st_relaxed_gpu_b32(at + k, x[k]);
}
ET_HOT void st_relaxed_gpu_v2_b64(uint64_t* at, const uint64_t (&x)[2]) {
  aligned_16(at);
  for (int k = 0; k < 2; ++k) st_relaxed_gpu_b64(at + k, x[k]);
}
ET_HOT void ld_relaxed_gpu_b32_if(bool wanted, const uint32_t* at, uint32_t (&x)[4]) {
  if (wanted) x[0] = ld_relaxed_gpu_b32(at);
}
ET_HOT void ld_relaxed_gpu_v4_b32_if(bool wanted, const uint32_t* at, uint32_t (&x)[4]) {
  if (wanted) aligned_16(at);
  for (int k = 0; wanted && k < 4; ++k) x[k] = ld_relaxed_gpu_b32(at + k);
}
ET_HOT void ld_relaxed_gpu_b64_if(bool wanted, const uint64_t* at, uint32_t (&x)[4]) {
  const uint64_t w = wanted ? ld_relaxed_gpu_b64(at) : 0;
  if (wanted) x[0] = uint32_t(w), x[1] = uint32_t(w >> 32);
}
ET_HOT void ld_relaxed_gpu_v2_b64_if(bool wanted, const uint64_t* at, uint32_t (&x)[4]) {
  if (wanted) aligned_16(at);
  for (int k = 0; wanted && k < 2; ++k) {
    const uint64_t w = ld_relaxed_gpu_b64(at + k);
    x[2 * k] = uint32_t(w), x[2 * k + 1] = uint32_t(w >> 32);
  }
}

// ---- shared memory, by its own addresses ----------------------------------------------------

ET_HOT uint32_t ld_relaxed_cta_shared(uint32_t at) {
  uint32_t x;
  emu::block->look();
  std::memcpy(&x, emu::block->at(at, 4), 4);
  return x;
}
ET_HOT void st_relaxed_cta_shared(uint32_t at, uint32_t x) {
  std::memcpy(emu::block->written(at, 4), &x, 4);
  emu::block->moved();
}
ET_HOT void ld_shared_v4(uint32_t at, uint32_t (&x)[4]) {
  if (at % 16 != 0) emu::block->fault("a load of 16 bytes is not aligned");
  std::memcpy(x, emu::block->at(at, 16), 16);
}
ET_HOT void red_shared_add(uint32_t at, uint32_t x) {
  uint32_t sum = 0;
  std::memcpy(&sum, emu::block->at(at, 4), 4);
  sum += x;
  std::memcpy(emu::block->at(at, 4), &sum, 4);
  emu::block->pass();
}

// ---- mbarriers ------------------------------------------------------------------------

ET_HOT void mbarrier_init(uint32_t bar, uint32_t arrivals) {
  const emu::Phases fresh{uint16_t(arrivals), uint16_t(arrivals), 0, 0};
  std::memcpy(emu::block->at(bar, 8), &fresh, 8);
}
ET_HOT void fence_mbarrier_init() {}
ET_HOT void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes) {
  char* const at = emu::block->at(bar, 8);
  emu::advance(at, emu::phases(at), 1, int32_t(bytes));
}
ET_HOT void mbarrier_arrive(uint32_t bar, uint32_t times) {
  char* const at = emu::block->at(bar, 8);
  emu::block->arrive();
  emu::advance(at, emu::phases(at), times, 0);
}
ET_HOT bool mbarrier_test_wait_parity(uint32_t bar, uint32_t parity) {
  return emu::phases(emu::block->at(bar, 8)).parity != parity;
}
ET_HOT bool mbarrier_try_wait_parity(uint32_t bar, uint32_t parity) {
  emu::block->look();
  return emu::phases(emu::block->at(bar, 8)).parity != parity;
}

// ---- bulk copies ------------------------------------------------------------------------

ET_HOT void cp_async_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  emu::Block& b = *emu::block;
  b.copy({b.at(to, bytes), static_cast<const char*>(from), bytes,
          reinterpret_cast<uint64_t*>(b.at(bar, 8)), {}});
}
ET_HOT void cp_async_bulk_tensor_2d(uint32_t to, const void* map, int32_t x, int32_t y,
                                    uint32_t bar) {
  emu::Block& b = *emu::block;
  emu::Box box{{}, x, y};
  std::memcpy(&box.map, map, sizeof box.map);
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || box.map.known != emu::Map::KNOWN)
    b.fault("a copy of a box has no map, or it is not aligned to 64 bytes");
  if (to % 1024 != 0) b.fault("a box goes to %x: not aligned to 1024 bytes", to);
  const uint32_t bytes = uint32_t(box.map.box_rows * emu::SWIZZLE);
  b.copy({b.at(to, bytes), reinterpret_cast<const char*>(box.map.address), bytes,
          reinterpret_cast<uint64_t*>(b.at(bar, 8)), box});
}
// Each run is a copy of its own; together they announce what the box has.
ET_HOT void cp_async_bulk_tensor_3d(uint32_t to, const void* map, int32_t y, int32_t z, uint32_t bar,
                                    uint64_t) {
  emu::Block& b = *emu::block;
  emu::RunMap m;
  std::memcpy(&m, map, sizeof m);
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || m.known != emu::RunMap::KNOWN)
    b.fault("a copy of runs has no map, or it is not aligned to 64 bytes");
  if (to % 128 != 0) b.fault("runs go to %x: not aligned to 128 bytes", to);
  if (y < 0 || y + m.box_runs > m.runs || z < 0 || z + m.box_rows > m.rows)
    b.fault("runs %d of row %d lie outside", y, z);
  const char* const from = reinterpret_cast<const char*>(m.address);
  for (uint64_t row = 0; row < m.box_rows; ++row)
    for (uint64_t run = 0; run < m.box_runs; ++run, to += uint32_t(m.run * 8))
      cp_async_bulk(to, from + (y + run) * m.pitch + (z + row) * m.stride, uint32_t(m.run * 8), bar);
}
ET_HOT void cp_async_bulk_cache_hint(uint32_t to, const void* from, uint32_t bytes, uint32_t bar,
                                     uint64_t) {
  cp_async_bulk(to, from, bytes, bar);
}
ET_HOT void cp_async_bulk_prefetch_l2(const void*, uint32_t) {}
template <class T> ET_HOT T either(bool first, T a, T b) { return first ? a : b; }
template <class T> ET_HOT T* in_shared(T* p) { return p; }
template <class T> ET_HOT T* in_global(T* p) { return p; }
constexpr uint64_t EVICT_FIRST = 0, EVICT_NORMAL = 0;
ET_HOT void fence_proxy_async_shared() { emu::block->fence_proxies(); }
ET_HOT void fence_proxy_async_global() {}

// ---- tensor cores: c += a b, m16n8k16 ---------------------------------------------------------

// The 16 numbers of a row or column whose pairs four lanes hold, in two registers each.
template <class F, class L>
void along_k(double (&to)[16], const L& all, int first, int register_, int apart, F number) {
  for (int q = 0; q < 4; ++q)
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = all[first + q].word[register_ + half * apart];
      to[half * 8 + q * 2] = number(uint16_t(pair));
      to[half * 8 + q * 2 + 1] = number(uint16_t(pair >> 16));
    }
}

// A lane holds pairs along K: of rows lane / 4 and that + 8 of A, of column lane / 4 of B. Exact
// products, added in f64 and rounded once. (Not inlined: it is asked for in many places.)
template <class F>
__attribute__((noinline)) void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                   F number) {
  const auto& all = emu::exchange("mma.sync", ~0u, {{a[0], a[1], a[2], a[3], b[0], b[1]}});
  const int lane = emu::block->thread() % 32;
  double row[2][16], column[2][16];
  for (int j = 0; j < 2; ++j) {
    along_k(row[j], all, lane / 4 * 4, j, 2, number);
    along_k(column[j], all, (lane % 4 * 2 + j) * 4, 4, 1, number);
  }
  for (int j = 0; j < 4; ++j) {
    double sum = c[j];
    for (int k = 0; k < 16; ++k) sum += row[j / 2][k] * column[j % 2][k];
    c[j] = float(sum);
  }
}

ET_HOT void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma(c, a, b, [](uint16_t bits) { return from_bf16(bits); });
}
ET_HOT void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma(c, a, b, [](uint16_t bits) { return from_f16(bits); });
}

// ---- numbers ----------------------------------------------------------------------------------

ET_HOT float ex2_approx(float x) { return std::exp2(x); }
ET_HOT float rsqrt_approx(float x) { return 1.0f / std::sqrt(x); }
ET_HOT uint32_t cvt_bf16x2(float low, float high) {
  const auto nearest = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return nearest(low) | nearest(high) << 16;
}

// ---- the rest ---------------------------------------------------------------------------------

ET_HOT void ld_global_once_v4(const void* at, uint32_t (&x)[4]) { std::memcpy(x, at, sizeof x); }

ET_HOT int64_t globaltimer() { return emu::now_ns(); }
ET_HOT void griddepcontrol_launch_dependents() {}
ET_HOT void griddepcontrol_wait() {}

}  // namespace et::ptx
