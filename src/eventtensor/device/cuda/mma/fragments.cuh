// What a warp takes of a page: 16 rows by 32 columns of K at a time (a step), as two fragments of
// mma.m16n8k16, from shared memory or where the page lies. sm_80 and later.
//
// Panels are packed by spans of K, a span of all panels of a bundle after the other, of each panel the
// first eight rows and then the others, by blocks of eight rows by 16 bytes: a fragment is one load
// of four blocks. Of plain rows a lane loads 16 bytes
// (8 elements of K) of two rows: K is then permuted, alike on both sides of the product, which a sum
// does not see.
#pragma once
#include "cuda/ptx/wgmma.cuh"
#include "cuda/constants.cuh"
#include "cuda/roles/worker.cuh"

namespace et {

constexpr uint32_t STEP_BYTES = 64;  // of a row, in a step
constexpr uint32_t BLOCK_BYTES = 128;

// How the warps share pages: TURNS groups of SHARE warps take them in turn. A page that more warps
// share is released sooner, and the producer goes on sooner; one that fewer share gives each of them
// longer runs of loads. Four of eight warps measured best (docs/tuning/chain.md).
constexpr uint32_t SHARE = 4, TURNS = ET_THREADS / 32 / SHARE, SHARERS = TURNS * SHARE;
static_assert(SHARERS * 32 == ET_THREADS && (TURNS & TURNS - 1) == 0);

// Warps that share a page of a bundle take its panels in turn. Of a row, what those of one panel take
// in one turn: two steps each.
constexpr ET_FN uint32_t stride_of(uint32_t bundle) { return SHARE / bundle * 2 * STEP_BYTES; }

// What a warp takes of a page: a panel of the bundle, from byte k of its rows on.
struct Own {
  uint32_t panel, k;
  ET_HOT Own(uint32_t part, uint32_t bundle)
      : panel(part % bundle), k(bundle == SHARE ? 0 : part / bundle * 2 * STEP_BYTES) {}
};

struct Fragment { uint32_t word[4]; };

template <class E> ET_HOT void mma(float (&c)[4], const Fragment& w, const Eight& x, int half) {
  const uint32_t column[2] = {x.pair[2 * half], x.pair[2 * half + 1]};
  if constexpr (std::is_same_v<E, bf16>) ptx::mma_bf16(c, w.word, column);
  else ptx::mma_f16(c, w.word, column);
}

// Sixteen bytes at an address in shared memory, or anywhere.
ET_HOT Eight load_eight(uint32_t address) {
  Eight x;
  ptx::ld_shared_v4(address, x.pair);
  return x;
}
ET_HOT Eight load_eight(const char* address) { return *reinterpret_cast<const Eight*>(address); }

// ---- packed panels ---------------------------------------------------------------------------

// Spans of SPAN bytes of a row.
template <uint32_t SPAN> struct Packed {
  static constexpr uint32_t HALF = SPAN * PANEL / 2;  // bytes from the first rows to the others

  // Where the blocks of byte k of the rows begin, in a bundle of so many panels.
  ET_HOT static uint32_t block(uint32_t k, uint32_t bundle) {
    return k / SPAN * SPAN * PANEL * bundle + k % SPAN / 16 * BLOCK_BYTES;
  }
  // A lane's part of the fragment that begins with these blocks.
  ET_HOT static Fragment load(uint32_t at) {
    const uint32_t lane = threadIdx.x % 32;
    Fragment f;
    ptx::ldmatrix_x4(at + lane / 8 % 2 * HALF + lane / 16 * BLOCK_BYTES + lane % 8 * 16, f.word);
    return f;
  }
  ET_HOT static Fragment load(const char* at) {
    const char* const from = at + threadIdx.x % 32 * 4;
    const auto word = [](const char* p) { return *reinterpret_cast<const uint32_t*>(p); };
    return {{word(from), word(from + HALF), word(from + BLOCK_BYTES),
             word(from + HALF + BLOCK_BYTES)}};
  }
};

// A panel of a page of BUNDLE panels, from its first span on; others lie as in a bundle of LAID.
template <uint32_t SPAN, uint32_t BUNDLE, uint32_t LAID, class At> class PanelFill {
 public:
  static constexpr bool NATURAL = true;  // K is in its order
  struct Pair { Fragment fragment[2][2]; };

  ET_HOT PanelFill(At at, Own own)
      : at_(at + (AHEAD ? Packed<SPAN>::block(own.k, LAID) : 0)), k_(own.k) {}

  // Loads COUNT steps from byte k on, a multiple of STRIDE, and gives their fragments.
  template <int COUNT> ET_HOT void load(Pair& w, uint32_t k) const {
#pragma unroll
    for (int f = 0; f < 2 * COUNT; ++f) {
      const uint32_t here = (AHEAD ? 0 : k_ + f * STEP_BYTES / 2) + k;
      const uint32_t block = Packed<SPAN>::block(here, LAID) + (AHEAD ? f * 2 * BLOCK_BYTES : 0);
      w.fragment[f / 2][f % 2] = Packed<SPAN>::load(at_ + block);
    }
  }
  ET_HOT static Fragment fragment(const Pair& w, int step, int half) {
    return w.fragment[step][half];
  }

 private:
  // Steps of a turn lie in one span, and turns are whole spans or spans whole turns: what is added is
  // a constant.
  static constexpr uint32_t STRIDE = stride_of(BUNDLE);
  static constexpr bool AHEAD =
      (STRIDE % SPAN == 0 || SPAN % STRIDE == 0) && SPAN % (2 * STEP_BYTES) == 0;
  At at_;
  uint32_t k_;
};

// ---- plain rows --------------------------------------------------------------------------------

// One of two, in registers.
ET_HOT uint32_t pick(bool first, uint32_t a, uint32_t b) { return first ? a : b; }

// Rows of BYTES. Eight lanes read two rows together; where rows begin in the same bank, odd rows
// turn: they load the second step first, so that the lanes touch all banks once.
template <uint32_t BYTES, class At> class RowsFill {
 public:
  static constexpr bool NATURAL = false;
  struct Pair { Eight low[2], high[2]; };

  ET_HOT RowsFill(At low, At high, Own own)
      : low_(low + own.k + warp_chunk() * 16), high_(high + own.k + warp_chunk() * 16) {}

  template <int COUNT> ET_HOT void load(Pair& w, uint32_t k) const {
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
      const uint32_t at = k + (COUNT == 2 && turns() ? 1 - s : s) * STEP_BYTES;
      w.low[s] = load_eight(low_ + at), w.high[s] = load_eight(high_ + at);
    }
  }
  ET_HOT static Fragment fragment(const Pair& w, int step, int half) {
    const bool turn = turns();
    const auto word = [&](const Eight (&x)[2], int k) {
      return pick(turn, x[1 - step].pair[2 * half + k], x[step].pair[2 * half + k]);
    };
    return {{word(w.low, 0), word(w.high, 0), word(w.low, 1), word(w.high, 1)}};
  }

 private:
  ET_HOT static bool turns() {
    constexpr bool same_bank = std::is_same_v<At, uint32_t> && BYTES % (2 * STEP_BYTES) == 0;
    return same_bank && warp_row() % 2 == 1;
  }

  At low_, high_;
};

// ---- the columns of x ------------------------------------------------------------------------

// Columns in shared memory, each with K contiguous, `pitch` bytes apart.
struct Columns {
  uint32_t at, pitch;
};

// Of a column a lane holds what meets the fragments of a step: in K's order by ldmatrix, permuted
// by its own 16 bytes. A pitch for which the lanes of a load touch all banks once: 16 or 64 more
// than a multiple of 128.
constexpr ET_FN uint32_t pitch_of(uint32_t bytes, bool natural) {
  const uint32_t more = natural ? 16 : 64;
  return bytes % 128 == more ? bytes : (bytes + 127) / 128 * 128 + more;
}

template <bool NATURAL> class LaneColumn {
 public:
  ET_HOT LaneColumn(Columns x, uint32_t n, uint32_t k)
      : n_(n), pitch_(x.pitch), at_(x.at + k + (NATURAL ? threadIdx.x % 32 / 8 : warp_chunk()) * 16),
        column_(NATURAL ? threadIdx.x % 8 : warp_row()) {}

  // A step from byte k on of the columns of tile t. Beyond the last one it is anything.
  ET_HOT void load(Eight& x, int t, uint32_t k) const {
    const uint32_t column = t * 8 + column_;
    if constexpr (NATURAL) ptx::ldmatrix_x4(at_ + (column < n_ ? column : 0) * pitch_ + k, x.pair);
    else if (column < n_) x = load_eight(at_ + column * pitch_ + k);
  }

 private:
  uint32_t n_, pitch_, at_, column_;
};

}  // namespace et
