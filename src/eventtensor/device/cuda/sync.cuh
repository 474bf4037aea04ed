// Memory order, in one place, by the PTX memory model. A worker is a block (CTA); what blocks share
// goes through these names, one thread a block. Notifies and waits have a scope: gpu by default,
// cta inside one block, sys for cells in memory that other devices share.
//
// Contract, and why it holds:
//  * notify: all threads that run tasks meet at sync(), then one thread does red.release on the cell.
//    bar.sync orders every thread's earlier accesses before it (causality order at cta scope), and
//    release is cumulative: it carries them to gpu scope with the thread's own.
//  * wait: one thread does ld.acquire until the cell has its count, then all meet at sync(). The adds
//    on one cell are morally strong read-modify-writes of one release pattern chain, so an acquire
//    that sees `count` synchronises with every one of the notifiers; the barrier passes that on to the
//    threads that read the data with plain loads. Never ld.global.nc: scratch is written here.
//  * reads before a notify (write-after-read events) are ordered by the same barrier and release.
//  * A task number travels through a queue slot by st.release and ld.acquire; it is told to the other
//    threads of the block through shared memory and a barrier (for_all in worker.cuh).
//  * Tickets and queue heads carry no data: relaxed adds. Dispatched and pending counters decide who
//    pushes: acq_rel adds, so that the one which completes a counter follows all the others.
//  * Cells are cleared with relaxed stores by the launch that does not use them; the boundary
//    between two kernels of one stream orders them.
//  * An edge between two tasks of one worker (hand-off `worker`) has no cell. The threads of a
//    block meet at sync() after every body, so all accesses of a task come before those of the next
//    task of that block: bar.sync is morally strong among its participants, so it synchronises
//    them, and causality order through it holds for plain accesses too. What the first task had
//    waited for comes before the second as well, and a later release of this block carries the
//    accesses of both: causality order is transitive, so the edge gives all that a counter would.
#pragma once
#include "../portable.h"

namespace et {

using Cell = int64_t;

// The threads of a block that run tasks (ET_THREADS of them; a loader warp has no part in it) meet.
ET_FN void sync() { asm volatile("bar.sync 1, %0;" ::"n"(ET_THREADS) : "memory"); }

// They meet, and learn whether any of them says so.
ET_FN bool sync_or(bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.s32 p, %1, 0;\nbar.red.or.pred q, 1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n}"
      : "=r"(any) : "r"(int(mine)), "n"(ET_THREADS) : "memory");
  return any != 0;
}

enum class Scope { cta, gpu, sys };

template <Scope S = Scope::gpu> ET_FN void ev_notify(Cell& cell) {
  if constexpr (S == Scope::cta)
    asm volatile("red.release.cta.add.u64 [%0], 1;" ::"l"(&cell) : "memory");
  else if constexpr (S == Scope::gpu)
    asm volatile("red.release.gpu.add.u64 [%0], 1;" ::"l"(&cell) : "memory");
  else
    asm volatile("red.release.sys.add.u64 [%0], 1;" ::"l"(&cell) : "memory");
}

template <Scope S = Scope::gpu> ET_FN int64_t cell_value(const Cell& cell) {
  int64_t x;
  if constexpr (S == Scope::cta)
    asm volatile("ld.acquire.cta.u64 %0, [%1];" : "=l"(x) : "l"(&cell) : "memory");
  else if constexpr (S == Scope::gpu)
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(x) : "l"(&cell) : "memory");
  else
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(x) : "l"(&cell) : "memory");
  return x;
}

template <Scope S = Scope::gpu> ET_FN bool ev_reached(const Cell& cell, int64_t target) {
  return cell_value<S>(cell) >= target;
}

ET_FN int64_t cell_peek(const Cell& cell) {
  int64_t x;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(x) : "l"(&cell) : "memory");
  return x;
}

ET_FN void cell_set(Cell& cell, int64_t value) {
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(&cell), "l"(value) : "memory");
}

ET_FN void cell_clear(Cell& cell) { cell_set(cell, 0); }

// Takes the next number of a ticket or of a queue's head.
ET_FN int64_t tk_claim(Cell& cell) {
  int64_t old;
  asm volatile("atom.relaxed.gpu.add.u64 %0, [%1], 1;" : "=l"(old) : "l"(&cell) : "memory");
  return old;
}

// Adds to a dispatched or pending counter; gives the value after the add.
ET_FN int64_t ct_add(Cell& cell, int64_t by) {
  int64_t old;
  asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], %2;"
               : "=l"(old) : "l"(&cell), "l"(by) : "memory");
  return old + by;
}

// True for the one caller that comes first.
ET_FN bool ct_first(Cell& cell) {
  int64_t old;
  asm volatile("atom.acq_rel.gpu.exch.b64 %0, [%1], 1;" : "=l"(old) : "l"(&cell) : "memory");
  return old == 0;
}

ET_FN void q_put(Cell& slot, int64_t value) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(&slot), "l"(value) : "memory");
}

ET_FN int64_t q_get(const Cell& slot) { return cell_value(slot); }

}  // namespace et
