// The page stream: one loader thread a CTA fills a ring of 16 KB pages by cp.async.bulk with at
// most `cap` pages in flight; consumer warps fold every word, so that what was streamed can be
// checked.
//
// Order. full[s]: the loader's expect_tx arrival and the copy's complete_tx finish the phase, and a
// thread that sees it (try_wait acquires at CTA scope) sees the bytes. empty[s]: after its generic
// reads each lane issues fence.proxy.async.shared::cta, the warp meets, one lane arrives (release);
// the loader's wait then puts the next write of the async proxy after those reads.
// Parity never aliases: the loader is at most one round ahead of `empty`, and re-arms `full`
// itself.
#pragma once
#include "common.cuh"

constexpr uint32_t kPage = 16384;
constexpr uint32_t kRing = 12;
constexpr uint32_t kRingBytes = kPage * kRing;  // dynamic shared memory
constexpr uint32_t kNoEnd = ~0u;

struct Ring {
  uint64_t full[kRing];
  uint64_t empty[kRing];
  uint32_t stop;  // asks the loader to end
  uint32_t end;   // the number of pages, once the loader has ended
};

struct PageRef {
  const char* at;   // null ends the stream
  uint64_t policy;  // L2 cache policy, 0 for none
};

__device__ __forceinline__ void ring_init(Ring& ring, uint32_t consumer_warps) {
  for (uint32_t s = 0; s < kRing; ++s) {
    mbar_init(&ring.full[s], 1);
    mbar_init(&ring.empty[s], consumer_warps);
  }
  ring.stop = 0;
  ring.end = kNoEnd;
  mbar_init_fence();
}

__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_load(char* to, PageRef page, uint64_t* bar) {
  if (page.policy == 0) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem(to)),
        "l"(page.at), "r"(kPage), "r"(smem(bar))
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(smem(to)),
        "l"(page.at), "r"(kPage), "r"(smem(bar)), "l"(page.policy)
        : "memory");
  }
}

// A position in the ring: slot and the parity to wait for.
struct Cursor {
  uint32_t slot, parity;
  __device__ __forceinline__ void advance() {
    if (++slot == kRing) slot = 0, parity ^= 1;
  }
};

// Runs in one thread. `next()` names the page to load. Without consumers (`consumed` false) a slot
// is free as soon as its copy has landed. Drains what it issued before it returns: shared memory
// must outlive the copies. Returns the number of pages, and sets `ok` to whether all waits ended.
template <class Next>
__device__ __forceinline__ uint32_t load_pages(Ring& ring, char* pages, uint32_t cap, bool consumed,
                                               Next next, bool& ok) {
  Cursor fill{0, 1}, landed{0, 0};  // a fresh mbarrier reports its phase of parity 1 as over
  uint32_t issued = 0, seen = 0;
  ok = true;
  for (;;) {
    if (consumed && !mbar_wait(&ring.empty[fill.slot], fill.parity)) ok = false;
    if (ok && issued - seen == cap) {
      ok = mbar_wait(&ring.full[landed.slot], landed.parity);
      landed.advance();
      ++seen;
    }
    if (!ok) break;
    const PageRef page = next();
    if (page.at == nullptr) break;
    mbar_expect(&ring.full[fill.slot], kPage);
    bulk_load(pages + fill.slot * kPage, page, &ring.full[fill.slot]);
    fill.advance();
    ++issued;
  }
  if (ok && consumed) {  // an empty page tells the consumers that it is the last
    st_shared_relaxed(&ring.end, issued);
    mbar_arrive(&ring.full[fill.slot]);
  }
  for (; seen < issued; ++seen, landed.advance())
    if (!mbar_wait(&ring.full[landed.slot], landed.parity)) ok = false;
  return issued;
}

// Runs in `Warps` warps. Returns the xor of the words this lane read.
template <uint32_t Warps>
__device__ __forceinline__ uint32_t consume_pages(Ring& ring, const char* pages, uint32_t warp,
                                                  uint32_t lane, bool& ok) {
  Cursor at{0, 0};
  uint32_t fold = 0;
  for (uint32_t page = 0;; ++page, at.advance()) {
    ok = __all_sync(~0u, mbar_wait(&ring.full[at.slot], at.parity));
    if (!ok || ld_shared_relaxed(&ring.end) == page) return fold;
    const uint4* p = (const uint4*)(pages + at.slot * kPage) + warp * 32 + lane;
#pragma unroll
    for (uint32_t i = 0; i < kPage / 16; i += Warps * 32) {
      const uint4 v = p[i];
      fold ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) mbar_arrive(&ring.empty[at.slot]);
  }
}

// Page t of a CTA is page cta + t * grid of the weights; after `wrap` of its own pages it starts
// again. Stepped, not divided: two divisions a page halve the rate of small pages.
struct Weights {
  const char* base;
  uint32_t wrap;
};

struct WeightWalk {
  const char *first, *at;
  uint64_t step;
  uint32_t wrap, n = 0;
  __device__ __forceinline__ WeightWalk(Weights w)
      : first(w.base + (uint64_t)blockIdx.x * kPage),
        at(first),
        step((uint64_t)gridDim.x * kPage),
        wrap(w.wrap) {}
  __device__ __forceinline__ const char* next() {
    const char* page = at;
    at += step;
    if (++n == wrap) n = 0, at = first;
    return page;
  }
};

__device__ __forceinline__ void fold_into(uint32_t* sum, uint32_t fold, uint32_t lane) {
  fold = __reduce_xor_sync(~0u, fold);
  if (lane == 0) atomicXor(sum, fold);
}

// The stream beside other work of a CTA, if `a.cap` asks for one: the first warps fold, the next
// one loads until ring.stop is set. `Args` has weights, cap, pages, sums and status.
template <uint32_t Consumers, class Args>
__device__ __forceinline__ void stream_until_stopped(Ring& ring, char* pages, const Args& a,
                                                     uint32_t warp, uint32_t lane) {
  if (a.cap == 0) return;
  bool ok = true;
  if (warp == Consumers) {
    if (lane != 0) return;
    WeightWalk walk(a.weights);
    auto next = [&] { return PageRef{ld_shared_relaxed(&ring.stop) ? nullptr : walk.next(), 0}; };
    a.pages[blockIdx.x] = load_pages(ring, pages, a.cap, true, next, ok);
  } else {
    fold_into(a.sums + blockIdx.x, consume_pages<Consumers>(ring, pages, warp, lane, ok), lane);
  }
  if (!ok && lane == 0) atomicAdd(&a.status->timeouts, 1);
}

// ---- Random weights, and what the stream should have folded, by plain loads.

static __global__ void fill_kernel(uint4* p, uint64_t count, uint32_t seed) {
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
       i += (uint64_t)gridDim.x * blockDim.x) {
    // splitmix64, its state stepped twice an element
    uint64_t x = seed * 0xD1B54A32D192ED03ull + 2 * i * 0x9E3779B97F4A7C15ull;
    uint32_t w[4];
    for (int k = 0; k < 4; k += 2) {
      x += 0x9E3779B97F4A7C15ull;
      uint64_t z = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ z >> 27) * 0x94D049BB133111EBull;
      z ^= z >> 31;
      w[k] = (uint32_t)z, w[k + 1] = (uint32_t)(z >> 32);
    }
    p[i] = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

// CTA c adds to `mismatches` if sums[c] is not the xor of its first pages[c] pages.
static __global__ void check_stream_kernel(Weights w, const uint32_t* pages, const uint32_t* sums,
                                           Status* status) {
  __shared__ uint32_t sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  WeightWalk walk(w);
  uint32_t fold = 0;
  for (uint32_t t = 0; t < pages[blockIdx.x]; ++t) {
    const uint4* p = (const uint4*)walk.next();
    for (uint32_t i = threadIdx.x; i < kPage / 16; i += blockDim.x)
      fold ^= p[i].x ^ p[i].y ^ p[i].z ^ p[i].w;
  }
  fold = __reduce_xor_sync(~0u, fold);
  if (threadIdx.x % 32 == 0) atomicXor(&sum, fold);
  __syncthreads();
  if (threadIdx.x == 0 && sum != sums[blockIdx.x]) atomicAdd(&status->mismatches, 1);
}

inline Weights random_weights(uint64_t bytes, int grid, uint32_t seed) {
  char* p = nullptr;
  const uint32_t wrap = (uint32_t)(bytes / kPage / (uint64_t)grid);
  const uint64_t used = (uint64_t)wrap * grid * kPage;
  CK(cudaMalloc(&p, used));
  fill_kernel<<<1024, 256>>>((uint4*)p, used / 16, seed);
  CK(cudaGetLastError());
  CK(cudaDeviceSynchronize());
  return {p, wrap};
}
