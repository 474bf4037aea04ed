// What the litmus tests share. They use the names of the back end (device/cuda/sync/sync.cuh, bulk.cuh),
// so that what is tried is what kernels do. A row of JSON a variant; waits are bounded.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define ET_THREADS 128
#include "cuda/memory/bulk.cuh"

#define CK(call)                                                                   \
  do {                                                                             \
    const cudaError_t error = (call);                                              \
    if (error != cudaSuccess) {                                                    \
      std::fprintf(stderr, "line %d, %s: %s\n", __LINE__, #call,                    \
                   cudaGetErrorString(error));                                     \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

namespace litmus {

constexpr int64_t kPatience = 2'000'000'000;  // SM cycles, about a second

// Waits until `over()`; false once patience is at its end.
template <class Over> __device__ bool wait(Over over) {
  const int64_t start = clock64();
  while (!over())
    if (clock64() - start > kPatience) return false;
  return true;
}

struct Tally {
  unsigned long long rounds, wrong, late;
};

inline Tally* fresh_tally() {
  Tally* tally = nullptr;
  CK(cudaMalloc(&tally, sizeof(Tally)));
  CK(cudaMemset(tally, 0, sizeof(Tally)));
  return tally;
}

inline int multiprocessors() {
  int count = 0;
  CK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

template <class... Args> void run_together(void (*kernel)(Args...), int grid, Args... args) {
  void* pointers[] = {&args...};
  const void* entry = (const void*)kernel;
  CK(cudaLaunchCooperativeKernel(entry, dim3(grid), dim3(ET_THREADS), pointers, 0, 0));
  CK(cudaDeviceSynchronize());
}

inline void report(const char* rule, bool fence, const Tally* tally) {
  Tally t;
  CK(cudaMemcpy(&t, tally, sizeof t, cudaMemcpyDeviceToHost));
  std::printf("{\"rule\": \"%s\", \"fence\": %s, ", rule, fence ? "true" : "false");
  std::printf("\"rounds\": %llu, \"wrong\": %llu, \"late\": %llu}\n", t.rounds, t.wrong, t.late);
}

}  // namespace litmus
