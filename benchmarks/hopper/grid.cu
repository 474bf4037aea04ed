// A grid-wide dependency: every CTA waits for all CTAs, round after round, idle and under the
// stream. Bare: a counter and nothing else. With data: every CTA publishes 16 values and reads all
// of them (a residual row of 2112 on 132 SMs), by counter and by flag words. Each round has its own
// cells, written once a launch; kernel boundaries separate launches.
#include "stream.cuh"

enum class Handoff { counter_bare, counter_data, flag_data };
constexpr const char* kNames[] = {"counter_bare", "counter_data", "flag_data"};

constexpr uint32_t kConsumers = 4;  // warps 0..3; warp 4 loads, warps 5..12 depend
constexpr uint32_t kGroup = 256;    // threads that depend
constexpr uint32_t kThreads = (kConsumers + 1) * 32 + kGroup;
constexpr uint32_t kShare = 16;  // values a CTA publishes
constexpr uint32_t kMaxGrid = 192;
constexpr uint32_t kPerThread = kMaxGrid * kShare / kGroup;
constexpr uint32_t kRounds = 400, kFirst = 40;  // the first 40 rounds see the stream ramp up
constexpr uint32_t kLast = 10;                  // and the last ones see it end
constexpr uint32_t kLaunches = 6;
constexpr uint32_t kLine = 32;

struct Args {
  Weights weights;
  uint32_t cap, tag;
  uint64_t* words;     // [round][grid * kShare] of {payload, tag}
  uint32_t* data;      // [round][grid * kShare]
  uint32_t* counters;  // [round][kLine], 0 at the start, grid at the end
  long long* stamps;   // [kRounds + 1] clock of CTA 0
  uint64_t* span_ns;   // [2]
  uint32_t *pages, *sums;
  Status* status;
};

__device__ __forceinline__ void group_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kGroup) : "memory");
}
// True in all threads of the group if it is true in each.
__device__ __forceinline__ bool group_all(bool mine) {
  uint32_t all;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.and.pred q, 1, %2, p;\nselp.u32 %0, 1, 0, q;\n}"
      : "=r"(all)
      : "r"((uint32_t)mine), "n"(kGroup)
      : "memory");
  return all != 0;
}

__device__ __forceinline__ uint32_t value_of(uint32_t tag, uint32_t round, uint32_t i) {
  return (tag * 0x85EBCA6Bu ^ round * 0xC2B2AE35u) + i * 0x9E3779B9u;
}

// Stores, CTA barrier, one red.release.gpu; one lane's ld.acquire.gpu, CTA barrier, plain loads.
// The two barriers carry the order from and to the other threads (rule 4 of the recipe).
template <bool Data>
__device__ __forceinline__ bool by_counter(const Args& a, uint32_t round, uint32_t me,
                                           uint32_t& wrong) {
  const uint32_t total = gridDim.x * kShare;
  uint32_t* data = a.data + (size_t)round * total;
  if (Data && me < kShare) {
    const uint32_t i = blockIdx.x * kShare + me;
    st_plain(data + i, value_of(a.tag, round, i));
  }
  if (Data) group_barrier();
  bool ok = true;
  if (me == 0) {
    red_release_add(a.counters + round * kLine, 1);
    ok = wait_counter(a.counters + round * kLine, gridDim.x);
  }
  ok = group_all(ok);
  if constexpr (Data) {
    uint32_t got[kPerThread];
#pragma unroll
    for (uint32_t k = 0; k < kPerThread; ++k) {
      const uint32_t i = k * kGroup + me;
      got[k] = i < total ? ld_plain(data + i) : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < kPerThread; ++k) {
      const uint32_t i = k * kGroup + me;
      wrong += i < total && got[k] != value_of(a.tag, round, i);
    }
    group_barrier();  // the next round's stores depend on every read of this one
  }
  return ok;
}

// Every thread reads its words until each carries the tag; a barrier, because what this CTA sends
// next depends on all of them. Only the words that were late are read again.
__device__ __forceinline__ bool by_flags(const Args& a, uint32_t round, uint32_t me,
                                         uint32_t& wrong) {
  const uint32_t total = gridDim.x * kShare;
  uint64_t* words = a.words + (size_t)round * total;
  if (me < kShare) {
    const uint32_t i = blockIdx.x * kShare + me;
    st_word(words + i, value_of(a.tag, round, i), a.tag);
  }
  uint64_t got[kPerThread];
#pragma unroll
  for (uint32_t k = 0; k < kPerThread; ++k) {
    const uint32_t i = k * kGroup + me;
    got[k] = i < total ? ld_word(words + i) : 0;
  }
  bool ok = true;
#pragma unroll
  for (uint32_t k = 0; k < kPerThread; ++k) {
    const uint32_t i = k * kGroup + me;
    if (i >= total) continue;
    uint32_t payload = (uint32_t)got[k];
    if ((uint32_t)(got[k] >> 32) != a.tag) ok = ok && wait_word(words + i, a.tag, payload);
    wrong += payload != value_of(a.tag, round, i);
  }
  return group_all(ok);
}

template <Handoff H>
__device__ __forceinline__ void depend(const Args& a, uint32_t me) {
  // Kept on chip: a release waits for the global stores before it, so for a stamp's too.
  __shared__ long long stamps[kRounds];
  const bool clerk = blockIdx.x == 0 && me == 0;
  uint32_t wrong = 0;
  bool ok = true;
  for (uint32_t round = 0; round < kRounds && ok; ++round) {
    if (clerk) {
      if (round == 0) a.span_ns[0] = global_ns();
      stamps[round] = clock64();
    }
    if (H == Handoff::flag_data)
      ok = by_flags(a, round, me, wrong);
    else
      ok = by_counter<H == Handoff::counter_data>(a, round, me, wrong);
  }
  if (clerk) {
    a.span_ns[1] = global_ns();
    a.stamps[kRounds] = clock64();
#pragma unroll 1
    for (uint32_t r = 0; r < kRounds; ++r) a.stamps[r] = stamps[r];
  }
  if (wrong) atomicAdd(&a.status->mismatches, wrong);
  if (!ok && me == 0) atomicAdd(&a.status->timeouts, 1);
}

template <Handoff H>
__global__ void __launch_bounds__(kThreads, 1) grid_kernel(const Args a) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ring_init(ring, kConsumers);
  __syncthreads();
  if (warp > kConsumers) {
    const uint32_t me = threadIdx.x - (kConsumers + 1) * 32;
    depend<H>(a, me);
    if (me == 0) st_shared_relaxed(&ring.stop, 1);
  } else {
    stream_until_stopped<kConsumers>(ring, pages, a, warp, lane);
  }
}

template <Handoff H>
double launch(Args& a, int grid, uint32_t cap, uint32_t& tag) {
  a.cap = cap, a.tag = ++tag;
  CK(cudaMemset(a.counters, 0, kRounds * kLine * sizeof(uint32_t)));
  CK(cudaMemset(a.sums, 0, grid * sizeof(uint32_t)));
  CK(cudaMemset(a.pages, 0, grid * sizeof(uint32_t)));
  launch_together(grid_kernel<H>, grid, kThreads, kRingBytes, a);
  require_clean(a.status, text("grid %s cap %u", kNames[(int)H], cap));
  double pages = 0;
  for (uint32_t n : to_host(a.pages, grid)) pages += n;
  return pages * kPage;
}

template <Handoff H>
void measure(Args a, int grid, uint32_t cap, uint32_t& tag) {
  launch<H>(a, grid, cap, tag);
  check_stream_kernel<<<grid, 256>>>(a.weights, a.pages, a.sums, a.status);
  require_clean(a.status, text("grid %s cap %u: streamed pages", kNames[(int)H], cap));
  std::vector<double> rounds, rates;
  for (uint32_t i = 0; i < kLaunches; ++i) {
    const double bytes = launch<H>(a, grid, cap, tag);
    const auto stamps = to_host(a.stamps, kRounds + 1);
    const auto span = to_host(a.span_ns, 2);
    const double ns = (double)(span[1] - span[0]);
    const double us_per_clock = 1e-3 * ns / (double)(stamps[kRounds] - stamps[0]);
    for (uint32_t r = kFirst; r < kRounds - kLast; ++r)
      rounds.push_back((double)(stamps[r + 1] - stamps[r]) * us_per_clock);
    rates.push_back(bytes / ns);
  }
  const auto parameters =
      text("\"handoff\": \"%s\", \"cap\": %u, \"ctas\": %d", kNames[(int)H], cap, grid);
  emit("grid_dependency", parameters, rounds, "us");
  if (cap) emit("grid_dependency_stream", parameters, rates, "GB/s");
}

int main() {
  const int grid = sm_count();
  if (grid > (int)kMaxGrid) {
    std::fprintf(stderr, "grid: %d SMs, written for at most %u\n", grid, kMaxGrid);
    return 3;
  }
  Args a{};
  a.weights = random_weights(2ull << 30, grid, 2);
  a.words = device_array<uint64_t>((size_t)kRounds * grid * kShare);
  a.data = device_array<uint32_t>((size_t)kRounds * grid * kShare);
  a.counters = device_array<uint32_t>(kRounds * kLine);
  a.stamps = device_array<long long>(kRounds + 1);
  a.span_ns = device_array<uint64_t>(2);
  a.pages = device_array<uint32_t>(grid);
  a.sums = device_array<uint32_t>(grid);
  a.status = device_array<Status>(1);
  uint32_t tag = 0;
  for (uint32_t cap : {0u, 3u, 12u}) {
    measure<Handoff::counter_bare>(a, grid, cap, tag);
    measure<Handoff::counter_data>(a, grid, cap, tag);
    measure<Handoff::flag_data>(a, grid, cap, tag);
  }
  return 0;
}
