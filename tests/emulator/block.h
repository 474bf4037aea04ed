// A block of CUDA threads as one thread of the host: its threads are fibers, and whoever lets the
// others run (at a barrier, a shuffle, a look at memory that others write) is followed by one that
// a seeded generator chooses. Blocks run at the same time. What no thread of a GPU may do is a
// fault: the launch is given up, and the host gets its message.
//
// Not seen: a missing fence between the proxies, other than before wgmma (pending.h), and a weaker
// order of memory than the host has.
#pragma once
#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>
#include "copies.h"
#include "pending.h"

namespace emu {

constexpr size_t STACK = 64 << 10, GUARD = 256;
constexpr unsigned char POISON = 0xFF;  // NaN in every float format

inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// What the blocks of a launch share.
struct Launched {
  int blocks, threads;
  int64_t shared_bytes, align;  // its addresses have no more
  uint64_t seed;
  int64_t still_ns;  // nothing moves for so long: a fault
  std::function<void()> kernel;
  std::atomic<bool> failed{false};
  std::atomic<int64_t> moves{0};
  std::atomic<bool> said{false};  // somebody writes the message
  std::atomic<int> running{0};    // blocks
  char message[512] = "";
};

// Where threads meet: a barrier of the block, or lanes of a warp. What they bring lies in one of
// two places in turn: nobody is two turns ahead of one who has not read yet.
struct Lane { uint32_t word[6]; };
struct Gate {
  const char* what = "";
  unsigned mask = 0;
  int arrived = 0;
  uint64_t turn = 0;
  bool any[2] = {};
  Lane lanes[2][32];
  std::vector<int> waiting;
};

struct Fiber {
  jmp_buf place;
  ucontext_t begin;
  bool begun = false;
  Pending pending;
};

class Block {
 public:
  Block(Launched& launched, int index);
  ~Block() { munmap(stacks_, fibers_.size() * STACK); }
  void run();

  int thread() const { return now_; }
  int index() const { return index_; }
  int count() const { return launched_.blocks; }
  int threads() const { return launched_.threads; }

  // Another thread may go on; this one later.
  void pass();
  // After a look at what others write: the same, and in the end a fault if nothing ever moves.
  void look();
  // Something has changed that others may wait for.
  void moved() {
    idle_ = 0;
    launched_.moves.fetch_add(1, std::memory_order_relaxed);
  }
  // Waits until `size` threads are here for the same; the turn of the gate that they had.
  uint64_t meet(Gate& gate, const char* what, unsigned mask, int size);
  Gate& barrier(int id) { return barriers_[id]; }
  Gate& lanes(unsigned mask) { return warps_[now_ / 32 * 2 + (mask & 0xffff ? 0 : 1)]; }

  char* near() { return near_; }
  uint32_t handle(const void* p);
  char* at(uint32_t handle, size_t bytes);
  bool is_shared(const void* p) const { return in_near(p) || in_static(p); }
  void copy(Copy c);
  void late(uint32_t bar);  // this thread's copies land later, and arrive
  // The same, of a place that this thread writes now, or that a copy of it writes later.
  char* written(uint32_t handle, size_t bytes) { return written(handle, bytes, now_); }
  char* written(uint32_t handle, size_t bytes, int thread);
  void asked(uint32_t handle);
  void fence_proxies() { proxies_.fence(now_); }
  void arrive() { proxies_.arrive(now_); }
  int hidden(uint32_t handle) { return proxies_.hidden(at(handle, 16) - near_, now_); }
  Pending& pending() { return fibers_[now_].pending; }
  Warpgroup& warpgroup() { return warpgroups_[now_ / 128]; }

  uint64_t random() {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return random_ >> 11;
  }
  [[noreturn]] void fault(const char* format, ...);

 private:
  static void enter();
  void find_static();
  void begin_fibers();
  [[noreturn]] void leave();
  [[noreturn]] void jump(int to);
  __attribute__((noinline)) void suspend();
  int take_runnable();
  void land();
  void land_late();
  void check_end();
  bool in_near(const void* p) const { return p >= near_ && p < near_ + launched_.shared_bytes; }
  bool in_static(const void* p) const { return p >= static_ && p < static_ + static_bytes_; }

  Launched& launched_;
  int index_, now_ = 0, alive_;
  uint64_t random_;
  int64_t idle_ = 0, seen_moves_ = -1, seen_at_ = 0;
  char *near_ = nullptr, *static_ = nullptr, *stacks_ = nullptr;
  size_t static_bytes_ = 0;
  std::vector<char> memory_;
  std::vector<Fiber> fibers_;
  std::vector<int> runnable_;
  std::vector<Copy> copies_;
  std::vector<Late> lates_;
  std::vector<Gate> barriers_, warps_;
  std::vector<Warpgroup> warpgroups_;
  Proxies proxies_;
  jmp_buf home_;
};

static thread_local Block* block;  // of this thread of the host

// ---- mbarriers: what the 64 bits of one hold ----------------------------------------------------

struct Phases {
  uint16_t arrivals, pending;  // of each phase; of this one
  int32_t bytes : 31;          // still to land
  uint32_t parity : 1;
};
static_assert(sizeof(Phases) == 8);

inline Phases phases(const void* bar) {
  Phases p;
  std::memcpy(&p, bar, 8);
  if (p.arrivals == 0xFFFF) block->fault("an mbarrier is used that was not initialised");
  return p;
}

inline void advance(void* bar, Phases p, uint32_t arrived, int32_t bytes) {
  if (arrived > p.pending) block->fault("more arrivals at an mbarrier than its phase has");
  p.pending = uint16_t(p.pending - arrived);
  p.bytes += bytes;
  if (p.pending == 0 && p.bytes == 0) {
    p.pending = p.arrivals;
    p.parity ^= 1;
  }
  std::memcpy(bar, &p, 8);
  block->moved();
}

// ---- fibers -------------------------------------------------------------------------------------

inline Block::Block(Launched& launched, int index)
    : launched_(launched), index_(index), alive_(launched.threads),
      random_((launched.seed + 1) * 0x9e3779b97f4a7c15u ^ uint64_t(index + 1) << 32),
      memory_(size_t(launched.shared_bytes) + 2 * GUARD + 2048, char(POISON)),
      fibers_(launched.threads), barriers_(2), warps_(launched.threads / 32 * 2),
      warpgroups_(launched.threads / 128 + 1),
      proxies_(size_t(launched.shared_bytes), launched.threads) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory_.data()) + 1023) / 1024 * 1024;
  near_ = reinterpret_cast<char*>(begin) + launched.align;
  void* const stacks = mmap(nullptr, fibers_.size() * STACK, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) std::abort();
  stacks_ = static_cast<char*>(stacks);
}

// Declared shared memory is thread-local on the host; like the rest it holds nothing at first.
inline void Block::find_static() {
  block = this;  // so that this thread has its copy
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void* self) {
    const auto here = reinterpret_cast<uintptr_t>(&Block::enter);
    bool mine = false;
    for (int k = 0; k < info->dlpi_phnum; ++k) {
      const auto& h = info->dlpi_phdr[k];
      mine |= h.p_type == PT_LOAD && here - info->dlpi_addr - h.p_vaddr < h.p_memsz;
    }
    for (int k = 0; mine && k < info->dlpi_phnum; ++k)
      if (info->dlpi_phdr[k].p_type == PT_TLS) {
        Block& b = *static_cast<Block*>(self);
        b.static_ = static_cast<char*>(info->dlpi_tls_data);
        b.static_bytes_ = info->dlpi_phdr[k].p_memsz;
      }
    return int(mine);
  }, this);
  std::memset(static_, POISON, static_bytes_);
  block = this;
}

// Stacks begin at different places in a page, so that they do not share one set of the cache.
inline void Block::begin_fibers() {
  for (int t = 0; t < launched_.threads; ++t) {
    Fiber& f = fibers_[t];
    char* const low = stacks_ + t * STACK;
    std::memset(low, POISON, 8);
    getcontext(&f.begin);
    f.begin.uc_stack.ss_sp = low;
    f.begin.uc_stack.ss_size = STACK - size_t(t) * 192 % 4096;
    f.begin.uc_link = nullptr;
    makecontext(&f.begin, &Block::enter, 0);
    runnable_.push_back(t);
  }
}

inline void Block::run() {
  find_static();
  begin_fibers();
  if (_setjmp(home_) == 0) jump(take_runnable());
  if (!launched_.failed) check_end();
  block = nullptr;
  --launched_.running;
}

inline void Block::enter() {
  block->launched_.kernel();
  Block& b = *block;
  if (--b.alive_ == 0) _longjmp(b.home_, 1);
  b.moved();
  b.leave();
}

inline void Block::jump(int to) {
  now_ = to;
  Fiber& f = fibers_[to];
  if (f.begun) _longjmp(f.place, 1);
  f.begun = true;
  setcontext(&f.begin);
  std::abort();
}

inline int Block::take_runnable() {
  const size_t at = random() % runnable_.size();
  const int found = runnable_[at];
  runnable_[at] = runnable_.back();
  runnable_.pop_back();
  return found;
}

// Somebody else goes on, and this one no more unless somebody makes it runnable.
inline void Block::leave() {
  if (launched_.failed.load(std::memory_order_relaxed)) _longjmp(home_, 1);
  land();
  if (runnable_.empty())
    fault("all threads wait for others that do not come; thread %d waits at %s", now_,
          barriers_[1].arrived ? barriers_[1].what : "a warp's meeting or another barrier");
  jump(take_runnable());
}

inline void Block::suspend() {
  if (_setjmp(fibers_[now_].place) == 0) leave();
}

inline void Block::pass() {
  runnable_.push_back(now_);
  suspend();
}

inline void Block::look() {
  if (++idle_ > 4 * alive_ + 64 && idle_ % 256 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // the cores are for others
    const int64_t moves = launched_.moves.load(std::memory_order_relaxed), now = now_ns();
    if (moves != seen_moves_) seen_moves_ = moves, seen_at_ = now;
    if (now - seen_at_ > launched_.still_ns) fault("nothing moves; thread %d waits for it", now_);
  }
  pass();
}

inline uint64_t Block::meet(Gate& gate, const char* what, unsigned mask, int size) {
  if (gate.arrived != 0 && (gate.mask != mask || std::strcmp(gate.what, what) != 0))
    fault("thread %d is at %s (%x), others of them are at %s (%x)", now_, what, mask, gate.what,
          gate.mask);
  gate.what = what, gate.mask = mask;
  if (mask == 0) arrive();  // other warps are here, too
  const uint64_t turn = gate.turn;
  if (++gate.arrived == size) {
    gate.arrived = 0;
    gate.any[++gate.turn % 2] = false;
    runnable_.insert(runnable_.end(), gate.waiting.begin(), gate.waiting.end());
    gate.waiting.clear();
    moved();
    pass();
  } else {
    gate.waiting.push_back(now_);
    suspend();
  }
  return turn;
}

// ---- shared memory ------------------------------------------------------------------------

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

inline void Block::check_end() {
  const char* wrong = copies_.empty() && lates_.empty() ? nullptr : "it has left, and its copies have not landed";
  const char* const end = near_ + launched_.shared_bytes;
  for (size_t k = 0; k < GUARD - 128; ++k)
    if (end[k] != char(POISON)) wrong = "it has written beyond the end of its shared memory";
  for (size_t t = 0; t < fibers_.size(); ++t)
    if (stacks_[t * STACK] != char(POISON)) wrong = "the emulator's stacks are too small";
  for (const Fiber& f : fibers_)
    if (!f.pending.sums.empty()) wrong = "it has left, and has not waited for products of wgmma";
  for (const Warpgroup& g : warpgroups_)
    if (!g.whole()) wrong = "some warps of a group have not taken part in a product of wgmma";
  if (wrong == nullptr) return;
  if (_setjmp(home_) == 0) fault("%s", wrong);
}

inline void Block::fault(const char* format, ...) {
  if (!launched_.said.exchange(true)) {
    va_list args;
    va_start(args, format);
    const int n = snprintf(launched_.message, 64, "block %d: ", index_);
    vsnprintf(launched_.message + n, sizeof(launched_.message) - n, format, args);
    va_end(args);
    launched_.failed = true;
  }
  _longjmp(home_, 1);
}

}  // namespace emu
