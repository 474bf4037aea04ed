// Random weights by counter: a key and the number of an element decide it, so that threads fill any
// part of a packed matrix by themselves. llm/weights/formats/random_checkpoint.py gives the same bits.
#pragma once
#include "numerics.h"

namespace et::random {

// The generator SplitMix64 at any place of its sequence.
ET_FN uint64_t mixed(uint64_t key, uint64_t at) {
  uint64_t z = (at + 1) * 0x9e3779b97f4a7c15u + key;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// All but normal around 0: a sum of four numbers of 16 bits, exact in a float, times `scale`.
ET_FN bf16 drawn(uint64_t key, uint64_t at, float scale) {
  const uint64_t z = mixed(key, at);
  const int32_t sum = int32_t((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return to_bf16(float(2 * sum - 4 * 0xffff) * scale);
}

template <class T> ET_FN T stored(bf16 x) {
  if constexpr (std::is_same_v<T, bf16>) return x;
  else return value(x);
}

// How a packed matrix is made from its sources (llm/weights/weight_packing.py): in turns, of which
// each has some panels of every source. `first`: where those of a source begin in a turn; the last
// is its length.
struct Packing {
  static constexpr uint32_t SOURCES = 3, ROWS = 16, BLOCK = 8;
  uint32_t panels, bundle, spans, blocks, sources, first[SOURCES + 1];  // blocks: of a span
};

// Row `i` of all blocks of all matrices that lie one behind the other; `keys` has one for each
// source of each of them.
template <class T>
ET_FN void fill_packed(T* out, const uint64_t* keys, const Packing& p, float scale, uint64_t i) {
  constexpr uint32_t BLOCK = Packing::BLOCK, HALVES = Packing::ROWS / BLOCK;
  const uint32_t half = uint32_t(i / BLOCK / p.blocks % HALVES);
  const uint64_t piece = i / BLOCK / p.blocks / HALVES;  // a span of a panel, bundle by bundle
  const uint64_t span = piece / p.bundle % p.spans;
  const uint64_t panel = piece / p.bundle / p.spans * p.bundle + piece % p.bundle;
  const uint32_t turn = p.first[p.sources], at = uint32_t(panel % p.panels);
  uint32_t s = 0;
  while (at % turn >= p.first[s + 1]) ++s;
  const uint32_t many = p.first[s + 1] - p.first[s];
  const uint32_t own = at / turn * many + at % turn - p.first[s];
  const uint64_t row = uint64_t(own) * Packing::ROWS + half * BLOCK + i % BLOCK;
  const uint64_t from = ((row * p.spans + span) * p.blocks + i / BLOCK % p.blocks) * BLOCK;
  const uint64_t key = keys[panel / p.panels * p.sources + s];
  for (uint32_t c = 0; c < BLOCK; ++c) out[i * BLOCK + c] = stored<T>(drawn(key, from + c, scale));
}

// The i-th eight elements of plain rows.
template <class T> ET_FN void fill_rows(T* out, uint64_t key, float scale, uint64_t i) {
  for (uint64_t k = i * Packing::BLOCK; k < (i + 1) * Packing::BLOCK; ++k)
    out[k] = stored<T>(drawn(key, k, scale));
}

}  // namespace et::random
