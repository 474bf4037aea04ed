// Regions with gathered rows, as hand-tuned bodies see them: where the rows lie, without a copy.
#pragma once
#include "view.h"

namespace et {

// A View in which some axes are tables: row i of axis k begins rows[k][i] elements on; rows[k] is
// null, and i * stride[k] counts, where there is none.
template <class T, int R> struct Gathered {
  T* data;
  int64_t extent[R];
  int64_t stride[R];
  const int64_t* rows[R];
};

}  // namespace et
