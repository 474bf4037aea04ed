// Numbers: storage types, conversions and the operations whose result is fixed to the bit.
// Sums run in 16 strided lanes and a halving tree; min and max pass NaN on; // and % floor.
#pragma once
#include "portable.h"

namespace et {

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

ET_FN int leading_zeros(uint64_t x) {
#if defined(__CUDA_ARCH__)
  return __clzll(int64_t(x));
#else
  return __builtin_clzll(x);
#endif
}
ET_FN uint32_t float_bits(float x) { uint32_t u; std::memcpy(&u, &x, 4); return u; }
ET_FN float bits_float(uint32_t u) { float x; std::memcpy(&x, &u, 4); return x; }

// ---- storage to tile: bf16 and f16 become float, u8 becomes int32 --------------------------
ET_FN float value(float x) { return x; }
ET_FN int32_t value(int32_t x) { return x; }
ET_FN int64_t value(int64_t x) { return x; }
ET_FN bool value(bool x) { return x; }
ET_FN int32_t value(uint8_t x) { return x; }
ET_FN float value(bf16 x) { return bits_float(uint32_t(x.bits) << 16); }

ET_FN float value(f16 h) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
  if (x == x) return x;  // a NaN keeps its bits below
#elif defined(__aarch64__) && !defined(__CUDACC__)
  __fp16 half;
  std::memcpy(&half, &h.bits, 2);
  const float x = half;
  if (x == x) return x;
#endif
  const uint32_t sign = uint32_t(h.bits & 0x8000u) << 16;
  const uint32_t rest = h.bits & 0x7fffu;
  if (rest >= 0x7c00u) return bits_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest >= 0x0400u) return bits_float(sign | ((rest << 13) + 0x38000000u));
  return bits_float(sign | float_bits(float(rest) * 0x1p-24f));  // subnormal: exact
}

// ---- tile to storage: round to nearest, ties to even; NaN stays one, of whatever sign and bits ----
ET_FN bf16 to_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;  // of two: one alone is converted four times slower
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  return {uint16_t(bits)};
#else
  const uint32_t u = float_bits(x), bits = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint16_t nan = uint16_t((u >> 31 << 15) | 0x7fc0u);
  return {(u & 0x7fffffffu) > 0x7f800000u ? nan : uint16_t(bits)};
#endif
}

ET_FN f16 to_f16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  if (x == x) return {bits};
#elif defined(__aarch64__) && !defined(__CUDACC__)
  const __fp16 half = __fp16(x);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  if (x == x) return {bits};
#endif
  const uint32_t u = float_bits(x);
  const uint16_t sign = uint16_t((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {uint16_t(sign | 0x7e00u | ((a >> 13) & 0x3ffu))};
  if (a >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};  // 65520 and above: infinity
  if (a < 0x38800000u) {                                     // subnormal or zero
    // Adding 0.5 puts the unit of the last half-precision bit at the float's last bit.
    const float moved = bits_float(a) + 0.5f;
    return {uint16_t(sign | (float_bits(moved) - 0x3f000000u))};
  }
  return {uint16_t(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13))};
}

// Float to integer: towards zero, ends of the range beyond it, 0 for NaN.
template <class T> ET_FN T truncate(float x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, int32_t>) {  // one instruction means the same
    int32_t whole;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(whole) : "f"(x));
    return whole;
  }
#endif
  if (x != x) return 0;
  if (x <= float(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (x >= float(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <class T, class S>
ET_FN T cast(S x) {
  if constexpr (std::is_same_v<T, bf16>) return to_bf16(float(x));
  else if constexpr (std::is_same_v<T, f16>) return to_f16(float(x));
  else if constexpr (std::is_same_v<T, bool>) return x != S(0);
  else if constexpr (std::is_same_v<T, uint8_t> && std::is_floating_point_v<S>)
    return uint8_t(truncate<int32_t>(x));
  else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<S>) return truncate<T>(x);
  else return static_cast<T>(x);
}

// ---- element-wise --------------------------------------------------------------------------
template <class T> ET_FN T lowest() {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::lowest();
}
template <class T> ET_FN T highest() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::max();
}
template <class T> ET_FN T max(T a, T b) { return (a >= b || a != a) ? a : b; }
template <class T> ET_FN T min(T a, T b) { return (a <= b || a != a) ? a : b; }
template <class T> ET_FN T abs(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
  else return a < 0 ? T(-a) : a;
}
ET_FN float rsqrt(float x) { return 1.0f / std::sqrt(x); }

#if defined(__CUDACC__)
ET_FN float exp(float x) { return std::exp(x); }
#else
// Within 1 ulp, without branches or calls, so that loops of it become vectors; the same bits alone
// and in a vector. e^x = 2^n e^r with |r| <= ln 2 / 2. The scale is two factors, since 2^n may be
// beyond what a float holds; a product with the second one rounds a subnormal once.
inline float exp(float x) {
  constexpr float WHOLE = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const float held = x > 90.0f ? 90.0f : x < -105.0f ? -105.0f : x;
  const float shifted = std::fma(held, 0x1.715476p0f, WHOLE);
  const float n = shifted - WHOLE;
  const int32_t power = int32_t(float_bits(shifted) - float_bits(WHOLE));
  const float r = std::fma(n, -0x1.7f7d1cp-20f, std::fma(n, -0x1.62e4p-1f, held));
  const float z = r * r;
  const float high = std::fma(1.9875691500e-4f, r, 1.3981999507e-3f),
              middle = std::fma(8.3334519073e-3f, r, 4.1665795894e-2f),
              low = std::fma(1.6666665459e-1f, r, 5.0000001201e-1f);
  const float p = 1.0f + std::fma(std::fma(std::fma(high, z, middle), z, low), z, r);
  const int32_t half = power >> 1;
  const uint32_t first = uint32_t(half + 127) << 23, second = uint32_t(power - half + 127) << 23;
  return p * bits_float(first) * bits_float(second);
}
#endif
// 1 / x for x of 1 or more, within 1 ulp, without the branch that a division has. A quarter of x, so
// that the unit finds no result too small for it.
ET_FN float one_over(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0.25f));
  return y * 0.25f;
#else
  return 1.0f / x;
#endif
}
ET_FN float sigmoid(float x) { return one_over(1.0f + et::exp(-x)); }

// As NumPy: NaN stays, and both zeros give 0.
template <class T> ET_FN T sign(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return x;
  }
  return T((x > T(0)) - (x < T(0)));
}

// Shifts by less than 0, or by all bits or more, leave no bit of the number but its sign.
template <class T> ET_FN T shift_left(T x, T by) {
  constexpr int BITS = 8 * sizeof(T);
  return by >= 0 && by < BITS ? T(uint64_t(x) << by) : T(0);
}
template <class T> ET_FN T shift_right(T x, T by) {
  constexpr int BITS = 8 * sizeof(T);
  return x >> (by >= 0 && by < BITS ? by : T(BITS - 1));
}

// As NumPy: division by zero gives 0 for integers and the IEEE value for floats.
template <class T> ET_FN T floor_div(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == T(0)) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && ((b < T(0)) != (rest < T(0)))) quotient -= T(1);
    if (quotient == T(0)) return std::copysign(T(0), a / b);
    const T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  } else {
    if (b == 0) return 0;
    if (b == -1) return T(0) - a;
    const T q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
  }
}
template <class T> ET_FN T floor_mod(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rest = std::fmod(a, b);
    if (b == T(0)) return rest;
    if (rest == T(0)) return std::copysign(T(0), b);
    return ((b < T(0)) != (rest < T(0))) ? rest + b : rest;
  } else {
    if (b == 0 || b == -1) return 0;
    const T rest = a % b;
    return (rest != 0 && ((rest < 0) != (b < 0))) ? rest + b : rest;
  }
}

// Index arithmetic that floors. k is positive and nearly always a literal, so that the test folds
// away; most are powers of two, for which a shift saves a page of instructions on a GPU.
ET_FN int64_t div(int64_t a, int64_t k) {
  if ((k & (k - 1)) == 0) return a >> (63 - leading_zeros(uint64_t(k)));
  return a >= 0 ? a / k : -((k - 1 - a) / k);
}
ET_FN int64_t mod(int64_t a, int64_t k) {
  if ((k & (k - 1)) == 0) return a & (k - 1);
  const int64_t r = a % k;
  return r < 0 ? r + k : r;
}

// ---- along an axis -------------------------------------------------------------------------
constexpr int LANES = 16;

template <class T> ET_FN T halve(T* lane) {
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
  return lane[0];
}

// sum of at(0) .. at(n-1): lane k % 16 takes element k, in index order; then the halving tree.
template <class T, class F> ET_FN T lane_sum(int64_t n, F at) {
  T lane[LANES] = {};
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES)
ET_UNROLL_16
    for (int l = 0; l < LANES; ++l) lane[l] = lane[l] + T(at(k + l));
  for (int l = 0; k + l < n; ++l) lane[l] = lane[l] + T(at(k + l));
  return halve(lane);
}
template <class T, class F> ET_FN T fold_max(int64_t n, F at) {
  T best = lowest<T>();
  for (int64_t k = 0; k < n; ++k) best = et::max<T>(best, at(k));
  return best;
}
template <class T, class F> ET_FN T fold_min(int64_t n, F at) {
  T best = highest<T>();
  for (int64_t k = 0; k < n; ++k) best = et::min<T>(best, at(k));
  return best;
}

// Order of argmax and top-k: NaN counts as smallest, the lowest index wins ties.
template <class T> ET_FN bool before(T a, T b) { return a > b || (b != b && a == a); }

// The place of the largest of at(first) .. at(n-1) and of at(best), the largest before them.
template <class T, class F>
ET_FN int32_t arg_max_from(int64_t best, int64_t first, int64_t n, F at) {
  if (n <= first) return int32_t(best);
  T top = at(best);
  for (int64_t k = first; k < n; ++k) {
    const T x = at(k);
    if (before<T>(x, top)) { best = k; top = x; }
  }
  return int32_t(best);
}
#if defined(__CUDACC__)
template <class T, class F> ET_FN int32_t arg_max(int64_t n, F at) {
  return arg_max_from<T>(0, 1, n, at);
}
#else
// In lanes, each with the block of 16 in which its largest value came first.
template <class T, class F> inline int32_t arg_max(int64_t n, F at) {
  T lane[LANES];
  int32_t block[LANES];
  for (int l = 0; l < LANES; ++l) { lane[l] = lowest<T>(); block[l] = -1; }
  const int32_t blocks = int32_t(n / LANES);
  for (int32_t k = 0; k < blocks; ++k)
ET_UNROLL_16
    for (int l = 0; l < LANES; ++l) {
      const T x = at(int64_t(k) * LANES + l);
      block[l] = x > lane[l] ? k : block[l];
      lane[l] = x > lane[l] ? x : lane[l];
    }
  int64_t best = -1;
  for (int l = 0; l < LANES; ++l) {
    const int64_t found = int64_t(block[l]) * LANES + l;
    if (block[l] < 0) continue;
    if (best < 0 || lane[l] > T(at(best)) || (lane[l] == T(at(best)) && found < best)) best = found;
  }
  if (best < 0) return arg_max_from<T>(0, 1, n, at);  // nothing above the lowest value
  return arg_max_from<T>(best, int64_t(blocks) * LANES, n, at);
}
#endif

// Indices of the `count` largest into order[0..count): insertion, stable in the index.
template <class T, class F> ET_FN void top_k(int64_t n, int64_t count, int32_t* order, F at) {
  int64_t held = 0;
  for (int64_t k = 0; k < n; ++k) {
    const T x = at(k);
    int64_t place = held;
    while (place > 0 && before<T>(x, at(order[place - 1]))) --place;
    if (place >= count) continue;
    if (held < count) ++held;
    for (int64_t m = held - 1; m > place; --m) order[m] = order[m - 1];
    order[place] = int32_t(k);
  }
}

// How many of at(0) .. at(n-1) come before at(k): in ascending order, by index, NaN last.
template <class T, class F> ET_FN int64_t rank_of(int64_t n, int64_t k, F at) {
  const T x = at(k);
  int64_t rank = 0;
  for (int64_t m = 0; m < n; ++m) {
    const T other = at(m);
    const bool less = other < x || (x != x && other == other);
    const bool greater = x < other || (other != other && x == x);
    rank += less || (!greater && m < k);
  }
  return rank;
}

#if !defined(__CUDACC__)
// sums[r * bins + index(k)] += weight_r(k) for all k; what is no bin is left out. Sums wrap.
template <class I, class... W>
ET_FN void histogram(int32_t* sums, int64_t bins, int64_t n, I index, W... weight) {
  for (int64_t b = 0; b < int64_t(sizeof...(W)) * bins; ++b) sums[b] = 0;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t bin = index(k);
    if (bin < 0 || bin >= bins) continue;
    int32_t* to = sums + bin;
    for (const int32_t x : {weight(k)...}) {
      *to = int32_t(uint32_t(*to) + uint32_t(x));
      to += bins;
    }
  }
}
#endif

// ---- accumulation --------------------------------------------------------------------------
template <class S, class T> ET_FN void accumulate(S& place, T x) {
  place = cast<S>(value(place) + x);
}

#if !defined(__CUDACC__)
// Unordered: an add that other tasks may do at the same time, element by element.
template <class S, class T> ET_FN void accumulate_atomic(S& place, T x) {
  using Bits = std::conditional_t<sizeof(S) == 1, uint8_t,
      std::conditional_t<sizeof(S) == 2, uint16_t,
      std::conditional_t<sizeof(S) == 4, uint32_t, uint64_t>>>;
  Bits* const bits = reinterpret_cast<Bits*>(&place);
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    S was;
    std::memcpy(&was, &old, sizeof(S));
    const S now = cast<S>(value(was) + x);
    Bits fresh;
    std::memcpy(&fresh, &now, sizeof(S));
    if (__atomic_compare_exchange_n(bits, &old, fresh, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return;
  }
}
#endif

}  // namespace et
