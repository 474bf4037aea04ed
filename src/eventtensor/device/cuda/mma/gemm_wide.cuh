// Products of packed panels with an x of many columns, which shared memory does not hold, in the
// order of gemm_traversal.cuh; here without a pipeline. sm_80 and later.
#pragma once
#include "cuda/mma/gemm_skinny.cuh"
#include "cuda/mma/gemm_traversal.cuh"

namespace et {

// A product c = W x; `begins` says where columns of x begin, in elements, if they do not lie
// s1 apart. BY_TMA: activation tiles of x are loaded by TMA (tma_activation.cuh).
template <class E, bool BY_TMA> struct WideGemm {
  float* c;
  int64_t s_row, s_col;
  Matrix<E> x;
  const int64_t* begins;
  GemmTraversal walk;
};

template <class E>
ET_HOT int64_t begin_of(const Matrix<E>& x, const int64_t* begins, uint32_t column) {
  return begins != nullptr ? begins[column] : column * x.s1;
}

// ---- in place: a warp makes 16 rows by 8 columns at a time ---------------------------------------

// What a step of mma wants of the lane's column that begins there, from element k on.
template <class E> ET_HOT Eight column_step(const Matrix<E>& x, int64_t begin, uint32_t k) {
  const E* const from = x.data + begin + (k + warp_chunk() * 2) * x.s0;
  Eight found;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    found.pair[j] = from[8 * j * x.s0].bits | uint32_t(from[(8 * j + 1) * x.s0].bits) << 16;
  return found;
}

template <class E, bool BY_TMA, uint32_t SPAN, uint32_t BUNDLE>
ET_COLD void wide_gemm_in_place(GlobalPanels<SPAN, BUNDLE> w, WideGemm<E, BY_TMA> p) {
  const uint32_t n = p.walk.columns, across = (n + 7) / 8;
  for (uint32_t at = warp_index(); at < p.walk.panels * across; at += SHARERS) {
    const uint32_t panel = at / across, column = at % across * 8 + warp_row();
    const int64_t begin = begin_of(p.x, p.begins, column < n ? column : 0);
    const char* const from =
        w.data + panel / BUNDLE * BUNDLE * w.panel + panel % BUNDLE * SPAN * PANEL;
    float sum[4] = {};
    for (uint32_t k = 0; k < p.walk.row; k += STEP_BYTES) {
      const char* const at = from + Packed<SPAN>::block(k, BUNDLE);
      const Eight x = column_step(p.x, begin, k / sizeof(E));
#pragma unroll
      for (int half = 0; half < 2; ++half)
        mma<E>(sum, Packed<SPAN>::load(at + half * 2 * BLOCK_BYTES), x, half);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t row = panel * PANEL + warp_row() + j / 2 * 8;
      const uint32_t to = at % across * 8 + warp_chunk() * 2 + j % 2;
      if (to < n) p.c[row * p.s_row + to * p.s_col] = sum[j];
    }
  }
}

// All panels and columns of a product, with no stream. All meet last.
template <uint32_t ALL, uint32_t MOST, class P, uint32_t SPAN, uint32_t BUNDLE>
ET_HOT void run_wide_gemm(Worker&, GlobalPanels<SPAN, BUNDLE> w, const P& p) {
  sync();
  wide_gemm_in_place(w, p);
  sync();
}

// c = W x for packed panels, in place or from the stream, ALL of them if that is known, with MOST
// columns in a pass. No pages come for no columns.
template <class E, uint32_t ROW, uint32_t SPAN, uint32_t ALL, uint32_t MOST, bool BY_TMA = false,
          class Source>
ET_HOT void wide_gemm(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col, Matrix<E> x,
                      int64_t rows, int64_t n, const int64_t* begins = nullptr) {
  static_assert(ROW % SPAN == 0 && SPAN % STEP_BYTES == 0 && SPAN <= MOST_SPAN);
  if (n < 1 || rows < 1) return sync();
  const GemmTraversal walk(uint32_t(rows) / PANEL, ROW, SPAN, Source::BUNDLE, n);
  run_wide_gemm<ALL, MOST>(w, source, WideGemm<E, BY_TMA>{c, s_row, s_col, x, begins, walk});
}

}  // namespace et
