// Debug checks of indices, for every back end. Included by its worker header, which has Worker and
// fail(). A bad index is reported and replaced, so that the task survives until the launch ends.
#pragma once

namespace et {

// Debug: one axis of a cell's index lies in 0 .. size-1.
ET_FN bool cell_in(Worker& w, int64_t event, int64_t axis, int64_t index, int64_t size) {
  return (index >= 0 && index < size) || fail(w, CELL_RANGE, event, axis, size, index);
}

// An element read as an index: inside the tensor and inside its declared bound. A bad one is
// reported and replaced by a legal one, so that the task survives until the launch ends.
template <class T>
ET_FN int64_t load_checked(Worker& w, const T* data, int64_t index, int64_t size, int64_t lo,
                            int64_t hi, int64_t tensor) {
  if (index < 0 || index >= size) {
    fail(w, REGION_RANGE, tensor, -1, size, index);
    return lo;
  }
  const int64_t x = int64_t(value(data[index]));
  if (x >= lo && x <= hi) return x;
  fail(w, LOAD_BOUND, tensor, index, x < lo ? lo : hi, x);
  return x < lo ? lo : hi;
}

// One axis of a region: lowest and highest index touched must lie in 0 .. size-1.
ET_FN bool range_check(Worker& w, int64_t tensor, int64_t axis, int64_t lo, int64_t hi,
                        int64_t size) {
  if (lo >= 0 && hi < size) return true;
  return fail(w, REGION_RANGE, tensor, axis, size, lo < 0 ? lo : hi);
}

// An index that a value of the body decides.
ET_FN int64_t index_checked(Worker& w, int64_t index, int64_t extent) {
  if (index >= 0 && index < extent) return index;
  fail(w, GATHER_RANGE, -1, -1, extent, index);
  return 0;
}

}  // namespace et
