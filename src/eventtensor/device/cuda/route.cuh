// Which experts each token goes to, for the threads of a block: hand-tuned body of `route` in
// models/experts.py, whose Python body is the meaning. A warp takes a token, a lane every 32nd
// expert. EXPERTS: how many there are; TOP: those of a token.
#pragma once
#include "reduce.cuh"

namespace et::experts {

constexpr int WARPS = ET_THREADS / WARP;

template <int EXPERTS> constexpr int EACH = (EXPERTS + WARP - 1) / WARP;  // of a lane

// A number that is larger for a better score and, of equal ones, for the lower expert. NaN comes
// last, and 0 stands for no expert.
ET_HOT uint64_t place_of(float score, int expert) {
  const uint32_t bits = float_bits(score + 0.0f);  // there is one zero
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  return uint64_t(score == score ? ordered : 0u) << 32 | uint32_t(~expert);
}
ET_HOT int expert_at(uint64_t place) { return int(~uint32_t(place)); }
ET_HOT float score_at(uint64_t place) {
  const uint32_t ordered = uint32_t(place >> 32);
  return bits_float(ordered >> 31 != 0 ? ordered ^ 1u << 31 : ~ordered);
}

ET_HOT uint64_t best_of_warp(uint64_t place, int lane) {
#pragma unroll
  for (int by = WARP / 2; by > 0; by /= 2) {
    const uint64_t other = __shfl_sync(~0u, place, lane ^ by);
    place = other > place ? other : place;
  }
  return place;
}

ET_HOT float sum_of_warp(float x, int lane) {
#pragma unroll
  for (int by = WARP / 2; by > 0; by /= 2) x += __shfl_sync(~0u, x, lane ^ by);
  return x;
}

// The experts of one token, best first, their shares, and a bit for each of them in `taken`.
template <int EXPERTS, int TOP, bool NORMED>
ET_FN void choose(const float* scores, float* share, int32_t* chosen, uint32_t* taken, int lane) {
  static_assert(TOP <= WARP && TOP <= EXPERTS);
  constexpr int N = EACH<EXPERTS>;
  uint64_t place[N] = {};
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (j * WARP + lane < EXPERTS) place[j] = place_of(scores[j * WARP + lane], j * WARP + lane);
  float most = 0.0f, total = 0.0f, mine = 0.0f;
  int own = 0;
  uint32_t gone = 0;
  ET_ROLLED for (int k = 0; k < TOP; ++k) {
    uint64_t best = 0;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if ((gone >> j & 1) == 0 && place[j] > best) best = place[j];
    best = best_of_warp(best, lane);
    const int e = expert_at(best);
    if (k == 0) most = score_at(best);
    const float chance = exp(score_at(best) - most);
    total += chance;
    if (e % WARP == lane) gone |= 1u << e / WARP;
    if (k == lane) own = e, mine = chance;
  }
  if (!NORMED) {
    float all = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (place[j] != 0) all += exp(score_at(place[j]) - most);
    total = sum_of_warp(all, lane);
  }
  if (lane < TOP) {
    chosen[lane] = own;
    share[lane] = mine / total;
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const uint32_t bits = __ballot_sync(~0u, (gone >> j & 1) != 0);
    if (lane == 0) taken[j] = bits;
  }
}

// What is known of an expert: first its number of tokens, then the pairs before its own, and its
// number among the experts in use.
struct Expert { int32_t first, rank; };

// By one warp: the experts in use, and where the pairs of each begin. Two sums go in one number.
template <int EXPERTS>
ET_FN void list_used(Expert* all, View<int32_t, 1> expert, View<int32_t, 1> begin, int32_t* active,
                     int pairs, int lane) {
  int before = 0, used = 0;
  ET_ROLLED for (int base = 0; base < EXPERTS; base += WARP) {
    const int e = base + lane, count = e < EXPERTS ? all[e].first : 0, one = count > 0 ? 1 : 0;
    int sum = one << 16 | count;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int below = __shfl_sync(~0u, sum, lane < by ? lane : lane - by);
      if (lane >= by) sum += below;
    }
    const int first = before + (sum & 0xffff) - count, rank = used + (sum >> 16) - one;
    if (e < EXPERTS) all[e] = {first, rank};
    if (one != 0) expert.data[rank] = e, begin.data[rank] = first;
    const int last = __shfl_sync(~0u, sum, WARP - 1);
    before += last & 0xffff;
    used += last >> 16;
  }
  ET_ROLLED for (int a = used + lane; a <= EXPERTS; a += WARP) {
    if (a < EXPERTS) expert.data[a] = EXPERTS - 1;
    begin.data[a] = pairs;
  }
  if (lane == 0) *active = used;
}

// How many of the first `rows` tokens go to an expert.
template <int EXPERTS> ET_FN int tokens_of(const uint32_t* taken, int expert, int rows) {
  int count = 0;
#pragma unroll 8
  for (int t = 0; t < rows; ++t)
    count += taken[t * EACH<EXPERTS> + expert / WARP] >> expert % WARP & 1;
  return count;
}

// `room` has words for ROWS tokens, the most that there are, and two for each expert.
template <int EXPERTS, int TOP, bool NORMED, int ROWS>
ET_FN void route(int32_t* room, View<const float, 2> scores, View<float, 2> share,
                 View<int32_t, 2> rank, View<int32_t, 2> pair, View<int32_t, 0> active,
                 View<int32_t, 1> expert, View<int32_t, 1> begin, View<int32_t, 1> member) {
  static_assert(ROWS * TOP < 1 << 16);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew in every task: see attention_rows.cuh
  const int lane = unsigned(number) % WARP, warp = unsigned(number) / WARP;
  const int rows = int(scores.extent[0]), pairs = rows * TOP;
  Expert* const all = reinterpret_cast<Expert*>(room);
  int32_t* const chosen = room + 2 * EXPERTS;
  uint32_t* const taken = reinterpret_cast<uint32_t*>(chosen + ROWS * TOP);
  ET_ROLLED for (int t = warp; t < rows; t += WARPS)
    choose<EXPERTS, TOP, NORMED>(scores.data + t * scores.stride[0], share.data + t * share.stride[0],
                                 chosen + t * TOP, taken + t * EACH<EXPERTS>, lane);
  sync();
  ET_ROLLED for (int e = number; e < EXPERTS; e += ET_THREADS)
    all[e].first = tokens_of<EXPERTS>(taken, e, rows);
  sync();
  if (warp == 0) list_used<EXPERTS>(all, expert, begin, active.data, pairs, lane);
  sync();
  ET_ROLLED for (int i = number; i < pairs; i += ET_THREADS) {
    const int t = i / TOP, e = chosen[i];
    const int at = all[e].first + tokens_of<EXPERTS>(taken, e, t);
    rank.data[t * rank.stride[0] + i % TOP] = all[e].rank;
    pair.data[t * pair.stride[0] + i % TOP] = at;
    member.data[at] = t;
  }
}

// The same for a single row, whose experts are all that there are: by one warp.
template <int EXPERTS, int TOP, bool NORMED>
ET_FN void route_row(View<const float, 2> scores, View<float, 2> share, View<int32_t, 0> active,
                     View<int32_t, 1> expert) {
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));
  if (number >= WARP) return;
  uint32_t taken[EACH<EXPERTS>];
  choose<EXPERTS, TOP, NORMED>(scores.data, share.data, expert.data, taken, number);
  if (number == 0) active.data[0] = TOP;
}

}  // namespace et::experts
