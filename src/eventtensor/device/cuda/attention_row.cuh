// Attention of a step of one row, for the threads of a block: hand-tuned bodies of models/
// attention_row.py, whose Python bodies are the meaning. Blocks of 16 tokens are dealt out to the
// parts of a row in turn, and to the warps of each; so the order of sums hangs on the length alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "attention.cuh"

namespace et::attention {

// ---- turning ------------------------------------------------------------------------------------

// What turns a head, near: gains of queries and of keys if NORM, then cosines and sines.
template <int HD, bool NORM>
ET_HOT void bring_angles(float* to, View<const float, 2> gains, View<const float, 2> rope,
                         Thread me) {
  if (NORM)
    ET_ROLLED for (unsigned k = me.number; k < 2 * HD; k += ET_THREADS)
      to[k] = gains.data[k / HD * gains.stride[0] + k % HD];
  if (me.number < HD)
    to[2 * HD + me.number] =
        rope.data[unsigned(me.number) / (HD / 2) * rope.stride[0] + unsigned(me.number) % (HD / 2)];
}
// Sixteen lanes sum up, in the order of reduce.cuh; all of them get the same bits. By whole warps,
// and without a call, which would cost registers their values.
template <int HD> ET_HOT float squares(const float* x, Thread me) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < HD; k += LANES) sum = sum + x[k + me.lane % LANES] * x[k + me.lane % LANES];
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) sum = sum + from_other(sum, by, me);
  return sum;
}

// rotate_head for what lies near, with few registers: a lane has both ends of what is turned, TWO
// such pairs at once. By half a warp, beside the other half.
template <int GROUP, int HD, bool NORM>
ET_HOT void turn_head(int head, const float* x, const float* angles, bf16* to, float eps, float scale,
                      Thread me) {
  constexpr int HALF = HD / 2, TWO = 2;
  const float* const gain = angles + (head < GROUP ? 0 : HD);
  const float by = head < GROUP ? scale : 1.0f;
  const float norm = NORM ? rsqrt(squares<HD>(x, me) / float(HD) + eps) : 1.0f;
#pragma unroll
  for (int from = 0; from < HALF; from += TWO * LANES) {
    float low[TWO] = {}, high[TWO] = {};
#pragma unroll
    for (int n = 0; n < TWO; ++n) {
      const int i = from + n * LANES + me.lane % LANES;
      if (i >= HALF) continue;
      const float a = NORM && head <= GROUP ? x[i] * norm * gain[i] : x[i];
      const float b = NORM && head <= GROUP ? x[i + HALF] * norm * gain[i + HALF] : x[i + HALF];
      const float cosine = angles[2 * HD + i], sine = angles[2 * HD + HALF + i];
      low[n] = head > GROUP ? a : (a * cosine + b * -sine) * by;
      high[n] = head > GROUP ? b : (b * cosine + a * sine) * by;
    }
#pragma unroll
    for (int n = 0; n < TWO; ++n) {
      const int i = from + n * LANES + me.lane % LANES;
      if (i >= HALF) continue;
      to[i] = cast<bf16>(low[n]);
      to[i + HALF] = cast<bf16>(high[n]);
    }
  }
}

// ---- attend: the tokens of a part ---------------------------------------------------------------

// Where the row's keys and values are: pages in the order of `table`.
struct RowPages {
  const int32_t* table;
  const bf16* data;
};
template <int PAGE> struct RowCache : RowPages {
  unsigned pitch, apart, stride;  // elements from page to page, from keys to values, to a neighbour

  ET_HOT const bf16* place(unsigned t) const {
    return data + (uint64_t(unsigned(table[t / PAGE])) * pitch + t % PAGE * stride);
  }
};

// Sixteen tokens from `base` on, as far as the cache has them: those before `end`.
template <int PAGE> struct RowPlaces {
  static constexpr bool TOGETHER = PAGE % 16 == 0;
  const RowCache<PAGE>& cache;
  const bf16* first = nullptr;
  unsigned base, last;

  ET_HOT RowPlaces(const RowCache<PAGE>& cache_, int base_, int end)
      : cache(cache_), base(base_), last(end - 1 - base_) {
    if (TOGETHER) first = cache.place(base);
    if (TOGETHER) settle(first);
  }
  ET_HOT const bf16* operator()(unsigned k) const {
    const unsigned held = k < last ? k : last;
    return TOGETHER ? first + held * cache.stride : cache.place(base + held);
  }
};

template <int HD, int PAGE>
ET_HOT void load_keys(Tile<HD, PAGE>& tile, const RowPlaces<PAGE>& token, Thread me) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
    load_row<HD / 8, 4, true>(tile.key[n], token(8 * n + me.g), me.c);
  __syncwarp();  // no load may sink below it
}
template <int HD, int PAGE>
ET_HOT void load_values(Tile<HD, PAGE>& tile, const RowPlaces<PAGE>& token, Thread me) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
    load_row<HD / 16, 8, true>(tile.value[n], token(Tokens::number(n, me)) + token.cache.apart,
                               me.g);
  __syncwarp();
}

// The same when the row's own token, `own` of the sixteen or none, has a key or a value near.
template <int HD, int PAGE>
ET_HOT void load_keys(Tile<HD, PAGE>& tile, const RowPlaces<PAGE>& token, unsigned own,
                      const bf16* near, Thread me) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const unsigned k = 8 * n + me.g;
    load_row<HD / 8, 4>(tile.key[n], k < own ? token(k) : near, me.c);
  }
  __syncwarp();
}
template <int HD, int PAGE>
ET_HOT void load_values(Tile<HD, PAGE>& tile, const RowPlaces<PAGE>& token, unsigned own,
                        const bf16* near, Thread me) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const unsigned k = Tokens::number(n, me);
    load_row<HD / 16, 8>(tile.value[n], k < own ? token(k) + token.cache.apart : near, me.g);
  }
  __syncwarp();
}

// Heads as they are multiplied, near, PITCH elements apart so that no two lie in the same banks:
// queries, then the row's own key and value.
template <int HD> constexpr int PITCH = HD + 8;

// The row's own token is number `k` of the sixteen.
template <int GROUP, int HD, int PAGE>
ET_HOT void put_own_key(Tile<HD, PAGE>& tile, const bf16* turned, int k, Thread me) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
    if (8 * n + me.g == k) load_row<HD / 8, 4>(tile.key[n], turned + GROUP * PITCH<HD>, me.c);
  __syncwarp();
}
template <int GROUP, int HD, int PAGE>
ET_HOT void put_own_value(Tile<HD, PAGE>& tile, const bf16* turned, int k, Thread me) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
    if (Tokens::number(n, me) == k)
      load_row<HD / 16, 8>(tile.value[n], turned + (GROUP + 1) * PITCH<HD>, me.g);
  __syncwarp();
}

// What a task has near, one after the other: heads, what turns them, where the warps meet, pages.
template <int GROUP, int HD> struct RowRoom {
  static constexpr int MEETING = 8 * GROUP * HD + 8 * HD + 16 * GROUP;  // floats
  bf16* turned;

  ET_HOT float* angles() const {
    return reinterpret_cast<float*>(turned + (GROUP + 2) * PITCH<HD>);
  }
  ET_HOT float* meeting() const { return angles() + 3 * HD; }
  // For later: a task has no registers for it while it waits.
  ET_HOT RowPages* pages() const {
    return reinterpret_cast<RowPages*>(meeting() + MEETING);
  }
};

// One part of a row, up to its own token at `position`.
template <int GROUP, int HD, int PAGE, int PARTS> struct RowPart {
  static constexpr int STEP = 16 * WARPS * PARTS;
  RowRoom<GROUP, HD> room;
  unsigned pitch, apart, stride;  // as in a RowCache
  int position, part;

  ET_HOT int begin(Thread me) const { return 16 * (me.warp * PARTS + part); }
  ET_HOT RowCache<PAGE> cache(RowPages pages) const { return {pages, pitch, apart, stride}; }

  // What the cache has of the first sixteen tokens sets off.
  ET_HOT void load(Tile<HD, PAGE>& tile, RowPages pages, Thread me) const {
    if (begin(me) >= position) return;
    const RowCache<PAGE> from = cache(pages);
    const RowPlaces<PAGE> token(from, begin(me), position);
    load_keys<HD, PAGE>(tile, token, me);
    load_values<HD, PAGE>(tile, token, me);
  }

  // Those that are loaded, and near if they are the row's own.
  template <class Q>
  ET_HOT void add_first(Tile<HD, PAGE>& tile, Part<HD>& found, const Q& queries) const {
    const Thread me;
    const int base = begin(me);
    if (base + 16 > position) {
      put_own_key<GROUP>(tile, room.turned, position - base, me);
      put_own_value<GROUP>(tile, room.turned, position - base, me);
    }
    float score[4] = {};
    tile.scores(score, queries, me);
    tile.add(found, score, Tokens{base, position + 1}, me);
  }

  // Those from `base` on: a wide head has either keys or values in registers.
  template <class Q> ET_HOT void add(Part<HD>& found, const Q& queries, int base) const {
    Tile<HD, PAGE> tile;
    const bf16* const near = room.turned + GROUP * PITCH<HD>;
    const unsigned own = position - base;
    const RowCache<PAGE> from = cache(*room.pages());
    float score[4] = {};
    {
      const Thread me;  // anew each time: its addresses would fill registers
      const RowPlaces<PAGE> token(from, base, position);
      load_keys<HD, PAGE>(tile, token, own, near, me);
      if (HD <= 64) load_values<HD, PAGE>(tile, token, own, near + PITCH<HD>, me);
      tile.scores(score, queries, me);
    }
    const Thread me;
    if (HD > 64)
      load_values<HD, PAGE>(tile, RowPlaces<PAGE>(from, base, position), own, near + PITCH<HD>, me);
    tile.add(found, score, Tokens{base, position + 1}, me);
  }

  // For HEADS of queries from FIRST on.
  template <int HEADS, int FIRST>
  ET_HOT void mix(Tile<HD, PAGE>& first, Part<HD>& found) const {
    using Mine = Tile<HD, PAGE>;
    const QueriesOf<HEADS, Mine::KEY, Mine::SOME, false> queries(
        room.turned + FIRST * PITCH<HD>, PITCH<HD>);
    int base = begin(Thread());
    if (base > position) return;
    add_first(first, found, queries);
    ET_ROLLED while ((base += STEP) <= position) add(found, queries, base);
  }

  // Eight heads at a time.
  template <int FIRST = 0>
  ET_HOT void heads(Tile<HD, PAGE>& tile, View<float, 2> out, View<float, 2> ml) const {
    constexpr int HEADS = GROUP - FIRST < 8 ? GROUP - FIRST : 8;
    Part<HD> found;
    mix<HEADS, FIRST>(tile, found);
    const Meeting<HEADS, HD> meeting(room.meeting());
    meeting.put(found, Thread());
    sync();
    meeting.fold(out, ml, Thread());
    if constexpr (GROUP - FIRST > 8) {
      sync();
      load(tile, *room.pages(), Thread());
      out.data += 8 * out.stride[0];
      ml.data += 8;
      heads<FIRST + 8>(tile, out, ml);
    }
  }
};

// The cache is on its way while `arrive` waits for `qkv`, which has a head of keys: its queries, the
// key and the value. False if the launch is given up.
template <int GROUP, int HD, int PAGE, int PARTS, bool NORM, class Arrive>
ET_HOT bool attend_row(bf16* near, View<const float, 1> qkv, View<const float, 2> gains,
                       View<const float, 2> rope, int position, View<const int32_t, 2> table,
                       View<const bf16, 4> kv, int part, View<float, 2> out, View<float, 2> ml,
                       float eps, float scale, const Arrive& arrive) {
  static_assert(HD % 16 == 0 && HD <= ET_THREADS);
  static_assert(Meeting<(GROUP < 8 ? GROUP : 8), HD>::FLOATS <= RowRoom<GROUP, HD>::MEETING);
  const RowRoom<GROUP, HD> room{near};
  const RowPart<GROUP, HD, PAGE, PARTS> mine{
      room, unsigned(kv.stride[0]), unsigned(kv.stride[1]), unsigned(kv.stride[2]), position, part};
  Tile<HD, PAGE> tile = {};  // what has no value would be kept for the whole kernel
  {
    const Thread me;
    mine.load(tile, {table.data, kv.data}, me);
    bring_angles<HD, NORM>(room.angles(), gains, rope, me);
    if (me.number == 0) *room.pages() = {table.data, kv.data};
  }
  if (!arrive()) return false;
  {
    const Thread me;
    ET_ROLLED for (int at = 2 * me.warp; at < GROUP + 2; at += 2 * WARPS) {
      const int head = min(at + me.lane / LANES, GROUP + 1);
      turn_head<GROUP, HD, NORM>(head, qkv.data + head * HD, room.angles(),
                                 room.turned + head * PITCH<HD>, eps, scale, me);
    }
  }
  sync();
  mine.heads(tile, out, ml);
  return true;
}

// ---- combine: the parts of a row ----------------------------------------------------------------

// COLUMNS of a head, a power of two. The lanes that have a column are neighbours.
template <int PARTS, int COLUMNS, class T>
ET_FN void combine_row(View<const float, 2> part, View<const float, 2> ml, View<T, 1> out) {
  constexpr int MANY = ET_THREADS / COLUMNS, ACROSS = MANY < PARTS ? MANY : PARTS;  // lanes
  constexpr int EACH = PARTS / ACROSS;
  static_assert(PARTS % ACROSS == 0 && ACROSS <= WARP && (ACROSS & (ACROSS - 1)) == 0);
  const Thread me;
  const int column = unsigned(me.number) / ACROSS, mine = unsigned(me.number) % ACROSS;
  const bool there = column < COLUMNS;
  float top[EACH], best = LOW, total = 0.0f, sum = 0.0f;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    top[k] = ml.data[(k * ACROSS + mine) * ml.stride[0]];
    best = larger(best, top[k]);
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) best = larger(best, from_other(best, by, me));
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int n = k * ACROSS + mine;
    const float weight = power(top[k] - best);
    total += weight * ml.data[n * ml.stride[0] + ml.stride[1]];
    sum += there ? weight * part.data[n * part.stride[0] + column] : 0.0f;
  }
#pragma unroll
  for (int by = 1; by < ACROSS; by *= 2) {
    total += from_other(total, by, me);
    sum += from_other(sum, by, me);
  }
  if (there && mine == 0) out.data[column] = cast<T>(sum / total);
}

// ---- append: the row's entry of the cache -------------------------------------------------------

// Eight lanes have a key or a value.
template <int HEADS, int GROUP, int HD, bool NORM, class T>
ET_FN void append(View<const float, 1> qkv, View<const float, 2> gains, View<const float, 2> rope,
                  View<T, 3> kv, float eps) {
  constexpr int ALL = 2 * HEADS, AT_ONCE = ET_THREADS / TURNERS;
  const Thread me;
  ET_ROLLED for (int base = 0; base < ALL; base += AT_ONCE) {
    const int at = base + unsigned(me.number) / TURNERS, held = at < ALL ? at : ALL - 1;
    const int of = held / 2, head = GROUP + held % 2;
    rotate_head<GROUP, HD, NORM>(head, at < ALL, qkv.data + (of * (GROUP + 2) + head) * HD, 1.0f,
                                 gains, rope,
                                 kv.data + of * kv.stride[0] + held % 2 * kv.stride[1], eps, 1.0f,
                                 me);
  }
}

}  // namespace et::attention
