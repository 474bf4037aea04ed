// A bulk copy reads what another block has written in the same launch: plain stores, a block
// barrier, one release add; one thread acquires the counter, does fence_global_writes and copies.
// Blocks play in pairs and write the same bytes in every round, so that an old value would show.
#include "litmus.cuh"

using namespace et;

constexpr uint32_t kWords = 256, kBytes = kWords * 4;
constexpr int64_t kRounds = 40'000;  // a pair

struct Pair {
  uint32_t data[kWords];
  Cell sent, seen;
  uint32_t pad[28];  // pairs share no line
};

__device__ bool reached(const Cell& cell, int64_t target) {
  return litmus::wait([&] { return ev_reached(cell, target); });
}

__device__ bool write_rounds(Pair& pair) {
  __shared__ bool go;
  for (int64_t round = 1; round <= kRounds; ++round) {
    if (threadIdx.x == 0) go = reached(pair.seen, round - 1);
    __syncthreads();
    if (!go) return false;
    for (uint32_t k = threadIdx.x; k < kWords; k += ET_THREADS) pair.data[k] = uint32_t(round) + k;
    __syncthreads();
    if (threadIdx.x == 0) ev_notify(pair.sent);
  }
  return true;
}

template <bool Fence> __device__ bool copy_rounds(Pair& pair, unsigned long long& wrong) {
  __shared__ __align__(128) uint32_t slot[kWords];
  __shared__ Barrier full;
  __shared__ bool go;
  if (threadIdx.x == 0) bar_init(full, 1), bar_init_done();
  __syncthreads();
  for (int64_t round = 1; round <= kRounds; ++round) {
    if (threadIdx.x == 0) {
      go = reached(pair.sent, round);
      if (Fence) fence_global_writes();
      bar_expect(full, kBytes);
      bulk_copy(slot, pair.data, kBytes, full);
    }
    __syncthreads();
    const bool landed = litmus::wait([&] { return bar_over(full, (round - 1) % 2); });
    if (!go || !landed) return false;
    for (uint32_t k = threadIdx.x; k < kWords; k += ET_THREADS)
      wrong += slot[k] != uint32_t(round) + k;
    fence_shared_reads();
    __syncthreads();
    if (threadIdx.x == 0) ev_notify(pair.seen);
  }
  return true;
}

template <bool Fence> __global__ void fresh_bulk(Pair* pairs, litmus::Tally* tally) {
  // Partners are half a grid apart: on different SMs, often in different partitions of the L2.
  const uint32_t half = gridDim.x / 2;
  if (blockIdx.x >= 2 * half) return;
  Pair& pair = pairs[blockIdx.x % half];
  unsigned long long wrong = 0;
  const bool in_time = blockIdx.x < half ? write_rounds(pair) : copy_rounds<Fence>(pair, wrong);
  if (wrong) atomicAdd(&tally->wrong, wrong);
  if (!in_time) atomicAdd(&tally->late, 1);
  if (threadIdx.x == 0 && blockIdx.x < half) atomicAdd(&tally->rounds, kRounds);
}

template <bool Fence> void run() {
  const int grid = litmus::multiprocessors();
  Pair* pairs = nullptr;
  CK(cudaMalloc(&pairs, grid * sizeof(Pair)));
  CK(cudaMemset(pairs, 0, grid * sizeof(Pair)));
  litmus::Tally* tally = litmus::fresh_tally();
  litmus::run_together(fresh_bulk<Fence>, grid, pairs, tally);
  litmus::report("fresh_bulk", Fence, tally);
}

int main() {
  run<true>();
  run<false>();
  return 0;
}
