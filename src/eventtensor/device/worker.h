// Workers: persistent threads, the life of a task, bounded waits and the report of a failed one.
// Needs the structs of codegen/abi.py (Report, TraceRecord, Hold, Launch, RANK), which the
// generated source defines before it includes this file. ET_DEBUG and ET_TRACE switch extras on.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <vector>

#include "report.h"
#include "sync.h"
#include "tile.h"

namespace et {

using Clock = std::chrono::steady_clock;

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Debug: a wait that happened, to be compared with the cell's final value.
struct Waited { Event event; int64_t index, target, call, coords[RANK]; };

struct Worker;

// What all workers of a kernel share.
struct Shared {
  std::vector<std::unique_ptr<Worker>> workers;
  std::atomic<bool> abort{false};
  std::mutex report_lock;
  Report report{};
  double limit_s = 5;
  Launch launch{};
};

struct alignas(64) Worker {
  int64_t index = 0, count = 1;
  Cell* cells = nullptr;
  Shared* shared = nullptr;
  Arena arena;
  int64_t call = -1;             // the task this worker is on, for reports and traces
  int64_t coords[RANK] = {};
  alignas(64) std::atomic<int64_t> done{0};  // tasks completed since the pool began
  std::atomic<bool> busy{false};             // inside a body: will complete
#if ET_TRACE
  std::vector<TraceRecord> trace;
  int64_t t_claim = 0, t_ready = 0;
#endif
#if ET_DEBUG
  std::vector<Waited> waited;
#endif
};

// ---- failure -------------------------------------------------------------------------------

// Keeps the first report and makes everybody leave. Always false, for `return fail(..)`.
inline bool fail(Worker& w, Fault code, int64_t what, int64_t place, int64_t expected,
                 int64_t seen) {
  const std::lock_guard<std::mutex> hold(w.shared->report_lock);
  Report& r = w.shared->report;
  if (r.code == 0) {
    r.code = code; r.worker = w.index; r.call = w.call; r.what = what; r.place = place;
    r.expected = expected; r.seen = seen;
    std::copy(w.coords, w.coords + RANK, r.coords);
  }
  w.shared->abort.store(true, std::memory_order_release);
  return false;
}

inline bool aborted(const Worker& w) { return w.shared->abort.load(std::memory_order_relaxed); }

// How long a wait may last: as long as some task somewhere completes or is inside its body. One that
// waits in its body, for a chunk of an operand, is not among those.
class StallDetector {
 public:
  StallDetector(const Shared& shared, int64_t worker)
      : shared_(shared), mine_(shared.workers[worker]->busy), busy_(mine_.load()) {
    mine_.store(false, std::memory_order_relaxed);
  }
  ~StallDetector() { mine_.store(busy_, std::memory_order_relaxed); }
  StallDetector(const StallDetector&) = delete;

  // Gives the core away; false once nothing has moved for the limit.
  bool poll_backoff() {
    if (++turns_ < 64) return true;
    if (turns_ < 512) { std::this_thread::yield(); return true; }
    std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 2048 ? 20 : 200));
    if (turns_ % 16 != 0) return true;
    const int64_t seen = moved();
    const Clock::time_point now = Clock::now();
    if (seen != last_) { last_ = seen; since_ = now; return true; }
    return std::chrono::duration<double>(now - since_).count() < shared_.limit_s;
  }

 private:
  // A number that changes while anything moves.
  int64_t moved() {
    int64_t sum = 0;
    for (const auto& w : shared_.workers) {
      sum += w->done.load(std::memory_order_relaxed);
      if (w->busy.load(std::memory_order_relaxed)) sum += ++beat_;
    }
    return sum;
  }

  const Shared& shared_;
  std::atomic<bool>& mine_;
  const bool busy_;
  int64_t turns_ = 0, last_ = -1, beat_ = 0;
  Clock::time_point since_ = Clock::now();
};

// ---- one worker, one thread ----------------------------------------------------------------

// What a worker decides once: here a worker is one thread, so it simply decides.
inline bool is_leader() { return true; }
inline int64_t thread_rank() { return 0; }
inline int64_t num_threads() { return 1; }
template <class F> inline int64_t block_broadcast(Worker&, F decide) { return decide(); }

// ---- events --------------------------------------------------------------------------------

// Waits until cell `index` of the event has reached `target`; false if the launch is given up.
inline bool ev_wait(Worker& w, Event event, int64_t index, int64_t target) {
#if ET_DEBUG
  w.waited.push_back({event, index, target, w.call, {}});
  std::copy(w.coords, w.coords + RANK, w.waited.back().coords);
#endif
  const Cell& cell = w.cells[event.base + index];
  if (ev_reached(cell, target)) return true;
  StallDetector stall(*w.shared, w.index);
  while (!ev_reached(cell, target)) {
    if (aborted(w)) return false;
    if (!stall.poll_backoff())
      return fail(w, STUCK_WAIT, event.id, index, target, cell_value(cell));
  }
  return true;
}

inline void ev_notify(Worker& w, Event event, int64_t index) {
  ev_notify(w.cells[event.base + index]);
}

#if ET_DEBUG
// After a launch: a cell that somebody waited for must hold exactly the count it was waited for.
inline void check_waits(Worker& w, bool ended_well) {
  for (const Waited& x : w.waited) {
    const int64_t seen = cell_value(w.cells[x.event.base + x.index]);
    if (!ended_well || seen == x.target) continue;
    w.call = x.call;
    std::copy(x.coords, x.coords + RANK, w.coords);
    fail(w, COUNT_WRONG, x.event.id, x.index, x.target, seen);
  }
  w.waited.clear();
}
#endif

// ---- the life of a task --------------------------------------------------------------------

// A header wait belongs to the grid: coordinates after the loop variables are -1.
inline void grid_begin(Worker& w, int64_t call, std::initializer_list<int64_t> loops) {
  w.call = call;
  std::fill(w.coords, w.coords + RANK, -1);
  std::copy(loops.begin(), loops.end(), w.coords);
}

inline void task_claim(Worker& w, int64_t call, std::initializer_list<int64_t> coords) {
  w.call = call;
  std::copy(coords.begin(), coords.end(), w.coords);
  w.arena.reset();  // a task may take of it before its waits are over
#if ET_TRACE
  w.t_claim = now_ns();
#endif
}

#if ET_DEBUG
inline int64_t completed(const Shared& shared) {
  int64_t sum = 0;
  for (const auto& w : shared.workers) sum += w->done.load(std::memory_order_relaxed);
  return sum;
}

// Test hooks: random sleeps by seed, and tasks held back until others have completed.
inline void task_hooks(Worker& w) {
  const Launch& launch = w.shared->launch;
  for (int64_t k = 0; k < launch.hold_count; ++k) {
    const Hold& h = launch.holds[k];
    if (h.call != w.call || !std::equal(h.coords, h.coords + h.rank, w.coords)) continue;
    const Clock::time_point end =
        Clock::now() + std::chrono::microseconds(int64_t(w.shared->limit_s * 1e6));
    while (completed(*w.shared) - launch.done_before < h.until && Clock::now() < end && !aborted(w))
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (launch.delay_seed == 0) return;
  uint64_t x = uint64_t(launch.delay_seed) * 0x9e3779b97f4a7c15u + uint64_t(w.call);
  for (int k = 0; k < RANK; ++k) x = (x ^ uint64_t(w.coords[k])) * 0xbf58476d1ce4e5b9u + 1;
  std::this_thread::sleep_for(std::chrono::microseconds((x >> 40) % 200));
}
#endif

// Its waits are over.
inline void task_ready(Worker& w) {
  w.busy.store(true, std::memory_order_relaxed);
#if ET_TRACE
  w.t_ready = now_ns();
#endif
#if ET_DEBUG
  task_hooks(w);
#endif
}

inline void task_end(Worker& w) {
#if ET_TRACE
  TraceRecord r{};
  r.worker = w.index; r.call = w.call;
  r.t_claim = w.t_claim; r.t_ready = w.t_ready; r.t_end = now_ns();
  std::copy(w.coords, w.coords + RANK, r.coords);
  w.trace.push_back(r);
#endif
  w.busy.store(false, std::memory_order_relaxed);
  w.done.store(w.done.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace et

#include "checks.h"
