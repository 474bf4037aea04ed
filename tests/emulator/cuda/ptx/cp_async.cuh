// What device/cuda/ptx/cp_async.cuh has, for a block as fibers: nothing lands before it is waited for.
#pragma once
#include "portable.h"

namespace et::ptx {

ET_HOT void cp_async_16(uint32_t to, const void* from) {
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    emu::block->fault("a copy of 16 bytes is not aligned");
  if (emu::block->is_shared(from)) emu::block->fault("a copy begins in shared memory");
  emu::block->asked(to);
  emu::block->pending().copies.back().push_back({to, from});
}
ET_HOT void cp_async_16_once(uint32_t to, const void* from, uint64_t) { cp_async_16(to, from); }
ET_HOT void cp_async_commit() { emu::block->pending().copies.emplace_back(); }
template <int YOUNGEST> ET_HOT void cp_async_wait() {
  emu::block->pass();
  auto& groups = emu::block->pending().copies;
  for (; groups.size() > YOUNGEST + 1; groups.pop_front())
    for (const emu::Asked& a : groups.front())
      std::memcpy(emu::block->written(a.to, 16), a.from, 16);
}
ET_HOT void cp_async_mbarrier_arrive(uint32_t bar) { emu::block->late(bar); }
ET_HOT void st_shared_v4(uint32_t at, const uint32_t (&x)[4]) {
  if (at % 16 != 0) emu::block->fault("a store of 16 bytes is not aligned");
  std::memcpy(emu::block->written(at, 16), x, 16);
}

}  // namespace et::ptx
