// The life of a launch: how a worker takes its set of cells, and how the last one to leave turns the
// sets and epochs over and tells the host.
#pragma once
#include "cuda/roles/worker.cuh"

namespace et {

// In a dependent launch: the launches before have ended, and what they wrote is visible. The next
// one may take its place as blocks leave. Nothing in any other launch, and before Hopper.
ET_FN void launch_wait() {
#if ET_DEPENDENT_LAUNCH
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
}

// Takes the set whose turn it is, and clears what the launch before left in the other one. False
// (in all threads) if an earlier launch has failed and the host does not know yet: then the worker
// leaves without launch_end, so that a queue of launches behind a failed one is over at once. What
// lives between launches is read here: in a dependent launch, after griddepcontrol.wait.
ET_FN bool launch_begin(Worker& w) {
  const Shared& s = *w.shared;
  const int64_t parity = block_broadcast(w, [&] {
    if (w.index == 0) cell_set(s.control->began, now_ns());
    seen_cells().clear();
    return aborted(w) ? -1 : cell_peek(s.sets->parity);
  });
  if (parity < 0) return false;
  w.epoch = uint32_t(cell_peek(s.control->epoch)) + 1;
  w.cells = s.cells + parity * s.capacity;
  Cell* const old = s.cells + (1 - parity) * s.capacity;
  const int64_t used = cell_peek(parity == 0 ? s.sets->used_odd : s.sets->used_even);
  ET_ROLLED for (int64_t k = w.index * num_threads() + thread_rank(); k < used; k += w.count * num_threads())
    cell_clear(old[k]);
  return true;
}

constexpr uint32_t LAST_EPOCH = 0xfffe;

// By one thread of the last worker to leave: the host hears that the launch is over, and when it
// was. All that it has written is there by then: each worker's leave is an acquire and a release.
// (Not the last notifies of notifiers, which nobody waits for: the launch that clears their cells
// comes after this one has ended.)
ET_FN void stamp(const Shared& s) {
  Stamp& mine = s.stamps[s.number % STAMPS];
  mine.step = s.step;
  mine.began = cell_peek(s.control->began);
  mine.ended = now_ns();
  host_tell(mine.number, s.number);
}

// By one thread of the last worker to leave, when everybody has read what it changes: turns the
// sets over and counts the launch.
ET_FN void turn_over(Worker& w, int64_t cells) {
  const Shared& s = *w.shared;
  const int64_t parity = cell_peek(s.sets->parity);
  cell_set(s.sets->left, 0);
  cell_set(parity == 0 ? s.sets->used_even : s.sets->used_odd, cells);
  cell_set(s.sets->parity, 1 - parity);
  s.control->step = s.step;
  cell_set(s.control->epoch, w.epoch == LAST_EPOCH ? 0 : int64_t(w.epoch));
  stamp(s);
}

// By all threads of the last worker to leave: the epochs begin anew, so no word may carry one.
ET_COLD void clear_words(const Shared& s) {
  ET_ROLLED for (int64_t k = thread_rank(); k < s.word_count; k += num_threads()) cell_set(s.words[k], 0);
}

ET_FN void launch_end(Worker& w, int64_t cells) {
  sync();
  const auto last = [&] { return ct_add(w.shared->sets->left, 1) == w.count; };
  if (is_leader()) w.tracer.close(w.shared->progress[w.index]);
  if (!ET_DEBUG && w.epoch != LAST_EPOCH) {
    if (is_leader() && last()) turn_over(w, cells);
    return;
  }
  if (block_broadcast(w, last) == 0) return;
#if ET_DEBUG
  check_waits(w, cells);
#endif
  if (w.epoch == LAST_EPOCH) clear_words(*w.shared);
  sync();
  if (is_leader()) turn_over(w, cells);
}

}  // namespace et
