// How the fibers of a block take turns, and how what they ask for lands (block.h).
#include "block.h"
#include <link.h>
#include <sys/mman.h>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace emu {

__thread Block* block;

// ---- fibers -------------------------------------------------------------------------------------

Block::Block(Launched& launched, int index)
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

Block::~Block() { munmap(stacks_, fibers_.size() * STACK); }

// Declared shared memory is thread-local on the host; like the rest it holds nothing at first.
void Block::find_static() {
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
void Block::begin_fibers() {
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

void Block::run() {
  find_static();
  begin_fibers();
  if (_setjmp(home_) == 0) jump(take_runnable());
  if (!launched_.failed) check_end();
  block = nullptr;
  --launched_.running;
}

void Block::enter() {
  block->launched_.kernel();
  Block& b = *block;
  if (--b.alive_ == 0) _longjmp(b.home_, 1);
  b.moved();
  b.leave();
}

void Block::jump(int to) {
  now_ = to;
  Fiber& f = fibers_[to];
  if (f.begun) _longjmp(f.place, 1);
  f.begun = true;
  setcontext(&f.begin);
  std::abort();
}

int Block::take_runnable() {
  const size_t at = random() % runnable_.size();
  const int found = runnable_[at];
  runnable_[at] = runnable_.back();
  runnable_.pop_back();
  return found;
}

// Somebody else goes on, and this one no more unless somebody makes it runnable.
void Block::leave() {
  if (launched_.failed.load(std::memory_order_relaxed)) _longjmp(home_, 1);
  land();
  if (runnable_.empty())
    fault("all threads wait for others that do not come; thread %d waits at %s", now_,
          barriers_[1].arrived ? barriers_[1].what : "a warp's meeting or another barrier");
  jump(take_runnable());
}

void Block::suspend() {
  if (_setjmp(fibers_[now_].place) == 0) leave();
}

void Block::pass() {
  runnable_.push_back(now_);
  suspend();
}

void Block::look() {
  if (++idle_ > 4 * alive_ + 64 && idle_ % 256 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // the cores are for others
    const int64_t moves = launched_.moves.load(std::memory_order_relaxed), now = now_ns();
    if (moves != seen_moves_) seen_moves_ = moves, seen_at_ = now;
    if (now - seen_at_ > launched_.still_ns) fault("nothing moves; thread %d waits for it", now_);
  }
  pass();
}

uint64_t Block::meet(Gate& gate, const char* what, unsigned mask, int size) {
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

// ---- copies on their way -----------------------------------------------------------------------

// Lands later. Until then its place holds nothing, and what was there is lost.
void Block::copy(Copy c) {
  const auto bits = reinterpret_cast<uintptr_t>(c.to) | reinterpret_cast<uintptr_t>(c.from);
  if ((bits | c.bytes) % 16 != 0) fault("a bulk copy is not aligned to 16 bytes");
  std::memset(c.to, POISON, c.bytes);
  if (in_near(c.to)) proxies_.copied(size_t(c.to - near_), c.bytes);
  copies_.push_back(c);
}

// By odd seeds soon, by even ones seldom before the threads do nothing but look.
void Block::land() {
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

// Copies of 16 bytes that arrive at a barrier.
void Block::late(uint32_t bar) {
  auto& groups = pending().copies;
  Late l{{}, now_, bar};
  for (const auto& g : groups) l.copies.insert(l.copies.end(), g.begin(), g.end());
  groups.assign(1, {});
  lates_.push_back(std::move(l));
}

void Block::land_late() {
  std::swap(lates_[random() % lates_.size()], lates_.back());
  const Late l = lates_.back();
  lates_.pop_back();
  for (const Asked& a : l.copies) std::memcpy(written(a.to, 16, l.thread), a.from, 16);
  advance(at(l.bar, 8), phases(at(l.bar, 8)), 1, 0);
}

// ---- what no GPU would do ----------------------------------------------------------------------

void Block::check_end() {
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

void Block::fault(const char* format, ...) {
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
