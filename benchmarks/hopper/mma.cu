// Are the accumulators of HMMA (mma.sync m16n8k16) and HGMMA (wgmma m64nNk16) the same bits? Same A
// and B in bf16, f32 accumulators that start at zero, k ascending by 16. Both results are checked
// against a float64 product first, so that "different" cannot mean a wrong layout.
//
// Packing, the same for A (64 rows) and B (N rows, K contiguous): [row / 8][k / 8][row % 8][k % 8],
// the unswizzled K-major form of wgmma in which a core matrix of 8 rows x 16 bytes is contiguous.
// With 256 of K in shared memory the leading offset (next core along k) is 128 bytes and the stride
// offset (next 8 rows) 4096.
#include <cmath>
#include <cstring>
#include <random>

#include "common.cuh"

constexpr uint32_t kM = 64, kMaxN = 64, kChunk = 256, kThreads = 128;
constexpr uint32_t kTiles = 32;  // independent random products, one CTA and one sample each
constexpr uint32_t kLeading = 128, kStride = kChunk / 8 * 128;

struct Args {
  const uint16_t* a;  // [tile][64][K]
  const uint16_t* b;  // [tile][64][K], of which the first N rows are used
  float* d;           // [tile][64][N]
  uint32_t k;
};

// Both paths leave element i of a thread at the same place: that of m16n8's C, tile after tile.
template <uint32_t N>
__device__ __forceinline__ void store(float* d, const float (&acc)[N / 2]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < N / 2; ++i) {
    const uint32_t row = warp * 16 + lane / 4 + (i / 2 % 2) * 8;
    const uint32_t col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    d[(blockIdx.x * kM + row) * N + col] = acc[i];
  }
}

template <uint32_t N>
__global__ void __launch_bounds__(kThreads) hmma_kernel(const Args args) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, K = args.k;
  const uint16_t* a = args.a + ((size_t)blockIdx.x * kM + warp * 16 + lane / 4) * K + lane % 4 * 2;
  const uint16_t* b = args.b + ((size_t)blockIdx.x * kMaxN + lane / 4) * K + lane % 4 * 2;
  auto pair = [](const uint16_t* p) { return *(const uint32_t*)p; };
  float acc[N / 2] = {};
  for (uint32_t k = 0; k < K; k += 16) {
    const uint32_t a0 = pair(a + k), a1 = pair(a + 8 * K + k);
    const uint32_t a2 = pair(a + k + 8), a3 = pair(a + 8 * K + k + 8);
#pragma unroll
    for (uint32_t n = 0; n < N / 8; ++n) {
      float* c = acc + n * 4;
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(pair(b + n * 8 * K + k)),
            "r"(pair(b + n * 8 * K + k + 8)));
    }
  }
  store<N>(args.d, acc);
}

__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  auto field = [](uint32_t bytes) { return (uint64_t)((bytes & 0x3FFFF) >> 4); };
  return field(address) | field(kLeading) << 16 |
         field(kStride) << 32;  // bits 62..63 zero: no swizzle
}

// The operand list of wgmma is as long as the accumulator, hence one text a shape.
#define WGMMA(n, regs, da, db, on)                                                  \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " on                                            \
  ", 0;\n"                                                                          \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" regs "}, " da ", " db \
  ", p, 1, 1, 0, 0;\n}"
#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(i) ACC4(i), ACC4(i + 4), ACC4(i + 8), ACC4(i + 12)
#define R4 "%0, %1, %2, %3"
#define R8 R4 ", %4, %5, %6, %7"
#define R16 R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define R32 R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

__device__ __forceinline__ void wgmma(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile(WGMMA("8", R4, "%4", "%5", "%6") : ACC4(0) : "l"(a), "l"(b), "r"(1));
}
__device__ __forceinline__ void wgmma(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(WGMMA("16", R8, "%8", "%9", "%10") : ACC4(0), ACC4(4) : "l"(a), "l"(b), "r"(1));
}
__device__ __forceinline__ void wgmma(float (&d)[16], uint64_t a, uint64_t b) {
  asm volatile(WGMMA("32", R16, "%16", "%17", "%18") : ACC16(0) : "l"(a), "l"(b), "r"(1));
}
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(WGMMA("64", R32, "%32", "%33", "%34")
               : ACC16(0), ACC16(16)
               : "l"(a), "l"(b), "r"(1));
}

// Packs `rows` rows of up to 256 of K, 16 bytes a thread and step.
__device__ __forceinline__ void pack(char* to, const uint16_t* from, uint32_t rows, uint32_t K,
                                     uint32_t k0, uint32_t width) {
  for (uint32_t i = threadIdx.x; i < rows * (width / 8); i += kThreads) {
    const uint32_t row = i / (width / 8), core = i % (width / 8);
    const uint4 v = *(const uint4*)(from + (size_t)row * K + k0 + core * 8);
    *(uint4*)(to + row / 8 * kStride + core * kLeading + row % 8 * 16) = v;
  }
}

// Steps of 16 along k in one group, chained through the accumulators as a real kernel would.
template <uint32_t N, uint32_t Steps>
__device__ __forceinline__ void multiply(float (&acc)[N / 2], uint32_t a, uint32_t b) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (uint32_t s = 0; s < Steps; ++s)
    wgmma(acc, descriptor(a + s * 2 * kLeading), descriptor(b + s * 2 * kLeading));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// K is 16 or a multiple of 256.
template <uint32_t N>
__global__ void __launch_bounds__(kThreads) hgmma_kernel(const Args args) {
  extern __shared__ __align__(1024) char shared[];
  char *sa = shared, *sb = shared + kM / 8 * kStride;
  float acc[N / 2] = {};
  for (uint32_t k0 = 0; k0 < args.k; k0 += kChunk) {
    const uint32_t width = min(kChunk, args.k - k0);
    pack(sa, args.a + (size_t)blockIdx.x * kM * args.k, kM, args.k, k0, width);
    pack(sb, args.b + (size_t)blockIdx.x * kMaxN * args.k, N, args.k, k0, width);
    fence_proxy_async_shared();  // generic writes, then reads of the async proxy
    __syncthreads();
    if (width == kChunk)
      multiply<N, kChunk / 16>(acc, smem(sa), smem(sb));
    else
      multiply<N, 1>(acc, smem(sa), smem(sb));
    __syncthreads();  // all warps have read the chunk
  }
  store<N>(args.d, acc);
}

// ---- Data. Each kind writes A [tile][64][K] and B [tile][64][K].

float from_bf16(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint16_t to_bf16(double x) {
  const float f = (float)x;
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

struct Data {
  std::vector<uint16_t> a, b;
};

// normal; wide: exponents over 40 binades; cancel: neighbours in k of opposite sign that differ in
// the last bit at most, at large magnitude; tiny: products around the smallest normal f32.
Data make(const std::string& kind, uint32_t K, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-20, 20);
  const size_t count = (size_t)kTiles * kM * K;
  Data data{std::vector<uint16_t>(count), std::vector<uint16_t>(count)};
  auto draw = [&]() -> double {
    const double x = normal(random);
    if (kind == "wide") return std::ldexp(x, (int)exponent(random));
    if (kind == "tiny") return std::ldexp(x, -64);
    if (kind == "cancel") return std::ldexp(x, (int)exponent(random) / 3 + 6);
    return x;
  };
  for (size_t i = 0; i < count; ++i) {
    data.a[i] = to_bf16(draw());
    data.b[i] = to_bf16(draw());
    if (kind == "cancel" && i % 2) {
      data.a[i] = data.a[i - 1];
      data.b[i] = (uint16_t)((data.b[i - 1] ^ 0x8000) ^ (random() % 4 == 0));
    }
  }
  return data;
}

// Rounding or truncating K sums stays below 1e-3 of the sum of magnitudes; a wrong layout does not.
// Subnormals may be flushed, up to 2^-126 a term, which lets everything of `tiny` pass: its layout
// is that of the other kinds.
bool is_close(const Data& data, const std::vector<float>& d, uint32_t N, uint32_t K,
              const std::string& where) {
  for (uint32_t tile : {0u, kTiles - 1})
    for (uint32_t m = 0; m < kM; ++m)
      for (uint32_t n = 0; n < N; ++n) {
        const uint16_t* a = &data.a[((size_t)tile * kM + m) * K];
        const uint16_t* b = &data.b[((size_t)tile * kMaxN + n) * K];
        double sum = 0, magnitude = 0;
        for (uint32_t k = 0; k < K; ++k) {
          const double x = (double)from_bf16(a[k]) * from_bf16(b[k]);
          sum += x, magnitude += std::fabs(x);
        }
        const double got = d[(tile * kM + m) * N + n];
        if (std::fabs(got - sum) <= 1e-3 * magnitude + K * 0x1p-126) continue;
        std::fprintf(stderr, "%s: tile %u row %u column %u is %g, should be %g\n", where.c_str(),
                     tile, m, n, got, sum);
        return false;
      }
  return true;
}

int64_t ordered(float f) {  // neighbours in value are neighbours in number; both zeros are 0
  int32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits >= 0 ? bits : (int64_t)INT32_MIN - bits;
}

void compare(const std::vector<float>& x, const std::vector<float>& y, uint32_t N, uint32_t K,
             const std::string& kind) {
  std::vector<double> equal;
  int64_t most = 0;
  double scaled = 0;
  const size_t size = (size_t)kM * N;
  for (uint32_t tile = 0; tile < kTiles; ++tile) {
    size_t same = 0;
    double largest = 0, apart = 0;
    for (size_t i = tile * size; i < (tile + 1) * size; ++i) {
      same += std::memcmp(&x[i], &y[i], 4) == 0;
      most = std::max<int64_t>(most, std::llabs(ordered(x[i]) - ordered(y[i])));
      largest = std::max(largest, std::fabs((double)x[i]));
      apart = std::max(apart, std::fabs((double)x[i] - (double)y[i]));
    }
    equal.push_back((double)same / (double)size);
    if (largest > 0) scaled = std::max(scaled, apart / largest);
  }
  emit("hmma_equals_hgmma",
       text("\"data\": \"%s\", \"n\": %u, \"k\": %u, \"elements\": %zu, \"max_ulp\": %lld, "
            "\"max_difference_over_max\": %.3g",
            kind.c_str(), N, K, size * kTiles, (long long)most, scaled),
       equal, "fraction of elements bit-equal");
}

template <uint32_t N>
std::vector<float> run(void (*kernel)(Args), Args args) {
  const size_t count = (size_t)kTiles * kM * N;
  const uint32_t shared = (kM + kMaxN) / 8 * kStride;
  CK(cudaMemset(args.d, 0xFF, count * sizeof(float)));  // NaN where nothing is written
  CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  kernel<<<kTiles, kThreads, shared>>>(args);
  CK(cudaGetLastError());
  CK(cudaDeviceSynchronize());
  return to_host(args.d, count);
}

// False if a product is wrong: its bits are then not compared, and the other cases still are.
template <uint32_t N>
bool measure(const Data& data, const Args& args, const std::string& kind) {
  const auto x = run<N>(hmma_kernel<N>, args), y = run<N>(hgmma_kernel<N>, args);
  const auto where = text("%s n %u k %u", kind.c_str(), N, args.k);
  const bool right = is_close(data, x, N, args.k, "hmma " + where) &&
                     is_close(data, y, N, args.k, "hgmma " + where);
  if (right) compare(x, y, N, args.k, kind);
  return right;
}

int main() {
  const size_t most = (size_t)kTiles * kM * 2048;
  uint16_t *a = device_array<uint16_t>(most), *b = device_array<uint16_t>(most);
  float* d = device_array<float>((size_t)kTiles * kM * kMaxN);
  bool right = true;
  for (const char* kind : {"normal", "wide", "cancel", "tiny"})
    for (uint32_t K : {16u, 256u, 2048u}) {
      const Data data = make(kind, K, 7 + K);
      CK(cudaMemcpy(a, data.a.data(), data.a.size() * 2, cudaMemcpyHostToDevice));
      CK(cudaMemcpy(b, data.b.data(), data.b.size() * 2, cudaMemcpyHostToDevice));
      const Args args{a, b, d, K};
      right &= measure<8>(data, args, kind);
      right &= measure<16>(data, args, kind);
      right &= measure<32>(data, args, kind);
      right &= measure<64>(data, args, kind);
    }
  return right ? 0 : 2;
}
