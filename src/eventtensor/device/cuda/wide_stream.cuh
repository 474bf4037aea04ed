// Products with many columns (walk.cuh) from the stream: four warps together ask for the products of
// a group's panels with a line of x (lines.cuh). Both lie in shared memory, and products run beside
// the warps (wgmma), those of a line while the next one is asked for. sm_90a.
#pragma once
#include "lines.cuh"

namespace et {

constexpr uint32_t HALF = ET_THREADS / 2;  // threads that ask together
static_assert(HALF == 128);

// An operand as wgmma wants it described: where it begins, in `low`, and how it goes on.
struct Described {
  uint32_t low, high;
  ET_HOT uint64_t after(uint32_t bytes) const { return uint64_t(high) << 32 | low + (bytes >> 4); }
};

// An address in units of 16 bytes. All lanes have the same; only by this does the compiler know, and
// computes what follows where wgmma takes it from. (Else every product waits until the one before
// has read its own.)
ET_HOT uint32_t alike(uint32_t at) { return __shfl_sync(~0u, at, 0) >> 4 & 0x3fff; }

// A line of x: rows of 128 bytes, eight of them 1024 bytes apart from the next eight, swizzled.
ET_HOT Described line_of(uint32_t at) {
  return {alike(at) | 1u << 16, 1024 >> 4 | 1u << 30};
}
// Blocks of panels: one after the other along K, `half` bytes apart across rows.
ET_HOT Described panels_of(uint32_t at, uint32_t half) {
  return {alike(at) | BLOCK_BYTES >> 4 << 16, half >> 4};
}

// Sums of a panel's rows and a pass's columns, held by a warp.
template <uint32_t N> using WideSums = float[N / 2];

// Asks for the products of a group's span and a line.
template <class E, uint32_t N, uint32_t SPAN>
ET_HOT void ask(WideSums<N>& sum, uint32_t panels, uint32_t line) {
  constexpr uint32_t EACH = STEP_BYTES / 2, COUNT = SPAN / EACH, PER = SWIZZLE / EACH;
  const Described w = panels_of(panels, Packed<SPAN>::HALF), x = line_of(line);
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t f = 0; f < COUNT; ++f) {
    const uint64_t a = w.after(f * 2 * BLOCK_BYTES);
    const uint64_t b = x.after(f / PER * N * SWIZZLE + f % PER * EACH);
    if constexpr (std::is_same_v<E, bf16>) ptx::wgmma_bf16<N>(sum, a, b);
    else ptx::wgmma_f16<N>(sum, a, b);
  }
  ptx::wgmma_commit();
}

// What a thread does in a product with up to N columns in a pass.
template <class E, bool BOXES, uint32_t N, uint32_t SPAN> class WideWarp {
 public:
  ET_HOT WideWarp(const Wide<E, BOXES>& p, Pages& pages)
      : p_(p), pages_(pages), half_(threadIdx.x / HALF), warp_(warp_index() % GROUP) {}

  // All rounds and passes.
  ET_HOT void all() {
    for (uint32_t panel = 0; panel < p_.walk.panels; panel += p_.walk.round(panel))
      for (uint32_t column = 0; column < p_.n; column += MOST_COLUMNS)
        pass(panel, column, p_.walk.lone(panel));
  }

 private:
  using Sums = WideSums<N>;

  // A line is released when the next one is asked for and its own products are through.
  ET_HOT void pass(uint32_t first, uint32_t column, bool lone) {
    const uint32_t lines = p_.walk.lines(), step = lone ? 2 : 1;
    const uint32_t panel = first + (lone ? 0 : half_ * GROUP) + warp_;
    const uint32_t piece = p_.walk.count(first) * PANEL * SPAN;  // of a page: a span of the group
    Sums sum = {};
    uint32_t at = lone ? half_ : 0;
    ET_ROLLED for (; at < lines; at += step) {
      const uint32_t page = pages_.page(page_of(at, lone)) + at % p_.walk.spans() * piece;
      ask<E, N, SPAN>(sum, page, pages_.template line<N, BOXES>(at));
      ptx::wgmma_wait<1>();
      if (at >= step) release(at - step, lone);
    }
    ptx::wgmma_wait<0>(sum);
    if (at >= step && at - step < lines) release(at - step, lone);
    if (lone && half_ == 1 && lines % p_.walk.spans() == 1)
      pages_.give_back(page_of(lines - 1, lone), 1);  // whose only span the first half takes
    pages_.advance((lone ? 1 : 2) * p_.walk.pages());
    pages_.template advance_lines<N>(lines);
    sync();  // the result may lie where lines did
    store(sum, lone, panel, column);
  }

  // The page of a line: the halves have their own, or take the spans of each in turn.
  ET_HOT uint32_t page_of(uint32_t line, bool lone) const {
    return lone ? line / p_.walk.spans() : 2 * line + half_;
  }

  // The line, and its page if that has no other for this half.
  ET_HOT void release(uint32_t line, bool lone) {
    const uint32_t spans = p_.walk.spans(), next = line + 2;
    __syncwarp();
    pages_.template release_line<N>(line, lone ? 2 : 1);
    if (!lone || spans == 1) pages_.give_back(page_of(line, lone), TURNS);
    else if (line / spans != next / spans || next >= p_.walk.lines())
      pages_.give_back(page_of(line, lone), 1);
  }

  // Of a lone group the second half gives its sums to the first.
  ET_HOT void store(const Sums& sum, bool lone, uint32_t panel, uint32_t column) {
    const bool mine = panel < p_.walk.panels;
    if (mine && !(lone && half_ == 0)) put<false>(sum, panel, column);
    if (!lone) return;
    sync();
    if (mine && half_ == 0) put<true>(sum, panel, column);
  }

  // What it is added to is loaded before the first is stored.
  template <bool ADD> ET_HOT void put(const Sums& sum, uint32_t panel, uint32_t column) {
    const uint32_t row = panel * PANEL + warp_row(), first = column + warp_chunk() * 2;
    float* const c = p_.c + row * p_.s_row + first * p_.s_col;
    const uint32_t left = first < p_.n ? p_.n - first : 0;
    const int64_t s_row = p_.s_row, s_col = p_.s_col;
    const auto at = [&](uint32_t j) -> float& {
      return c[(j / 4 * 8 + j % 2) * s_col + j % 4 / 2 * 8 * s_row];
    };
    const auto there = [&](uint32_t j) { return j / 4 * 8 + j % 2 < left; };
    Sums old = {};
#pragma unroll
    for (uint32_t j = 0; ADD && j < N / 2; ++j)
      if (there(j)) old[j] = at(j);
#pragma unroll
    for (uint32_t j = 0; j < N / 2; ++j)
      if (there(j)) at(j) = ADD ? sum[j] + old[j] : sum[j];
  }

  const Wide<E, BOXES>& p_;
  Pages& pages_;
  const uint32_t half_, warp_;
};

template <class E>
ET_HOT LineJob line_job(Matrix<E> x, const int64_t* begins, const Walk& walk, int64_t n, InMap in) {
  const uint16_t* const data = reinterpret_cast<const uint16_t*>(x.data);
  return {{data, x.s0, x.s1}, begins, walk, uint32_t(n), in};
}

// Lines of x for a product begin to come: before what else can be done until they are there. All
// meet first.
template <class E, uint32_t ROW, uint32_t SPAN>
ET_HOT void wide_begin(Worker& w, Matrix<E> x, int64_t rows, int64_t n,
                       const int64_t* begins = nullptr) {
  if (n < 1 || rows < 1) return;
  sync();
  if (!leads()) return;
  const Walk walk(uint32_t(rows) / PANEL, ROW, SPAN, 1);  // how panels lie is nothing to lines
  w.pages.give(line_job(x, begins, walk, n, {NO_MAP, 0, 0}));
}

// The same for an x in the matrix at `data`, with rows of WIDTH elements, whose map has this number.
template <class E, uint32_t WIDTH> struct Mapped {
  uint32_t map;
  const E* data;
};
template <class E, uint32_t ROW, uint32_t SPAN, uint32_t WIDTH>
ET_HOT void wide_begin(Worker& w, Matrix<E> x, int64_t rows, int64_t n, Mapped<E, WIDTH> in) {
  if (n < 1 || rows < 1) return;
  fence_shared_reads();
  sync();
  if (!leads()) return;
  const Walk walk(uint32_t(rows) / PANEL, ROW, SPAN, 1);
  const uint64_t at = uint64_t(x.data - in.data);
  w.pages.give(line_job(x, nullptr, walk, n, {in.map, uint32_t(at / WIDTH), uint32_t(at % WIDTH)}));
}

// After `wide_begin`. All meet last. (Inlined: in a function that is called, products would wait for
// each other.)
template <class E, bool BOXES, uint32_t SPAN, uint32_t BUNDLE>
ET_HOT void wide_product(Worker& w, PanelsFromRing<SPAN, BUNDLE>, const Wide<E, BOXES>& p) {
  if (p.n <= FEW_COLUMNS) WideWarp<E, BOXES, FEW_COLUMNS, SPAN>(p, w.pages).all();
  else WideWarp<E, BOXES, MOST_COLUMNS, SPAN>(p, w.pages).all();
  sync();
}

}  // namespace et
