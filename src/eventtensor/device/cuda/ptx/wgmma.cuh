// Tensor cores by whole matrices in shared memory (see ptx.cuh): fragments of both sides for
// mma.m16n8k16 by one load (ldmatrix, sm_75), and products that four warps ask for together and
// that run beside them (wgmma, sm_90a). Included as "cuda/ptx/wgmma.cuh", like ptx.cuh.
#pragma once
#include "portable.h"

namespace et::ptx {

// Four matrices of 8 rows by 16 bytes: lane l gives the address of row l % 8 of matrix l / 8, and
// gets word l % 4 of row l / 4 of each.
ET_HOT void ldmatrix_x4(uint32_t at, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}
// The same, each matrix of 8 rows by 8 elements of 16 bits transposed.
ET_HOT void ldmatrix_x4_trans(uint32_t at, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

// Before the first product of a group: what registers hold is there for it.
ET_HOT void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ET_HOT void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All groups but the youngest are through,
template <int YOUNGEST> ET_HOT void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(YOUNGEST) : "memory");
}
// and with them these sums.
template <int YOUNGEST, int COUNT> ET_HOT void wgmma_wait(float (&d)[COUNT]) {
#pragma unroll
  for (int k = 0; k < COUNT; ++k) asm volatile("" : "+f"(d[k])::"memory");
  wgmma_wait<YOUNGEST>();
#pragma unroll
  for (int k = 0; k < COUNT; ++k) asm volatile("" : "+f"(d[k])::"memory");
}

// d (64, N) += a (64, 16) b (16, N), a and b in shared memory as the descriptors say. Of d warp w has
// the rows 16 w .., as mma.m16n8k16 gives them.
#define ET_D4(o) "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3])
#define ET_D8(o) ET_D4(o), ET_D4(o + 4)
#define ET_D16(o) ET_D8(o), ET_D8(o + 8)
#define ET_WGMMA(N, TYPE, SUMS, A, B, ...)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                       \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" SUMS "}, " \
               A ", " B ", p, 1, 1, 0, 0;\n}"                                                  \
               : __VA_ARGS__ : "l"(a), "l"(b))
#define ET_WGMMA_OF(TYPE)                                                                      \
  template <int N>                                                                             \
  ET_HOT void wgmma_##TYPE(float (&d)[N / 2], uint64_t a, uint64_t b) {                        \
    static_assert(N == 8 || N == 16 || N == 32 || N == 64 || N == 128);                        \
    if constexpr (N == 8)                                                                      \
      ET_WGMMA(8, TYPE, "%0,%1,%2,%3", "%4", "%5", ET_D4(0));                                  \
    else if constexpr (N == 16)                                                                \
      ET_WGMMA(16, TYPE, "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", ET_D8(0));                     \
    else if constexpr (N == 32)                                                                \
      ET_WGMMA(32, TYPE, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16",       \
               "%17", ET_D16(0));                                                              \
    else if constexpr (N == 64)                                                                \
      ET_WGMMA(64, TYPE,                                                                       \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                        \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",              \
               "%32", "%33", ET_D16(0), ET_D16(16));                                           \
    else                                                                                       \
      ET_WGMMA(128, TYPE,                                                                      \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                        \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"              \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"              \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63",              \
               "%64", "%65", ET_D16(0), ET_D16(16), ET_D16(32), ET_D16(48));                   \
  }
ET_WGMMA_OF(bf16)
ET_WGMMA_OF(f16)
#undef ET_WGMMA_OF
#undef ET_WGMMA
#undef ET_D16
#undef ET_D8
#undef ET_D4

}  // namespace et::ptx
