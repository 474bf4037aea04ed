// The pool: threads made once, parked between launches, and the two sets of cells.
// A launch uses one set and clears what the launch before it left in the other.
#pragma once
#include <condition_variable>
#include <exception>
#include <new>

#include "worker.h"

namespace et {

class Pool {
 public:
  using Run = void (*)(Worker&, const void* args);

  Pool(int64_t workers, double limit_s, Run run) : run_(run) {
    shared_.limit_s = limit_s;
    for (int64_t k = 0; k < workers; ++k) {
      shared_.workers.push_back(std::make_unique<Worker>());
      Worker& w = *shared_.workers.back();
      w.index = k; w.count = workers; w.shared = &shared_;
    }
    try {
      for (auto& w : shared_.workers) threads_.emplace_back([this, &w] { serve(*w); });
    } catch (...) {  // what is not whole has no destructor
      stop();
      throw;
    }
  }

  ~Pool() { stop(); }

  // Runs all workers on `args`, which need `cells` cells. Launches of one pool are ordered.
  int64_t launch(const Launch& launch, const void* args, int64_t cells, Report* out) {
    const std::lock_guard<std::mutex> ordered(launches_);
    CellSet& mine = sets_[parity_];
    CellSet& other = sets_[1 - parity_];
    shared_.report = Report{};
    if (!mine.prepare(cells)) {
      *out = no_memory(cells);
      return out->code;
    }
    shared_.abort.store(false, std::memory_order_relaxed);
    shared_.launch = launch;
    shared_.launch.done_before = total_done();
    {
      std::unique_lock<std::mutex> hold(lock_);
      args_ = args; running_ = int64_t(threads_.size()); ++epoch_;
      begin_.notify_all();
      end_.wait(hold, [this] { return running_ == 0; });
    }
    other.used = 0;
#if ET_DEBUG
    const bool ended_well = shared_.report.code == 0;
    for (auto& w : shared_.workers) check_waits(*w, ended_well);
#endif
    if (shared_.report.code != 0) {  // nobody knows how far it came: both sets start clean
      mine.clear();
      other.clear();
    }
    parity_ = 1 - parity_;
    *out = shared_.report;
    return out->code;
  }

  // The records of the last launches, oldest worker first; forgets them.
  int64_t take_trace(TraceRecord* out, int64_t capacity) {
    int64_t n = 0;
#if ET_TRACE
    for (auto& w : shared_.workers) n += int64_t(w->trace.size());
    if (out == nullptr || n > capacity) return n;
    for (auto& w : shared_.workers) {
      out = std::copy(w->trace.begin(), w->trace.end(), out);
      w->trace.clear();
    }
#else
    (void)out; (void)capacity;
#endif
    return n;
  }

 private:
  struct CellSet {
    static constexpr int64_t MOST = int64_t(1) << 52;  // cells, whose bytes a size_t counts
    std::unique_ptr<Cell[]> cells;
    int64_t capacity = 0, used = 0;

    // All of 0 .. used-1 is zero here: the launch before cleared it, or it is new. False if memory
    // has no room for so many.
    bool prepare(int64_t needed) {
      if (needed > capacity) {
        const int64_t more = std::max(needed, capacity * 2);
        Cell* const fresh = more <= MOST ? new (std::nothrow) Cell[size_t(more)]() : nullptr;
        if (fresh == nullptr) return false;
        cells.reset(fresh);
        capacity = more;
        for (int64_t k = 0; k < capacity; ++k) cell_clear(cells[k]);
      }
      used = needed;
      return true;
    }
    void clear() {
      for (int64_t k = 0; k < capacity; ++k) cell_clear(cells[k]);
      used = 0;
    }
  };

  static Report no_memory(int64_t cells) {
    Report r{};
    r.code = NO_MEMORY; r.worker = -1; r.call = -1; r.what = 0; r.place = -1;
    r.seen = cells * int64_t(sizeof(Cell));
    std::fill(r.coords, r.coords + RANK, -1);
    return r;
  }

  void stop() {
    { const std::lock_guard<std::mutex> hold(lock_); stop_ = true; }
    begin_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  int64_t total_done() const {
    int64_t sum = 0;
    for (const auto& w : shared_.workers) sum += w->done.load(std::memory_order_relaxed);
    return sum;
  }

  void serve(Worker& w) {
    int64_t seen = 0;
    for (;;) {
      const void* args;
      {
        std::unique_lock<std::mutex> hold(lock_);
        begin_.wait(hold, [&] { return stop_ || epoch_ != seen; });
        if (stop_) return;
        seen = epoch_;
        args = args_;
      }
      CellSet& other = sets_[1 - parity_];
      w.cells = sets_[parity_].cells.get();
      const int64_t lo = other.used * w.index / w.count, hi = other.used * (w.index + 1) / w.count;
      for (int64_t k = lo; k < hi; ++k) cell_clear(other.cells[k]);
      try {
        run_(w, args);
      } catch (const std::bad_alloc&) {
        fail(w, NO_MEMORY, 1, -1, 0, w.arena.wanted());
      }
      w.busy.store(false, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> hold(lock_);
      if (--running_ == 0) end_.notify_one();
    }
  }

  Run run_;
  Shared shared_;
  std::vector<std::thread> threads_;
  CellSet sets_[2];
  int parity_ = 0;
  std::mutex launches_, lock_;
  std::condition_variable begin_, end_;
  const void* args_ = nullptr;
  int64_t epoch_ = 0, running_ = 0;
  bool stop_ = false;
};

// Null if the machine has no threads, or no memory, for so many workers.
inline Pool* open_pool(int64_t workers, double limit_s, Pool::Run run) {
  try {
    return new Pool(workers, limit_s, run);
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace et
