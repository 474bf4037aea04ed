// What every group needs: checked calls, bounded waits, the PTX accesses by name, one JSON row a
// result. A program prints rows to stdout, reasons to stderr, and exits non-zero as soon as
// anything is wrong.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define CK(call)                                                        \
  do {                                                                  \
    cudaError_t ck_error = (call);                                      \
    if (ck_error != cudaSuccess) {                                      \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(ck_error));                       \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

// ---- Bounded waits. A wait that fails returns false; its thread counts it and leaves its loops.

constexpr uint32_t kPolls = 1u << 19;             // polls of global memory, 0.6-3 us each
constexpr long long kPatience = 1'000'000'000LL;  // SM cycles on an mbarrier, about 0.5 s

struct Status {
  uint32_t timeouts;    // waits that ran out
  uint32_t mismatches;  // values that were not what the host computed
};

__device__ __forceinline__ uint64_t global_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

// ---- Global memory. Scratch is never read through the non-coherent path.

__device__ __forceinline__ uint32_t ld_acquire(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void red_release_add(uint32_t* p, uint32_t v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ uint64_t ld_word(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void st_word(uint64_t* p, uint32_t payload, uint32_t tag) {
  const uint64_t v = (uint64_t)tag << 32 | payload;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ uint32_t ld_plain(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void st_plain(uint32_t* p, uint32_t v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// Waits until the counter has reached `target`. One lane only: an acquire invalidates L1 at every
// poll. Signed distance, so that the counter may wrap.
__device__ __forceinline__ bool wait_counter(const uint32_t* p, uint32_t target) {
#pragma unroll 1
  for (uint32_t n = 0; n < kPolls; ++n)
    if ((int32_t)(ld_acquire(p) - target) >= 0) return true;
  return false;
}

// Waits for a {payload, tag} word. The word orders nothing but itself.
__device__ __forceinline__ bool wait_word(const uint64_t* p, uint32_t tag, uint32_t& payload) {
#pragma unroll 1
  for (uint32_t n = 0; n < kPolls; ++n) {
    const uint64_t v = ld_word(p);
    payload = (uint32_t)v;
    if ((uint32_t)(v >> 32) == tag) return true;
  }
  return false;
}

// ---- Shared memory: mbarriers and relaxed words.

__device__ __forceinline__ uint32_t smem(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void mbar_init(uint64_t* bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(arrivals)
               : "memory");
}
// Makes the initialised mbarriers visible to the copy engine; a CTA barrier does it for the
// threads.
__device__ __forceinline__ void mbar_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbar_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(bar)) : "memory");
}
__device__ __forceinline__ bool mbar_try(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(smem(bar)), "r"(parity)
      : "memory");
  return done != 0;
}
// By time, not by count: how long one try_wait sleeps is the hardware's choice.
__device__ __forceinline__ bool mbar_wait(uint64_t* bar, uint32_t parity) {
  if (mbar_try(bar, parity)) return true;
  const long long start = clock64();
  while (!mbar_try(bar, parity))
    if (clock64() - start > kPatience) return false;
  return true;
}
__device__ __forceinline__ uint32_t ld_shared_relaxed(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(smem(p)) : "memory");
  return v;
}
__device__ __forceinline__ void st_shared_relaxed(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(smem(p)), "r"(v) : "memory");
}
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Host.

inline double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * (double)(sorted.size() - 1);
  const size_t lo = (size_t)at, hi = std::min(lo + 1, sorted.size() - 1);
  return sorted[lo] + (at - (double)lo) * (sorted[hi] - sorted[lo]);
}

// One row. `parameters` is the inside of a JSON object: "\"cap\": 3".
inline void emit(const char* name, const std::string& parameters, std::vector<double> samples,
                 const char* unit) {
  std::sort(samples.begin(), samples.end());
  std::printf(
      "{\"name\": \"%s\"%s%s, \"median\": %.6g, \"p10\": %.6g, \"p90\": %.6g, "
      "\"samples\": %zu, \"unit\": \"%s\"}\n",
      name, parameters.empty() ? "" : ", ", parameters.c_str(), quantile(samples, 0.5),
      quantile(samples, 0.1), quantile(samples, 0.9), samples.size(), unit);
  std::fflush(stdout);
}

template <class... Args>
std::string text(const char* format, Args... args) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

template <class T>
T* device_array(size_t count) {
  T* p = nullptr;
  CK(cudaMalloc(&p, count * sizeof(T)));
  CK(cudaMemset(p, 0, count * sizeof(T)));
  return p;
}

template <class T>
std::vector<T> to_host(const T* p, size_t count) {
  std::vector<T> v(count);
  CK(cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
  return v;
}

// Waits for the device and ends the program if a wait ran out or a value was wrong.
inline void require_clean(const Status* status, const std::string& where) {
  CK(cudaGetLastError());
  CK(cudaDeviceSynchronize());
  const Status s = to_host(status, 1)[0];
  if (s.timeouts == 0 && s.mismatches == 0) return;
  std::fprintf(stderr, "%s: %u waits ran out, %u values wrong\n", where.c_str(), s.timeouts,
               s.mismatches);
  std::exit(2);
}

inline int sm_count() {
  int device = 0, sms = 0;
  CK(cudaGetDevice(&device));
  CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  return sms;
}

// A cooperative launch is refused unless all CTAs are co-resident, so that waits between CTAs can
// end.
template <class Kernel, class Args>
void launch_together(Kernel kernel, int grid, int threads, size_t shared, Args args) {
  void* argv[] = {&args};
  CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  CK(cudaLaunchCooperativeKernel((const void*)kernel, dim3(grid), dim3(threads), argv, shared, 0));
}
