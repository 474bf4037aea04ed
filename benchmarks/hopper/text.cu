// Instructions per clock as the hot text grows past the instruction caches. A kernel runs a loop of
// N KB of straight FMAs (16 bytes an instruction) on every SM; `together` starts all warps at the
// top, `rotated` spreads them over the text, as warps in different phases would be. With a stream,
// a loader keeps 3 pages in flight, so that fetches that miss queue behind our own copies. Only
// FMAs are counted; the branch between two segments of 4 KB adds 3% of instructions at every size.
#include <cmath>

#include "stream.cuh"

constexpr uint32_t kSegment = 4;                 // KB between two possible starts
constexpr uint32_t kOps = kSegment * 1024 / 16;  // FMAs a segment
constexpr uint32_t kChains = 8;                  // independent FMAs: latency is not the limit
constexpr uint32_t kWork = 1u << 17;             // FMAs a warp, about
constexpr uint32_t kSamples = 20;
constexpr float kScale = -0.99951171875f, kShift = 0.7310585975646973f;

struct Args {
  Weights weights;
  uint32_t cap, warps, rounds, rotated;
  float scale, shift;  // arguments, so that nothing is folded
  float* out;          // [cta][warp][32][kChains]
  long long* clocks;   // [cta] from the first warp's start to the last one's end
  Status* status;
};

// Round 0 runs segments from the warp's start on and round `rounds` those before it: every warp
// executes every segment `rounds` times.
template <uint32_t KB>
__device__ __forceinline__ void run_text(const Args& a, uint32_t start, float (&x)[kChains]) {
#pragma unroll 1
  for (uint32_t round = 0; round <= a.rounds; ++round) {
#pragma unroll
    for (uint32_t s = 0; s < KB / kSegment; ++s) {
      const bool skip = (round == 0 && s < start) || (round == a.rounds && s >= start);
      if (skip) continue;
#pragma unroll
      for (uint32_t i = 0; i < kOps; ++i)
        asm volatile("fma.rn.f32 %0, %0, %1, %2;"
                     : "+f"(x[i % kChains])
                     : "f"(a.scale), "f"(a.shift));
    }
  }
}

template <uint32_t KB>
__global__ void __launch_bounds__(17 * 32, 1) text_kernel(const Args a) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  __shared__ uint32_t finished;
  __shared__ unsigned long long first, last;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring_init(ring, 1);
    finished = 0;
    first = ~0ull;
    last = 0;
  }
  __syncthreads();
  if (warp == a.warps) {  // the loader: ends when the last warp has
    if (lane == 0 && a.cap != 0) {
      bool ok;
      WeightWalk walk(a.weights);
      auto next = [&] {
        return PageRef{ld_shared_relaxed(&finished) == a.warps ? nullptr : walk.next(), 0};
      };
      load_pages(ring, pages, a.cap, false, next, ok);
      if (!ok) atomicAdd(&a.status->timeouts, 1);
    }
  } else {
    float x[kChains];
#pragma unroll
    for (uint32_t i = 0; i < kChains; ++i) x[i] = (float)i;
    const uint32_t start = a.rotated ? warp * (KB / kSegment) / a.warps : 0;
    const unsigned long long from = clock64();
    run_text<KB>(a, start, x);
    const unsigned long long to = clock64();
    if (lane == 0) {
      atomicMin(&first, from);
      atomicMax(&last, to);
      atomicAdd(&finished, 1);
    }
#pragma unroll
    for (uint32_t i = 0; i < kChains; ++i)
      a.out[((blockIdx.x * a.warps + warp) * 32 + lane) * kChains + i] = x[i];
  }
  __syncthreads();
  if (threadIdx.x == 0) a.clocks[blockIdx.x] = (long long)(last - first);
}

// Every chain of every thread has done the same FMAs: compare with the host's.
void require_right(const Args& a, int grid, uint32_t per_chain, const std::string& where) {
  float want[kChains];
  for (uint32_t i = 0; i < kChains; ++i) {
    want[i] = (float)i;
    for (uint32_t k = 0; k < per_chain; ++k) want[i] = std::fmaf(want[i], kScale, kShift);
  }
  const auto out = to_host(a.out, (size_t)grid * a.warps * 32 * kChains);
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != want[i % kChains]) {
      std::fprintf(stderr, "%s: value %zu is %g, should be %g\n", where.c_str(), i, out[i],
                   want[i % kChains]);
      std::exit(2);
    }
}

// Emits the rate and what is lost against `best` (0: against itself); returns the rate.
template <uint32_t KB>
double measure(Args a, int grid, double best) {
  static_assert(KB % kSegment == 0);
  const uint32_t ops = KB * 1024 / 16;
  a.rounds = std::max(2u, kWork / ops);
  const auto where = text("text %u KB, %u warps", KB, a.warps);
  std::vector<double> ipc;
  for (uint32_t i = 0; i < kSamples + 2; ++i) {
    CK(cudaMemset(a.out, 0xFF, (size_t)grid * a.warps * 32 * kChains * sizeof(float)));
    launch_together(text_kernel<KB>, grid, (int)(a.warps + 1) * 32, kRingBytes, a);
    require_clean(a.status, where);
    if (i == 0) require_right(a, grid, a.rounds * ops / kChains, where);
    if (i < 2) continue;
    std::vector<double> each;
    for (long long clocks : to_host(a.clocks, grid))
      each.push_back((double)a.rounds * ops * a.warps / (double)clocks);
    std::sort(each.begin(), each.end());
    ipc.push_back(quantile(each, 0.5));
  }
  std::sort(ipc.begin(), ipc.end());
  const double rate = quantile(ipc, 0.5);
  emit("hot_text",
       text("\"text_kb\": %u, \"warps\": %u, \"start\": \"%s\", \"cap\": %u, \"lost\": %.4f", KB,
            a.warps, a.rotated ? "rotated" : "together", a.cap, best > 0 ? 1 - rate / best : 0.0),
       ipc, "instructions per clock and SM");
  return rate;
}

int main() {
  const int grid = sm_count();
  Args a{};
  a.weights = random_weights(1ull << 30, grid, 6);
  a.scale = kScale, a.shift = kShift;
  a.out = device_array<float>((size_t)grid * 16 * 32 * kChains);
  a.clocks = device_array<long long>(grid);
  a.status = device_array<Status>(1);
  for (uint32_t cap : {0u, 3u})
    for (uint32_t rotated : {0u, 1u})
      for (uint32_t warps : {4u, 12u, 16u}) {
        a.cap = cap, a.rotated = rotated, a.warps = warps;
        const double best = measure<8>(a, grid, 0);
        measure<32>(a, grid, best);
        measure<64>(a, grid, best);
        measure<100>(a, grid, best);
        measure<148>(a, grid, best);
      }
  return 0;
}
