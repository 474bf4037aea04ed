// L2-to-SM bandwidth by bulk copies beside a stream from HBM: how much of each is kept. Either some
// SMs read what lies in L2 and the others stream (split), or every SM alternates pages (mixed), as
// a tile with weights from HBM and activations from L2 does. The stream passes through L2 too, so
// it is tried with evict-first as well, which should leave the resident bytes alone.
#include "stream.cuh"

constexpr uint32_t kThreads = 128;
constexpr uint32_t kSamples = 20;
constexpr long long kRunClocks = 1'800'000;  // about 1 ms

// A CTA takes `resident` pages from L2, then `streamed` from HBM, and again.
struct Mix {
  uint32_t resident, streamed;
};

struct Args {
  Weights weights;
  const char* buffer;  // resident in L2, read from end to end by every CTA that reads it
  uint32_t buffer_pages;
  uint32_t cap;
  bool evict_first;
  Mix often, rest;  // of every four CTAs `quarter` take the first
  uint32_t quarter;
  uint32_t* pages;    // [cta][2] from L2, from HBM
  uint64_t* span_ns;  // [cta]
  Status* status;
};

struct MixWalk {
  const char* buffer;
  uint32_t buffer_pages, resident, period;
  WeightWalk weights;
  uint64_t policy;
  long long until;
  uint32_t at, turn = 0, from_l2 = 0, from_hbm = 0;
  __device__ __forceinline__ MixWalk(const Args& a, Mix mix)
      : buffer(a.buffer),
        buffer_pages(a.buffer_pages),
        resident(mix.resident),
        period(mix.resident + mix.streamed),
        weights(a.weights),
        at(blockIdx.x * a.buffer_pages / gridDim.x) {
    policy = a.evict_first ? policy_evict_first() : 0;
    until = clock64() + kRunClocks;
  }
  __device__ __forceinline__ PageRef next() {
    if (clock64() >= until) return {nullptr, 0};
    const bool from_buffer = turn < resident;
    if (++turn == period) turn = 0;
    if (!from_buffer) {
      ++from_hbm;
      return {weights.next(), policy};
    }
    const char* page = buffer + (uint64_t)at * kPage;
    if (++at == buffer_pages) at = 0;
    ++from_l2;
    return {page, 0};
  }
};

__global__ void __launch_bounds__(kThreads, 1) mix_kernel(const Args a) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  __shared__ const char* source[kRing];  // what each slot holds at the end
  __shared__ uint32_t filled;
  if (threadIdx.x == 0) ring_init(ring, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint64_t start = global_ns();
    MixWalk walk(a, blockIdx.x % 4 < a.quarter ? a.often : a.rest);
    uint32_t slot = 0;
    auto next = [&] {
      const PageRef page = walk.next();
      if (page.at != nullptr) {
        source[slot] = page.at;
        if (++slot == kRing) slot = 0;
      }
      return page;
    };
    bool ok;
    const uint32_t loaded = load_pages(ring, pages, a.cap, false, next, ok);
    a.span_ns[blockIdx.x] = global_ns() - start;
    a.pages[blockIdx.x * 2] = walk.from_l2;
    a.pages[blockIdx.x * 2 + 1] = walk.from_hbm;
    filled = ok ? min(loaded, kRing) : 0;
    if (!ok) atomicAdd(&a.status->timeouts, 1);
    if (loaded < kRing) atomicAdd(&a.status->mismatches, 1);
  }
  __syncthreads();  // the loader has waited for every copy: all threads may look
  for (uint32_t slot = 0; slot < filled; ++slot) {
    const uint4* have = (const uint4*)(pages + slot * kPage);
    const uint4* want = (const uint4*)source[slot];
    uint32_t differ = 0;
    for (uint32_t i = threadIdx.x; i < kPage / 16; i += kThreads) {
      const uint4 h = have[i], w = want[i];
      differ += h.x != w.x || h.y != w.y || h.z != w.z || h.w != w.w;
    }
    if (differ) atomicAdd(&a.status->mismatches, differ);
  }
}

struct Case {
  const char* mode;
  uint32_t quarter;
  Mix often, rest;
};

// One sample a launch: the sum over CTAs of bytes over the CTA's own time.
void measure(Args a, int grid, const Case& c) {
  a.quarter = c.quarter, a.often = c.often, a.rest = c.rest;
  std::vector<double> resident, streamed;
  for (uint32_t i = 0; i < kSamples + 2; ++i) {
    launch_together(mix_kernel, grid, kThreads, kRingBytes, a);
    require_clean(a.status, text("l2 %s cap %u", c.mode, a.cap));
    const auto pages = to_host(a.pages, 2 * grid);
    const auto ns = to_host(a.span_ns, grid);
    double rate[2] = {0, 0};
    for (int k = 0; k < 2 * grid; ++k) rate[k % 2] += (double)pages[k] * kPage / (double)ns[k / 2];
    if (i < 2) continue;
    resident.push_back(rate[0]);
    streamed.push_back(rate[1]);
  }
  const auto parameters =
      text("\"mode\": \"%s\", \"cap\": %u, \"resident_mb\": %u, \"stream_policy\": \"%s\"", c.mode,
           a.cap, a.buffer_pages * kPage >> 20, a.evict_first ? "evict_first" : "normal");
  if (quantile(resident, 0.5) > 0) emit("l2_read", parameters, resident, "GB/s");
  if (quantile(streamed, 0.5) > 0) emit("l2_stream", parameters, streamed, "GB/s");
}

int main() {
  const int grid = sm_count();
  const Mix l2{1, 0}, hbm{0, 1};
  const Case cases[] = {
      {"alone_hbm", 4, hbm, hbm},          {"alone_l2", 4, l2, l2},
      {"split_1_of_4", 1, l2, hbm},        {"split_2_of_4", 2, l2, hbm},
      {"split_3_of_4", 3, l2, hbm},        {"mixed_1_to_3", 4, {1, 3}, {1, 3}},
      {"mixed_1_to_1", 4, {1, 1}, {1, 1}}, {"mixed_3_to_1", 4, {3, 1}, {3, 1}},
  };
  constexpr uint32_t largest = 16u << 20;
  char* buffer = device_array<char>(largest);
  fill_kernel<<<256, 256>>>((uint4*)buffer, largest / 16, 3);
  CK(cudaGetLastError());
  Args a{};
  a.weights = random_weights(4ull << 30, grid, 4);
  a.buffer = buffer;
  a.pages = device_array<uint32_t>(2 * grid);
  a.span_ns = device_array<uint64_t>(grid);
  a.status = device_array<Status>(1);
  for (uint32_t cap : {12u, 4u})
    for (uint32_t mb : {1u, 16u})
      for (bool evict_first : {false, true})
        for (const Case& c : cases) {
          const bool no_stream = c.mode == std::string("alone_l2");
          const bool no_resident = c.mode == std::string("alone_hbm");
          if ((no_stream && evict_first) || (no_resident && mb != 1)) continue;
          a.cap = cap, a.buffer_pages = (mb << 20) / kPage, a.evict_first = evict_first;
          measure(a, grid, c);
        }
  return 0;
}
