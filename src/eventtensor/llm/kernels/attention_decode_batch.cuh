// Attention of a decode batch (llm/model/attention_decode_batch.py): each token has its own sequence.
// An attention task applies RoPE to its queries itself and takes the new key and value from the
// projection while the KV pipeline (attention_mixed.cuh) fills. The order of sums is that of
// attention_mixed.cuh.
#pragma once
#include "attention_mixed.cuh"

namespace et::attention {

// Runs after `plan`: the fields of items that llm/model/attention_decode_batch.py defines.
ET_FN void place_items(View<const int32_t, 1> position, View<int32_t, 1> first,
                       View<int32_t, 1> row, View<int32_t, 1> left, View<int32_t, 1> num_cached,
                       View<int32_t, 1> rope_position, View<int32_t, 1> kv_tokens,
                       View<int32_t, 1> result_tokens, View<int32_t, 1> num_combined) {
  const Thread me;
  const int rows = int(position.extent[0]), items = int(row.extent[0]), used = first.data[rows];
  ET_ROLLED for (int item = me.number; item < items; item += ET_THREADS) {
    const int t = row.data[item];
    num_cached.data[item] = left.data[item] - (first.data[t + 1] == item + 1);
    rope_position.data[item] = position.data[t];
    kv_tokens.data[item] = item < used ? t : rows;
    result_tokens.data[item] = used <= rows ? min(item, rows) : 0;
  }
  if (me.number != 0) return;
  kv_tokens.data[items] = rows;
  result_tokens.data[items] = used <= rows ? min(items, rows) : 0;
  num_combined.data[0] = used <= rows ? 0 : rows;
}

// The tokens of an item. The cache has `num_cached` of them; one more is the new token, whose key
// and value lie in shared memory from `new_kv` on.
template <int HD, int PAGE> struct ItemKvWithNewToken {
  CachedKv<HD, PAGE> kv;
  int count, num_cached;
  uint32_t new_kv;

  ET_HOT Chunk chunk(int base) const { return kv.chunk(base, num_cached); }

  // Copies the new token into its place of the stage, and into the places behind it.
  template <bool VALUES> ET_HOT void complete(uint32_t stage, int base, Thread me) const {
    using Stages = KvPipeline<HD, PAGE>;
    const int from = num_cached - base;
    if (num_cached == count || from >= 16) return;
    const unsigned piece = me.lane % Stages::PIECES;
    uint32_t some[4];
    ptx::ld_shared_v4(new_kv + (VALUES ? sizeof(bf16) * PITCH<HD> : 0) + piece * 16, some);
    ET_ROLLED for (unsigned row = from + me.lane / Stages::PIECES; row < 16; row += Stages::AT_ONCE)
      ptx::st_shared_v4(Stages::piece_at(stage, row, piece, VALUES), some);
    __syncwarp();
  }
};

// What RoPE and the norms need besides their tables.
struct RopeParams { float hidden, eps, scale; };

// Loads in flight: the split-K parts of H KV heads of a token (queries, key and value of each) and
// the tables for RoPE. A thread has some elements of all parts.
template <int PARTS, int H, int GROUP, int HD, bool NORM> class RopeInput {
 public:
  ET_HOT RopeInput(View<const float, 2> qkv, View<const float, 1> ss, View<const float, 2> gains,
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

  // Sums the parts in order, scales them by the norm of the token, applies RoPE in `smem` and
  // writes heads PITCH apart to `to`. The block meets last.
  static constexpr int ADDED = 3 * HD, FLOATS = ADDED + H * (GROUP + 2) * HD;
  static constexpr int HEAD_FLOATS = H * (GROUP + 2) * PITCH<HD> / 2;  // floats of `to`
  ET_HOT void apply_rope(float* smem, bf16* to, RopeParams params) {
    const Thread me;
    float *const angles = smem, *const added = smem + ADDED;
    const float mean = from_first(half_tree(share_)) / params.hidden;
    const float norm = ptx::rsqrt_approx(mean + params.eps);
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
      apply_rope_smem<GROUP, HD, NORM>(row % (GROUP + 2), added + row * HD, angles,
                                       to + row * PITCH<HD>, params.eps, params.scale, me);
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

// Stores the new keys and values of the token for `append_kv_layers`, if `step_kv` has rows (one
// item of a sequence does it). `new_kv`: those of the first head; others lie PITCH elements times
// `heads` apart.
template <int H, int HD>
ET_HOT void store_own_kv(const bf16* new_kv, int heads, View<bf16, 4> step_kv) {
  const Thread me;
  if (step_kv.extent[0] == 0) return;
  ET_ROLLED for (int at = 4 * me.number; at < H * 2 * HD; at += 4 * ET_THREADS)
    *reinterpret_cast<WordVector<2>*>(step_kv.data + at / (2 * HD) * step_kv.stride[1] +
                                 at / HD % 2 * step_kv.stride[2] + at % HD) =
        *reinterpret_cast<const WordVector<2>*>(
            new_kv + (at / (2 * HD) * heads + at / HD % 2) * PITCH<HD> + at % HD);
}

// Pointers to the outputs of a task, in shared memory while it computes: registers are few.
struct OutputPointers {
  float *out, *ml;
  bf16* mixed;
};
ET_FN OutputPointers& output_pointers() {
  __shared__ OutputPointers found;
  return found;
}

// Like attend_mixed for H KV heads at once. The item has `left` tokens, the cache `num_cached` of
// them. `arrive` waits for `qkv` and `ss`; the result is false if the launch is aborted. Loads
// return in order, so those of the projection come before keys and values. `smem` has SMEM_FLOATS
// floats: for the heads of the token, and for the results of KV partitions; those of a single head
// overwrite the heads at the end.
template <int PARTS, int H, int GROUP, int HD, int PAGE, int HEADS, int SMEM_FLOATS, bool NORM,
          class Arrive>
ET_HOT bool attend_decode(const Worker& worker, uint32_t stages, float* smem, WorkTiles tiles,
                          View<const float, 2> qkv, View<const float, 1> ss,
                          View<const float, 2> gains, View<const float, 2> rope, int32_t left,
                          int32_t num_cached, Gathered<const bf16, 5> kv, NextItems following,
                          View<float, 3> out, View<float, 3> ml, View<bf16, 2> mixed,
                          View<bf16, 4> step_kv, RopeParams params, const Arrive& arrive) {
  using Row = RopeInput<PARTS, H, GROUP, HD, NORM>;
  using Reduce = PipelineReduce<GROUP, HD, H>;
  static_assert(GROUP <= 8 && (HD == 64 || HD == 128) && PAGE % 16 == 0);
  constexpr bool REDUCES_LATER = H == 1;
  constexpr int HEADS_AT = REDUCES_LATER ? 0 : Reduce::FLOATS;
  constexpr int ROPE_AT = REDUCES_LATER ? Row::HEAD_FLOATS : 0;
  static_assert(SMEM_FLOATS >= Reduce::FLOATS && SMEM_FLOATS >= HEADS_AT + Row::HEAD_FLOATS);
  static_assert(ROPE_AT + Row::FLOATS <= (REDUCES_LATER ? SMEM_FLOATS : Reduce::FLOATS));
  using Mine = AttendItem<HD, PAGE, HEADS, H, ItemKvWithNewToken<HD, PAGE>>;
  using Queries = QueryLoader<GROUP, Mine::Keys::KEY, Mine::Keys::SOME, true>;
  if (!arrive()) return false;
  pin_address(kv.data);
  if (is_leader()) output_pointers() = {out.data, ml.data, mixed.extent[0] != 0 ? mixed.data : nullptr};
  const bool is_prefetched = tiles.next >= 0 && tiles.now >= worker.count;  // by the task before
  Row row(qkv, ss, gains, rope);
  const Thread me;
  bf16* const heads = reinterpret_cast<bf16*>(smem + HEADS_AT);
  const int head = KvPartitions<H>::head(me);
  const bf16* const mine_at = heads + head * (GROUP + 2) * PITCH<HD>;
  const uint32_t new_kv = uint32_t(__cvta_generic_to_shared(mine_at + GROUP * PITCH<HD>));
  Mine mine(stages, kv.data, {{kv.rows[0], head}, left, num_cached, new_kv}, tiles, following,
            is_prefetched, me);
  if (!is_prefetched) mine.begin(me);
  row.apply_rope(smem + ROPE_AT, heads, params);
  store_own_kv<H, HD>(heads + GROUP * PITCH<HD>, GROUP + 2, step_kv);
  const Queries queries(mine_at, PITCH<HD>);
  OnlineSoftmaxState<HD> part;
  const Reduce reduce(smem);
  mine.attend(part, queries, [&](const OnlineSoftmaxState<HD>& state, int kv_partition) {
    reduce.store_partition(state, kv_partition);
  });
  if (REDUCES_LATER) sync();
  const OutputPointers to = output_pointers();
  reduce.reduce(part, {to.out, {H * GROUP, HD}, {HD, 1}}, {to.ml, {2 * H, GROUP}, {GROUP, 1}},
                to.mixed);
  return true;
}

// The address of the `at`-th piece of eight elements of a token, in layers of H heads.
template <int H, int HD, class T> ET_HOT T* piece_of(const View<T, 4>& view, int at) {
  constexpr int HEAD = HD / 8;
  return view.data + at / (H * 2 * HEAD) * view.stride[0] + at / (2 * HEAD) % H * view.stride[1] +
         at / HEAD % 2 * view.stride[2] + at % HEAD * 8;
}

// Copies the new keys and values of H heads of a token, in all layers, into the cache.
template <int LAYERS, int H, int HD, class T>
ET_FN void append_kv_layers(View<const T, 4> step_kv, View<T, 4> kv) {
  using Eight = WordVector<4>;
  constexpr int ALL = LAYERS * H * 2 * HD / 8, LOADS_IN_FLIGHT = 8;
  static_assert(sizeof(T) == 2 && HD % 8 == 0);
  const Thread me;
  ET_ROLLED for (int base = me.number; base < ALL; base += LOADS_IN_FLIGHT * ET_THREADS) {
    Eight some[LOADS_IN_FLIGHT] = {};
#pragma unroll
    for (int n = 0; n < LOADS_IN_FLIGHT; ++n)
      if (base + n * ET_THREADS < ALL)
        some[n] = *reinterpret_cast<const Eight*>(piece_of<H, HD>(step_kv, base + n * ET_THREADS));
#pragma unroll
    for (int n = 0; n < LOADS_IN_FLIGHT; ++n)
      if (base + n * ET_THREADS < ALL)
        *reinterpret_cast<Eight*>(piece_of<H, HD>(kv, base + n * ET_THREADS)) = some[n];
  }
}

}  // namespace et::attention
