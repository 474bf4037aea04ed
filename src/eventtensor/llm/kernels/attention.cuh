// Attention over a paged KV cache for the threads of a block: the hand-tuned body of `attend` in
// llm/model/attention.py, whose Python body defines the result. Templates over the shapes of a head
// and of a page serve all models. The length of a sequence alone decides the order of its sums.
//
// GROUP: query heads of one KV head; HD: the width of a head, a multiple of 16.
#pragma once
#include "attention_tile.cuh"

namespace et::attention {

// Loads queries once into registers, before keys and values (HELD), or a few words at a time on
// every use: the L1 has room for them where registers have none. Heads lie `pitch` elements apart.
template <int HEADS, int KEY, int SOME, bool HELD> struct QueryLoader {
  const bf16* all;
  int64_t pitch;
  uint32_t held[HELD ? KEY : 1];

  ET_HOT QueryLoader(const bf16* q, int64_t pitch_) : all(q), pitch(pitch_) {
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

// All `count` tokens fit in one step of the block. Heads of `q` lie `pitch` elements apart.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_once(float* smem, const bf16* q, int64_t pitch, int count,
                        const Gathered<const bf16, 4>& kv, View<float, 2> out, View<float, 2> ml) {
  using Mine = Tile<HD, PAGE>;
  const Thread me;
  const Tokens now{me.warp * 16, count};
  OnlineSoftmaxState<HD> part;
  if (now.any()) {
    const QueryLoader<HEADS, Mine::KEY, Mine::SOME, true> queries(q, pitch);
    Mine tile;
    tile.load_keys(kv, now, me);
    tile.load_values(kv, now, me);
    float score[4];
    tile.scores(score, queries, me);
    tile.add(part, score, now, me);
  }
  const SplitSoftmaxReduce<HEADS, HD> reduce(smem);
  reduce.reduce(part, out, ml);
}

// The work items after this one. They have `left` tokens each, of which `num_cached` are in
// `pages`; pages lie `pitch` elements apart. Workers take the item at `after` about when this one
// is done.
struct NextItems {
  View<const int32_t, 1> left, num_cached;
  View<const int32_t, 2> pages;
  int64_t after, pitch;
};

// The first pages of the next item, one for each lane of warp 0. A lane looks its page up long
// before it prefetches it.
template <int PAGE> struct PagePrefetch {
  int page = 0, left = 0;

  ET_HOT PagePrefetch(const NextItems& item, Thread me) {
    if (me.warp != 0 || me.lane >= PREFETCHED_PAGES || me.lane >= item.pages.extent[1]) return;
    if (item.after >= item.left.extent[0]) return;
    left = item.left.data[item.after];
    page = item.pages.data[item.after * item.pages.stride[0] + me.lane];
  }
  ET_HOT void fetch(const Gathered<const bf16, 4>& kv, int64_t pitch, Thread me) const {
    if ((me.lane + 1) * PAGE <= left) prefetch_to_l2(kv.data + page * pitch, 2 * kv.stride[1]);
  }
};

// Prefetches the keys and values of a page if it has any of `count` tokens.
template <int HD, int PAGE>
ET_HOT void prefetch_page(const Gathered<const bf16, 4>& kv, int page, int count, Thread me) {
  const int there = min(count - page * PAGE, PAGE);
  if (there > 0 && me.lane < 2)
    prefetch_to_l2(kv.data + kv.rows[0][page] + me.lane * kv.stride[1], there * HD);
}

// Loads hit the L2, into which a few warps prefetch later pages. Where registers suffice
// (LOAD_EARLY), the loads of the next tokens are issued as soon as those before are used. A wide
// head keeps keys or values in these registers, so each product waits for its own load. Heads of
// `q` lie `pitch` elements apart. After the last prefetch of this item that of the next one begins.
template <int HEADS, int HD, int PAGE>
ET_HOT void attend_heads(float* smem, const bf16* q, int64_t pitch, int count,
                         const Gathered<const bf16, 4>& kv, const NextItems& following,
                         View<float, 2> out, View<float, 2> ml) {
  constexpr bool LOAD_EARLY = HD <= 64;
  using Queries = QueryLoader<HEADS, Tile<HD, PAGE>::KEY, Tile<HD, PAGE>::SOME, LOAD_EARLY>;
  constexpr int STEP = Tokens::STEP, BEYOND = (1 << 16) / (HD * 4 * STEP) + 1;  // 64 KB ahead
  constexpr int FETCH = STEP < PAGE ? 1 : STEP / PAGE;  // warps that prefetch, a page each
  const int last_prefetch = count < BEYOND * STEP ? 0 : count - BEYOND * STEP;
  const PagePrefetch<PAGE> after(following, Thread());
  OnlineSoftmaxState<HD> part;
  Tile<HD, PAGE> tile = {};  // registers without a value would stay live for the whole kernel
  {
    const Thread me;
    const Tokens now{me.warp * 16, count};
    if (now.any()) {
      tile.load_keys(kv, now, me);
      if (LOAD_EARLY) tile.load_values(kv, now, me);
    }
    ET_ROLLED for (int page = STEP / PAGE + me.warp; page < BEYOND * STEP / PAGE; page += WARPS)
      prefetch_page<HD, PAGE>(kv, page, count, me);
  }
  const Queries queries(q, pitch);
  ET_ROLLED for (int done = 0; done < count; done += STEP) {
    const Thread me;  // read anew: its addresses would fill registers through the loop
    const Tokens now{done + me.warp * 16, count}, next = now.next();
    if (!now.any()) break;
    if (me.warp < FETCH) {
      prefetch_page<HD, PAGE>(kv, (done + BEYOND * STEP) / PAGE + me.warp, count, me);
      if (done == last_prefetch / STEP * STEP) after.fetch(kv, following.pitch, me);
    }
    float score[4] = {};
    tile.scores(score, queries, me);
    if (LOAD_EARLY && next.any()) tile.load_keys(kv, next, me);
    if (!LOAD_EARLY) tile.load_values(kv, now, me);
    tile.add(part, score, now, me);
    if (LOAD_EARLY && next.any()) tile.load_values(kv, next, me);
    if (!LOAD_EARLY && next.any()) tile.load_keys(kv, next, me);
  }
  const Thread me;
  const SplitSoftmaxReduce<HEADS, HD> reduce(smem);
  reduce.reduce(part, out, ml);
}

// The body of `attend`. The first `left` tokens of the pages count. Elements of a row are
// neighbours, and a row begins at a multiple of 16 bytes. Eight heads are computed at a time.
template <int GROUP, int HD, int PAGES, int PAGE, int SMEM_FLOATS>
ET_FN void attend(float* smem, View<const bf16, 2> q, int32_t left, Gathered<const bf16, 4> kv,
                  NextItems following, View<float, 2> out, View<float, 2> ml) {
  constexpr int HEADS = GROUP < 8 ? GROUP : 8;
  static_assert(SMEM_FLOATS >= SplitSoftmaxReduce<HEADS, HD>::FLOATS && HD % 16 == 0);
  pin_address(q.data);
  pin_address(kv.data);
  pin_address(out.data);
  pin_address(ml.data);
  if constexpr (PAGES * PAGE <= Tokens::STEP)
    attend_once<HEADS, HD, PAGE>(smem, q.data, q.stride[0], left, kv, out, ml);
  else
    attend_heads<HEADS, HD, PAGE>(smem, q.data, q.stride[0], left, kv, following, out, ml);
  if constexpr (GROUP > 8) {
    sync();
    q.data += 8 * q.stride[0];
    out.data += 8 * out.stride[0];
    ml.data += 8;
    attend<GROUP - 8, HD, PAGES, PAGE, SMEM_FLOATS>(smem, q, left, kv, following, out, ml);
  }
}

}  // namespace et::attention
