// A slot of a ring that threads have read with plain loads is written again by a bulk copy: the
// reads, an arrival, the copying thread waits for it, with a fence_shared_reads on the way, of each
// reader or of who copies. A thread that sees a value of a later page has been overtaken by the async
// proxy.
#include "litmus.cuh"
#include "cuda/ptx/wgmma.cuh"

using namespace et;

constexpr uint32_t kSlots = 2, kWords = 512, kBytes = kWords * 4;
constexpr uint32_t kPages = 64;       // in global memory; page p holds p in every word
constexpr uint32_t kRounds = 20'000;  // a block

enum class Fence { none, readers, copier };

// Warp 0 copies and does not read: one thread, or all its lanes behind the one that waits and fences.
// The others read, by plain loads or (of warps whose turn it is) as tensor cores take it.
template <Fence WHO> __global__ void slot_reuse(const uint32_t* pages, litmus::Tally* tally) {
  __shared__ __align__(128) uint32_t slots[kSlots][kWords];
  __shared__ Barrier full[kSlots], empty[kSlots];
  constexpr uint32_t kReaders = ET_THREADS - 32, kEach = kWords / 32, kMatrices = kWords / 128;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kSlots; ++s) bar_init(full[s], 1), bar_init(empty[s], kReaders);
    bar_init_done();
  }
  __syncthreads();
  uint32_t wrong = 0;
  bool in_time = true;
  for (uint32_t round = 0; round < kRounds && in_time; ++round) {
    const uint32_t slot = round % kSlots, turn = round / kSlots % 2, page = round % kPages;
    const uint32_t* const from = pages + page * kWords;
    if (threadIdx.x < 32) {
      if (threadIdx.x == 0) {  // a fresh barrier reports its phase of parity 1 as over
        in_time = litmus::wait([&] { return bar_over(empty[slot], turn ^ 1); });
        if (WHO == Fence::copier) fence_shared_reads();
        bar_expect(full[slot], kBytes);
        if (round % 2 == 0) bulk_copy(slots[slot], from, kBytes, full[slot]);
      }
      in_time = __shfl_sync(~0u, uint32_t(in_time), 0) != 0;
      const uint32_t at = threadIdx.x * kEach;
      if (round % 2 != 0) bulk_copy(slots[slot] + at, from + at, kEach * 4, full[slot]);
    } else {
      in_time = litmus::wait([&] { return bar_over(full[slot], turn); });
      if (round / 2 % 2 == 0) {
        const volatile uint32_t* words = slots[slot];
        for (uint32_t k = threadIdx.x - 32; k < kWords; k += kReaders) wrong += words[k] != page;
      } else if (threadIdx.x / 32 <= kMatrices) {
        uint32_t words[4];
        ptx::ldmatrix_x4(shared_address(slots[slot]) + (threadIdx.x - 32) * 16, words);
        for (const uint32_t word : words) wrong += word != page;
      }
      if (WHO == Fence::readers) fence_shared_reads();
      bar_arrive(empty[slot]);
    }
  }
  if (wrong) atomicAdd(&tally->wrong, wrong);
  if (!in_time) atomicAdd(&tally->late, 1);
  if (threadIdx.x == 0) atomicAdd(&tally->rounds, kRounds);
  __syncthreads();  // what was copied last has landed: readers have seen it
}

template <Fence WHO> void run(const char* rule, const uint32_t* pages) {
  litmus::Tally* tally = litmus::fresh_tally();
  litmus::run_together(slot_reuse<WHO>, litmus::multiprocessors(), pages, tally);
  litmus::report(rule, WHO != Fence::none, tally);
}

int main() {
  static uint32_t host[kPages][kWords];
  for (uint32_t p = 0; p < kPages; ++p)
    for (uint32_t& word : host[p]) word = p;
  uint32_t* pages = nullptr;
  CK(cudaMalloc(&pages, sizeof host));
  CK(cudaMemcpy(pages, host, sizeof host, cudaMemcpyHostToDevice));
  run<Fence::readers>("slot_reuse by readers", pages);
  run<Fence::copier>("slot_reuse by who copies", pages);
  run<Fence::none>("slot_reuse", pages);
  return 0;
}
