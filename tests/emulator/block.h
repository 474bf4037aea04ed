// A block of CUDA threads as one thread of the host: its threads are fibers, and whoever lets the
// others run (at a barrier, a shuffle, a look at memory that others write) is followed by one that
// a seeded generator chooses. Blocks run at the same time. What no thread of a GPU may do is a
// fault: the launch is given up, and the host gets its message.
//
// Not seen: a missing fence between the proxies, other than before wgmma (pending.h), and a weaker
// order of memory than the host has.
#pragma once
#include <setjmp.h>
#include <ucontext.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
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

// Whether a thread has done what no GPU would do; the message then says what.
bool launch(Launched& launched);

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
  ~Block();
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

extern __thread Block* block __attribute__((visibility("hidden")));  // of this thread of the host

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

}  // namespace emu
