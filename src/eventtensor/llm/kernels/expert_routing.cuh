// Routing of tokens to experts for the threads of a block: hand-tuned bodies of
// llm/model/moe_block.py, whose Python bodies define the result. EXPERTS: their number; TOP: the
// experts of a token.
#pragma once
#include "cuda/ops/histogram.cuh"
#include "cuda/ops/reduce.cuh"

namespace et::experts {

// ---- top-k of a token ---------------------------------------------------------------------------

ET_HOT float score_at(uint32_t place) {
  return bits_float(place >> 31 != 0 ? place ^ 1u << 31 : ~place);
}

template <int LANES> ET_HOT float sum_of_lanes(float x, int lane) {
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) x += __shfl_sync(~0u, x, lane ^ by);
  return x;
}

// The shared memory of the top-k. Places beyond the last expert are 0, so that quads are full.
template <int EXPERTS, int TOP> struct TopkSmem {
  static constexpr int SPLIT = ET_THREADS / EXPERTS >= 4 ? 4 : ET_THREADS / EXPERTS >= 2 ? 2 : 1;
  static constexpr int QUADS = (EXPERTS + 4 * SPLIT - 1) / (4 * SPLIT) * SPLIT;
  uint32_t place[4 * QUADS];
  uint32_t best[TOP];
  int32_t expert[TOP];
  float scale;
};

// The rank of expert `e`; each of SPLIT neighbouring lanes compares some quads.
template <int EXPERTS, int TOP>
ET_HOT int rank_of(const TopkSmem<EXPERTS, TOP>& smem, int e, int part, int lane) {
  using Smem = TopkSmem<EXPERTS, TOP>;
  const uint32_t mine = smem.place[e];
  int before = 0;
#pragma unroll 4  // not more: it runs once a layer, and its code must be fetched first
  for (int k = 0; k < Smem::QUADS / Smem::SPLIT; ++k) {
    const int quad = k * Smem::SPLIT + part;
    const uint4 four = reinterpret_cast<const uint4*>(smem.place)[quad];
    const uint32_t least = quad < e / 4 ? mine : mine + 1;  // the lower index wins a tie
    before += (four.x >= least) + (four.y >= least) + (four.z >= least) + (four.w >= least);
  }
  ET_ROLLED for (int f = e / 4 * 4; f < e; ++f) before += part == 0 && smem.place[f] == mine;
#pragma unroll
  for (int by = 1; by < Smem::SPLIT; by *= 2) before += __shfl_sync(~0u, before, lane ^ by);
  return before;
}

// One warp computes the scale of RMSNorm from sums of squares.
template <int SUMS> ET_HOT float scale_of(const float* squares, float hidden, float eps, int lane) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < SUMS; k += WARP) sum += k + lane < SUMS ? squares[k + lane] : 0.0f;
  return rsqrt(sum_of_lanes<WARP>(sum, lane) / hidden + eps);
}

// Scores come in PARTS that the threads add. `scale` computes the scale of the norm where scores
// lack it: their order does not depend on it. The last warp calls it, because its lanes have least
// to do.
template <int PARTS, int EXPERTS, int TOP, bool NORMED, class F>
ET_HOT void topk_of_token(float* memory, View<const float, 3> scores, View<float, 2> share,
                        int32_t* expert, const F& scale) {
  using Smem = TopkSmem<EXPERTS, TOP>;
  static_assert(EXPERTS <= ET_THREADS && TOP <= WARP / 2 && TOP <= EXPERTS);
  Smem& smem = *reinterpret_cast<Smem*>(memory);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew: see attention_prologue.cuh
  const int lane = unsigned(number) % WARP;
  if (number < 4 * Smem::QUADS) {
    float sum = number < EXPERTS ? scores.data[number] : 0.0f;
#pragma unroll
    for (int p = 1; p < PARTS; ++p)
      sum += number < EXPERTS ? scores.data[p * scores.stride[0] + number] : 0.0f;
    smem.place[number] = number < EXPERTS ? place_of(sum) : 0;
  }
  if (number >= ET_THREADS - WARP) {
    const float found = scale(lane);
    if (lane == 0) smem.scale = found;
  }
  sync();
  const int e = unsigned(number) / Smem::SPLIT, part = unsigned(number) % Smem::SPLIT;
  const int rank = rank_of(smem, e < EXPERTS ? e : 0, part, lane);
  const bool chosen = e < EXPERTS && part == 0 && rank < TOP;
  if (chosen) smem.best[rank] = smem.place[e], smem.expert[rank] = e;
  sync();
  if (number >= WARP) return;
  const float most = score_at(smem.best[0]), by = smem.scale;
  const float chance = lane < TOP ? exp((score_at(smem.best[lane]) - most) * by) : 0.0f;
  float all = NORMED ? chance : 0.0f;
  if (!NORMED)
    ET_ROLLED for (int k = lane; k < EXPERTS; k += WARP)
      all += exp((score_at(smem.place[k]) - most) * by);
  const float total = sum_of_lanes<WARP>(all, lane);
  if (lane < TOP) share.data[lane] = chance / total, expert[lane] = smem.expert[lane];
}

template <int PARTS, int EXPERTS, int TOP, bool NORMED>
ET_FN void pick_experts(float* memory, View<const float, 3> scores, View<int32_t, 2> chosen,
                        View<float, 2> share) {
  topk_of_token<PARTS, EXPERTS, TOP, NORMED>(memory, scores, share, chosen.data,
                                           [](int) { return 1.0f; });
}

// A step of a single token: its experts are all experts in use.
template <int PARTS, int EXPERTS, int TOP, bool NORMED, int SUMS>
ET_FN void route_single(float* memory, View<const float, 3> scores, View<const float, 2> squares,
                     View<float, 2> share, View<int32_t, 0> active, View<int32_t, 1> expert,
                     float hidden, float eps) {
  topk_of_token<PARTS, EXPERTS, TOP, NORMED>(
      memory, scores, share, expert.data,
      [&](int lane) { return scale_of<SUMS>(squares.data, hidden, eps, lane); });
  if (is_leader()) active.data[0] = TOP;
}

// ---- tokens by expert ---------------------------------------------------------------------------

// An expert: the number of pairs before its own, and its rank among the experts in use.
struct Expert { int32_t first, rank; };

// For each expert, a bit mask of its tokens (32 tokens a word) and the place of its pairs.
template <int EXPERTS> struct RoutingTable {
  static constexpr int CHUNK = 32;
  Expert* experts;
  int32_t* masks;

  ET_HOT explicit RoutingTable(int32_t* smem)
      : experts(reinterpret_cast<Expert*>(smem)), masks(smem + 2 * EXPERTS) {}

  ET_HOT static int words(int rows) { return (rows + CHUNK - 1) / CHUNK * EXPERTS; }
  ET_HOT static int word(int t, int expert) { return t / CHUNK * EXPERTS + expert; }

  // The number of tokens before t that go to the same expert.
  ET_HOT int count_before(int t, int expert) const {
    int count = __popc(masks[word(t, expert)] & ((1u << t % CHUNK) - 1));
    ET_ROLLED for (int at = word(t, expert) - EXPERTS; at >= 0; at -= EXPERTS)
      count += __popc(masks[at]);
    return count;
  }
};

// One warp lists the experts in use and where the pairs of each begin. Both prefix sums share one
// 32-bit number.
template <int TOP, int EXPERTS>
ET_FN void list_active_experts(const RoutingTable<EXPERTS>& table, View<int32_t, 1> expert,
                     View<int32_t, 1> begin, int32_t* active, int rows, int lane) {
  constexpr int N = (EXPERTS + WARP - 1) / WARP;  // experts of a lane
  int own[N] = {}, all = 0;
  ET_ROLLED for (int at = lane * N; at < table.words(rows); at += EXPERTS)
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (lane * N + j < EXPERTS) own[j] += __popc(table.masks[at + j]);
#pragma unroll
  for (int j = 0; j < N; ++j) all += own[j] += own[j] > 0 ? 1 << 16 : 0;
  int sum = all;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const int below = __shfl_sync(~0u, sum, lane < by ? lane : lane - by);
    if (lane >= by) sum += below;
  }
  const int used = __shfl_sync(~0u, sum, WARP - 1) >> 16;
  sum -= all;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int e = lane * N + j, first = sum & 0xffff, rank = sum >> 16;
    if (e < EXPERTS) table.experts[e] = {first, rank};
    if (own[j] != 0) expert.data[rank] = e, begin.data[rank] = first;
    sum += own[j];
  }
  ET_ROLLED for (int a = used + lane; a <= EXPERTS; a += WARP) {
    if (a < EXPERTS) expert.data[a] = EXPERTS - 1;
    begin.data[a] = rows * TOP;
  }
  if (lane == 0) *active = used;
}

// `smem` holds a table of ROWS tokens, those of the largest step.
template <int EXPERTS, int TOP, int ROWS>
ET_FN void route(int32_t* smem, View<const int32_t, 2> chosen, View<const float, 2> given,
                 View<float, 2> share, View<int32_t, 2> rank, View<int32_t, 2> pair,
                 View<int32_t, 0> active, View<int32_t, 1> expert, View<int32_t, 1> begin,
                 View<int32_t, 1> member) {
  static_assert(ROWS * TOP < 1 << 16);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew: see attention_prologue.cuh
  const int lane = unsigned(number) % WARP, rows = int(chosen.extent[0]);
  const RoutingTable<EXPERTS> table(smem);
  ET_ROLLED for (int i = number; i < table.words(rows); i += ET_THREADS) table.masks[i] = 0;
  sync();
  const Bins masks(table.masks);
  ET_ROLLED for (int i = number; i < rows * TOP; i += ET_THREADS)
    masks.add(table.word(i / TOP, chosen.data[i]), int32_t(1u << i / TOP % table.CHUNK));
  sync();
  if (number < WARP) list_active_experts<TOP>(table, expert, begin, active.data, rows, lane);
  sync();
  ET_ROLLED for (int i = number; i < rows * TOP; i += ET_THREADS) {
    const int t = i / TOP, e = chosen.data[i];
    const Expert known = table.experts[e];
    const int at = known.first + table.count_before(t, e);
    member.data[at] = t;
    pair.data[i] = at;
    rank.data[i] = known.rank;
    share.data[i] = given.data[i];
  }
}

}  // namespace et::experts
