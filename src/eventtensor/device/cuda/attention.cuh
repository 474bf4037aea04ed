// Attention over a paged cache, for the threads of a block: the hand-tuned body of `attend` in
// models/attention.py, whose Python body is the meaning. Templates over the shape of a head and of a
// page, for all models. Orders of sums hang on the length of the row alone.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "attention_tile.cuh"

namespace et::attention {

// Queries in registers (HELD), loaded before keys and values; or loaded every time, a few words at
// once: the L1 has room for them, registers have none. Heads lie `pitch` elements apart.
template <int HEADS, int KEY, int SOME, bool HELD> struct QueriesOf {
  const bf16* all;
  int64_t pitch;
  uint32_t held[HELD ? KEY : 1];

  ET_HOT QueriesOf(const bf16* q, int64_t pitch_) : all(q), pitch(pitch_) {
    if (HELD) load<HELD ? KEY : 1>(held, 0, Thread());
  }
  ET_HOT void operator()(uint32_t (&q)[SOME], int w, Thread me) const {
    if (!HELD) return load<SOME>(q, w, me);
#pragma unroll
    for (int k = 0; k < SOME; ++k) q[k] = held[HELD ? w + k : 0];
  }
  template <int COUNT> ET_HOT void load(uint32_t (&q)[COUNT], int from, Thread me) const {
#pragma unroll
    for (int w = 0; w < COUNT; w += SOME) {
      uint32_t some[SOME];
      load_row<SOME, 4>(some, all + (me.g < HEADS ? me.g : 0) * pitch + 8 * (from + w), me.c);
#pragma unroll
      for (int k = 0; k < SOME && w + k < COUNT; ++k) q[w + k] = some[k];
    }
  }
};

// One step has all `count` tokens. Heads of `q` lie `pitch` elements apart.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_once(float* room, const bf16* q, int64_t pitch, int count,
                        const Gathered<const bf16, 4>& kv, View<float, 2> out, View<float, 2> ml) {
  using Mine = Tile<HD, PAGE>;
  const Thread me;
  const Tokens now{me.warp * 16, count};
  Part<HD> part;
  if (now.any()) {
    const QueriesOf<HEADS, Mine::KEY, Mine::SOME, true> queries(q, pitch);
    Mine tile;
    tile.load_keys(kv, now, me);
    tile.load_values(kv, now, me);
    float score[4];
    tile.scores(score, queries, me);
    tile.add(part, score, now, me);
  }
  const Meeting<HEADS, HD> meeting(room);
  meeting.all(part, out, ml);
}

// An item that will be taken about when this one is done: this one and those after it have `left`
// tokens, of which `held` are in `pages`, which lie `pitch` elements apart.
struct Following {
  View<const int32_t, 1> left, held;
  View<const int32_t, 2> pages;
  int64_t after, pitch;
};

// A full page of its begin for each lane of a warp, looked up long before it is asked for.
template <int PAGE> struct NextPage {
  int page = 0, left = 0;

  ET_HOT NextPage(const Following& item, Thread me) {
    if (me.warp != 0 || me.lane >= FETCHED || me.lane >= item.pages.extent[1]) return;
    if (item.after >= item.left.extent[0]) return;
    left = item.left.data[item.after];
    page = item.pages.data[item.after * item.pages.stride[0] + me.lane];
  }
  ET_HOT void fetch(const Gathered<const bf16, 4>& kv, int64_t pitch, Thread me) const {
    if ((me.lane + 1) * PAGE <= left) fetch_page(kv.data + page * pitch, 2 * kv.stride[1]);
  }
};

// The keys and values of a page, if it has any of `count` tokens.
template <int HD, int PAGE>
ET_HOT void fetch_there(const Gathered<const bf16, 4>& kv, int page, int count, Thread me) {
  const int there = min(count - page * PAGE, PAGE);
  if (there > 0 && me.lane < 2)
    fetch_page(kv.data + kv.rows[0][page] + me.lane * kv.stride[1], there * HD);
}

// What is loaded comes from the L2, to which pages after it are on their way. Where registers allow
// (EARLY), it goes where the tokens before were as soon as these have been used; a wide head has
// keys or values there, and its warps wait for each other's loads. Heads of `q` lie `pitch`
// elements apart. When all of the item is on its way, what follows it begins to come.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_heads(float* room, const bf16* q, int64_t pitch, int count,
                         const Gathered<const bf16, 4>& kv, const Following& following,
                         View<float, 2> out, View<float, 2> ml) {
  constexpr bool EARLY = HD <= 64;
  using Queries = QueriesOf<HEADS, Tile<HD, PAGE>::KEY, Tile<HD, PAGE>::SOME, EARLY>;
  constexpr int STEP = Tokens::STEP, BEYOND = (1 << 16) / (HD * 4 * STEP) + 1;  // 64 KB ahead
  constexpr int FETCH = STEP < PAGE ? 1 : STEP / PAGE;  // warps that do, a page each
  const int settled = count < BEYOND * STEP ? 0 : count - BEYOND * STEP;
  const NextPage<PAGE> after(following, Thread());
  Part<HD> part;
  Tile<HD, PAGE> tile = {};  // what has no value would be kept for the whole kernel
  {
    const Thread me;
    const Tokens now{me.warp * 16, count};
    if (now.any()) {
      tile.load_keys(kv, now, me);
      if (EARLY) tile.load_values(kv, now, me);
    }
    ET_ROLLED for (int page = STEP / PAGE + me.warp; page < BEYOND * STEP / PAGE; page += WARPS)
      fetch_there<HD, PAGE>(kv, page, count, me);
  }
  const Queries queries(q, pitch);
  ET_ROLLED for (int done = 0; done < count; done += STEP) {
    const Thread me;  // anew: its addresses would fill registers through the loop
    const Tokens now{done + me.warp * 16, count}, next = now.next();
    if (!now.any()) break;
    if (me.warp < FETCH) {
      fetch_there<HD, PAGE>(kv, (done + BEYOND * STEP) / PAGE + me.warp, count, me);
      if (done == settled / STEP * STEP) after.fetch(kv, following.pitch, me);
    }
    float score[4] = {};
    tile.scores(score, queries, me);
    if (EARLY && next.any()) tile.load_keys(kv, next, me);
    if (!EARLY) tile.load_values(kv, now, me);
    tile.add(part, score, now, me);
    if (EARLY && next.any()) tile.load_values(kv, next, me);
    if (!EARLY && next.any()) tile.load_keys(kv, next, me);
  }
  const Thread me;
  const Meeting<HEADS, HD> meeting(room);
  meeting.all(part, out, ml);
}

// `left` tokens of the pages count. Elements of a row are neighbours, and it begins at a multiple of
// 16 bytes. Eight heads at a time. `room` has ROOM floats.
template <int GROUP, int HD, int PAGES, int PAGE, int ROOM>
ET_FN void attend(float* room, View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                  Following following, View<float, 2> out, View<float, 2> ml) {
  constexpr int HEADS = GROUP < 8 ? GROUP : 8;
  static_assert(ROOM >= Meeting<HEADS, HD>::FLOATS && HD % 16 == 0);
  settle(q.data);
  settle(kv.data);
  settle(out.data);
  settle(ml.data);
  if constexpr (PAGES * PAGE <= Tokens::STEP)
    attend_once<HEADS, HD, PAGE>(room, q.data, q.stride[0], left, kv, out, ml);
  else
    attend_heads<HEADS, HD, PAGE>(room, q.data, q.stride[0], left, kv, following, out, ml);
  if constexpr (GROUP > 8) {
    sync();
    q.data += 8 * q.stride[0];
    out.data += 8 * out.stride[0];
    ml.data += 8;
    attend<GROUP - 8, HD, PAGES, PAGE, ROOM>(room, q, left, kv, following, out, ml);
  }
}

}  // namespace et::attention
