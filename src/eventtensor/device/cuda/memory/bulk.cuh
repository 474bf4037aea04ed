// Bulk copies from global into shared memory, the barriers (mbarrier) that count their bytes, and
// the fences between the two proxies. sm_90 and later.
//
// Contract, by the PTX memory model:
//  * A copy belongs to the async proxy. `bar_expect` announces its bytes and arrives (release,
//    cta); the copy's complete_tx ends the phase; a thread that sees the phase over (`bar_over`,
//    acquire, cta) sees the bytes and everything the announcing thread wrote before it arrived.
//  * Shared memory that threads have read with plain loads may be written by a copy again only
//    after each of them has arrived at a barrier that the copying thread has seen over, with a
//    `fence_shared_reads` on the way: of each reader before it arrives, or behind the barrier of
//    the copying thread or one that it follows. It orders the generic reads before the async write.
//  * Global memory that was written in this launch may be copied only by the thread that has seen
//    the writer's release (an acquire of a counter) and then done `fence_global_writes`. Flag words
//    never guard a copy. Memory that no task of the launch has written needs neither.
//  * A parity tells two neighbouring phases apart, no more: whoever waits for a phase is at most
//    one phase behind it.
#pragma once
#include "cuda/constants.cuh"
#include "cuda/sync/sync.cuh"

namespace et {

using Barrier = uint64_t;  // in shared memory

ET_FN uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// The same for who needs it often: it is found once. Else a compiler finds it anew at every use, by
// a special register that takes as long as a barrier.
ET_FN uint32_t kept_address(const void* p) {
  uint32_t at = shared_address(p);
  asm volatile("" : "+r"(at));
  return at;
}

ET_FN void bar_init(Barrier& bar, uint32_t arrivals) {
  ptx::mbarrier_init(shared_address(&bar), arrivals);
}

// After all bar_init, by the thread that did them, before the block meets.
ET_FN void bar_init_done() { ptx::fence_mbarrier_init(); }

// Barriers and targets by their address in shared memory: who uses many of them computes it once.
ET_FN void bar_expect(uint32_t bar, uint32_t bytes) { ptx::mbarrier_arrive_expect_tx(bar, bytes); }

ET_FN void bar_arrive(uint32_t bar, uint32_t times = 1) { ptx::mbarrier_arrive(bar, times); }

// True if the phase of this parity is over; waits a moment for it.
ET_FN bool bar_over(uint32_t bar, uint32_t parity) {
  return ptx::mbarrier_try_wait_parity(bar, parity);
}

// `bytes`, and both addresses, are multiples of 16.
ET_FN void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  ptx::cp_async_bulk(to, from, bytes, bar);
}

// The same, and how the bytes are held in the L2.
ET_FN void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t bar,
                     uint64_t policy) {
  ptx::cp_async_bulk_cache_hint(to, from, bytes, bar, policy);
}

// What the host says of a matrix in global memory, and of the boxes that are copied of it: elements
// of 16 bits, a box 64 of each of its rows, swizzled by 128 bytes. As the driver encodes it.
struct alignas(64) TensorMap { uint64_t words[16]; };

// A box from element x of row y on, to a multiple of 1024 bytes. It comes whole: what lies outside
// the matrix is 0. The contract is that of a copy.
ET_FN void tma_load_2d(uint32_t to, const TensorMap& map, uint32_t x, uint32_t y, uint32_t bar) {
  ptx::cp_async_bulk_tensor_2d(to, &map, int32_t(x), int32_t(y), bar);
}

// A page of weights whose pieces lie apart, as a map of runs says: those from run y of panel z on. The
// contract is that of a copy.
ET_FN void tma_load_3d(uint32_t to, const TensorMap& map, uint32_t y, uint32_t z, uint32_t bar,
                       uint64_t policy) {
  ptx::cp_async_bulk_tensor_3d(to, &map, int32_t(y), int32_t(z), bar, policy);
}

// Weights that begin at `data` and have a map of this number.
struct Paged {
  uint32_t map;
  const void* data;
};

// Asks for bytes to be brought as far as the L2.
ET_FN void bulk_prefetch(const void* from, uint32_t bytes) {
  ptx::cp_async_bulk_prefetch_l2(from, bytes);
}

// Bytes that are read once, or for the last time, leave the L2 first, so that what is shared stays;
// others as usual.
ET_FN uint64_t policy_once() { return ptx::EVICT_FIRST; }
ET_FN uint64_t policy_for(bool last) { return last ? policy_once() : ptx::EVICT_NORMAL; }

// The same by reference, for who has one of each.
ET_FN void bar_expect(Barrier& bar, uint32_t bytes) { bar_expect(shared_address(&bar), bytes); }
ET_FN void bar_arrive(Barrier& bar) { bar_arrive(shared_address(&bar)); }
ET_FN bool bar_over(Barrier& bar, uint32_t parity) {
  return bar_over(shared_address(&bar), parity);
}
ET_FN void bulk_copy(void* to, const void* from, uint32_t bytes, Barrier& bar) {
  bulk_copy(shared_address(to), from, bytes, shared_address(&bar));
}

ET_FN void fence_shared_reads() { ptx::fence_proxy_async_shared(); }

// Between plain stores to shared memory (and copies of cp.async) that a thread knows of and the async
// proxy's reads of them (wgmma), on either side of the barrier that tells of them.
ET_FN void fence_shared_writes() { ptx::fence_proxy_async_shared(); }

ET_FN void fence_global_writes() { ptx::fence_proxy_async_global(); }

}  // namespace et
