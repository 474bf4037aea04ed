// How the host launches a generated kernel. Included after it. NEAR_ALIGN: what its dynamic shared
// memory asks for; CALL_KERNEL: with which arguments it is called.
#pragma once
#include <cstdio>

namespace et::ptx {
float from_f16(uint16_t bits) { return value(f16{bits}); }
}  // namespace et::ptx

// Nothing, or what no GPU would do: the message is then in `room` bytes at `said`.
extern "C" __attribute__((visibility("default"))) int emu_launch(
    const Shared* shared, const Launch* launch, const void* maps, int blocks, int threads, int64_t shared_bytes,
    uint64_t seed, int64_t still_ns, char* said, int room) {
  emu::Launched launched{blocks, threads, shared_bytes, NEAR_ALIGN, seed, still_ns,
                         [&] { CALL_KERNEL; }};
  const bool failed = emu::launch(launched);
  snprintf(said, size_t(room), "%s", launched.message);
  return failed;
}
