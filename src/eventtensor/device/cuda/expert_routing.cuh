// Which experts each token goes to, for the threads of a block: hand-tuned bodies of
// models/moe_block.py, whose Python bodies are the meaning. EXPERTS: how many there are; TOP: those of
// a token.
#pragma once
#include "histogram.cuh"
#include "reduce.cuh"

namespace et::experts {

// ---- the best of a row --------------------------------------------------------------------------

ET_HOT float score_at(uint32_t place) {
  return bits_float(place >> 31 != 0 ? place ^ 1u << 31 : ~place);
}

template <int LANES> ET_HOT float sum_of_lanes(float x, int lane) {
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) x += __shfl_sync(~0u, x, lane ^ by);
  return x;
}

// What its threads share. A place is 0 beyond the last expert, so that quads of them are whole.
template <int EXPERTS, int TOP> struct RowRoom {
  static constexpr int SPLIT = ET_THREADS / EXPERTS >= 4 ? 4 : ET_THREADS / EXPERTS >= 2 ? 2 : 1;
  static constexpr int QUADS = (EXPERTS + 4 * SPLIT - 1) / (4 * SPLIT) * SPLIT;
  uint32_t place[4 * QUADS];
  uint32_t best[TOP];
  int32_t expert[TOP];
  float scale;
};

// How many experts come before expert `e`: each of SPLIT neighbouring lanes looks at some quads.
template <int EXPERTS, int TOP>
ET_HOT int rank_of(const RowRoom<EXPERTS, TOP>& room, int e, int part, int lane) {
  using Room = RowRoom<EXPERTS, TOP>;
  const uint32_t mine = room.place[e];
  int before = 0;
#pragma unroll 4  // not more: this is run once a layer, and its text has to come first
  for (int k = 0; k < Room::QUADS / Room::SPLIT; ++k) {
    const int quad = k * Room::SPLIT + part;
    const uint4 four = reinterpret_cast<const uint4*>(room.place)[quad];
    const uint32_t least = quad < e / 4 ? mine : mine + 1;  // of equal ones the lower comes first
    before += (four.x >= least) + (four.y >= least) + (four.z >= least) + (four.w >= least);
  }
  ET_ROLLED for (int f = e / 4 * 4; f < e; ++f) before += part == 0 && room.place[f] == mine;
#pragma unroll
  for (int by = 1; by < Room::SPLIT; by *= 2) before += __shfl_sync(~0u, before, lane ^ by);
  return before;
}

// By one warp: what the norm scales by, from sums of squares.
template <int SUMS> ET_HOT float scale_of(const float* squares, float hidden, float eps, int lane) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < SUMS; k += WARP) sum += k + lane < SUMS ? squares[k + lane] : 0.0f;
  return rsqrt(sum_of_lanes<WARP>(sum, lane) / hidden + eps);
}

// Scores come in PARTS that add up. `scale` is that of the norm, if they do not have it yet: the
// order does not hang on it. The last warp finds it, whose lanes have least to do.
template <int PARTS, int EXPERTS, int TOP, bool NORMED, class F>
ET_HOT void best_of_row(float* near, View<const float, 3> scores, View<float, 2> share,
                        int32_t* expert, const F& scale) {
  using Room = RowRoom<EXPERTS, TOP>;
  static_assert(EXPERTS <= ET_THREADS && TOP <= WARP / 2 && TOP <= EXPERTS);
  Room& room = *reinterpret_cast<Room*>(near);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew in every task: see attention_prologue.cuh
  const int lane = unsigned(number) % WARP;
  if (number < 4 * Room::QUADS) {
    float sum = number < EXPERTS ? scores.data[number] : 0.0f;
#pragma unroll
    for (int p = 1; p < PARTS; ++p)
      sum += number < EXPERTS ? scores.data[p * scores.stride[0] + number] : 0.0f;
    room.place[number] = number < EXPERTS ? place_of(sum) : 0;
  }
  if (number >= ET_THREADS - WARP) {
    const float found = scale(lane);
    if (lane == 0) room.scale = found;
  }
  sync();
  const int e = unsigned(number) / Room::SPLIT, part = unsigned(number) % Room::SPLIT;
  const int rank = rank_of(room, e < EXPERTS ? e : 0, part, lane);
  const bool chosen = e < EXPERTS && part == 0 && rank < TOP;
  if (chosen) room.best[rank] = room.place[e], room.expert[rank] = e;
  sync();
  if (number >= WARP) return;
  const float most = score_at(room.best[0]), by = room.scale;
  const float chance = lane < TOP ? exp((score_at(room.best[lane]) - most) * by) : 0.0f;
  float all = NORMED ? chance : 0.0f;
  if (!NORMED)
    ET_ROLLED for (int k = lane; k < EXPERTS; k += WARP)
      all += exp((score_at(room.place[k]) - most) * by);
  const float total = sum_of_lanes<WARP>(all, lane);
  if (lane < TOP) share.data[lane] = chance / total, expert[lane] = room.expert[lane];
}

template <int PARTS, int EXPERTS, int TOP, bool NORMED>
ET_FN void pick_experts(float* near, View<const float, 3> scores, View<int32_t, 2> chosen,
                        View<float, 2> share) {
  best_of_row<PARTS, EXPERTS, TOP, NORMED>(near, scores, share, chosen.data,
                                           [](int) { return 1.0f; });
}

// Of a step of a single row, whose experts are all that there are.
template <int PARTS, int EXPERTS, int TOP, bool NORMED, int SUMS>
ET_FN void route_row(float* near, View<const float, 3> scores, View<const float, 2> squares,
                     View<float, 2> share, View<int32_t, 0> active, View<int32_t, 1> expert,
                     float hidden, float eps) {
  best_of_row<PARTS, EXPERTS, TOP, NORMED>(
      near, scores, share, expert.data,
      [&](int lane) { return scale_of<SUMS>(squares.data, hidden, eps, lane); });
  if (leads()) active.data[0] = TOP;
}

// ---- who goes where -----------------------------------------------------------------------------

// What is known of an expert: the pairs before its own, and its number among those in use.
struct Expert { int32_t first, rank; };

// What all threads know: for each expert, 32 tokens at a time, a word with a bit for each of them
// that goes there; and where its pairs are.
template <int EXPERTS> struct Table {
  static constexpr int CHUNK = 32;
  Expert* known;
  int32_t* sent;

  ET_HOT explicit Table(int32_t* room)
      : known(reinterpret_cast<Expert*>(room)), sent(room + 2 * EXPERTS) {}

  ET_HOT static int words(int rows) { return (rows + CHUNK - 1) / CHUNK * EXPERTS; }
  ET_HOT static int word(int t, int expert) { return t / CHUNK * EXPERTS + expert; }

  // How many of the tokens before t go to an expert, which t does as well.
  ET_HOT int before(int t, int expert) const {
    int count = __popc(sent[word(t, expert)] & ((1u << t % CHUNK) - 1));
    ET_ROLLED for (int at = word(t, expert) - EXPERTS; at >= 0; at -= EXPERTS)
      count += __popc(sent[at]);
    return count;
  }
};

// By one warp: the experts in use, and where the pairs of each begin. Two sums go in one number.
template <int TOP, int EXPERTS>
ET_FN void list_used(const Table<EXPERTS>& table, View<int32_t, 1> expert,
                     View<int32_t, 1> begin, int32_t* active, int rows, int lane) {
  constexpr int N = (EXPERTS + WARP - 1) / WARP;  // experts of a lane
  int own[N] = {}, all = 0;
  ET_ROLLED for (int at = lane * N; at < table.words(rows); at += EXPERTS)
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (lane * N + j < EXPERTS) own[j] += __popc(table.sent[at + j]);
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
    if (e < EXPERTS) table.known[e] = {first, rank};
    if (own[j] != 0) expert.data[rank] = e, begin.data[rank] = first;
    sum += own[j];
  }
  ET_ROLLED for (int a = used + lane; a <= EXPERTS; a += WARP) {
    if (a < EXPERTS) expert.data[a] = EXPERTS - 1;
    begin.data[a] = rows * TOP;
  }
  if (lane == 0) *active = used;
}

// `room` has what a table of ROWS tokens needs, the most that there are.
template <int EXPERTS, int TOP, int ROWS>
ET_FN void route(int32_t* room, View<const int32_t, 2> chosen, View<const float, 2> given,
                 View<float, 2> share, View<int32_t, 2> rank, View<int32_t, 2> pair,
                 View<int32_t, 0> active, View<int32_t, 1> expert, View<int32_t, 1> begin,
                 View<int32_t, 1> member) {
  static_assert(ROWS * TOP < 1 << 16);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew in every task: see attention_prologue.cuh
  const int lane = unsigned(number) % WARP, rows = int(chosen.extent[0]);
  const Table<EXPERTS> table(room);
  ET_ROLLED for (int i = number; i < table.words(rows); i += ET_THREADS) table.sent[i] = 0;
  sync();
  const Bins sent(table.sent);
  ET_ROLLED for (int i = number; i < rows * TOP; i += ET_THREADS)
    sent.add(table.word(i / TOP, chosen.data[i]), int32_t(1u << i / TOP % table.CHUNK));
  sync();
  if (number < WARP) list_used<TOP>(table, expert, begin, active.data, rows, lane);
  sync();
  ET_ROLLED for (int i = number; i < rows * TOP; i += ET_THREADS) {
    const int t = i / TOP, e = chosen.data[i];
    const Expert known = table.known[e];
    const int at = known.first + table.before(t, e);
    member.data[at] = t;
    pair.data[i] = at;
    rank.data[i] = known.rank;
    share.data[i] = given.data[i];
  }
}

}  // namespace et::experts
