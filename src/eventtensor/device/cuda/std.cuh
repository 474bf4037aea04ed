// The standard names that generated code and the shared headers use, for a compiler without a
// standard library (NVRTC); nvcc has its own.
#pragma once
#if defined(__CUDACC_RTC__)
using int8_t = signed char;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;
using uintptr_t = unsigned long;
static_assert(sizeof(int64_t) == 8);

#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807L - 1)
#define INT64_MAX 9223372036854775807L
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define offsetof(type, member) __INTADDR__(&((type*)0)->member)  // not all have a builtin

namespace std {

template <class A, class B> inline constexpr bool is_same_v = false;
template <class A> inline constexpr bool is_same_v<A, A> = true;
template <class T> inline constexpr bool is_floating_point_v = is_same_v<T, float>;
template <class T> inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, uint8_t> || is_same_v<T, int32_t> || is_same_v<T, int64_t>;

template <bool C, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;

template <class T> struct numeric_limits;
template <> struct numeric_limits<bool> {
  static constexpr __device__ bool min() { return false; }
  static constexpr __device__ bool max() { return true; }
  static constexpr __device__ bool lowest() { return false; }
};
template <> struct numeric_limits<int32_t> {
  static constexpr __device__ int32_t min() { return INT32_MIN; }
  static constexpr __device__ int32_t max() { return INT32_MAX; }
  static constexpr __device__ int32_t lowest() { return INT32_MIN; }
};
template <> struct numeric_limits<int64_t> {
  static constexpr __device__ int64_t min() { return INT64_MIN; }
  static constexpr __device__ int64_t max() { return INT64_MAX; }
  static constexpr __device__ int64_t lowest() { return INT64_MIN; }
};
template <> struct numeric_limits<float> {
  static __device__ float infinity() { return INFINITY; }
};

template <class T> __device__ inline T min(T a, T b) { return b < a ? b : a; }
template <class T> __device__ inline T max(T a, T b) { return a < b ? b : a; }
__device__ inline float fabs(float x) { return ::fabsf(x); }
__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline float exp(float x) { return ::expf(x); }
__device__ inline float log(float x) { return ::logf(x); }
__device__ inline float tanh(float x) { return ::tanhf(x); }
__device__ inline float exp2(float x) { return ::exp2f(x); }
__device__ inline float log2(float x) { return ::log2f(x); }
__device__ inline float sin(float x) { return ::sinf(x); }
__device__ inline float cos(float x) { return ::cosf(x); }
__device__ inline float erf(float x) { return ::erff(x); }
__device__ inline float pow(float x, float y) { return ::powf(x, y); }
__device__ inline float ceil(float x) { return ::ceilf(x); }
__device__ inline float rint(float x) { return ::rintf(x); }
__device__ inline float floor(float x) { return ::floorf(x); }
__device__ inline float fmod(float x, float y) { return ::fmodf(x, y); }
__device__ inline float copysign(float x, float y) { return ::copysignf(x, y); }
__device__ inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
__device__ inline void memcpy(void* to, const void* from, size_t bytes) {
  ::memcpy(to, from, bytes);
}

}  // namespace std
#else
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#endif
