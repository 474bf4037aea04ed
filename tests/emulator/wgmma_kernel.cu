// out = w x', 128 rows of w by two warpgroups; x comes in parts of 64 of K through two buffers, a
// part ahead of the products. A launch names what is left out or done wrong, if anything is.
#include "cuda/ptx/ptx.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "numerics.h"

using namespace et;

enum class Wrong : int64_t { NAMES };  // of test_wgmma.py
struct Shared { const char *w, *x; float* out; };
struct Launch { int64_t n, is_f16; Wrong wrong; };

constexpr uint32_t THREADS = 256, K = 256, PARTS = K / 64, PAGES = 128 * K * 2;

// Every thread brings some of N rows of 128 bytes, whose 16-byte places are swizzled.
template <int N> void stage(uint32_t to, const char* x, uint32_t part) {
  for (uint32_t k = threadIdx.x; k < N * 8; k += THREADS) {
    const uint32_t row = k / 8, place = k % 8;
    const char* const from = x + row * K * 2 + part * 128 + place * 16;
    ptx::cp_async_16(to + row * 128 + (place ^ row % 8) * 16, from);
  }
  ptx::cp_async_commit();
}

void wait_staged(Wrong wrong) {
  if (wrong == Wrong::fence_before_landing) ptx::fence_proxy_async_shared();
  if (wrong != Wrong::no_landing) ptx::cp_async_wait<0>();
  if (wrong != Wrong::no_proxy_fence && wrong != Wrong::fence_before_landing)
    ptx::fence_proxy_async_shared();
  if (wrong != Wrong::no_barrier_before) ptx::bar_sync<THREADS>();
}

uint64_t rows_descriptor(uint32_t at, Wrong wrong) {
  if (wrong == Wrong::other_rows && threadIdx.x / 32 == 2) at += 256;
  const uint64_t along = 128, across = 2048, swizzle = wrong == Wrong::swizzled_rows ? 1 : 0;
  return swizzle << 62 | across >> 4 << 32 | along >> 4 << 16 | (at >> 4 & 0x3fff);
}

uint64_t descriptor(uint32_t at, Wrong wrong) {
  uint64_t stride = 1024, swizzle = 1;
  if (wrong == Wrong::no_swizzle) swizzle = 0;
  if (wrong == Wrong::other_operand && threadIdx.x / 32 == 2) at += 32;
  return swizzle << 62 | stride >> 4 << 32 | (at >> 4 & 0x3fff);
}

// One part, 64 of K, which is half of a span: of w the rows of eight are 2048 bytes apart, and 16 of
// K begin 256 bytes further.
template <int N, bool F16>
void multiply(float (&d)[N / 2], uint32_t page, uint32_t x, Wrong wrong) {
  const uint64_t a = rows_descriptor(page, wrong), b = descriptor(x, wrong);
  for (uint32_t h = 0; h < 4; ++h) {
    if (wrong != Wrong::no_fence) ptx::wgmma_fence();
    if (wrong == Wrong::absent_warp && threadIdx.x / 32 == 3) continue;
    if (wrong == Wrong::absent_lane && threadIdx.x == 40) continue;
    if constexpr (F16) ptx::wgmma_f16<N>(d, a + 16 * h, b + 2 * h);
    else ptx::wgmma_bf16<N>(d, a + 16 * h, b + 2 * h);
    if (wrong == Wrong::changed_sums) d[1] = 0;
  }
  if (wrong != Wrong::no_commit) ptx::wgmma_commit();
}

template <int N> void store(const float (&d)[N / 2], float* out) {
  const uint32_t thread = threadIdx.x, row = thread / 32 * 16 + thread % 32 / 4;
  for (uint32_t k = 0; k < N / 2; ++k)
    out[(row + k % 4 / 2 * 8) * N + k / 4 * 8 + thread % 4 * 2 + k % 2] = d[k];
}

template <int N, bool F16> void run(const Shared& s, char* near, Wrong wrong) {
  const uint32_t thread = threadIdx.x, pages = uint32_t(__cvta_generic_to_shared(near));
  const uint32_t bar = pages + PAGES, after = bar + 16;
  const uint32_t xs = wrong == Wrong::not_aligned ? after / 128 * 128 + 128
                                                  : after / 1024 * 1024 + 1024;
  if (thread == 0) ptx::mbarrier_init(bar, 1);
  __syncthreads();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_tx(bar, PAGES);
    ptx::cp_async_bulk(pages, s.w, PAGES, bar);
  }
  stage<N>(xs, s.x, 0);
  while (!ptx::mbarrier_try_wait_parity(bar, 0)) {}
  float d[N / 2] = {};
  for (uint32_t p = 0; p < PARTS; ++p) {
    wait_staged(wrong);
    const uint32_t page = pages + thread / 128 * 128 * K + p / 2 * 16384 + p % 2 * 1024;
    multiply<N, F16>(d, page, xs + p % 2 * N * 128, wrong);
    if (wrong != Wrong::no_wait_between) ptx::wgmma_wait<1>(d);
    if (wrong != Wrong::no_barrier_after) ptx::bar_sync<THREADS>();
    if (p + 1 < PARTS) stage<N>(xs + (p + 1) % 2 * N * 128, s.x, p + 1);
  }
  if (wrong == Wrong::overwritten && thread == 77) near[xs - pages + N * 128] ^= 1;
  if (wrong == Wrong::overwritten_rows && thread == 77) near[16384 + 1024] ^= 1;
  if (wrong != Wrong::no_wait && wrong != Wrong::early_read) ptx::wgmma_wait<0>(d);
  store<N>(d, s.out);
  if (wrong == Wrong::early_read) ptx::wgmma_wait<0>(d);
}

template <int N> void either(const Shared& s, const Launch& l, char* near) {
  if (l.is_f16) run<N, true>(s, near, l.wrong);
  else run<N, false>(s, near, l.wrong);
}

void et_kernel(const Shared& s, const Launch& l) {
  extern __shared__ __align__(128) char near[];
  if (l.n == 8) either<8>(s, l, near);
  if (l.n == 16) either<16>(s, l, near);
  if (l.n == 32) either<32>(s, l, near);
  if (l.n == 64) either<64>(s, l, near);
}
