// Tiles as memory with strides: what every back end's generated code declares.
#pragma once
#include "numerics.h"

namespace et {

// An index that a value of the body decides, kept inside the tile: a bad one gives a wrong number
// (debug builds report it), never a touch of foreign memory.
ET_FN int64_t index_clamped(int64_t index, int64_t extent) {
  return index < 0 || extent < 1 ? 0 : index < extent ? index : extent - 1;
}

// A region of a tensor: extents and strides are counted in elements.
template <class T, int R> struct View {
  T* data;
  int64_t extent[R > 0 ? R : 1];
  int64_t stride[R > 0 ? R : 1];
};

// A matrix operand: element (r, c) is data[r * s0 + c * s1].
template <class T> struct Matrix { const T* data; int64_t s0, s1; };

ET_FN float multiply_add(float x, float y, float sum) { return std::fma(x, y, sum); }
template <class T> ET_FN T multiply_add(T x, T y, T sum) { return T(x * y + sum); }

}  // namespace et
