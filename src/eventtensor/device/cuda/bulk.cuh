// Bulk copies from global into shared memory, the barriers (mbarrier) that count their bytes, and the
// fences between the two proxies. sm_90 and later.
//
// Contract, by the PTX memory model:
//  * A copy belongs to the async proxy. `bar_expect` announces its bytes and arrives (release, cta);
//    the copy's complete_tx ends the phase; a thread that sees the phase over (`bar_over`, acquire,
//    cta) sees the bytes and everything the announcing thread wrote before it arrived.
//  * Shared memory that threads have read with plain loads may be written by a copy again only after
//    each of them has done `fence_shared_reads` and arrived at a barrier that the copying thread has
//    seen over: the fence orders the generic reads before the async write.
//  * Global memory that was written in this launch may be copied only by the thread that has seen the
//    writer's release (an acquire of a counter) and then done `fence_global_writes`. Flag words never
//    guard a copy. Memory that no task of the launch has written needs neither.
//  * A parity tells two neighbouring phases apart, no more: whoever waits for a phase is at most one
//    phase behind it.
#pragma once
#include "sync.cuh"

namespace et {

using Barrier = uint64_t;  // in shared memory

ET_FN uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

ET_FN void bar_init(Barrier& bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&bar)), "r"(arrivals)
               : "memory");
}

// After all bar_init, by the thread that did them, before the block meets.
ET_FN void bar_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Barriers and targets by their address in shared memory: who uses many of them computes it once.
ET_FN void bar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}

ET_FN void bar_arrive(uint32_t bar, uint32_t times = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(times) : "memory");
}

// True if the phase of this parity is over; waits a moment for it.
ET_FN bool bar_over(uint32_t bar, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(over) : "r"(bar), "r"(parity) : "memory");
  return over != 0;
}

// `bytes`, and both addresses, are multiples of 16.
ET_FN void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

// The same for bytes that are read once: they leave the L2 first, so that what is shared stays.
ET_FN void bulk_copy_once(uint32_t to, const void* from, uint32_t bytes, uint32_t bar,
                          uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy)
      : "memory");
}

// Asks for bytes to be brought as far as the L2.
ET_FN void bulk_prefetch(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

ET_FN uint64_t policy_once() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The same by reference, for who has one of each.
ET_FN void bar_expect(Barrier& bar, uint32_t bytes) { bar_expect(shared_address(&bar), bytes); }
ET_FN void bar_arrive(Barrier& bar) { bar_arrive(shared_address(&bar)); }
ET_FN bool bar_over(Barrier& bar, uint32_t parity) { return bar_over(shared_address(&bar), parity); }
ET_FN void bulk_copy(void* to, const void* from, uint32_t bytes, Barrier& bar) {
  bulk_copy(shared_address(to), from, bytes, shared_address(&bar));
}

ET_FN void fence_shared_reads() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

ET_FN void fence_global_writes() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace et
