// Attention of rows that have a request each (models/attention_decode_batch.py): who attends turns
// its queries itself, and takes the row's own key and value from the projection, while keys and
// values of the cache begin to flow (attention_mixed.cuh). Sums are the same.
#pragma once
#include "attention_mixed.cuh"

namespace et::attention {

// After `plan`: what models/attention_decode_batch.py says of items.
ET_FN void place_items(View<const int32_t, 1> position, View<int32_t, 1> first, View<int32_t, 1> row,
                       View<int32_t, 1> left, View<int32_t, 1> held, View<int32_t, 1> turn,
                       View<int32_t, 1> ends, View<int32_t, 1> lone, View<int32_t, 1> several) {
  const Thread me;
  const int rows = int(position.extent[0]), items = int(row.extent[0]), used = first.data[rows];
  ET_ROLLED for (int item = me.number; item < items; item += ET_THREADS) {
    const int t = row.data[item];
    held.data[item] = left.data[item] - (first.data[t + 1] == item + 1);
    turn.data[item] = position.data[t];
    ends.data[item] = item < used ? t : rows;
    lone.data[item] = used <= rows ? min(item, rows) : 0;
  }
  if (me.number != 0) return;
  ends.data[items] = rows;
  lone.data[items] = used <= rows ? min(items, rows) : 0;
  several.data[0] = used <= rows ? 0 : rows;
}

// The tokens of a task, of which the cache has those `held`. One more is the row's own: its key and
// value are near, from `fresh` on.
template <int HD, int PAGE> struct OwnAndFresh {
  Cached<HD, PAGE> kv;
  int count, held;
  uint32_t fresh;

  ET_HOT Chunk chunk(int base) const { return kv.chunk(base, held); }

  // The row's own token goes to its place, and stands in for those behind it.
  template <bool VALUES> ET_HOT void complete(uint32_t place, int base, Thread me) const {
    using Places = Flow<HD, PAGE>;
    const int from = held - base;
    if (held == count || from >= 16) return;
    const unsigned piece = me.lane % Places::PIECES;
    uint32_t some[4];
    ptx::ld_shared_v4(fresh + (VALUES ? sizeof(bf16) * PITCH<HD> : 0) + piece * 16, some);
    ET_ROLLED for (unsigned row = from + me.lane / Places::PIECES; row < 16; row += Places::AT_ONCE)
      ptx::st_shared_v4(Places::piece_at(place, row, piece, VALUES), some);
    __syncwarp();
  }
};

// What a row's heads are turned by and how long they are.
struct Turning { float hidden, eps, scale; };

// The parts of H heads of keys of a row (the queries of each, the key and the value), and what turns
// them, on their way: a thread has some elements of all parts.
template <int PARTS, int H, int GROUP, int HD, bool NORM> class Unturned {
 public:
  ET_HOT Unturned(View<const float, 2> qkv, View<const float, 1> ss, View<const float, 2> gains,
                  View<const float, 2> rope) {
    const Thread me;
    const int lane = me.number % LANES, sums = int(ss.extent[0]);
    share_ = lane < sums ? ss.data[lane] : 0.0f;
    for (int k = lane + LANES; k < sums; k += LANES) share_ = share_ + ss.data[k];
#pragma unroll
    for (int n = 0; n < EACH; ++n)
#pragma unroll
      for (int k = 0; k < PARTS; ++k)
        if (me.number + n * ET_THREADS < FOURS)
          x_[n][k] = *reinterpret_cast<const Floats<4>*>(qkv.data + k * qkv.stride[0] +
                                                         4 * (me.number + n * ET_THREADS));
    if (NORM && me.number < 2 * HD)
      gain_ = gains.data[me.number / HD * gains.stride[0] + me.number % HD];
    if (me.number < HD)
      angle_ = rope.data[me.number / (HD / 2) * rope.stride[0] + me.number % (HD / 2)];
  }

  // Heads are turned in `room` and go to `to`, PITCH apart. They are added up in order, and scaled
  // by the row's norm before. All meet last.
  static constexpr int ADDED = 3 * HD, FLOATS = ADDED + H * (GROUP + 2) * HD;
  static constexpr int TURNED = H * (GROUP + 2) * PITCH<HD> / 2;  // floats of `to`
  ET_HOT void turn(float* room, bf16* to, Turning by) {
    const Thread me;
    float *const angles = room, *const added = room + ADDED;
    const float norm = ptx::rsqrt_approx(from_first(half_tree(share_)) / by.hidden + by.eps);
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int at = me.number + n * ET_THREADS;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int k = 1; k < PARTS; ++k) x_[n][0].at[j] += x_[n][k].at[j];
        x_[n][0].at[j] *= norm;
      }
      if (at < FOURS) reinterpret_cast<Floats<4>*>(added)[at] = x_[n][0];
    }
    if (NORM && me.number < 2 * HD) angles[me.number] = gain_;
    if (me.number < HD) angles[2 * HD + me.number] = angle_;
    sync();
    ET_ROLLED for (int first = 2 * me.warp; first < ROWS; first += 2 * WARPS) {
      const int row = min(first + me.lane / LANES, ROWS - 1);
      turn_head<GROUP, HD, NORM>(row % (GROUP + 2), added + row * HD, angles, to + row * PITCH<HD>,
                                 by.eps, by.scale, me);
    }
    sync();
  }

 private:
  static constexpr int ROWS = H * (GROUP + 2), FOURS = ROWS * HD / 4;
  static constexpr int EACH = (FOURS + ET_THREADS - 1) / ET_THREADS;
  static_assert(2 * HD <= ET_THREADS);
  Floats<4> x_[EACH][PARTS] = {};
  float share_, gain_ = 0.0f, angle_ = 0.0f;
};

// Keys and values of the row go where they are kept until the end of the step, if it is for this item
// to do. `fresh`: the first head's, others PITCH elements times `heads` apart.
template <int H, int HD> ET_HOT void keep(const bf16* fresh, int heads, View<bf16, 4> own) {
  const Thread me;
  if (own.extent[0] == 0) return;
  ET_ROLLED for (int at = 4 * me.number; at < H * 2 * HD; at += 4 * ET_THREADS)
    *reinterpret_cast<Words<2>*>(own.data + at / (2 * HD) * own.stride[1] +
                                 at / HD % 2 * own.stride[2] + at % HD) =
        *reinterpret_cast<const Words<2>*>(
            fresh + (at / (2 * HD) * heads + at / HD % 2) * PITCH<HD> + at % HD);
}

// Where a task puts what it finds, near while it goes through its tokens: registers are few.
struct Targets {
  float *out, *ml;
  bf16* mixed;
};
ET_FN Targets& targets() {
  __shared__ Targets found;
  return found;
}

// As attend_mixed, for H heads of keys at once, and `left` tokens of which the cache has `held`.
// `arrive` waits for `qkv` and `ss`; false if the launch is given up. What is to be turned is asked
// for before keys and values: loads come back in their order. `room`, in shared memory, has ROOM
// floats: for what is turned, and the parts of strands; those of a single head are put there when
// all is attended.
template <int PARTS, int H, int GROUP, int HD, int PAGE, int HEADS, int ROOM, bool NORM, class Arrive>
ET_HOT bool attend_decode(const Worker& worker, uint32_t places, float* room, Tiles tiles,
                          View<const float, 2> qkv, View<const float, 1> ss,
                          View<const float, 2> gains, View<const float, 2> rope, int32_t left,
                          int32_t held, Gathered<const bf16, 5> kv, Following following,
                          View<float, 3> out, View<float, 3> ml, View<bf16, 2> mixed,
                          View<bf16, 4> own, Turning by, const Arrive& arrive) {
  using Row = Unturned<PARTS, H, GROUP, HD, NORM>;
  using Met = Together<GROUP, HD, H>;
  static_assert(GROUP <= 8 && (HD == 64 || HD == 128) && PAGE % 16 == 0);
  constexpr bool LATER = H == 1;
  constexpr int TURNED = LATER ? 0 : Met::FLOATS, BESIDE = LATER ? Row::TURNED : 0;
  static_assert(ROOM >= Met::FLOATS && ROOM >= TURNED + Row::TURNED);
  static_assert(BESIDE + Row::FLOATS <= (LATER ? ROOM : Met::FLOATS));
  using Mine = Attended<HD, PAGE, HEADS, H, OwnAndFresh<HD, PAGE>>;
  using Queries = QueriesOf<GROUP, Mine::Keys::KEY, Mine::Keys::SOME, true>;
  if (!arrive()) return false;
  settle(kv.data);
  if (leads()) targets() = {out.data, ml.data, mixed.extent[0] != 0 ? mixed.data : nullptr};
  const bool brought = tiles.next >= 0 && tiles.now >= worker.count;  // by the task before
  Row row(qkv, ss, gains, rope);
  const Thread me;
  bf16* const heads = reinterpret_cast<bf16*>(room + TURNED);
  const int head = Share<H>::head(me);
  const bf16* const mine_at = heads + head * (GROUP + 2) * PITCH<HD>;
  const uint32_t fresh = uint32_t(__cvta_generic_to_shared(mine_at + GROUP * PITCH<HD>));
  Mine mine(places, kv.data, {{kv.rows[0], head}, left, held, fresh}, tiles, following, brought, me);
  if (!brought) mine.begin(me);
  row.turn(room + BESIDE, heads, by);
  keep<H, HD>(heads + GROUP * PITCH<HD>, GROUP + 2, own);
  const Queries queries(mine_at, PITCH<HD>);
  Part<HD> part;
  const Met met(room);
  mine.all(part, queries, [&](const Part<HD>& some, int strand) { met.keep(some, strand); });
  if (LATER) sync();
  const Targets to = targets();
  met.all(part, {to.out, {H * GROUP, HD}, {HD, 1}}, {to.ml, {2 * H, GROUP}, {GROUP, 1}}, to.mixed);
  return true;
}

// Where number `at` of a row's pieces of eight elements lies, in layers of H heads.
template <int H, int HD, class T> ET_HOT T* piece_of(const View<T, 4>& view, int at) {
  constexpr int HEAD = HD / 8;
  return view.data + at / (H * 2 * HEAD) * view.stride[0] + at / (2 * HEAD) % H * view.stride[1] +
         at / HEAD % 2 * view.stride[2] + at % HEAD * 8;
}

// The row's own keys and values of H heads, in all layers, go into the cache.
template <int LAYERS, int H, int HD, class T>
ET_FN void append_all(View<const T, 4> own, View<T, 4> kv) {
  using Eight = Words<4>;
  constexpr int ALL = LAYERS * H * 2 * HD / 8, FLIGHT = 8;
  static_assert(sizeof(T) == 2 && HD % 8 == 0);
  const Thread me;
  ET_ROLLED for (int base = me.number; base < ALL; base += FLIGHT * ET_THREADS) {
    Eight some[FLIGHT] = {};
#pragma unroll
    for (int n = 0; n < FLIGHT; ++n)
      if (base + n * ET_THREADS < ALL)
        some[n] = *reinterpret_cast<const Eight*>(piece_of<H, HD>(own, base + n * ET_THREADS));
#pragma unroll
    for (int n = 0; n < FLIGHT; ++n)
      if (base + n * ET_THREADS < ALL)
        *reinterpret_cast<Eight*>(piece_of<H, HD>(kv, base + n * ET_THREADS)) = some[n];
  }
}

}  // namespace et::attention
