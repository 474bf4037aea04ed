// Shared memory of a block, by addresses as a GPU has them, and copies that land in it later.
#pragma once
#include "block.h"

namespace emu {

constexpr uint32_t NEAR = 1u << 24, STATIC = 2u << 24;

inline uint32_t Block::handle(const void* p) {
  const char* const c = static_cast<const char*>(p);
  if (in_near(c)) return uint32_t(NEAR + launched_.align + (c - near_));
  if (in_static(c)) return STATIC + uint32_t(c - static_);
  fault("an address is taken for one in shared memory, and is not");
}

inline char* Block::at(uint32_t handle, size_t bytes) {
  const bool is_static = handle >= STATIC;
  const size_t offset = handle - (is_static ? STATIC : NEAR + size_t(launched_.align));
  const size_t size = is_static ? static_bytes_ : size_t(launched_.shared_bytes);
  if (handle < NEAR || offset > size || bytes > size - offset)
    fault("%x lies outside shared memory", handle);
  return (is_static ? static_ : near_) + offset;
}

inline char* Block::of_member(int member, int size, uint32_t handle, size_t bytes) {
  const char* const mine = at(handle, bytes);
  const Block* const other = launched_.there[index_ - index_ % size + member];
  if (other == nullptr) fault("a member of the cluster is asked before all have met");
  return handle >= STATIC ? other->static_ + (mine - static_) : other->near_ + (mine - near_);
}

inline char* Block::written(uint32_t handle, size_t bytes, int thread) {
  char* const found = at(handle, bytes);
  if (in_near(found)) proxies_.wrote(size_t(found - near_), thread);
  return found;
}

inline void Block::asked(uint32_t handle) {
  const char* const found = at(handle, 16);
  if (in_near(found)) proxies_.asked(size_t(found - near_), now_);
}

// Lands later. Until then its place holds nothing, and what was there is lost.
inline void Block::copy(Copy c) {
  const auto bits = reinterpret_cast<uintptr_t>(c.to) | reinterpret_cast<uintptr_t>(c.from);
  if ((bits | c.bytes) % 16 != 0) fault("a bulk copy is not aligned to 16 bytes");
  std::memset(c.to, POISON, c.bytes);
  if (in_near(c.to)) proxies_.copied(size_t(c.to - near_), c.bytes);
  copies_.push_back(c);
}

// By odd seeds soon, by even ones seldom before the threads do nothing but look.
inline void Block::land() {
  const bool soon = launched_.seed % 2 == 1 || idle_ > 64;
  if (random() % (soon ? 8 : 2048) != 0) return;
  if (!lates_.empty() && (copies_.empty() || random() % 2 == 0)) return land_late();
  if (copies_.empty()) return;
  std::swap(copies_[random() % copies_.size()], copies_.back());
  const Copy c = copies_.back();
  copies_.pop_back();
  c.land();
  advance(c.bar, phases(c.bar), 0, -int32_t(c.bytes));
}

}  // namespace emu
