// Kernels that do nothing but read: the read bandwidth of the machine, and the best that one kernel
// an operator can do. A library for chain.py, which hands over torch's memory and stream.
#include "stream.cuh"

constexpr uint32_t kPlainThreads = 1024, kUnroll = 8;
constexpr uint32_t kConsumers = 8;  // warps 0..7; warp 8 loads

// The xor of a block's words goes to its own place: what was read can be checked.
__device__ __forceinline__ void keep(uint32_t fold, uint32_t* sums) {
  __shared__ uint32_t sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  fold_into(&sum, fold, threadIdx.x % 32);
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kPlainThreads, 1)
    read_plain_kernel(const uint4* p, uint64_t count, uint32_t* sums) {
  const uint64_t step = (uint64_t)gridDim.x * kPlainThreads;
  uint64_t at = blockIdx.x * (uint64_t)kPlainThreads + threadIdx.x;
  uint32_t fold = 0;
  for (; at + (kUnroll - 1) * step < count; at += kUnroll * step) {
    uint4 v[kUnroll];
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) v[k] = __ldcs(p + at + k * step);
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) fold ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; at < count; at += step) {
    const uint4 v = __ldcs(p + at);
    fold ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  keep(fold, sums);
}

__global__ void __launch_bounds__((kConsumers + 1) * 32, 1)
    read_bulk_kernel(const char* base, uint32_t total, uint32_t* sums) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ring_init(ring, kConsumers);
  __syncthreads();
  bool ok = true;
  uint32_t fold = 0;
  if (warp < kConsumers) {
    fold = consume_pages<kConsumers>(ring, pages, warp, lane, ok);
  } else if (lane == 0) {
    uint32_t page = blockIdx.x;
    auto next = [&] {
      const char* at = page < total ? base + (uint64_t)page * kPage : nullptr;
      page += gridDim.x;
      return PageRef{at, 0};
    };
    load_pages(ring, pages, kRing, true, next, ok);
  }
  if (!ok) __trap();
  __syncwarp();
  keep(fold, sums);
}

// Both give 0 or a CUDA error. `bytes` is a multiple of the page; `sums` has a word an SM.
extern "C" int read_plain(const void* p, uint64_t bytes, uint32_t* sums, int sms, void* stream) {
  read_plain_kernel<<<sms, kPlainThreads, 0, (cudaStream_t)stream>>>((const uint4*)p, bytes / 16,
                                                                     sums);
  return (int)cudaGetLastError();
}

extern "C" int read_bulk(const void* p, uint64_t bytes, uint32_t* sums, int sms, void* stream) {
  const cudaError_t error = cudaFuncSetAttribute(
      read_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kRingBytes);
  if (error != cudaSuccess) return (int)error;
  read_bulk_kernel<<<sms, (kConsumers + 1) * 32, kRingBytes, (cudaStream_t)stream>>>(
      (const char*)p, (uint32_t)(bytes / kPage), sums);
  return (int)cudaGetLastError();
}
