// A slot of a ring that threads have read with plain loads is written again by a bulk copy: the
// reads, fence_shared_reads in every thread, an arrival; the copying thread waits for it. A thread
// that sees a value of a later page has been overtaken by the async proxy.
#include "litmus.cuh"

using namespace et;

constexpr uint32_t kSlots = 2, kWords = 512, kBytes = kWords * 4;
constexpr uint32_t kPages = 64;       // in global memory; page p holds p in every word
constexpr uint32_t kRounds = 20'000;  // a block

// Warp 0 copies (one thread) and does not read; the others read.
template <bool Fence> __global__ void slot_reuse(const uint32_t* pages, litmus::Tally* tally) {
  __shared__ __align__(128) uint32_t slots[kSlots][kWords];
  __shared__ Barrier full[kSlots], empty[kSlots];
  constexpr uint32_t kReaders = ET_THREADS - 32;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kSlots; ++s) bar_init(full[s], 1), bar_init(empty[s], kReaders);
    bar_init_done();
  }
  __syncthreads();
  uint32_t wrong = 0;
  bool in_time = true;
  for (uint32_t round = 0; round < kRounds && in_time; ++round) {
    const uint32_t slot = round % kSlots, turn = round / kSlots % 2, page = round % kPages;
    if (threadIdx.x == 0) {  // a fresh barrier reports its phase of parity 1 as over
      in_time = litmus::wait([&] { return bar_over(empty[slot], turn ^ 1); });
      bar_expect(full[slot], kBytes);
      bulk_copy(slots[slot], pages + page * kWords, kBytes, full[slot]);
    } else if (threadIdx.x >= 32) {
      in_time = litmus::wait([&] { return bar_over(full[slot], turn); });
      const volatile uint32_t* words = slots[slot];
      for (uint32_t k = threadIdx.x - 32; k < kWords; k += kReaders) wrong += words[k] != page;
      if (Fence) fence_shared_reads();
      bar_arrive(empty[slot]);
    }
  }
  if (wrong) atomicAdd(&tally->wrong, wrong);
  if (!in_time) atomicAdd(&tally->late, 1);
  if (threadIdx.x == 0) atomicAdd(&tally->rounds, kRounds);
  __syncthreads();  // what was copied last has landed: readers have seen it
}

template <bool Fence> void run(const uint32_t* pages) {
  litmus::Tally* tally = litmus::fresh_tally();
  litmus::run_together(slot_reuse<Fence>, litmus::multiprocessors(), pages, tally);
  litmus::report("slot_reuse", Fence, tally);
}

int main() {
  static uint32_t host[kPages][kWords];
  for (uint32_t p = 0; p < kPages; ++p)
    for (uint32_t& word : host[p]) word = p;
  uint32_t* pages = nullptr;
  CK(cudaMalloc(&pages, sizeof host));
  CK(cudaMemcpy(pages, host, sizeof host, cudaMemcpyHostToDevice));
  run<true>(pages);
  run<false>(pages);
  return 0;
}
