// What programmatic dependent launch saves between two steps of a persistent kernel: one CTA an SM,
// 200 KB of shared memory, about 50 us of streaming a step, 20 steps in one CUDA graph. Two CTAs do
// not fit an SM, so a step's CTA starts when the one before it on that SM has ended; with PDL it
// need not wait for the other SMs before it initialises barriers and asks for its first pages.
//
// Order. Before griddepcontrol.wait only weights are read, which no step writes. Each step has its
// own row of results, and reads the row before it after the wait, which returns when the step
// before has ended and its stores are visible; it had waited in turn, so all earlier ones have
// ended too.
#include "stream.cuh"

constexpr uint32_t kConsumers = 8;
constexpr uint32_t kThreads = (kConsumers + 1) * 32;
constexpr uint32_t kSteps = 20;
constexpr uint32_t kPagesPerStep = 104;  // 104 pages x 132 SMs: 225 MB, 49 us at 4.55 TB/s
constexpr uint32_t kShared = 200 * 1024;
constexpr uint32_t kWarm = 3, kSamples = 30;
static_assert(kShared >= kRingBytes);

struct Args {
  Weights weights;         // of this step
  uint32_t pages;          // of a CTA in this step
  uint32_t early;          // ask for pages before the wait
  const uint32_t* before;  // [cta] results of the step before, null in the first
  uint32_t* result;        // [cta]
  Status* status;
};

__device__ __forceinline__ void wait_for_step_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_next_step_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__host__ __device__ inline uint32_t rotate(uint32_t x) { return x << 1 | x >> 31; }

__global__ void __launch_bounds__(kThreads, 1) step_kernel(const Args a) {
  extern __shared__ __align__(1024) char pages[];
  __shared__ Ring ring;
  __shared__ uint32_t sum;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  let_next_step_start();
  if (!a.early) wait_for_step_before();
  if (threadIdx.x == 0) {
    ring_init(ring, kConsumers);
    sum = 0;
  }
  __syncthreads();
  bool ok = true;
  if (warp == kConsumers) {  // never waits: a lane that does could hold up the one that loads
    if (lane == 0) {
      WeightWalk walk(a.weights);
      uint32_t left = a.pages;
      auto next = [&] { return PageRef{left-- ? walk.next() : nullptr, 0}; };
      load_pages(ring, pages, kRing, true, next, ok);
    }
  } else {
    wait_for_step_before();
    uint32_t fold = 0;  // the activations of a real step: all results of the one before
    if (a.before != nullptr && warp == 0)
      for (uint32_t i = lane; i < gridDim.x; i += 32) fold ^= rotate(ld_plain(a.before + i));
    fold ^= consume_pages<kConsumers>(ring, pages, warp, lane, ok);
    fold = __reduce_xor_sync(~0u, fold);
    if (lane == 0) atomicXor(&sum, fold);
  }
  if (!ok) atomicAdd(&a.status->timeouts, 1);
  __syncthreads();
  if (threadIdx.x == 0) st_plain(a.result + blockIdx.x, sum);
}

struct Mode {
  const char* name;
  bool pdl, cooperative, early;
};

cudaError_t launch_step(const Args& a, int grid, const Mode& mode, bool first,
                        cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = attributes;
  if (mode.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (mode.pdl && !first) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  return cudaLaunchKernelEx(&config, step_kernel, a);
}

struct Bench {
  int grid;
  Weights all;        // kSteps steps, one after the other: each reads its own 225 MB
  uint32_t* results;  // [kSteps][grid]
  Status* status;
  cudaStream_t stream;

  Weights weights_of(uint32_t step) const {
    return {all.base + (uint64_t)step * kPagesPerStep * grid * kPage, kPagesPerStep};
  }

  // A graph of 20 steps, or (no mode) of one step that streams as much: what boundaries cost is the
  // rest.
  cudaError_t capture(const Mode* mode, cudaGraphExec_t* out) const {
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaError_t refused = cudaSuccess;
    if (mode == nullptr) {
      const Args a{all, kSteps * kPagesPerStep, 1, nullptr, results, status};
      refused = launch_step(a, grid, Mode{"", false, false, true}, true, stream);
    } else {
      for (uint32_t s = 0; s < kSteps && refused == cudaSuccess; ++s) {
        const uint32_t* before = s ? results + (s - 1) * grid : nullptr;
        const Args a{weights_of(s), kPagesPerStep, mode->early, before, results + s * grid, status};
        refused = launch_step(a, grid, *mode, s == 0, stream);
      }
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (refused == cudaSuccess) refused = ended;
    if (refused == cudaSuccess) refused = cudaGraphInstantiate(out, graph, 0);
    if (graph != nullptr) CK(cudaGraphDestroy(graph));
    cudaGetLastError();  // a refusal is a result, not a failure of what follows
    return refused;
  }

  // Poisons the results, so that a step which reads too early is seen, replays, and takes the chain
  // apart: what is left of a result must be the xor of the CTA's pages.
  void check(cudaGraphExec_t graph, const std::string& where) const {
    CK(cudaMemsetAsync(results, 0xA5, kSteps * grid * sizeof(uint32_t), stream));
    CK(cudaGraphLaunch(graph, stream));
    CK(cudaStreamSynchronize(stream));
    require_clean(status, where);
    auto sums = to_host(results, kSteps * grid);
    for (uint32_t s = kSteps; s-- > 1;) {
      uint32_t all_before = 0;
      for (int c = 0; c < grid; ++c) all_before ^= sums[(s - 1) * grid + c];
      for (int c = 0; c < grid; ++c) sums[s * grid + c] ^= rotate(all_before);
    }
    const std::vector<uint32_t> counts(grid, kPagesPerStep);
    uint32_t *device_sums = device_array<uint32_t>(sums.size()),
             *pages = device_array<uint32_t>(grid);
    CK(cudaMemcpy(device_sums, sums.data(), sums.size() * 4, cudaMemcpyHostToDevice));
    CK(cudaMemcpy(pages, counts.data(), counts.size() * 4, cudaMemcpyHostToDevice));
    for (uint32_t s = 0; s < kSteps; ++s)
      check_stream_kernel<<<grid, 256>>>(weights_of(s), pages, device_sums + s * grid, status);
    require_clean(status, where + ": results");
    CK(cudaFree(device_sums));
    CK(cudaFree(pages));
  }

  std::vector<double> time_us(cudaGraphExec_t graph, const std::string& where) const {
    cudaEvent_t from, to;
    CK(cudaEventCreate(&from));
    CK(cudaEventCreate(&to));
    std::vector<double> samples;
    for (uint32_t i = 0; i < kWarm + kSamples; ++i) {
      float ms = 0;
      CK(cudaEventRecord(from, stream));
      CK(cudaGraphLaunch(graph, stream));
      CK(cudaEventRecord(to, stream));
      CK(cudaStreamSynchronize(stream));
      CK(cudaEventElapsedTime(&ms, from, to));
      if (i >= kWarm) samples.push_back(ms * 1e3 / kSteps);
    }
    require_clean(status, where);
    CK(cudaEventDestroy(from));
    CK(cudaEventDestroy(to));
    return samples;
  }
};

int main() {
  const int grid = sm_count();
  CK(cudaFuncSetAttribute(step_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kShared));
  Bench bench{};
  bench.grid = grid;
  bench.all = random_weights((uint64_t)kSteps * kPagesPerStep * grid * kPage, grid, 5);
  bench.results = device_array<uint32_t>((size_t)kSteps * grid);
  bench.status = device_array<Status>(1);
  CK(cudaStreamCreate(&bench.stream));
  const double megabytes = (double)kPagesPerStep * grid * kPage * 1e-6;

  cudaGraphExec_t graph;
  CK(bench.capture(nullptr, &graph));
  const auto whole = bench.time_us(graph, "one launch");
  CK(cudaGraphExecDestroy(graph));
  emit("step", text("\"mode\": \"no_boundaries\", \"step_mb\": %.1f", megabytes), whole, "us");
  std::vector<double> sorted = whole;
  std::sort(sorted.begin(), sorted.end());
  const double floor = quantile(sorted, 0.5);

  const Mode modes[] = {
      {"plain", false, false, true},          {"pdl", true, false, true},
      {"pdl_wait_first", true, false, false}, {"cooperative", false, true, true},
      {"cooperative_pdl", true, true, true},
  };
  for (const Mode& mode : modes) {
    const cudaError_t refused = bench.capture(&mode, &graph);
    if (refused != cudaSuccess) {
      std::printf("{\"name\": \"step\", \"mode\": \"%s\", \"error\": \"%s\"}\n", mode.name,
                  cudaGetErrorString(refused));
      continue;
    }
    const std::string where = std::string("pdl ") + mode.name;
    for (int i = 0; i < 3; ++i) bench.check(graph, where);
    auto us = bench.time_us(graph, where);
    bench.check(graph, where);
    CK(cudaGraphExecDestroy(graph));
    emit("step", text("\"mode\": \"%s\", \"step_mb\": %.1f", mode.name, megabytes), us, "us");
    for (double& x : us) x -= floor;
    emit("step_boundary", text("\"mode\": \"%s\"", mode.name), us, "us over no_boundaries");
  }
  return 0;
}
