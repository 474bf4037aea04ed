// Runs a generated kernel: one thread of the host a block. Included after it. NEAR_ALIGN: what its
// dynamic shared memory asks for; CALL_KERNEL: with which arguments it is called.
#pragma once
#include <signal.h>
#include <time.h>

namespace et::ptx {
float from_f16(uint16_t bits) { return value(f16{bits}); }
}  // namespace et::ptx

namespace emu {

// ---- copies of 16 bytes that arrive at a barrier ---------------------------------------------

inline void Block::late(uint32_t bar) {
  auto& groups = pending().copies;
  Late l{{}, now_, bar};
  for (const auto& g : groups) l.copies.insert(l.copies.end(), g.begin(), g.end());
  groups.assign(1, {});
  lates_.push_back(std::move(l));
}

inline void Block::land_late() {
  std::swap(lates_[random() % lates_.size()], lates_.back());
  const Late l = lates_.back();
  lates_.pop_back();
  for (const Asked& a : l.copies) std::memcpy(written(a.to, 16, l.thread), a.from, 16);
  advance(at(l.bar, 8), phases(at(l.bar, 8)), 1, 0);
}

// A touch of memory that is not there is a fault like others, as long as a launch runs, and so is a
// loop without end: END is sent to its thread.
class Crashes {
 public:
  static constexpr int END = SIGUSR2;
  Crashes() {
    struct sigaction mine = {};
    mine.sa_handler = [](int signal_) {
      const bool ended = signal_ == END;
      if (block != nullptr)
        block->fault("thread %d %s", block->thread(),
                     ended ? "does not end" : "touches foreign memory");
      if (!ended) signal(signal_, SIG_DFL);  // not ours: it happens again, and ends the process
    };
    mine.sa_flags = SA_NODEFER;
    for (int k = 0; k < 3; ++k) sigaction(SIGNALS[k], &mine, &before_[k]);
  }
  ~Crashes() {
    for (int k = 0; k < 3; ++k) sigaction(SIGNALS[k], &before_[k], nullptr);
  }

 private:
  static constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, END};
  struct sigaction before_[3];
};

// How long a thread has had a core: a busy machine is no loop without end.
inline int64_t worked_ns(std::thread& thread) {
  clockid_t clock;
  timespec time = {};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  clock_gettime(clock, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

}  // namespace emu

// Nothing, or what no GPU would do: the message is then in `room` bytes at `said`.
extern "C" __attribute__((visibility("default"))) int emu_launch(
    const Shared* shared, const Launch* launch, const void* maps, int blocks, int threads, int64_t shared_bytes,
    uint64_t seed, int64_t still_ns, char* said, int room) {
  emu::Launched launched{blocks, threads, shared_bytes, NEAR_ALIGN, seed, still_ns,
                         [&] { CALL_KERNEL; }};
  const emu::Crashes watched;
  std::vector<std::thread> running;
  launched.running = blocks;
  for (int b = 0; b < blocks; ++b)
    running.emplace_back([&launched, b] { emu::Block(launched, b).run(); });
  while (launched.running != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::thread& r : running)
      if (emu::worked_ns(r) > 5 * still_ns) pthread_kill(r.native_handle(), emu::Crashes::END);
  }
  for (std::thread& r : running) r.join();
  snprintf(said, size_t(room), "%s", launched.message);
  return launched.failed ? 1 : 0;
}
