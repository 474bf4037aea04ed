// Which experts each token goes to, for the threads of a block: hand-tuned body of `route` in
// models/experts.py, whose Python body is the meaning. EXPERTS: how many there are; TOP: those of a
// token. A warp takes every 8th token, some at a time, so that their steps overlap. A lane has
// neighbouring experts, best first; in each step the best of the lanes' first ones is taken.
#pragma once
#include "reduce.cuh"

namespace et::experts {

constexpr int WARPS = ET_THREADS / WARP;
constexpr int BATCH = 2;          // tokens that a warp takes at a time,
constexpr int TURNS_OF_WARP = 8;  // those that it has bits for in a byte,
constexpr int CHUNK = 64;         // and all warps in a word
static_assert(WARPS * TURNS_OF_WARP == CHUNK);

template <int EXPERTS> constexpr int EACH = (EXPERTS + WARP - 1) / WARP;  // of a lane

// A number that is larger for a better score. NaN comes last, and 0 stands for no expert.
ET_HOT uint32_t place_of(float score) {
  const uint32_t bits = float_bits(score + 0.0f);  // there is one zero
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  return score == score ? ordered : 1u;
}
ET_HOT float score_at(uint32_t place) {
  return bits_float(place >> 31 != 0 ? place ^ 1u << 31 : ~place);
}

template <int LANES> ET_HOT float sum_of_lanes(float x, int lane) {
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) x += __shfl_sync(~0u, x, lane ^ by);
  return x;
}

// A lane's scores of a token, as they come from memory: PARTS that add up, `apart` elements apart.
template <int EXPERTS> struct Scores {
  static constexpr int N = EACH<EXPERTS>;
  float score[N] = {};

  template <int PARTS> ET_HOT void load(const float* row, int64_t apart, int lane) {
    Scores part[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) part[p].load_part(row + p * apart, lane);
    *this = part[0];
#pragma unroll
    for (int p = 1; p < PARTS; ++p)
#pragma unroll
      for (int j = 0; j < N; ++j) score[j] += part[p].score[j];
  }

 private:
  ET_HOT void load_part(const float* row, int lane) {
    if constexpr (EXPERTS == 4 * WARP) {
      const uint4 four = *reinterpret_cast<const uint4*>(row + lane * N);
      score[0] = bits_float(four.x), score[1] = bits_float(four.y);
      score[2] = bits_float(four.z), score[3] = bits_float(four.w);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (lane * N + j < EXPERTS) score[j] = row[lane * N + j];
    }
  }
};

// The same, best first; of equal ones the lower expert.
template <int EXPERTS> struct Sorted {
  static constexpr int N = EACH<EXPERTS>;
  uint32_t place[N];
  int number[N];  // of the expert among those of the lane

  Sorted() = default;
  ET_HOT Sorted(const Scores<EXPERTS>& from, int lane) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      place[j] = EXPERTS % WARP == 0 || lane * N + j < EXPERTS ? place_of(from.score[j]) : 0;
      number[j] = j;
    }
#pragma unroll
    for (int end = N - 1; end > 0; --end)
#pragma unroll
      for (int j = 0; j < end; ++j) exchange(j);
  }

  ET_HOT void drop_first(bool drop) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      place[j] = !drop ? place[j] : j + 1 < N ? place[j + 1] : 0;
      number[j] = drop && j + 1 < N ? number[j + 1] : number[j];
    }
  }

  // The chances of all experts, when `most` is the best score.
  ET_HOT float chances(float most, int lane) const {
    float all = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (place[j] != 0) all += exp(score_at(place[j]) - most);
    return sum_of_lanes<WARP>(all, lane);
  }

 private:
  ET_HOT void exchange(int j) {
    const bool worse = place[j] < place[j + 1];
    const uint32_t p = place[j];
    const int n = number[j];
    place[j] = worse ? place[j + 1] : p, place[j + 1] = worse ? p : place[j + 1];
    number[j] = worse ? number[j + 1] : n, number[j + 1] = worse ? n : number[j + 1];
  }
};

// The experts of some tokens, best first: lane k finds the k-th, and its place. No lane goes a way of
// its own, so that the steps of the tokens overlap. `take` hears of each whose expert it is.
template <int TOP, int EXPERTS, int COUNT, class F>
ET_HOT void pick(Sorted<EXPERTS> (&own)[COUNT], uint32_t (&best)[COUNT], int (&expert)[COUNT],
                 int lane, const F& take) {
  static_assert(TOP <= WARP / 2 && TOP <= EXPERTS);
  ET_ROLLED for (int k = 0; k < TOP; ++k)
#pragma unroll
    for (int c = 0; c < COUNT; ++c) {
      const uint32_t mine = own[c].place[0], most = __reduce_max_sync(~0u, mine);
      const int winner = __ffs(__ballot_sync(~0u, mine == most)) - 1, first = own[c].number[0];
      const int number = __shfl_sync(~0u, first, winner);
      if (k == lane) best[c] = most, expert[c] = winner * EACH<EXPERTS> + number;
      take(c, first, lane == winner);
      own[c].drop_first(lane == winner);
    }
}

// What is known of an expert: the pairs before its own, and its number among those in use.
struct Expert { int32_t first, rank; };

// What all warps know: the experts of each token and their places; and for each expert, 64 tokens at
// a time, a word with a bit for each of them that goes there: token 8 * i + w has bit i of byte w,
// which warp w puts.
template <int EXPERTS, int TOP, int ROWS> struct Table {
  uint64_t* sent;
  Expert* known;
  int32_t* chosen;
  uint32_t* place;
  float* total;  // chances of all experts, if they count

  ET_HOT explicit Table(int32_t* room)
      : sent(reinterpret_cast<uint64_t*>(room)),
        known(reinterpret_cast<Expert*>(sent + (ROWS + CHUNK - 1) / CHUNK * EXPERTS)),
        chosen(reinterpret_cast<int32_t*>(known + EXPERTS)),
        place(reinterpret_cast<uint32_t*>(chosen + ROWS * TOP)),
        total(reinterpret_cast<float*>(place + ROWS * TOP)) {}

  // Of a lane's experts: 8 bits each.
  template <class Bits> ET_HOT void put(int chunk, int warp, Bits taken, int lane) const {
    constexpr int N = EACH<EXPERTS>;
    uint8_t* const to = reinterpret_cast<uint8_t*>(sent + chunk * EXPERTS + lane * N) + warp;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (lane * N + j < EXPERTS) to[j * sizeof(uint64_t)] = uint8_t(taken >> j * TURNS_OF_WARP);
  }

  // How many of the first t tokens go to an expert.
  ET_HOT int tokens(int t, int expert) const {
    int count = 0, chunk = 0;
    ET_ROLLED for (; chunk < t / CHUNK; ++chunk) count += __popcll(sent[chunk * EXPERTS + expert]);
    const int turn = t % CHUNK / WARPS;
    const uint64_t ones = 0x0101010101010101, warps = (uint64_t(1) << t % WARPS * 8) - 1;
    const uint64_t lower = ones * ((1u << turn) - 1) | (ones & warps) << turn;
    return lower == 0 ? count : count + __popcll(sent[chunk * EXPERTS + expert] & lower);
  }
};

// The tokens of a warp, some at a time, while the next ones are on their way.
template <int PARTS, bool NORMED, int EXPERTS, int TOP, int ROWS>
ET_FN void choose_all(const Table<EXPERTS, TOP, ROWS>& table, View<const float, 3> scores, int rows,
                      int warp, int lane) {
  using Bits = std::conditional_t<(EACH<EXPERTS> <= 4), uint32_t, uint64_t>;
  static_assert(EACH<EXPERTS> * TURNS_OF_WARP <= 8 * sizeof(Bits));
  Scores<EXPERTS> next[BATCH];
  const auto ask = [&](int first) {
#pragma unroll
    for (int c = 0; c < BATCH; ++c)
      if (first + c * WARPS < rows)
        next[c].template load<PARTS>(scores.data + (first + c * WARPS) * scores.stride[1],
                                     scores.stride[0], lane);
  };
  ask(warp);
  ET_ROLLED for (int chunk = 0; chunk * CHUNK < rows; ++chunk) {
    Bits taken = 0;
    ET_ROLLED for (int turn = 0; turn < TURNS_OF_WARP; turn += BATCH) {
      const int first = chunk * CHUNK + turn * WARPS + warp;
      if (first >= rows) break;
      Sorted<EXPERTS> own[BATCH];
      uint32_t best[BATCH] = {};
      int expert[BATCH] = {};
      float all[BATCH] = {};
#pragma unroll
      for (int c = 0; c < BATCH; ++c) {
        own[c] = Sorted<EXPERTS>(next[c], lane);
        if (!NORMED)
          all[c] = own[c].chances(score_at(__reduce_max_sync(~0u, own[c].place[0])), lane);
      }
      ask(first + BATCH * WARPS);
      pick<TOP>(own, best, expert, lane, [&](int c, int number, bool won) {
        const bool counts = won && first + c * WARPS < rows;
        taken |= Bits(counts) << (number * TURNS_OF_WARP + turn + c);
      });
#pragma unroll
      for (int c = 0; c < BATCH; ++c) {
        const int t = first + c * WARPS;
        if (t >= rows || lane >= TOP) continue;
        table.chosen[t * TOP + lane] = expert[c];
        table.place[t * TOP + lane] = best[c];
        if (!NORMED && lane == 0) table.total[t] = all[c];
      }
    }
    table.put(chunk, warp, taken, lane);
  }
}

// By a thread for each token: the shares of its experts.
template <bool NORMED, int EXPERTS, int TOP, int ROWS>
ET_FN void find_shares(const Table<EXPERTS, TOP, ROWS>& table, View<float, 2> share, int first,
                       int rows, int threads) {
  ET_ROLLED for (int t = first; t < rows; t += threads) {
    float chance[TOP], total = 0.0f;
#pragma unroll
    for (int k = 0; k < TOP; ++k) {
      chance[k] = exp(score_at(table.place[t * TOP + k]) - score_at(table.place[t * TOP]));
      total += chance[k];
    }
    const float whole = NORMED ? total : table.total[t];
#pragma unroll
    for (int k = 0; k < TOP; ++k) share.data[t * share.stride[0] + k] = chance[k] / whole;
  }
}

// By one warp: the experts in use, and where the pairs of each begin. Two sums go in one number.
template <int EXPERTS, int TOP, int ROWS>
ET_FN void list_used(const Table<EXPERTS, TOP, ROWS>& table, View<int32_t, 1> expert,
                     View<int32_t, 1> begin, int32_t* active, int rows, int lane) {
  constexpr int N = EACH<EXPERTS>;
  int own[N] = {}, all = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int count = lane * N + j < EXPERTS ? table.tokens(rows, lane * N + j) : 0;
    own[j] = (count > 0 ? 1 << 16 : 0) | count;
    all += own[j];
  }
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
template <int PARTS, int EXPERTS, int TOP, bool NORMED, int ROWS>
ET_FN void route(int32_t* room, View<const float, 3> scores, View<float, 2> share,
                 View<int32_t, 2> rank, View<int32_t, 2> pair, View<int32_t, 0> active,
                 View<int32_t, 1> expert, View<int32_t, 1> begin, View<int32_t, 1> member) {
  static_assert(ROWS * TOP < 1 << 16);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));  // read anew in every task: see attention_rows.cuh
  const int lane = unsigned(number) % WARP, warp = unsigned(number) / WARP;
  const int rows = int(scores.extent[1]);
  const Table<EXPERTS, TOP, ROWS> table(room);
  choose_all<PARTS, NORMED>(table, scores, rows, warp, lane);
  sync();
  if (warp == 0) list_used(table, expert, begin, active.data, rows, lane);
  else find_shares<NORMED>(table, share, number - WARP, rows, ET_THREADS - WARP);
  sync();
  ET_ROLLED for (int i = number; i < rows * TOP; i += ET_THREADS) {
    const int t = i / TOP, e = table.chosen[i];
    const Expert known = table.known[e];
    const int at = known.first + table.tokens(t, e);
    rank.data[t * rank.stride[0] + i % TOP] = known.rank;
    pair.data[t * pair.stride[0] + i % TOP] = at;
    member.data[at] = t;
  }
}

// ---- a single row, whose experts are all that there are -----------------------------------------

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
#pragma unroll
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

// Scores are those of the row before its norm, and come in PARTS that add up.
template <int PARTS, int EXPERTS, int TOP, bool NORMED, int SUMS>
ET_FN void route_row(float* near, View<const float, 3> scores, View<const float, 2> squares,
                     View<float, 2> share, View<int32_t, 0> active, View<int32_t, 1> expert,
                     float hidden, float eps) {
  using Room = RowRoom<EXPERTS, TOP>;
  static_assert(EXPERTS <= ET_THREADS && TOP <= WARP / 2 && TOP <= EXPERTS);
  Room& room = *reinterpret_cast<Room*>(near);
  int number = threadIdx.x;
  asm volatile("" : "+r"(number));
  const int lane = unsigned(number) % WARP;
  if (number < 4 * Room::QUADS) {
    float sum = number < EXPERTS ? scores.data[number] : 0.0f;
#pragma unroll
    for (int p = 1; p < PARTS; ++p)
      sum += number < EXPERTS ? scores.data[p * scores.stride[0] + number] : 0.0f;
    room.place[number] = number < EXPERTS ? place_of(sum) : 0;
  }
  if (number >= ET_THREADS - WARP) {  // whose lanes have least to do
    const float scale = scale_of<SUMS>(squares.data, hidden, eps, lane);
    if (lane == 0) room.scale = scale;
  }
  sync();
  const int e = unsigned(number) / Room::SPLIT, part = unsigned(number) % Room::SPLIT;
  const int rank = rank_of(room, e < EXPERTS ? e : 0, part, lane);
  const bool chosen = e < EXPERTS && part == 0 && rank < TOP;
  if (chosen) room.best[rank] = room.place[e], room.expert[rank] = e;
  sync();
  if (number >= WARP) return;
  const float most = score_at(room.best[0]), scale = room.scale;
  const float chance = lane < TOP ? exp((score_at(room.best[lane]) - most) * scale) : 0.0f;
  float all = NORMED ? chance : 0.0f;
  if (!NORMED)
    ET_ROLLED for (int k = lane; k < EXPERTS; k += WARP)
      all += exp((score_at(room.place[k]) - most) * scale);
  const float total = sum_of_lanes<WARP>(all, lane);
  if (lane < TOP) share.data[lane] = chance / total, expert.data[lane] = room.expert[lane];
  if (lane == 0) active.data[0] = TOP;
}

}  // namespace et::experts
