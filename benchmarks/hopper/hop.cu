// One event hop between SMs: store visible + poll sees it + data read, idle and under the page
// stream. A token of 32 values goes round all CTAs; one lap of `grid` hops, timed by one SM's
// clock, is one sample. Every hop has its own cell, written once a launch; kernel boundaries
// separate launches. The tag is the launch number, so flag words are never reset; counters are,
// between launches.
#include "stream.cuh"

enum class Handoff { counter, flag_each, flag_watch };
constexpr const char* kNames[] = {"counter", "flag_each", "flag_watch"};

constexpr uint32_t kConsumers = 8;  // warps 0..7; warp 8 loads, warp 9 hops
constexpr uint32_t kThreads = (kConsumers + 2) * 32;
constexpr uint32_t kLaps = 40,
                   kFirst = 5;  // laps 0..4 see the stream ramp up; the last sees it end
constexpr uint32_t kLaunches = 6;
constexpr uint32_t kLine = 32;  // words of 4 bytes between counters: no two share a line

struct Args {
  Weights weights;
  uint32_t cap;  // pages in flight, 0: no stream
  uint32_t laps;
  uint32_t stride;         // the token goes from CTA c to c + stride
  uint32_t inverse;        // stride * inverse = 1 mod grid: the place of a CTA in the lap
  uint32_t tag;            // launch number, from 1
  uint64_t* words;         // [lap][cta][32] of {payload, tag}
  uint32_t* data;          // [lap][cta][32]
  uint32_t* counters;      // [lap][cta][kLine], 0 at the start, 1 once sent
  long long* stamps;       // [laps + 1] clock of CTA 0 at each start of a lap
  uint64_t* span_ns;       // [2] the same span on the global timer
  uint32_t *pages, *sums;  // [cta] what was streamed
  Status* status;
};

// Counter: 32 weak stores, warp barrier, one red.release.gpu by lane 0. The barrier puts the other
// lanes' stores before the release (cumulativity). At the other end lane 0's ld.acquire.gpu reads
// from the red, the warp barrier carries that to the other lanes, and their weak loads see the
// data. Flags: each lane's 64-bit word carries its own tag and is read with the size it was written
// with; no word says anything about another, so every lane checks its own. `flag_watch` lets one
// lane poll one word first: fewer polls in flight, and still every word is checked.
template <Handoff H>
__device__ __forceinline__ void send(const Args& a, uint32_t cell, uint32_t lane, uint32_t value) {
  if (H == Handoff::counter) {
    st_plain(a.data + cell * 32 + lane, value);
    __syncwarp();
    if (lane == 0) red_release_add(a.counters + cell * kLine, 1);
  } else {
    st_word(a.words + cell * 32 + lane, value, a.tag);
  }
}

template <Handoff H>
__device__ __forceinline__ bool receive(const Args& a, uint32_t cell, uint32_t lane,
                                        uint32_t& value) {
  bool ok = true;
  if (H == Handoff::counter) {
    if (lane == 0) ok = wait_counter(a.counters + cell * kLine, 1);
    ok = __shfl_sync(~0u, ok, 0);
    __syncwarp();
    value = ld_plain(a.data + cell * 32 + lane);
    return ok;
  }
  const uint64_t* word = a.words + cell * 32;
  if (H == Handoff::flag_watch) {
    if (lane == 0) ok = wait_word(word, a.tag, value);
    ok = __shfl_sync(~0u, ok, 0);
    if (!ok) return false;
  }
  return __all_sync(~0u, wait_word(word + lane, a.tag, value));
}

__device__ __forceinline__ uint32_t token(uint32_t tag, uint32_t lane) {
  return tag * 0x85EBCA6Bu + lane * 0x9E3779B9u;
}

// CTA 0 starts a lap and gets the token back; the others pass it on, each adding one.
template <Handoff H>
__device__ __forceinline__ void hop(const Args& a, uint32_t lane) {
  const uint32_t grid = gridDim.x, me = blockIdx.x;
  const uint32_t from = (me + grid - a.stride) % grid;
  const uint32_t place = me * a.inverse % grid;
  // Kept on chip: a release waits for the global stores before it, so for a stamp's too.
  __shared__ long long stamps[kLaps];
  uint32_t value = token(a.tag, lane), wrong = 0;
  bool ok = true;
  for (uint32_t lap = 0; lap < a.laps && ok; ++lap) {
    if (place != 0 || lap != 0) {
      ok = receive<H>(a, (place == 0 ? lap - 1 : lap) * grid + from, lane, value);
      if (!ok) break;
      wrong += value != token(a.tag, lane) + lap * grid + place - 1;
      value += 1;
    }
    if (place == 0 && lane == 0) {
      if (lap == 0) a.span_ns[0] = global_ns();
      stamps[lap] = clock64();
    }
    send<H>(a, lap * grid + me, lane, value);
  }
  if (place == 0 && ok) {
    ok = receive<H>(a, (a.laps - 1) * grid + from, lane, value);
    wrong += value != token(a.tag, lane) + a.laps * grid - 1;
    if (lane == 0) {
      a.span_ns[1] = global_ns();
      a.stamps[a.laps] = clock64();
#pragma unroll 1
      for (uint32_t lap = 0; lap < a.laps; ++lap) a.stamps[lap] = stamps[lap];
    }
  }
  if (wrong) atomicAdd(&a.status->mismatches, wrong);
  if (!ok && lane == 0) atomicAdd(&a.status->timeouts, 1);
}

template <Handoff H>
__global__ void __launch_bounds__(kThreads, 1) hop_kernel(const Args a) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ring_init(ring, kConsumers);
  __syncthreads();
  if (warp == kConsumers + 1) {
    hop<H>(a, lane);
    if (lane == 0) st_shared_relaxed(&ring.stop, 1);
  } else {
    stream_until_stopped<kConsumers>(ring, pages, a, warp, lane);
  }
}

// A stride near 0.36 of the grid and coprime to it: neighbours in the lap lie far apart.
uint32_t far_stride(uint32_t grid) {
  auto gcd = [](uint32_t a, uint32_t b) {
    while (b) std::swap(a %= b, b);
    return a;
  };
  uint32_t stride = std::max(1u, grid * 36 / 100);
  while (gcd(grid, stride) != 1) ++stride;
  return stride;
}

template <Handoff H>
void launch(Args& a, int grid, uint32_t cap, uint32_t laps, uint32_t& tag) {
  a.cap = cap, a.laps = laps, a.tag = ++tag;
  CK(cudaMemset(a.counters, 0, (size_t)kLaps * grid * kLine * sizeof(uint32_t)));
  CK(cudaMemset(a.sums, 0, grid * sizeof(uint32_t)));
  CK(cudaMemset(a.pages, 0, grid * sizeof(uint32_t)));
  launch_together(hop_kernel<H>, grid, kThreads, kRingBytes, a);
  require_clean(a.status, text("hop %s cap %u", kNames[(int)H], cap));
}

template <Handoff H>
void measure(Args a, int grid, uint32_t cap, uint32_t& tag) {
  launch<H>(a, grid, cap, 2, tag);  // a short one whose every page is checked
  check_stream_kernel<<<grid, 256>>>(a.weights, a.pages, a.sums, a.status);
  require_clean(a.status, text("hop %s cap %u: streamed pages", kNames[(int)H], cap));
  launch<H>(a, grid, cap, kLaps, tag);
  std::vector<double> hops, rates;
  for (uint32_t i = 0; i < kLaunches; ++i) {
    launch<H>(a, grid, cap, kLaps, tag);
    const auto stamps = to_host(a.stamps, kLaps + 1);
    const auto span = to_host(a.span_ns, 2);
    const double ns = (double)(span[1] - span[0]);
    const double us_per_clock = 1e-3 * ns / (double)(stamps[kLaps] - stamps[0]);
    for (uint32_t lap = kFirst; lap + 1 < kLaps; ++lap)
      hops.push_back((double)(stamps[lap + 1] - stamps[lap]) * us_per_clock / grid);
    double pages = 0;
    for (uint32_t n : to_host(a.pages, grid)) pages += n;
    rates.push_back(pages * kPage / ns);
  }
  const auto parameters = text("\"handoff\": \"%s\", \"cap\": %u", kNames[(int)H], cap);
  emit("hop", parameters, hops, "us");
  if (cap) emit("hop_stream", parameters, rates, "GB/s");
}

int main() {
  const int grid = sm_count();
  const size_t cells = (size_t)kLaps * grid;
  Args a{};
  a.weights = random_weights(2ull << 30, grid, 1);
  a.stride = far_stride(grid);
  for (a.inverse = 1; a.inverse * a.stride % grid != 1 % (uint32_t)grid;) ++a.inverse;
  a.words = device_array<uint64_t>(cells * 32);
  a.data = device_array<uint32_t>(cells * 32);
  a.counters = device_array<uint32_t>(cells * kLine);
  a.stamps = device_array<long long>(kLaps + 1);
  a.span_ns = device_array<uint64_t>(2);
  a.pages = device_array<uint32_t>(grid);
  a.sums = device_array<uint32_t>(grid);
  a.status = device_array<Status>(1);
  uint32_t tag = 0;
  for (uint32_t cap : {0u, 2u, 3u, 4u, 6u, 12u}) {
    measure<Handoff::counter>(a, grid, cap, tag);
    measure<Handoff::flag_each>(a, grid, cap, tag);
    measure<Handoff::flag_watch>(a, grid, cap, tag);
  }
  return 0;
}
