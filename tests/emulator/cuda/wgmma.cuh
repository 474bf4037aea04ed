// What device/cuda/wgmma.cuh has, for a block as fibers. Products happen when they are waited for:
// until then their sums are poison, and B may not change. The warps of a group do not meet, so that
// a barrier that is missing is seen; at the end all of them must have asked for the same.
#pragma once
#include "portable.h"

namespace et::ptx {

// Every lane gives the address of a row of 16 bytes, lanes 8 j to 8 j + 7 those of matrix j.
ET_HOT void ldmatrix_x4(uint32_t at, uint32_t (&x)[4]) {
  if (at % 16 != 0) emu::block->fault("a row of ldmatrix is not aligned to 16 bytes");
  const auto& all = emu::exchange("ldmatrix", ~0u, {{at}});
  const int lane = emu::block->thread() % 32;
  for (int j = 0; j < 4; ++j)
    std::memcpy(&x[j], emu::block->at(all[8 * j + lane / 4].word[0], 16) + lane % 4 * 4, 4);
  emu::block->pending().changed.insert(x);
}

// ---- B in shared memory --------------------------------------------------------------------

// Columns of B in groups of 8, each of 128 bytes along K, their 16-byte places swizzled.
class Operand {
 public:
  Operand(uint64_t b, int n) : start_(field(b, 0)), stride_(field(b, 32)) {
    if (b >> 62 != 1) emu::block->fault("B of wgmma is not swizzled by 128 bytes");
    if ((b & 0x3fffc000c000c000u) != 0)
      emu::block->fault("a descriptor of wgmma has a base offset, or bits that must be 0");
    if (start_ % 1024 >= 128 || (n > 8 && stride_ % 1024 != 0))
      emu::block->fault("B of wgmma at %x, stride %x: not aligned to 1024 bytes", start_, stride_);
    if (start_ % 128 > 96) emu::block->fault("16 of K lie across the 128 bytes of a swizzle");
  }
  // 8 numbers of a column, the first or the second of K.
  const char* eight(int column, int half) const {
    return emu::block->at(place(column, half), 16);
  }
  // A lane's share of the columns. Everything must be visible to the tensor cores.
  std::vector<char> share(int n) const {
    std::vector<char> found;
    for (int k = emu::block->thread() % 32; k < 2 * n; k += 32) {
      const int writer = emu::block->hidden(place(k / 2, k % 2));
      if (writer != emu::Proxies::NOBODY)
        emu::block->fault("wgmma reads what thread %d writes: it has not landed, or there is no "
                          "fence.proxy.async and then a barrier after it", writer);
      const char* const at = eight(k / 2, k % 2);
      found.insert(found.end(), at, at + 16);
    }
    return found;
  }

 private:
  static uint32_t field(uint64_t b, int bit) { return uint32_t(b >> bit & 0x3fff) << 4; }
  uint32_t place(int column, int half) const {
    const uint32_t at = start_ + column / 8 * stride_ + column % 8 * 128 + half * 16;
    return emu::NEAR + (at ^ (at >> 7 & 7) << 4);
  }
  uint32_t start_, stride_;
};

// ---- products ------------------------------------------------------------------------------

float from_bf16(uint16_t);  // numerics.h follows
float from_f16(uint16_t);

inline bool is_poison(const float* d, size_t count) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(d);
  for (size_t k = 0; k < 4 * count; ++k)
    if (bytes[k] != emu::POISON) return false;
  return true;
}

// From now on the sums are not the thread's. Products that have the same follow each other.
inline void take_sums(float* d, size_t count) {
  emu::Pending& mine = emu::block->pending();
  const auto [found, fresh] = mine.sums.try_emplace(d);
  emu::Sums& sums = found->second;
  if (fresh) sums.held.assign(d, d + count);
  if (!fresh && (sums.held.size() != count || !is_poison(d, count)))
    emu::block->fault("sums of wgmma are changed before they are waited for");
  ++sums.flying;
  std::memset(d, emu::POISON, 4 * count);
}

inline void ask(float* d, int n, const uint32_t (&a)[4], uint64_t b, float (*number)(uint16_t)) {
  emu::Block& block = *emu::block;
  emu::Pending& mine = block.pending();
  const int lane = block.thread() % 32, warp = block.thread() / 32 % 4;
  const uint32_t low = uint32_t(b), high = uint32_t(b >> 32);
  const auto& all = emu::exchange("wgmma.mma_async", ~0u, {{a[0], a[1], a[2], a[3], low, high}});
  if (all[0].word[4] != low || all[0].word[5] != high)
    block.fault("lanes of a warp give different descriptors to wgmma");
  if (!mine.fenced || mine.changed.count(a) != 0 || mine.changed.count(d) != 0)
    block.fault("registers of wgmma are changed, and no wgmma.fence follows");
  emu::Product p{d, n, b, number, {}, Operand(b, n).share(n)};
  for (int r = 0; r < 4; ++r)
    for (int q = 0; q < 4; ++q) p.a[r][q] = all[lane / 4 * 4 + q].word[r];
  if (lane == 0 && !block.warpgroup().ask(warp, b, n))
    block.fault("warp %d asks for another product of wgmma than others of its group", warp);
  take_sums(d, size_t(n) / 2);
  mine.products.back().push_back(p);
}

// Exact products, added in f64 and rounded once.
inline void multiply(const emu::Product& p, float* sums) {
  const Operand b(p.b, p.n);
  const int lane = emu::block->thread() % 32;
  double rows[2][16], column[16];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < 16; ++k)
      rows[r][k] = p.number(uint16_t(p.a[r + k / 8 * 2][k % 8 / 2] >> k % 2 * 16));
  for (int c = 0; c < p.n / 4; ++c) {
    for (int k = 0; k < 16; ++k) {
      uint16_t bits;
      std::memcpy(&bits, b.eight(c / 2 * 8 + lane % 4 * 2 + c % 2, k / 8) + k % 8 * 2, 2);
      column[k] = p.number(bits);
    }
    for (int r = 0; r < 2; ++r) {
      float& d = sums[c / 2 * 4 + r * 2 + c % 2];
      double sum = d;
      for (int k = 0; k < 16; ++k) sum += rows[r][k] * column[k];
      d = float(sum);
    }
  }
}

inline void finish(const emu::Product& p) {
  if (Operand(p.b, p.n).share(p.n) != p.seen)
    emu::block->fault("B of wgmma has changed before the product is waited for");
  emu::Sums& sums = emu::block->pending().sums.at(p.d);
  multiply(p, sums.held.data());
  --sums.flying;
}

// Sums that lie there, and are whole, are the thread's again.
inline void give_sums(float* d, size_t count) {
  emu::Pending& mine = emu::block->pending();
  for (auto at = mine.sums.lower_bound(d); at != mine.sums.end() && at->first < d + count;) {
    const auto& [to, sums] = *at;
    if (!is_poison(to, sums.held.size()))
      emu::block->fault("sums of wgmma are changed before they are waited for");
    if (sums.flying != 0) {
      ++at;
      continue;
    }
    std::memcpy(to, sums.held.data(), 4 * sums.held.size());
    mine.changed.insert(to);
    at = mine.sums.erase(at);
  }
}

template <int N> ET_HOT void wgmma_bf16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  ask(d, N, a, b, from_bf16);
}
template <int N> ET_HOT void wgmma_f16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  ask(d, N, a, b, from_f16);
}
ET_HOT void wgmma_fence() {
  emu::exchange("wgmma.fence", ~0u, {});
  emu::block->pending().fenced = true;
  emu::block->pending().changed.clear();
}
ET_HOT void wgmma_commit() {
  emu::exchange("wgmma.commit_group", ~0u, {});
  emu::block->pending().products.emplace_back();
}
template <int YOUNGEST, int COUNT> ET_HOT void wgmma_wait(float (&d)[COUNT]) {
  emu::exchange("wgmma.wait_group", ~0u, {});
  auto& groups = emu::block->pending().products;
  for (; groups.size() > YOUNGEST + 1; groups.pop_front())
    for (const emu::Product& p : groups.front()) finish(p);
  give_sums(d, COUNT);
}

}  // namespace et::ptx
