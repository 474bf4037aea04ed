// Products with many columns (walk.cuh) from the stream: four warps together ask for the products of
// a group's panels with a line of x (lines.cuh), which run beside them (wgmma). sm_90a.
#pragma once
#include "lines.cuh"

namespace et {

constexpr uint32_t HALF = ET_THREADS / 2;  // threads that ask together
static_assert(HALF == 128);

// Half a line of x as wgmma wants it described: rows of 128 bytes, eight of them 1024 bytes apart
// from the next eight, swizzled.
ET_HOT uint64_t line_of(uint32_t at) {
  return uint64_t(at >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Sums of a panel's rows and a pass's columns, held by a warp.
template <uint32_t N> using WideSums = float[N / 2];

// Asks for the products of half a line with `bytes` of K of a warp's panel: where there are none,
// zeros.
template <class E, uint32_t N>
ET_HOT void ask(WideSums<N>& sum, uint32_t panel, uint32_t bytes, uint32_t line) {
  constexpr uint32_t EACH = STEP_BYTES / 2, COUNT = LINE / 2 / EACH;
  Fragment w[COUNT] = {};
#pragma unroll
  for (uint32_t f = 0; f < COUNT; ++f)
    if (f * EACH < bytes) w[f] = load_fragment(panel + f * FRAGMENT_BYTES);
  const uint64_t x = line_of(line);
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t f = 0; f < COUNT; ++f) {
    if constexpr (std::is_same_v<E, bf16>) ptx::wgmma_bf16<N>(sum, w[f].word, x + f * (EACH >> 4));
    else ptx::wgmma_f16<N>(sum, w[f].word, x + f * (EACH >> 4));
  }
  ptx::wgmma_commit();
}

// What a thread does in a product with up to N columns in a pass.
template <class E, uint32_t N> class WideWarp {
 public:
  ET_HOT WideWarp(const Wide<E>& p, Pages& pages)
      : p_(p), pages_(pages), half_(threadIdx.x / HALF), warp_(warp_index() % GROUP),
        place_(pages.beside()) {}

  // All rounds and passes.
  ET_HOT void all() {
    for (uint32_t panel = 0; panel < p_.walk.panels; panel += p_.walk.round(panel))
      for (uint32_t column = 0; column < p_.n; column += MOST_COLUMNS)
        pass(panel, column, p_.walk.lone(panel));
  }

 private:
  using Sums = WideSums<N>;

  ET_HOT void pass(uint32_t first, uint32_t column, bool lone) {
    const uint32_t row = p_.walk.row, span = p_.walk.span(), step = lone ? 2 * span : span;
    const uint32_t panel = first + (lone ? 0 : half_ * GROUP) + warp_;
    const uint32_t mine = panel < p_.walk.panels ? row : 0;  // bytes of K
    Sums sum = {};
    uint32_t page = half_;
    ET_ROLLED for (uint32_t at = 0; at < row; at += step, page += 2) {
      const uint32_t k = at + (lone ? half_ * span : 0), end = at + span < row ? span : row - at;
      const uint32_t w = k < row ? pages_.page(page) + warp_ * span * PANEL : 0;
      ET_ROLLED for (uint32_t in = 0; in < end; in += LINE)
        line(sum, w + in * PANEL, k + in < mine ? mine - k - in : 0, lone);
      if (k < row) pages_.release(page, TURNS);
    }
    pages_.advance((lone ? 1 : 2) * p_.walk.pages());
    store(sum, lone, panel, column);
  }

  // A line for both halves, or this half's of two.
  ET_HOT void line(Sums& sum, uint32_t w, uint32_t bytes, bool lone) {
    const uint32_t place = pages_.line(lone ? half_ : 0);
    const uint32_t at = place_ + place * LINE_BYTES;
    ask<E, N>(sum, w, bytes, at);
    ask<E, N>(sum, w + LINE / 2 * PANEL, bytes > LINE / 2 ? bytes - LINE / 2 : 0,
              at + LINE_BYTES / 2);
    ptx::wgmma_wait<0>(sum);
    pages_.release_line(place, lone ? 2 : 1);
  }

  // Of a lone group the second half gives its sums to the first.
  ET_HOT void store(const Sums& sum, bool lone, uint32_t panel, uint32_t column) {
    const bool mine = panel < p_.walk.panels;
    if (mine && !(lone && half_ == 0)) put<false>(sum, panel, column);
    if (!lone) return;
    sync();
    if (mine && half_ == 0) put<true>(sum, panel, column);
  }

  template <bool ADD> ET_HOT void put(const Sums& sum, uint32_t panel, uint32_t column) {
    const uint32_t row = panel * PANEL + warp_row(), first = column + warp_chunk() * 2;
    float* const c = p_.c + row * p_.s_row + first * p_.s_col;
    const uint32_t left = first < p_.n ? p_.n - first : 0;
    const int64_t s_row = p_.s_row, s_col = p_.s_col;
#pragma unroll
    for (uint32_t j = 0; j < N / 2; ++j) {
      const uint32_t to = j / 4 * 8 + j % 2;
      float* const at = c + to * s_col + j % 4 / 2 * 8 * s_row;
      if (to < left) *at = ADD ? sum[j] + *at : sum[j];
    }
  }

  const Wide<E>& p_;
  Pages& pages_;
  const uint32_t half_, warp_, place_;
};

// All meet first and last. (Inlined: in a function that is called, products would wait for each
// other.)
template <class E> ET_HOT void wide_product(Worker& w, PanelsFromRing, const Wide<E>& p) {
  sync();
  if (leads()) {
    const uint16_t* const x = reinterpret_cast<const uint16_t*>(p.x.data);
    w.pages.give({{x, p.x.s0, p.x.s1}, p.walk, p.n});
  }
  if (p.n <= 16) WideWarp<E, 16>(p, w.pages).all();
  else WideWarp<E, MOST_COLUMNS>(p, w.pages).all();
  sync();
}

}  // namespace et
