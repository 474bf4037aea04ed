// Every instruction that has no name in CUDA C++, as a function named after it. What it is for, and
// which order it gives, is said where it is used. Included as "cuda/ptx/ptx.cuh", because tests put
// another file of that name in front, to run generated code without a GPU (tests/emulator).
#pragma once
#include "portable.h"

namespace et::ptx {

// ---- barriers of a block -----------------------------------------------------------------------

template <int THREADS> ET_HOT void bar_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

template <int THREADS> ET_HOT bool bar_red_or(bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.s32 p, %1, 0;\nbar.red.or.pred q, 1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n}"
      : "=r"(any) : "r"(int(mine)), "n"(THREADS) : "memory");
  return any != 0;
}

// ---- words in global memory -----------------------------------------------------------------

// An address that is known to be there: without it every atomic also has a way for shared memory.
ET_HOT uint64_t global(const void* at) { return __cvta_generic_to_global(at); }

ET_HOT void red_release_cta_add_1(int64_t* at) {
  asm volatile("red.release.cta.add.u64 [%0], 1;" ::"l"(at) : "memory");
}
ET_HOT void red_release_gpu_add_1(int64_t* at) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(global(at)) : "memory");
}
ET_HOT void red_release_sys_add_1(int64_t* at) {
  asm volatile("red.release.sys.global.add.u64 [%0], 1;" ::"l"(global(at)) : "memory");
}

ET_HOT void red_relaxed_gpu_add_1(int64_t* at) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], 1;" ::"l"(global(at)) : "memory");
}
ET_HOT void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

ET_HOT int64_t ld_acquire_cta(const int64_t* at) {
  int64_t x;
  asm volatile("ld.acquire.cta.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory");
  return x;
}
ET_HOT int64_t ld_acquire_gpu(const int64_t* at) {
  int64_t x;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(global(at)) : "memory");
  return x;
}
ET_HOT int64_t ld_acquire_sys(const int64_t* at) {
  int64_t x;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(global(at)) : "memory");
  return x;
}

ET_HOT int64_t ld_relaxed_gpu(const int64_t* at) {
  int64_t x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(global(at)) : "memory");
  return x;
}
ET_HOT void st_relaxed_gpu(int64_t* at, int64_t x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(global(at)), "l"(x) : "memory");
}
ET_HOT void st_release_gpu(int64_t* at, int64_t x) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(global(at)), "l"(x) : "memory");
}
ET_HOT void st_release_sys(int64_t* at, int64_t x) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(global(at)), "l"(x) : "memory");
}

// These give the value before.
ET_HOT int64_t atom_relaxed_gpu_add_1(int64_t* at) {
  int64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;"
               : "=l"(old) : "l"(global(at)) : "memory");
  return old;
}
ET_HOT int64_t atom_acq_rel_gpu_add(int64_t* at, int64_t by) {
  int64_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(old) : "l"(global(at)), "l"(by) : "memory");
  return old;
}
ET_HOT int64_t atom_acq_rel_gpu_exch_1(int64_t* at) {
  int64_t old;
  asm volatile("atom.acq_rel.gpu.global.exch.b64 %0, [%1], 1;"
               : "=l"(old) : "l"(global(at)) : "memory");
  return old;
}

ET_HOT uint32_t ld_relaxed_gpu_b32(const uint32_t* at) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(global(at)) : "memory");
  return x;
}
ET_HOT uint64_t ld_relaxed_gpu_b64(const uint64_t* at) {
  uint64_t x;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(x) : "l"(global(at)) : "memory");
  return x;
}
ET_HOT void st_relaxed_gpu_b32(uint32_t* at, uint32_t x) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(global(at)), "r"(x) : "memory");
}
ET_HOT void st_relaxed_gpu_b64(uint64_t* at, uint64_t x) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(global(at)), "l"(x) : "memory");
}
ET_HOT void st_relaxed_gpu_v4_b32(uint32_t* at, const uint32_t (&x)[4]) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global(at)), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}
ET_HOT void st_relaxed_gpu_v2_b64(uint64_t* at, const uint64_t (&x)[2]) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(global(at)), "l"(x[0]),
               "l"(x[1]) : "memory");
}

// A word, or all of 16 aligned bytes. Where the load is not wanted, x stays as it is: a predicate,
// no branch.
ET_HOT void ld_relaxed_gpu_b32_if(bool wanted, const uint32_t* at, uint32_t (&x)[4]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.relaxed.gpu.global.b32 %0, [%1];\n}"
               : "+r"(x[0]) : "l"(global(at)), "r"(int(wanted)) : "memory");
}
ET_HOT void ld_relaxed_gpu_v4_b32_if(bool wanted, const uint32_t* at, uint32_t (&x)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
      "@p ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]) : "l"(global(at)), "r"(int(wanted))
      : "memory");
}
ET_HOT void ld_relaxed_gpu_b64_if(bool wanted, const uint64_t* at, uint32_t (&x)[4]) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a;\nsetp.ne.s32 p, %3, 0;\nmov.b64 a, {%0, %1};\n"
      "@p ld.relaxed.gpu.global.b64 a, [%2];\nmov.b64 {%0, %1}, a;\n}"
      : "+r"(x[0]), "+r"(x[1]) : "l"(global(at)), "r"(int(wanted)) : "memory");
}
ET_HOT void ld_relaxed_gpu_v2_b64_if(bool wanted, const uint64_t* at, uint32_t (&x)[4]) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.s32 p, %5, 0;\n"
      "mov.b64 a, {%0, %1};\nmov.b64 b, {%2, %3};\n"
      "@p ld.relaxed.gpu.global.v2.b64 {a, b}, [%4];\n"
      "mov.b64 {%0, %1}, a;\nmov.b64 {%2, %3}, b;\n}"
      : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]) : "l"(global(at)), "r"(int(wanted))
      : "memory");
}

// ---- shared memory, by its own addresses ----------------------------------------------------

ET_HOT uint32_t ld_relaxed_cta_shared(uint32_t at) {
  uint32_t x;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
ET_HOT void st_relaxed_cta_shared(uint32_t at, uint32_t x) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
ET_HOT void red_shared_add(uint32_t at, uint32_t x) {
  asm volatile("red.relaxed.cta.shared.add.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
ET_HOT void ld_shared_v4(uint32_t at, uint32_t (&x)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
}

// ---- mbarriers (sm_90) ------------------------------------------------------------------------

ET_HOT void mbarrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
ET_HOT void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
ET_HOT void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
ET_HOT void mbarrier_arrive(uint32_t bar, uint32_t times) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(times) : "memory");
}
// At once; the next one waits a moment.
ET_HOT bool mbarrier_test_wait_parity(uint32_t bar, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(over) : "r"(bar), "r"(parity) : "memory");
  return over != 0;
}
ET_HOT bool mbarrier_try_wait_parity(uint32_t bar, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(over) : "r"(bar), "r"(parity) : "memory");
  return over != 0;
}

// ---- bulk copies (sm_90) ----------------------------------------------------------------------

ET_HOT void cp_async_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
ET_HOT void cp_async_bulk_cache_hint(uint32_t to, const void* from, uint32_t bytes, uint32_t bar,
                                     uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy)
      : "memory");
}
ET_HOT void cp_async_bulk_prefetch_l2(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// A box of a matrix, as the map says: from element x of its row y on.
ET_HOT void cp_async_bulk_tensor_2d(uint32_t to, const void* map, int32_t x, int32_t y,
                                    uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}
// A box of runs y .. of rows z .., whole.
ET_HOT void cp_async_bulk_tensor_3d(uint32_t to, const void* map, int32_t y, int32_t z,
                                    uint32_t bar, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to), "l"(map), "r"(0), "r"(y),
      "r"(z), "r"(bar), "l"(policy) : "memory");
}
// A pointer that leads into shared or into global memory, so that compilers know: then loads and
// stores need no look at where, have short addresses in shared memory, and do not meet those
// elsewhere. (Not __builtin_assume(__isShared(p)): nvcc 13.0 has taken one for false, and left out
// what follows.)
template <class T> ET_HOT T* in_shared(T* p) {
  return static_cast<T*>(__cvta_shared_to_generic(__cvta_generic_to_shared(p)));
}
template <class T> ET_HOT T* in_global(T* p) {
  size_t at = __cvta_generic_to_global(p);
  asm("" : "+l"(at));  // else both are left out
  return static_cast<T*>(__cvta_global_to_generic(at));
}

// One of two, where a compiler would choose an address of them.
template <class T> ET_HOT T either(bool first, T a, T b) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  T one;
  if constexpr (sizeof(T) == 4)
    asm("{\n .reg .pred p;\n setp.ne.u32 p, %3, 0;\n selp.b32 %0, %1, %2, p;\n}"
        : "=r"(one) : "r"(a), "r"(b), "r"(uint32_t(first)));
  else
    asm("{\n .reg .pred p;\n setp.ne.u32 p, %3, 0;\n selp.b64 %0, %1, %2, p;\n}"
        : "=l"(one) : "l"(a), "l"(b), "r"(uint32_t(first)));
  return one;
}

// What createpolicy.fractional.L2::evict_first and ::evict_normal give for 1.0, on all GPUs: as
// numbers they are known to be the same for all lanes; copies would have a result moved for each.
constexpr uint64_t EVICT_FIRST = 0x12f0ull << 48, EVICT_NORMAL = 0x16f0ull << 48;
ET_HOT void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
ET_HOT void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- tensor cores (sm_80): c += a b, m16n8k16 -------------------------------------------------

ET_HOT void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
ET_HOT void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- numbers ----------------------------------------------------------------------------------

ET_HOT float ex2_approx(float x) {  // of 2; what is too small for a normal number is 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ET_HOT float rsqrt_approx(float x) {  // within 2 ulp, of a normal number
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ET_HOT uint32_t cvt_bf16x2(float low, float high) {  // to the nearest, ties to even (sm_80)
  uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

// ---- the rest ---------------------------------------------------------------------------------

ET_HOT void ld_global_once_v4(const void* at, uint32_t (&x)[4]) {
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(global(at)) : "memory");
}

ET_HOT int64_t globaltimer() {
  int64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
ET_HOT void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
ET_HOT void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace et::ptx
