// Memory order, in one place, by the PTX memory model. A worker is a block (CTA); what blocks share
// goes through these names, one thread a block. Notifies and waits have a scope: gpu by default,
// cta inside one block, sys for cells in memory that other devices share.
//
// Contract, and why it holds:
//  * notify: all threads that run tasks meet at sync(), then one thread does red.release on the
//    cell. bar.sync orders every thread's earlier accesses before it (causality order at cta
//    scope), and release is cumulative: it carries them to gpu scope with the thread's own. Or
//    that thread sends the cell to one that notifies for it (notifier.cuh), by a barrier in shared
//    memory: causality order goes on through its arrive and the other's wait.
//  * wait: one thread does ld.acquire until the cell has its count, then all meet at sync(). The
//    adds on one cell are morally strong read-modify-writes of one release pattern chain, so an
//    acquire that sees `count` synchronises with every one of the notifiers; the barrier passes
//    that on to the threads that read the data with plain loads. Never ld.global.nc: scratch is
//    written here.
//  * reads before a notify (write-after-read events) are ordered by the same barrier and release.
//  * A task number travels through a queue slot by st.release and ld.acquire; it is told to the
//    other threads of the block through shared memory and a barrier (block_broadcast in worker.cuh).
//  * Tickets and queue heads carry no data: relaxed adds. Dispatched and pending counters decide
//    who pushes: acq_rel adds, so that the one which completes a counter follows all the others.
//  * Cells are cleared with relaxed stores by the launch that does not use them; the boundary
//    between two kernels of one stream orders them.
//  * An edge between two tasks of one worker (hand-off `same_worker`) has no cell. The threads of a
//    block meet at sync() after every body, so all accesses of a task come before those of the next
//    task of that block: bar.sync is morally strong among its participants, so it synchronises
//    them, and causality order through it holds for plain accesses too. What the first task had
//    waited for comes before the second as well, and a later release of this block carries the
//    accesses of both: causality order is transitive, so the edge gives all that a counter would.
#pragma once
#include "portable.h"
#include "cuda/ptx/ptx.cuh"

namespace et {

using Cell = int64_t;

// The threads of a block that run tasks (ET_THREADS of them; a producer warp has no part in it) meet.
ET_FN void sync() { ptx::bar_sync<ET_THREADS>(); }

// They meet, and learn whether any of them says so.
ET_FN bool sync_or(bool mine) { return ptx::bar_red_or<ET_THREADS>(mine); }

enum class Scope { cta, gpu, sys };

template <Scope S = Scope::gpu> ET_FN void ev_notify(Cell& cell) {
  if constexpr (S == Scope::cta) ptx::red_release_cta_add_1(&cell);
  else if constexpr (S == Scope::gpu) ptx::red_release_gpu_add_1(&cell);
  else ptx::red_release_sys_add_1(&cell);
}

// Two cells by one release: the fence and each of the adds behind it are a release pattern.
ET_FN void ev_notify(Cell& cell, Cell& other) {
  ptx::fence_acq_rel_gpu();
  ptx::red_relaxed_gpu_add_1(&cell);
  ptx::red_relaxed_gpu_add_1(&other);
}

template <Scope S = Scope::gpu> ET_FN int64_t cell_value(const Cell& cell) {
  if constexpr (S == Scope::cta) return ptx::ld_acquire_cta(&cell);
  else if constexpr (S == Scope::gpu) return ptx::ld_acquire_gpu(&cell);
  else return ptx::ld_acquire_sys(&cell);
}

template <Scope S = Scope::gpu> ET_FN bool ev_reached(const Cell& cell, int64_t target) {
  return cell_value<S>(cell) >= target;
}

ET_FN int64_t cell_peek(const Cell& cell) { return ptx::ld_relaxed_gpu(&cell); }
ET_FN void cell_set(Cell& cell, int64_t value) { ptx::st_relaxed_gpu(&cell, value); }
ET_FN void cell_clear(Cell& cell) { cell_set(cell, 0); }

// Takes the next number of a ticket or of a queue's head.
ET_FN int64_t tk_claim(Cell& cell) { return ptx::atom_relaxed_gpu_add_1(&cell); }

// Adds to a dispatched or pending counter; gives the value after the add.
ET_FN int64_t ct_add(Cell& cell, int64_t by) {
  return ptx::atom_acq_rel_gpu_add(&cell, by) + by;
}

// True for the one caller that comes first.
ET_FN bool ct_first(Cell& cell) { return ptx::atom_acq_rel_gpu_exch_1(&cell) == 0; }

ET_FN void q_put(Cell& slot, int64_t value) { ptx::st_release_gpu(&slot, value); }
ET_FN int64_t q_get(const Cell& slot) { return cell_value(slot); }

// For the host, in its own memory: whoever sees the value sees what the workers that this thread
// follows have written, in device memory too.
ET_FN void host_tell(Cell& cell, int64_t value) { ptx::st_release_sys(&cell, value); }

}  // namespace et
