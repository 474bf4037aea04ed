// What device/cuda/cp_async.cuh has, for a block as fibers: nothing lands before it is waited for.
#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <vector>
#include "portable.h"

namespace et::ptx {

struct Asked { uint32_t to; const void* from; };
using Groups = std::deque<std::vector<Asked>>;

// The groups of this fiber, oldest first; the last one is open. (Not thread-local: the emulator
// fills such memory with poison, for it stands for shared memory.)
inline Groups& asked() {
  static std::mutex one;
  static std::map<std::pair<const void*, int>, Groups> all;
  const std::lock_guard<std::mutex> alone(one);
  Groups& mine = all[{emu::block, emu::block->thread()}];
  if (mine.empty()) mine.emplace_back();
  return mine;
}

ET_HOT void cp_async_16(uint32_t to, const void* from) {
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    emu::block->fault("a copy of 16 bytes is not aligned");
  if (emu::block->is_shared(from)) emu::block->fault("a copy begins in shared memory");
  asked().back().push_back({to, from});
}
ET_HOT void cp_async_commit() { asked().emplace_back(); }
template <int YOUNGEST> ET_HOT void cp_async_wait() {
  emu::block->pass();
  for (Groups& groups = asked(); groups.size() > YOUNGEST + 1; groups.pop_front())
    for (const Asked& a : groups.front()) std::memcpy(emu::block->at(a.to, 16), a.from, 16);
}
ET_HOT void st_shared_v4(uint32_t at, const uint32_t (&x)[4]) {
  if (at % 16 != 0) emu::block->fault("a store of 16 bytes is not aligned");
  std::memcpy(emu::block->at(at, 16), x, 16);
}
ET_HOT void st_shared_f32(uint32_t at, float x) { std::memcpy(emu::block->at(at, 4), &x, 4); }
ET_HOT float ld_shared_f32(uint32_t at) {
  float x;
  std::memcpy(&x, emu::block->at(at, 4), 4);
  return x;
}

}  // namespace et::ptx
