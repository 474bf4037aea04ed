// The best of a row, found by one warp from words that carry their flags: numbers that say where
// something lies, found again by whoever needs them.
#pragma once
#include "cuda/sync/tagged.cuh"
#include "cuda/ops/reduce.cuh"

namespace et {

// By the producer: the places of the best of N elements, descending, the lower of equal ones first.
// Each is a sum, in order, of PARTS words that lie APART, in aligned pairs. They order nothing else:
// nobody writes the data that the table points at. All lanes poll one word, the last, until it has
// come: many producer warps that poll all words would slow down those who write them.
//
// False if the tasks are over. These wait for pages without a limit, and so does this for words: who
// finds the numbers for all to see has one. When the launch is given up, this goes on with place 0,
// so that its tasks come to a wait that tells them.
template <uint32_t PARTS, uint32_t N, uint32_t APART, class ProducerWarp,
          template <class, uint32_t> class Table, class T, uint32_t COUNT>
ET_HOT bool find_best(ProducerWarp& producer, Table<T, COUNT>& table, const Tagged<float>* from) {
  constexpr uint32_t EACH = N / 32;  // neighbours, of a lane
  static_assert(N % 64 == 0 && COUNT <= 32);
  const uint32_t lane = threadIdx.x % 32;
  const Tagged<float>* const mine = from + lane * EACH;
  const Tagged<float>* const last = from + (PARTS - 1) * APART + N - 1;
  uint32_t place[EACH];
  bool all = false;
  bool going = producer.until([&](uint32_t epoch) {
    const bool there = tag(tagged_load(last)) == epoch, gone = aborted(*producer.shared);
    return there || gone;
  });
  going = going && producer.until([&](uint32_t epoch) {
    TaggedVector pair[PARTS][EACH / 2];
#pragma unroll
    for (uint32_t p = 0; p < PARTS; ++p)
#pragma unroll
      for (uint32_t j = 0; j < EACH / 2; ++j)
        load_vector<16>(true, mine + p * APART + 2 * j, pair[p][j]);
    all = true;
#pragma unroll
    for (uint32_t j = 0; j < EACH; ++j) {
      float sum = 0.0f;
#pragma unroll
      for (uint32_t p = 0; p < PARTS; ++p) {
        const Tagged<float> word = word_of<Tagged<float>>(pair[p][j / 2], j % 2);
        sum = p == 0 ? payload<float>(word) : sum + payload<float>(word);
        all = all && tag(word) == epoch;
      }
      place[j] = place_of(sum);
    }
    return all || aborted(*producer.shared);
  });
  if (!going) return false;
  uint32_t own = 0;
  ET_ROLLED for (uint32_t k = 0; k < COUNT; ++k) {
    uint32_t best = place[0], at = 0;
#pragma unroll
    for (uint32_t j = 1; j < EACH; ++j)
      if (place[j] > best) best = place[j], at = j;
    const uint32_t most = __reduce_max_sync(~0u, best);
    const uint32_t winner = uint32_t(__ffs(int(__ballot_sync(~0u, best == most)))) - 1;
    const uint32_t number = __shfl_sync(~0u, lane * EACH + at, int(winner));
    if (lane == k) own = number;
#pragma unroll
    for (uint32_t j = 0; j < EACH; ++j)
      if (lane == winner && at == j) place[j] = 0;
  }
  const bool known = !__any_sync(~0u, !all);
  table.take([&](uint32_t, typename Table<T, COUNT>::Kept& to) {
    to = known ? own : 0;
    return true;
  });
  return true;
}

}  // namespace et
