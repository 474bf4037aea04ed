// The pool: threads made once, parked between launches, and the two sets of cells.
// A launch uses one set and clears what the launch before it left in the other.
#pragma once
#include <condition_variable>

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
    for (auto& w : shared_.workers) threads_.emplace_back([this, &w] { serve(*w); });
  }

  ~Pool() {
    { const std::lock_guard<std::mutex> hold(lock_); stop_ = true; }
    begin_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  // Runs all workers on `args`, which need `cells` cells. Launches of one pool are ordered.
  int64_t launch(const Launch& launch, const void* args, int64_t cells, Report* out) {
    const std::lock_guard<std::mutex> ordered(launches_);
    CellSet& mine = sets_[parity_];
    CellSet& other = sets_[1 - parity_];
    mine.prepare(cells);
    shared_.report = Report{};
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
    std::unique_ptr<Cell[]> cells;
    int64_t capacity = 0, used = 0;

    // All of 0 .. used-1 is zero here: the launch before cleared it, or it is new.
    void prepare(int64_t needed) {
      if (needed > capacity) {
        capacity = std::max(needed, capacity * 2);
        cells.reset(new Cell[size_t(capacity)]());
        for (int64_t k = 0; k < capacity; ++k) cell_clear(cells[k]);
      }
      used = needed;
    }
    void clear() {
      for (int64_t k = 0; k < capacity; ++k) cell_clear(cells[k]);
      used = 0;
    }
  };

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
      run_(w, args);
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

}  // namespace et
