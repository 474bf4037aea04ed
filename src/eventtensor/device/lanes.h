// Sixteen numbers side by side in vector registers: what the products on a CPU are made of. A lane
// is one output, so vectors change no order and no bit. Without vectors that fuse, loops over lanes.
#pragma once
#include "view.h"

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace et {

// All lanes, and `Four`: consecutive k of one row, each of which multiplies all lanes in its turn.
template <class T> struct Lanes {
  T lane[LANES];

  template <class B> static Lanes load(const B* from) {
    Lanes out;
#pragma GCC unroll 16
    for (int j = 0; j < LANES; ++j) out.lane[j] = value(from[j]);
    return out;
  }
  void store(T* to) const { std::memcpy(to, lane, sizeof lane); }
  static Lanes zero() { return {}; }
  // Four rows, `pitch` apart, of 16 columns that lie along memory, `apart` from each other.
  template <class B> static void turn(T* to, int64_t pitch, const B* from, int64_t apart) {
    for (int s = 0; s < 4; ++s)
      for (int j = 0; j < LANES; ++j) to[s * pitch + j] = value(from[j * apart + s]);
  }

  struct Four {
    T x[4];
    template <class A> static Four load(const A* from) {
      return {{value(from[0]), value(from[1]), value(from[2]), value(from[3])}};
    }
  };
  template <int S> void add(Four four, const Lanes& y) { add(four.x[S], y); }
  void add(T x, const Lanes& y) {
#pragma GCC unroll 16
    for (int j = 0; j < LANES; ++j) lane[j] = multiply_add(x, y.lane[j], lane[j]);
  }
};

#if defined(__ARM_NEON) && defined(__aarch64__)

inline float32x4_t four_floats(const float* from) { return vld1q_f32(from); }
inline float32x4_t four_floats(const bf16* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&from->bits), 16));
}
inline float32x4_t four_floats(const f16* from) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits)));
}

template <> struct Lanes<float> {
  float32x4_t v[4];

  static Lanes load(const float* from) {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
  }
  static Lanes load(const bf16* from) {
    const uint16x8_t low = vld1q_u16(&from->bits), high = vld1q_u16(&from->bits + 8);
    const uint32x4_t bits[] = {vshll_n_u16(vget_low_u16(low), 16), vshll_high_n_u16(low, 16),
                               vshll_n_u16(vget_low_u16(high), 16), vshll_high_n_u16(high, 16)};
    return {{vreinterpretq_f32_u32(bits[0]), vreinterpretq_f32_u32(bits[1]),
             vreinterpretq_f32_u32(bits[2]), vreinterpretq_f32_u32(bits[3])}};
  }
  static Lanes load(const f16* from) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(&from->bits)),
                      high = vreinterpretq_f16_u16(vld1q_u16(&from->bits + 8));
    return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
             vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
  }
  static Lanes zero() { return {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}}; }
  void store(float* to) const {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) vst1q_f32(to + 4 * j, v[j]);
  }
  template <class B> static void turn(float* to, int64_t pitch, const B* from, int64_t apart) {
    for (int j = 0; j < LANES; j += 4, to += 4, from += 4 * apart) {
      const float32x4_t a = four_floats(from), b = four_floats(from + apart),
                        c = four_floats(from + 2 * apart), d = four_floats(from + 3 * apart);
      const float32x4_t ac = vzip1q_f32(a, c), bd = vzip1q_f32(b, d), ac_high = vzip2q_f32(a, c),
                        bd_high = vzip2q_f32(b, d);
      vst1q_f32(to, vzip1q_f32(ac, bd));
      vst1q_f32(to + pitch, vzip2q_f32(ac, bd));
      vst1q_f32(to + 2 * pitch, vzip1q_f32(ac_high, bd_high));
      vst1q_f32(to + 3 * pitch, vzip2q_f32(ac_high, bd_high));
    }
  }

  struct Four {
    float32x4_t x;
    template <class A> static Four load(const A* from) { return {four_floats(from)}; }
  };
  // By element: a broadcast load would take one of the two vector pipes.
  template <int S> void add(Four four, const Lanes& y) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) v[j] = vfmaq_laneq_f32(v[j], y.v[j], four.x, S);
  }
  void add(float x, const Lanes& y) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) v[j] = vfmaq_n_f32(v[j], y.v[j], x);
  }
};

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#if defined(__AVX512F__)
struct Floats {
  static constexpr int SIZE = 16;
  __m512 v;
  static Floats fill(float x) { return {_mm512_set1_ps(x)}; }
  static Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Floats load(const bf16* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static Floats load(const f16* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void add(Floats x, Floats y) { v = _mm512_fmadd_ps(x.v, y.v, v); }
};
#else
struct Floats {
  static constexpr int SIZE = 8;
  __m256 v;
  static Floats fill(float x) { return {_mm256_set1_ps(x)}; }
  static Floats load(const float* from) { return {_mm256_loadu_ps(from)}; }
  static Floats load(const bf16* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  static Floats load(const f16* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  void store(float* to) const { _mm256_storeu_ps(to, v); }
  void add(Floats x, Floats y) { v = _mm256_fmadd_ps(x.v, y.v, v); }
};
#endif

inline __m128 four_floats(const float* from) { return _mm_loadu_ps(from); }
inline __m128 four_floats(const bf16* from) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
}
inline __m128 four_floats(const f16* from) {
  return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

template <> struct Lanes<float> {
  static constexpr int PARTS = LANES / Floats::SIZE;
  Floats part[PARTS];

  template <class B> static Lanes load(const B* from) {
    Lanes out;
#pragma GCC unroll 2
    for (int j = 0; j < PARTS; ++j) out.part[j] = Floats::load(from + j * Floats::SIZE);
    return out;
  }
  static Lanes zero() {
    Lanes out;
#pragma GCC unroll 2
    for (int j = 0; j < PARTS; ++j) out.part[j] = Floats::fill(0);
    return out;
  }
  void store(float* to) const {
#pragma GCC unroll 2
    for (int j = 0; j < PARTS; ++j) part[j].store(to + j * Floats::SIZE);
  }
  template <class B> static void turn(float* to, int64_t pitch, const B* from, int64_t apart) {
    for (int j = 0; j < LANES; j += 4, to += 4, from += 4 * apart) {
      __m128 a = four_floats(from), b = four_floats(from + apart),
             c = four_floats(from + 2 * apart), d = four_floats(from + 3 * apart);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + pitch, b);
      _mm_storeu_ps(to + 2 * pitch, c);
      _mm_storeu_ps(to + 3 * pitch, d);
    }
  }

  struct Four {
    float x[4];
    template <class A> static Four load(const A* from) {
      return {{value(from[0]), value(from[1]), value(from[2]), value(from[3])}};
    }
  };
  template <int S> void add(Four four, const Lanes& y) { add(four.x[S], y); }
  void add(float x, const Lanes& y) {
    const Floats all = Floats::fill(x);
#pragma GCC unroll 2
    for (int j = 0; j < PARTS; ++j) part[j].add(all, y.part[j]);
  }
};

#endif

}  // namespace et
