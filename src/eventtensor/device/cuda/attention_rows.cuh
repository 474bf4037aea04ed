// Rows of attention before any product, for the threads of a block: hand-tuned bodies of `plan` and
// `rotate` in models/attention.py, whose Python bodies are the meaning.
//
// GROUP: heads of queries that look at one head of keys; HD: its width, a multiple of 16.
#pragma once
#include "reduce.cuh"

namespace et::attention {

constexpr int WARPS = ET_THREADS / WARP;

// A thread as the layout of mma.cuh sees it. Its number is read anew in every task: what compilers
// work out from it would otherwise stay in registers for the whole kernel.
struct Thread {
  int number, lane, warp, g, c;
  ET_HOT Thread() : number(threadIdx.x) {
    asm volatile("" : "+r"(number));
    lane = unsigned(number) % WARP;
    warp = unsigned(number) / WARP;
    g = unsigned(lane) / 4;
    c = lane & 3;
  }
};

// The value of the lane whose number differs in the bits of `by`.
ET_HOT float from_other(float x, int by, Thread me) { return __shfl_sync(~0u, x, me.lane ^ by); }

// ---- plan: the work items of all rows -----------------------------------------------------------

// The splits of an item: of 1, 2, 4 .. below SPAN the fewest with which all rows have at most FILL
// items, else SPAN. Each warp finds it by itself.
template <int SPAN, int FILL>
ET_FN int span_of(View<const int32_t, 1> position, int split, int lane) {
  constexpr int SMALLER = FILL == 0 || SPAN == 1 ? 0 : SPAN == 2 ? 1 : SPAN <= 4 ? 2 : 3;
  static_assert(SPAN <= 8);
  int items[SMALLER + 1] = {};
  ET_ROLLED for (int t = lane; SMALLER > 0 && t < position.extent[0]; t += WARP) {
    const int splits = position.data[t] / split + 1;
#pragma unroll
    for (int k = 0; k < SMALLER; ++k) items[k] += max(1, splits >> k);
  }
  int span = SPAN;
#pragma unroll
  for (int k = SMALLER - 1; k >= 0; --k) {
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) items[k] += __shfl_sync(~0u, items[k], lane ^ by);
    if (items[k] <= FILL) span = 1 << k;
  }
  return span;
}

// first[t] .. first[t + 1] are the items of row t, of `span` splits each; the last of a row has what
// is left besides. By one warp.
ET_FN void item_bounds(View<const int32_t, 1> position, View<int32_t, 1> first, int split, int span,
                       int lane) {
  const int rows = int(position.extent[0]);
  int before = 0;
  if (lane == 0) first.data[0] = 0;
  ET_ROLLED for (int base = 0; base < rows; base += WARP) {
    const int t = base + lane;
    int sum = t < rows ? max(1, (position.data[t] / split + 1) / span) : 0;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int below = __shfl_sync(~0u, sum, lane < by ? lane : lane - by);
      if (lane >= by) sum += below;
    }
    if (t < rows) first.data[t + 1] = before + sum;
    before += __shfl_sync(~0u, sum, WARP - 1);
  }
}

// The row that an item belongs to.
ET_FN int row_of(int item, View<int32_t, 1> first) {
  int low = 0, high = int(first.extent[0]) - 2;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (item < first.data[middle + 1]) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Page `k` of an item, or another one of its row.
ET_FN int32_t page_of(int item, int k, View<const int32_t, 1> request, View<const int32_t, 3> table,
                      View<int32_t, 1> first, View<int32_t, 1> row, int span) {
  const int t = row.data[item], each = int(table.extent[2]);
  const int at = (item - first.data[t]) * span * each + k;
  return table.data[request.data[t] * table.stride[0] + min(at, int(table.extent[1]) * each - 1)];
}

template <int SPAN, int FILL>
ET_FN void plan(View<const int32_t, 1> position, View<const int32_t, 1> request,
                View<const int32_t, 3> table, View<int32_t, 1> first, View<int32_t, 1> row,
                View<int32_t, 1> left, View<int32_t, 2> pages, int split_tokens) {
  constexpr int FLIGHT = 4;  // loads of a thread that are on their way together
  const Thread me;
  const int span = span_of<SPAN, FILL>(position, split_tokens, me.lane);
  if (me.warp == 0) item_bounds(position, first, split_tokens, span, me.lane);
  sync();
  const int used = first.data[position.extent[0]];
  const int items = int(row.extent[0]), width = int(pages.extent[1]);
  ET_ROLLED for (int item = me.number; item < items; item += ET_THREADS) {
    const int t = item < used ? row_of(item, first) : 0, begin = first.data[t];
    const int rest = position.data[t] + 1 - (item - begin) * span * split_tokens;
    row.data[item] = t;
    left.data[item] = item >= used ? 0 : item + 1 < first.data[t + 1] ? span * split_tokens : rest;
  }
  sync();
  ET_ROLLED for (int at = me.number; at < items * width; at += FLIGHT * ET_THREADS) {
    int32_t page[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) {
      const int item = (at + k * ET_THREADS) / width, nth = (at + k * ET_THREADS) % width;
      page[k] = item < used ? page_of(item, nth, request, table, first, row, span) : 0;
    }
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k)
      if (at + k * ET_THREADS < items * width) pages.data[at + k * ET_THREADS] = page[k];
  }
}

// ---- what will be read comes nearer -------------------------------------------------------------

constexpr int FETCHED = 8;  // pages of a head, which have 16 KB

// Asks for it as far as the L2: no more than a hint.
template <class T> ET_HOT void fetch_page(const T* at, int64_t elements) {
#if ET_STREAM  // it needs a GPU that has bulk copies
  bulk_prefetch(at, uint32_t(elements * sizeof(T)));
#endif
}

// ---- rotate: queries and the entry of the cache -------------------------------------------------

// Half a warp has a head: `head` of those of queries, then the key and the value. `gains` are used
// if NORM; the order of sums is that of the meaning of record. A thread loads all it needs before it
// stores: as far as a compiler can tell, stores might change it.
template <int GROUP, int HD, bool NORM, class T>
ET_HOT void rotate_head(int head, const float* x, View<const float, 2> gains,
                        View<const float, 2> rope, T* to, float eps, float scale, Thread me) {
  constexpr int HALF = HD / 2, EACH = HD / LANES;
  const bool query = head < GROUP, turns = head <= GROUP;
  const float* const gain = gains.data + (query ? 0 : gains.stride[0]);
  float cosine[EACH], sine[EACH], mine[EACH], other[EACH], norm = 1.0f;
  if (NORM) {
    const float sum = half_sum<float>(HD, [&](int64_t k) { return x[k] * x[k]; });
    norm = rsqrt(from_first(sum) / float(HD) + eps);
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int k = j * LANES + me.number % LANES, i = k < HALF ? k : k - HALF;
    const int across = k < HALF ? k + HALF : i;
    cosine[j] = rope.data[i];
    sine[j] = k < HALF ? -rope.data[rope.stride[0] + i] : rope.data[rope.stride[0] + i];
    mine[j] = NORM && turns ? x[k] * norm * gain[k] : x[k];
    other[j] = NORM && turns ? x[across] * norm * gain[across] : x[across];
  }
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const float turned = mine[j] * cosine[j] + other[j] * sine[j];
    const float result = query ? turned * scale : turns ? turned : mine[j];
    to[j * LANES + me.number % LANES] = cast<T>(result);
  }
}

// The begin of a row sets out for the L2, where attention of the first rows finds it: full pages,
// of keys and values side by side, one for each lane and by a warp for each head.
template <int HEADS, int PAGE> struct RowBegin {
  int page = -1;

  // `position` has the rows up to this one.
  ET_HOT RowBegin(View<const int32_t, 1> position, View<const int32_t, 2> table, int64_t rows) {
    const Thread me;
    const int64_t row = position.extent[0] - 1;
    if (row >= rows || me.lane >= FETCHED || me.warp >= HEADS) return;
    if (me.lane >= table.extent[0] * table.extent[1]) return;
    const int found = table.data[me.lane];  // beside the load of the position
    if ((me.lane + 1) * PAGE <= position.data[row]) page = found;
  }
  // Its entry of the cache has place `slot`; pages lie `pitch` elements apart.
  template <class T> ET_HOT void fetch(View<T, 3> kv, int slot, int64_t pitch) const {
    const Thread me;
    const T* const begin = kv.data - slot / PAGE * pitch - slot % PAGE * kv.extent[2];
    ET_ROLLED for (int head = me.warp; page >= 0 && head < HEADS; head += WARPS)
      fetch_page(begin + page * pitch + head * kv.stride[0], 2 * kv.stride[1]);
  }
};

// Heads of keys, each with the queries that look at it. `qkv` has them one after the other.
template <int HEADS, int GROUP, int HD, bool NORM, class T>
ET_FN void rotate(View<const float, 1> qkv, View<const float, 2> gains, View<const float, 2> rope,
                  View<T, 3> out, View<T, 3> kv, float eps, float scale) {
  constexpr int EACH = GROUP + 2;
  const Thread me;
  ET_ROLLED for (int at = me.number / LANES; at < HEADS * EACH; at += ET_THREADS / LANES) {
    const int of = at / EACH, head = at % EACH;
    T* const to = head < GROUP ? out.data + of * out.stride[0] + head * out.stride[1]
                               : kv.data + of * kv.stride[0] + (head - GROUP) * kv.stride[1];
    rotate_head<GROUP, HD, NORM>(head, qkv.data + at * HD, gains, rope, to, eps, scale, me);
  }
}

}  // namespace et::attention
