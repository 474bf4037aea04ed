// Products with many columns (gemm_traversal.cuh), from the pipeline: four warps together issue the
// products of a group's panels with an activation tile (activation_producer.cuh). Both lie in
// shared memory. wgmma is asynchronous: the products of one tile run while the warps issue those of
// the next. sm_90a.
#pragma once
#include "cuda/roles/activation_producer.cuh"

namespace et {

constexpr uint32_t HALF = ET_THREADS / 2;  // threads that issue products together
static_assert(HALF == 128);

// An operand as wgmma wants it described: where it begins, in `low`, and how it goes on.
struct SmemDescriptor {
  uint32_t low, high;
  ET_HOT uint64_t after(uint32_t bytes) const { return uint64_t(high) << 32 | low + (bytes >> 4); }
};

// An address in units of 16 bytes. All lanes have the same; only by this does the compiler know, and
// computes what follows where wgmma takes it from. (Else every product waits until the one before
// has read its own.)
ET_HOT uint32_t warp_uniform(uint32_t at) { return __shfl_sync(~0u, at, 0) >> 4 & 0x3fff; }

// An activation tile: swizzled rows of 128 bytes; each eight of them begin 1024 bytes after the
// eight before.
ET_HOT SmemDescriptor make_desc_b(uint32_t at) {
  return {warp_uniform(at) | 1u << 16, 1024 >> 4 | 1u << 30};
}
// Blocks of panels: one after the other along K, `half` bytes apart across rows.
ET_HOT SmemDescriptor make_desc_a(uint32_t at, uint32_t half) {
  return {warp_uniform(at) | BLOCK_BYTES >> 4 << 16, half >> 4};
}

// Sums of a panel's rows and N columns, held by a warp.
template <uint32_t N> using WgmmaAccumulators = float[N / 2];

// Issues the products of a group's panels, from a byte of their SPAN on, with N columns of an
// activation tile, which has ALL columns and K bytes of each.
template <class E, uint32_t N, uint32_t ALL, uint32_t SPAN, uint32_t K>
ET_HOT void issue_wgmma(WgmmaAccumulators<N>& sum, uint32_t panels, uint32_t line) {
  constexpr uint32_t EACH = STEP_BYTES / 2, COUNT = K / EACH, PER = SWIZZLE / EACH;
  const SmemDescriptor w = make_desc_a(panels, Packed<SPAN>::HALF), x = make_desc_b(line);
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t f = 0; f < COUNT; ++f) {
    const uint64_t a = w.after(f * 2 * BLOCK_BYTES);
    const uint64_t b = x.after(f / PER * ALL * SWIZZLE + f % PER * EACH);
    if constexpr (std::is_same_v<E, bf16>) ptx::wgmma_bf16<N>(sum, a, b);
    else ptx::wgmma_f16<N>(sum, a, b);
  }
  ptx::wgmma_commit();
}

// What a thread does in a product with up to N columns in a pass. ALL panels: 0, if not known here;
// else no pass is compiled that it does not have.
template <class E, bool BY_TMA, uint32_t N, uint32_t SPAN, uint32_t ALL> class WgmmaConsumer {
 public:
  ET_HOT WgmmaConsumer(const WideGemm<E, BY_TMA>& p, PipelineConsumer& pages)
      : p_(p), pipeline_(pages), half_(threadIdx.x / HALF), warp_(warp_index() % GROUP) {}

  // All rounds and passes.
  ET_HOT void all() {
    const uint32_t full = p_.walk.left(0) / GROUPS * GROUPS * GROUP, rest = p_.walk.left(full);
    if constexpr (ALL == 0 || LEFT >= GROUPS)
      for (uint32_t panel = 0; panel < full; panel += GROUPS * GROUP) passes<GROUPS>(panel);
    if constexpr (ALL == 0 || LEFT % GROUPS == 1)
      if (rest == 1) passes<1>(full);
    if constexpr (GROUPS > 2 && (ALL == 0 || LEFT % GROUPS == 2))
      if (rest == 2) passes<2>(full);
    if constexpr (GROUPS > 2 && (ALL == 0 || LEFT % GROUPS == 3))
      if (rest == 3) passes<3>(full);
  }

 private:
  static constexpr uint32_t LEFT = (ALL + GROUP - 1) / GROUP;  // groups
  static constexpr uint32_t GROUPS = groups_for(N);            // of a round
  // Bytes of K in an activation tile, and tiles of a span.
  static constexpr uint32_t K = activation_tile_k<N>(SPAN), EACH = SPAN / K;
  static_assert(K % (STEP_BYTES / 2) == 0 && K <= ActivationStages<N>::LINE);

  template <uint32_t COUNT> ET_HOT void passes(uint32_t panel) {
    for (uint32_t column = 0; column < p_.walk.columns; column += N128)
      Pass<COUNT>(*this).run(panel, column);
  }

  // A pass over COUNT groups. The products of a group with an activation tile are a step. A page is
  // released once its own step has completed and the next one is issued; behind the last group, the
  // activation tile too.
  template <uint32_t COUNT> class Pass {
   public:
    ET_HOT explicit Pass(WgmmaConsumer& warp)
        : w_(warp), pipeline_(warp.pipeline_), walk_(warp.p_.walk) {}

    ET_HOT void run(uint32_t first, uint32_t column) {
      const uint32_t lines = walk_.along() * EACH;
      piece_ = walk_.count(first) * PANEL * SPAN;
      ET_ROLLED for (uint32_t at = 0; at < lines; ++at) {
        const uint32_t line = pipeline_.template line<N, BY_TMA>(at);
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
          issue_wgmma<E, N, N, SPAN, K>(own_[j], page(at, group(j)), line);
          step(at, j);
        }
        if constexpr (SHARED != 0) {
          issue_wgmma<E, N / 2, N, SPAN, K>(shared_, page(at, group(OWN)), line + skipped() * SWIZZLE);
          step(at, OWN);
        }
      }
#pragma unroll
      for (int j = 0; j < OWN; ++j) ptx::wgmma_wait<0>(own_[j]);
      if constexpr (SHARED != 0) ptx::wgmma_wait<0>(shared_);
      release(lines - 1, LAST);
      pipeline_.advance(COUNT * walk_.pages());
      pipeline_.template advance_activation_tiles<N>(lines);
      sync();  // the result may lie where activation tiles did
#pragma unroll
      for (int j = 0; j < OWN; ++j) w_.put(own_[j], first + group(j) * GROUP, column);
      if constexpr (SHARED != 0)
        w_.put(shared_, first + group(OWN) * GROUP, column + skipped());
    }

   private:
    // Groups of this half alone, and one that it shares, whose columns this half has some of.
    static constexpr int OWN = COUNT / 2, SHARED = COUNT % 2, LAST = OWN + SHARED - 1;
    ET_HOT uint32_t group(int j) const { return j < OWN ? 2 * j + w_.half_ : 2 * OWN; }
    ET_HOT uint32_t skipped() const { return w_.half_ * N / 2; }

    // Where a group's panels for an activation tile are. A page may have several spans of a lone
    // group.
    ET_HOT uint32_t number(uint32_t line, uint32_t group) const {
      return line / EACH / walk_.spans() * COUNT + group;
    }
    ET_HOT uint32_t page(uint32_t line, uint32_t group) const {
      return pipeline_.wait_stage(number(line, group)) + line / EACH % walk_.spans() * piece_ +
             line % EACH * (K / 16) * BLOCK_BYTES;
    }

    // Behind a step: the one before has completed.
    ET_HOT void step(uint32_t line, int j) const {
      ptx::wgmma_wait<1>();
      if (j > 0) release(line, j - 1);
      else if (line > 0) release(line - 1, LAST);
    }
    ET_HOT void release(uint32_t line, int j) const {
      const uint32_t next = line / EACH + 1;
      __syncwarp();
      if (j == LAST) pipeline_.template release_activation_tile<N>(line, 1);
      if (line % EACH != EACH - 1) return;
      if (j < OWN) pipeline_.give_back(number(line, group(j)), TURNS);
      else if (next % walk_.spans() == 0 || next == walk_.along())
        pipeline_.give_back(number(line, group(j)), 1);
    }

    const WgmmaConsumer& w_;
    PipelineConsumer& pipeline_;
    const GemmTraversal& walk_;
    uint32_t piece_;  // bytes of a page: a span of the group
    WgmmaAccumulators<N> own_[OWN + 1] = {};
    WgmmaAccumulators<N / 2> shared_ = {};
  };

  // Sums of a group, for the columns from one on. Where these lie close, as in a tile of shared
  // memory, lanes of odd chunks begin with the panel's other half: else all chunks meet in a bank.
  template <uint32_t COUNT>
  ET_HOT void put(const float (&sum)[COUNT], uint32_t panel, uint32_t column) const {
    if (panel + warp_ >= p_.walk.panels) return;
    const uint32_t row = (panel + warp_) * PANEL + warp_row(), first = column + warp_chunk() * 2;
    const uint32_t n = p_.walk.columns;
    float* const c = p_.c + row * p_.s_row + first * p_.s_col;
    const uint32_t left = first < n ? n - first : 0;
    const int64_t s_col = p_.s_col, below = PANEL / 2 * p_.s_row;
    const bool odd = s_col <= CLOSE && warp_chunk() % 2 != 0;
    float* const half[2] = {c + (odd ? below : 0), c + (odd ? 0 : below)};
#pragma unroll
    for (uint32_t j = 0; j < COUNT; ++j) {
      const uint32_t after = j / 4 * 8 + j % 2;
      if (after < left) half[j % 4 / 2][after * s_col] = odd ? sum[j ^ 2] : sum[j];
    }
  }

  static constexpr int64_t CLOSE = 512;  // elements: as many as a tile has rows at most
  const WideGemm<E, BY_TMA>& p_;
  PipelineConsumer& pipeline_;
  const uint32_t half_, warp_;
};

template <class E>
ET_HOT ActivationJob activation_job(Matrix<E> x, const int64_t* begins, const GemmTraversal& walk, InMap in) {
  const uint16_t* const data = reinterpret_cast<const uint16_t*>(x.data);
  return {{data, x.s0, x.s1}, begins, walk, in, nullptr, 0};
}

// Begins to load the activation tiles for a product, before whatever else the task can do until
// they have landed. All threads meet first.
template <class E, uint32_t ROW, uint32_t SPAN>
ET_HOT void begin_activation_load(Worker& w, Matrix<E> x, int64_t rows, int64_t n,
                       const int64_t* begins = nullptr) {
  if (n < 1 || rows < 1) return;
  sync();
  if (!is_leader()) return;
  // Activation tiles do not depend on the layout of panels.
  const GemmTraversal walk(uint32_t(rows) / PANEL, ROW, SPAN, 1, n);
  w.pipeline.give(activation_job(x, begins, walk, {NO_MAP, 0, 0}));
}

// The same for an x in the matrix at `data` with rows of WIDTH elements; `map` is the number of its
// tensor map.
template <class E, uint32_t WIDTH> struct Mapped {
  uint32_t map;
  const E* data;
};
template <class E, uint32_t ROW, uint32_t SPAN, uint32_t WIDTH>
ET_HOT void begin_activation_load(Worker& w, Matrix<E> x, int64_t rows, int64_t n, Mapped<E, WIDTH> in,
                       const Cell* cell = nullptr, int64_t target = 0) {
  if (n < 1 || rows < 1) return;
  fence_shared_reads();
  sync();
  if (!is_leader()) return;
  const GemmTraversal walk(uint32_t(rows) / PANEL, ROW, SPAN, 1, n);
  const uint64_t at = uint64_t(x.data - in.data);
  ActivationJob job = activation_job(x, nullptr, walk, {in.map, uint32_t(at / WIDTH), uint32_t(at % WIDTH)});
  if (target > 0 && !seen_cells().has(*cell, target)) job.cell = cell, job.target = target;
  w.pipeline.give(job);
}

// Before the task waits for x: the activation producer polls the cell of the event itself and begins
// to load when the cell has reached `target`.
template <class E, uint32_t ROW, uint32_t SPAN, uint32_t WIDTH>
ET_HOT void begin_activation_load_after(Worker& w, Matrix<E> x, int64_t rows, int64_t n, Mapped<E, WIDTH> in,
                       const Event& event, int64_t index, int64_t target) {
  begin_activation_load<E, ROW, SPAN>(w, x, rows, n, in, &w.cells[event.base + index], target);
}

// After `begin_activation_load`. All threads meet last. (Inlined: in a function that is called,
// products would wait for each other.)
template <uint32_t ALL, uint32_t MOST, class E, bool BY_TMA, uint32_t SPAN, uint32_t BUNDLE>
ET_HOT void run_wide_gemm(Worker& w, PipelinePanels<SPAN, BUNDLE>, const WideGemm<E, BY_TMA>& p) {
  const uint32_t n = p.walk.columns;
  if (MOST == N16 || n <= N16) {
    WgmmaConsumer<E, BY_TMA, N16, SPAN, ALL>(p, w.pipeline).all();
  } else if constexpr (MOST > N16) {
    if (MOST == N64 || n <= N64)
      WgmmaConsumer<E, BY_TMA, N64, SPAN, ALL>(p, w.pipeline).all();
    else if constexpr (MOST > N64)
      WgmmaConsumer<E, BY_TMA, MOST, SPAN, ALL>(p, w.pipeline).all();
  }
  sync();
}

}  // namespace et
