// The clock of all workers, and the record of what each worker did: one TraceRecord a task, written
// by the leading thread into the worker's own part of the buffer. A full buffer loses the rest, but
// their number is kept. Without ET_TRACE nothing of it is left in the kernel.
#pragma once
#include "cuda/ops/tile.cuh"

namespace et {

ET_FN int64_t now_ns() { return ptx::globaltimer(); }

#if ET_TRACE
class Tracer {
 public:
  ET_FN void claimed() {
    if (is_leader()) claim_ = now_ns();
  }
  ET_FN void ready() {
    if (is_leader()) ready_ = now_ns();
  }

  // By the leading thread, which has waited so long for the stream.
  ET_FN void ended(const Shared& s, int64_t worker, int64_t call, const int64_t* coords,
                   uint32_t stalled) {
    const int64_t at = made_++;
    if (at >= s.trace_capacity) return;
    TraceRecord& r = s.trace[worker * s.trace_capacity + at];
    r.worker = worker; r.call = call;
    r.t_claim = claim_; r.t_ready = ready_; r.t_end = now_ns(); r.stalled = stalled;
    for (int k = 0; k < RANK; ++k) r.coords[k] = coords[k];
  }

  // By the leading thread, when the worker leaves: how many records it made, lost ones too.
  ET_FN void close(Progress& mine) const { mine.traced = made_; }

 private:
  int64_t claim_ = 0, ready_ = 0, made_ = 0;
};
#else
class Tracer {
 public:
  ET_FN void claimed() {}
  ET_FN void ready() {}
  ET_FN void ended(const Shared&, int64_t, int64_t, const int64_t*, uint32_t) {}
  ET_FN void close(Progress&) const {}
};
#endif

}  // namespace et
