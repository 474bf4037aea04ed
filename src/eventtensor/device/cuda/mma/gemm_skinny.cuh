// Matrix products whose one operand is used up page by page: the rows of a bundle of panels by some
// columns of K, from the pipeline or from global memory (fragments.cuh). sm_80 and later.
//
// Warps share a page, each a panel of it, and groups of them take pages in turn. Products of bf16 or
// f16 are exact in f32; the order of the sums is fixed by the shapes alone (steps in turn over the
// sums of a warp, then these, then the warps, as trees), so bits do not depend on where the pages
// come from.
#pragma once
#include "cuda/mma/fragments.cuh"

namespace et {

// The columns of x (k, n), staged in the arena (the plan sees to it that they fit), unless they are
// taken ALONE, one at a time, and lie there already.
template <bool NATURAL, bool ALONE, class E>
ET_FN Columns stage_columns(Arena& arena, Matrix<E> x, int64_t k, int64_t n) {
  constexpr int64_t EACH = 16 / sizeof(E);
  const bool wide = x.s0 == 1 && reinterpret_cast<uint64_t>(x.data) % 16 == 0
      && (n == 1 || x.s1 % EACH == 0) && k % EACH == 0, alone = ALONE || n == 1;
  if (wide && alone && __isShared(x.data))
    return {uint32_t(__cvta_generic_to_shared(x.data)), uint32_t(x.s1 * sizeof(E))};
  const uint32_t bytes = uint32_t(k * sizeof(E));
  const uint32_t pitch = alone ? bytes : pitch_of(bytes, NATURAL);
  char* const to = arena.take<char>(n * pitch);
  if (!__isShared(to)) __trap();
  for (int64_t c = 0; c < n; ++c) {
    const E* const from = x.data + c * x.s1;
    E* const row = reinterpret_cast<E*>(to + c * pitch);
    if (wide) {
  ET_ROLLED for (int64_t q = thread_rank(); q < k / EACH; q += num_threads())
        reinterpret_cast<uint4*>(row)[q] = reinterpret_cast<const uint4*>(from)[q];
    } else {
      ET_ROLLED for (int64_t q = thread_rank(); q < k; q += num_threads()) row[q] = from[q * x.s0];
    }
  }
  sync();
  return {uint32_t(__cvta_generic_to_shared(to)), pitch};
}

// The sums of one warp over one panel: TILES tiles of 8 columns, in several sums that do not wait
// for each other. Steps go to them in turn.
template <class E, int TILES> class MmaSyncAccumulators {
 public:
  static constexpr uint32_t SUMS = TILES < 4 ? 4 / TILES : 1;

  // Adds step `s` of a page, for a tile: its fragments are those of step `k` of a pair.
  template <class Page>
  ET_HOT void add(uint32_t s, int t, const typename Page::Pair& w, int k, const Eight& x) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      mma<E>(sum_[s % SUMS][t], Page::fragment(w, k, half), x, half);
  }

  // As [column][row] into the warp's part, the columns that are there.
  ET_HOT void store(float* part, uint32_t n) const {
    const uint32_t g = warp_row(), q = warp_chunk();
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t column = t * 8 + q * 2 + j % 2;
        if (column < n) part[column * PANEL + g + j / 2 * 8] = total(t, j);
      }
    }
  }

 private:
  ET_HOT float total(int t, int j) const {
    const float first = SUMS == 1 ? sum_[0][t][j] : sum_[0][t][j] + sum_[1 % SUMS][t][j];
    return SUMS < 4 ? first : first + (sum_[2 % SUMS][t][j] + sum_[3 % SUMS][t][j]);
  }

  float sum_[SUMS][TILES][4] = {};
};

// The result (row, column) of up to BUNDLES bundles goes to c[row * s_row + column * s_col]: parts of
// the warps that have summed up the same panel, which have met, are added as a tree.
template <uint32_t BUNDLES, uint32_t BUNDLE>
ET_FN void fold_panels(const float* parts, uint32_t part, float* c, int64_t s_row, int64_t s_col,
                       uint32_t rows, uint32_t n) {
  constexpr uint32_t PANELS = BUNDLES * BUNDLE, EACH = SHARERS / BUNDLE;
  for (uint32_t at = threadIdx.x; at < PANELS * PANEL * n; at += ET_THREADS) {
    const uint32_t panel = at / PANEL % PANELS, column = at / PANEL / PANELS;
    const uint32_t row = panel * PANEL + at % PANEL;
    if (row >= rows) continue;
    const uint32_t warp = panel / BUNDLE * SHARERS + panel % BUNDLE * TURNS;  // the first
    const float* const from = parts + warp * part + column * PANEL + at % PANEL;
    float x[EACH];
#pragma unroll
    for (uint32_t w = 0; w < EACH; ++w) x[w] = from[(w / TURNS * BUNDLE * TURNS + w % TURNS) * part];
#pragma unroll
    for (uint32_t half = EACH / 2; half > 0; half /= 2)
#pragma unroll
      for (uint32_t w = 0; w < half; ++w) x[w] += x[w + half];
    c[row * s_row + column * s_col] = x[0];
  }
}

// Stages read in place from global memory: page j, `bytes` from page to page, of bundle b, of panels
// that have `panel` bytes each, or of rows `pitch` bytes apart.
template <uint32_t SPAN, uint32_t BUNDLE_> struct GlobalPanels {
  static constexpr uint32_t BUNDLE = BUNDLE_;
  static constexpr bool JOINED = false;
  const char* data;
  int64_t panel, bytes;

  template <uint32_t> using Page = PanelFill<SPAN, BUNDLE, BUNDLE, const char*>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t b, uint32_t j, uint32_t, uint32_t, Own own) const {
    return {data + b * BUNDLE * panel + j * bytes + own.panel * SPAN * PANEL, own};
  }
  ET_HOT void done(uint32_t) const {}
  ET_HOT void end(Worker&, uint32_t) const {}
};

// The panels of TIMES products, BUNDLE of them together.
template <uint32_t SPAN, uint32_t BUNDLE_, uint32_t TIMES> struct GlobalJoinedPanels {
  static constexpr uint32_t BUNDLE = BUNDLE_;
  static constexpr bool JOINED = true;
  const char* data[TIMES];

  template <uint32_t> using Page = PanelFill<SPAN, BUNDLE, 1, const char*>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t b, uint32_t j, uint32_t, uint32_t, Own own) const {
    return {data[b * BUNDLE + own.panel] + j * BYTES * PANEL, own};
  }
  ET_HOT void done(uint32_t) const {}
  ET_HOT void end(Worker&, uint32_t) const {}
};

struct GlobalRows {
  static constexpr uint32_t BUNDLE = 1;
  static constexpr bool JOINED = false;
  const char* data;
  int64_t pitch, chunk;

  template <uint32_t BYTES> using Page = RowsFill<BYTES, const char*>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t b, uint32_t j, uint32_t, uint32_t rows, Own own) const {
    const char* const at = data + b * PANEL * pitch + j * chunk;
    const uint32_t g = warp_row();  // rows beyond the last one repeat it, and are not stored
    return {at + (g < rows ? g : rows - 1) * pitch, at + (g + 8 < rows ? g + 8 : rows - 1) * pitch,
            own};
  }
  ET_HOT void done(uint32_t) const {}
  ET_HOT void end(Worker&, uint32_t) const {}
};

// What a warp does in a product: pages `turn`, `turn` + TURNS, .., of each one panel, the pairs of
// steps in turn with the other warps of this panel. All is known at compile time but where things lie.
// EVERY: bundles that have a column of their own, in a run of products (0: all have all columns).
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK, uint32_t EVERY, class Source>
class MmaSyncConsumer {
 public:
  static constexpr uint32_t PART = PANEL * (EVERY != 0 ? 1 : 8 * TILES);  // of a warp and bundle
  static constexpr uint32_t ROWS = PANEL * Source::BUNDLE;
  static constexpr uint32_t ACROSS = Source::JOINED ? Source::BUNDLE : 1;  // products of a bundle
  static constexpr bool NATURAL = Source::template Page<CHUNK>::NATURAL;

  ET_HOT MmaSyncConsumer(Source& source, Columns x, uint32_t n)
      : source_(source), turn_(warp_index() % TURNS), own_(warp_index() / TURNS, Source::BUNDLE),
        column_(x, n, own_.k), n_(n), step_(x.pitch * ACROSS),
        x_from_(Source::JOINED ? own_.panel * x.pitch : 0) {}

  // Sums up the panels of the next `rows` rows, bundle after bundle.
  ET_HOT void panels(float* parts, uint32_t rows) {
    float* part = parts + warp_index() * PART;
    if constexpr (ROLLS) {
      roll(part, rows);
    } else {
      ET_ROLLED for (uint32_t r = 0; r < rows; r += ROWS, part += SHARERS * PART)
        bundle(part, rows - r);
    }
  }

  ET_HOT uint32_t pages() const { return pages_; }

 private:
  static constexpr uint32_t EACH = (ROW + CHUNK - 1) / CHUNK, LAST = ROW - (EACH - 1) * CHUNK;
  static constexpr uint32_t STRIDE = stride_of(Source::BUNDLE);
  static constexpr uint32_t MINE = EACH / TURNS, PAIRS = CHUNK / STRIDE;
  static constexpr bool ROLLS =
      TILES == 1 && LAST == CHUNK && EACH % TURNS == 0 && CHUNK % (2 * STRIDE) == 0;
  using Sums = MmaSyncAccumulators<E, TILES>;
  template <uint32_t BYTES> using Page = typename Source::template Page<BYTES>;
  using Whole = Page<CHUNK>;

  template <uint32_t BYTES> ET_HOT Page<BYTES> find(uint32_t j, uint32_t rows) {
    return source_.template page<BYTES>(bundles_, j, pages_ + j, rows, own_);
  }
  ET_HOT void bundle_done() {
    ++bundles_, pages_ += EACH;
    if constexpr (EVERY != 0) {
      if (bundles_ % EVERY == 0) x_from_ += step_;
    }
  }

  // Where all warps have as many pages. Two pairs are in registers or on their way; a page is
  // released when it is read, and the next one begins to come before the last products of this one.
  ET_HOT void roll(float* part, uint32_t rows) {
    Whole at = find<CHUNK>(turn_, rows);
    load(at, turn_, 0);
    ET_ROLLED for (uint32_t left = rows; left > 0; part += SHARERS * PART) {
      Sums sums;
      const uint32_t after = left < ROWS ? 0 : left - ROWS;
#pragma unroll (MINE <= 2 ? MINE : 1)
      for (uint32_t i = 0; i < MINE; ++i) {
        const uint32_t j = turn_ + i * TURNS;
#pragma unroll
        for (uint32_t k = 1; k < PAIRS; ++k) {
          load(at, j, k);
          add(sums, k - 1);
        }
        source_.done(pages_ + j);
        if (i + 1 == MINE) bundle_done();
        if (i + 1 < MINE || after > 0) {
          const uint32_t next = i + 1 < MINE ? j + TURNS : turn_;
          at = find<CHUNK>(next, i + 1 < MINE ? left : after);
          load(at, next, 0);
        }
        add(sums, PAIRS - 1);
      }
      sums.store(part, n_);
      left = after;
    }
  }

  // Pair k of page j.
  ET_HOT void load(const Whole& at, uint32_t j, uint32_t k) {
    const uint32_t from = k * STRIDE, x = x_from_ + j * CHUNK + from;
    column_.load(x_[k % 2][0], 0, x);
    at.template load<2>(w_[k % 2], from);
    column_.load(x_[k % 2][1], 0, x + STEP_BYTES);
  }

  ET_HOT void add(Sums& sums, uint32_t k) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      sums.template add<Whole>(2 * k + h, 0, w_[k % 2], h, x_[k % 2][h]);
  }

  // Anywhere: page after page, pair after pair.
  ET_HOT void bundle(float* part, uint32_t rows) {
    Sums sums;
    ET_ROLLED for (uint32_t j = turn_ - pages_ & TURNS - 1; j < EACH; j += TURNS) {
      if (LAST == CHUNK || j + 1 < EACH) page<CHUNK>(sums, j, rows);
      else page<LAST>(sums, j, rows);
      source_.done(pages_ + j);
    }
    bundle_done();
    sums.store(part, n_);
  }

  template <uint32_t BYTES> ET_HOT void page(Sums& sums, uint32_t j, uint32_t rows) {
    const Page<BYTES> at = find<BYTES>(j, rows);
    constexpr uint32_t J = BYTES / STRIDE, REST = BYTES % STRIDE;
#pragma unroll
    for (uint32_t k = 0; k < J; ++k) steps<2>(sums, at, j, k);
    const uint32_t mine = own_.k;  // the first warps have one more, or half a one
    if (REST != 0 && mine + STEP_BYTES < REST) steps<2>(sums, at, j, J);
    else if (REST % (2 * STEP_BYTES) != 0 && mine < REST) steps<1>(sums, at, j, J);
  }

  // COUNT steps of pair k of page j.
  template <int COUNT, class Page>
  ET_HOT void steps(Sums& sums, const Page& at, uint32_t j, uint32_t k) {
    typename Page::Pair w;
    at.template load<COUNT>(w, k * STRIDE);
#pragma unroll
    for (int h = 0; h < COUNT; ++h)
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
        Eight x{};
        column_.load(x, t, x_from_ + j * CHUNK + k * STRIDE + h * STEP_BYTES);
        sums.template add<Page>(2 * k + h, t, w, h, x);
      }
  }

  Source& source_;
  const uint32_t turn_;
  const Own own_;
  const LaneColumn<NATURAL> column_;
  const uint32_t n_, step_;
  typename Whole::Pair w_[2];         // the pairs that roll, and their x:
  Eight x_[2][2] = {};                // zeros in lanes without a column
  uint32_t bundles_ = 0, pages_ = 0;  // behind
  uint32_t x_from_;                   // where the column of this product begins
};

// c = W x for W of `rows` rows of ROW bytes, in pages of a bundle's rows by CHUNK bytes. The threads
// have not met since. PANELS at most; as many bundles are summed up before they are folded as 16 KB of
// parts hold. TIMES > 1: so many products, each of its share of the rows by a column of its own; the
// result is a column. They are of one panel each where bundles join them.
template <class E, int TILES, uint32_t ROW, uint32_t CHUNK, uint32_t PANELS, uint32_t TIMES = 1,
          class Source>
ET_HOT void skinny_gemm(Worker& w, Source source, float* c, int64_t s_row, int64_t s_col,
                         Matrix<E> x, int64_t rows, int64_t columns) {
  constexpr uint32_t BUNDLE = Source::BUNDLE, BUNDLES = (PANELS + BUNDLE - 1) / BUNDLE;
  static_assert(Source::JOINED ? PANELS == TIMES : TIMES == 1 || PANELS % (TIMES * BUNDLE) == 0);
  constexpr uint32_t EVERY = TIMES == 1 ? 0 : Source::JOINED ? 1 : BUNDLES / TIMES;
  if (rows < 1) return sync();
  using Mine = MmaSyncConsumer<E, TILES, ROW, CHUNK, EVERY, Source>;
  constexpr uint32_t FIT = Mine::PART < BATCH_SUMS ? BATCH_SUMS / Mine::PART : 1, BATCH = BUNDLES < FIT ? BUNDLES : FIT;
  const uint32_t n = TIMES == 1 ? uint32_t(columns) : 1;  // of each product
  const Arena::Mark mark = w.arena.mark();
  const Columns x_near =
      stage_columns<Mine::NATURAL, (TIMES > 1)>(w.arena, x, ROW / sizeof(E), columns);
  float* const parts = w.arena.take<float>(BATCH * SHARERS * Mine::PART);
  Mine mine(source, x_near, n);
  for (int64_t r = 0; r < rows; r += BATCH * Mine::ROWS) {
    const uint32_t left = rows - r < BATCH * Mine::ROWS ? uint32_t(rows - r) : BATCH * Mine::ROWS;
    if (r > 0) sync();  // the parts before are folded
    mine.panels(parts, left);
    sync();  // all parts are there
    fold_panels<BATCH, BUNDLE>(parts, Mine::PART, c + r * s_row, s_row, s_col, left, n);
  }
  source.end(w, mine.pages());
  w.arena.rewind(mark);
}

}  // namespace et
