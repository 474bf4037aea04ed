// Shared memory by its own addresses (see ptx.cuh): copies of 16 bytes from global memory that run
// beside the thread that asks (sm_80), and arrive at a barrier when they have landed, or are waited
// for in groups; stores. The copies belong to the generic proxy, so that what an acquire has made
// visible may be copied. Included as "cuda/ptx/cp_async.cuh", like ptx.cuh.
#pragma once
#include "portable.h"

namespace et::ptx {

ET_HOT void cp_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}
// Of what is read once and should not drive out of the L2 what will be read again.
ET_HOT void cp_async_16_once(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
               ::"r"(to), "l"(__cvta_generic_to_global(from)), "l"(policy) : "memory");
}
// What this thread has asked for since the last group is one.
ET_HOT void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups of this thread but the youngest have landed.
template <int YOUNGEST> ET_HOT void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(YOUNGEST) : "memory");
}
// Arrives at a barrier (mbarrier, sm_80) when this thread's copies have landed.
ET_HOT void cp_async_mbarrier_arrive(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
ET_HOT void st_shared_v4(uint32_t at, const uint32_t (&x)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

}  // namespace et::ptx
