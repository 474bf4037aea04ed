// What device/cuda/ptx/wgmma.cuh has, for a block as fibers. Products happen when they are waited for:
// until then their sums are poison, and B may not change. Of A a group may have rows that nobody
// wants: those that change, or that tensor cores may not see yet, give NaN. The warps of a group do
// not meet, so that a barrier that is missing is seen; at the end all of them must have asked for the
// same.
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
// The same, transposed: a lane gets element l / 4 of rows 2 (l % 4) and the next.
ET_HOT void ldmatrix_x4_trans(uint32_t at, uint32_t (&x)[4]) {
  if (at % 16 != 0) emu::block->fault("a row of ldmatrix is not aligned to 16 bytes");
  const auto& all = emu::exchange("ldmatrix", ~0u, {{at}});
  const int lane = emu::block->thread() % 32;
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < 2; ++k)
      std::memcpy(reinterpret_cast<char*>(&x[j]) + 2 * k,
                  emu::block->at(all[8 * j + lane % 4 * 2 + k].word[0], 16) + lane / 4 * 2, 2);
  emu::block->pending().changed.insert(x);
}

// ---- operands in shared memory -------------------------------------------------------------

inline uint32_t field(uint64_t operand, int bit) { return uint32_t(operand >> bit & 0x3fff) << 4; }

// Rows of A in groups of 8, each a block of 128 bytes for 8 of K, not swizzled.
class RowsOperand {
 public:
  explicit RowsOperand(uint64_t a) : start_(field(a, 0)), along_(field(a, 16)), across_(field(a, 32)) {
    if (a >> 46 != 0 || (a & 0xc000c000u) != 0)
      emu::block->fault("A of wgmma is swizzled, or its descriptor has bits that must be 0");
  }
  // The two rows of a lane, 16 of K each; nothing of a row that may not be seen.
  std::vector<char> share() const {
    std::vector<char> found;
    for (int r = 0; r < 2; ++r) {
      bool seen = true;
      for (int half = 0; half < 2; ++half)
        seen = seen && emu::block->hidden(place(r, half)) == emu::Proxies::NOBODY;
      for (int half = 0; half < 2; ++half) {
        const char* const at = emu::block->at(place(r, half), 16);
        found.insert(found.end(), at, at + 16);
      }
      found.push_back(seen);
    }
    return found;
  }

 private:
  uint32_t place(int r, int half) const {
    const int thread = emu::block->thread();
    const uint32_t row = thread / 32 % 4 * 16 + r * 8 + thread % 32 / 4;
    return emu::NEAR + start_ + row / 8 * across_ + row % 8 * 16 + half * along_;
  }
  uint32_t start_, along_, across_;
};

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
  uint32_t place(int column, int half) const {
    const uint32_t at = start_ + column / 8 * stride_ + column % 8 * 128 + half * 16;
    return emu::NEAR + (at ^ (at >> 7 & 7) << 4);
  }
  uint32_t start_, stride_;
};

// ---- products ------------------------------------------------------------------------------

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

inline void ask(float* d, int n, uint64_t a, uint64_t b, float (*number)(uint16_t)) {
  emu::Block& block = *emu::block;
  emu::Pending& mine = block.pending();
  const int lane = block.thread() % 32, warp = block.thread() / 32 % 4;
  const uint32_t words[4] = {uint32_t(a), uint32_t(a >> 32), uint32_t(b), uint32_t(b >> 32)};
  const auto& all = emu::exchange("wgmma.mma_async", ~0u, {{words[0], words[1], words[2], words[3]}});
  for (int k = 0; k < 4; ++k)
    if (all[0].word[k] != words[k])
      block.fault("lanes of a warp give different descriptors to wgmma");
  if (!mine.fenced || mine.changed.count(d) != 0)
    block.fault("registers of wgmma are changed, and no wgmma.fence follows");
  const emu::Product p{d, n, a, b, number, RowsOperand(a).share(), Operand(b, n).share(n)};
  if (lane == 0 && !block.warpgroup().ask(warp, a, b, n))
    block.fault("warp %d asks for another product of wgmma than others of its group", warp);
  take_sums(d, size_t(n) / 2);
  mine.products.back().push_back(p);
}

// A row of A as it was, or NaN if it may be another one by now.
inline void row_of(const emu::Product& p, int r, double (&row)[16]) {
  const std::vector<char> now = RowsOperand(p.a).share();
  const size_t each = now.size() / 2, first = r * each;
  const bool same = std::equal(now.begin() + first, now.begin() + first + each,
                               p.rows.begin() + first);
  for (int k = 0; k < 16; ++k) {
    uint16_t bits;
    std::memcpy(&bits, p.rows.data() + first + 2 * k, 2);
    row[k] = same && p.rows[first + each - 1] ? p.number(bits) : __builtin_nan("");
  }
}

// Exact products, added in f64 and rounded once.
inline void multiply(const emu::Product& p, float* sums) {
  const Operand b(p.b, p.n);
  const int lane = emu::block->thread() % 32;
  double rows[2][16], column[16];
  for (int r = 0; r < 2; ++r) row_of(p, r, rows[r]);
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

template <int N> ET_HOT void wgmma_bf16(float (&d)[N / 2], uint64_t a, uint64_t b) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  ask(d, N, a, b, from_bf16);
}
template <int N> ET_HOT void wgmma_f16(float (&d)[N / 2], uint64_t a, uint64_t b) {
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
template <int YOUNGEST> ET_HOT void wgmma_wait() {
  emu::exchange("wgmma.wait_group", ~0u, {});
  auto& groups = emu::block->pending().products;
  for (; groups.size() > YOUNGEST + 1; groups.pop_front())
    for (const emu::Product& p : groups.front()) finish(p);
}
template <int YOUNGEST, int COUNT> ET_HOT void wgmma_wait(float (&d)[COUNT]) {
  wgmma_wait<YOUNGEST>();
  give_sums(d, COUNT);
}

}  // namespace et::ptx
