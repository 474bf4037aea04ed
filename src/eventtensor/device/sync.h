// Memory order, in one place. Everything that threads share goes through these names.
//
// Contract:
//  * ev_notify is a release add and ev_reached an acquire load of the same cell. The adds on one
//    cell form one release sequence, so a waiter that sees `count` also sees all that every one of
//    its notifiers (and whatever they had waited for) wrote before.
//  * A task id travels through a queue slot by a release store and an acquire load.
//  * Claims (tickets, queue heads) carry no data: relaxed adds.
//  * dispatched and pending counters decide who pushes: acquire-release adds, so that the one which
//    completes a counter follows all the others.
//  * Cells are cleared with plain relaxed stores: a set is cleared by the launch that does not use
//    it, and launches are ordered by the pool's mutex.
#pragma once
#include <atomic>
#include <cstdint>

namespace et {

using Cell = std::atomic<int64_t>;

inline void ev_notify(Cell& cell) { cell.fetch_add(1, std::memory_order_release); }

inline bool ev_reached(const Cell& cell, int64_t target) {
  return cell.load(std::memory_order_acquire) >= target;
}

// Takes the next number of a ticket or of a queue's head.
inline int64_t tk_claim(Cell& cell) { return cell.fetch_add(1, std::memory_order_relaxed); }

// Adds to a dispatched or pending counter; gives the value after the add.
inline int64_t ct_add(Cell& cell, int64_t by) {
  return cell.fetch_add(by, std::memory_order_acq_rel) + by;
}

// True for the one caller that comes first.
inline bool ct_first(Cell& cell) { return cell.exchange(1, std::memory_order_acq_rel) == 0; }

inline void q_put(Cell& slot, int64_t value) { slot.store(value, std::memory_order_release); }

inline int64_t q_get(const Cell& slot) { return slot.load(std::memory_order_acquire); }

inline void cell_clear(Cell& cell) { cell.store(0, std::memory_order_relaxed); }

inline int64_t cell_value(const Cell& cell) { return cell.load(std::memory_order_acquire); }

}  // namespace et
