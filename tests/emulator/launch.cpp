// A launch: one thread of the host a block.
#include <signal.h>
#include <time.h>
#include <chrono>
#include <thread>
#include "block.h"

namespace emu {

namespace {

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
int64_t worked_ns(std::thread& thread) {
  clockid_t clock;
  timespec time = {};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  clock_gettime(clock, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

}  // namespace

bool launch(Launched& launched) {
  const Crashes watched;
  std::vector<std::thread> running;
  launched.running = launched.blocks;
  for (int b = 0; b < launched.blocks; ++b)
    running.emplace_back([&launched, b] { Block(launched, b).run(); });
  while (launched.running != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::thread& r : running)
      if (worked_ns(r) > 5 * launched.still_ns) pthread_kill(r.native_handle(), Crashes::END);
  }
  for (std::thread& r : running) r.join();
  return launched.failed;
}

}  // namespace emu
