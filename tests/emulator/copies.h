// Bulk copies that are on their way: bytes that lie together, or a box of a matrix as a map says that
// the host's driver has written (support/fake_driver.py).
#pragma once
#include <cstdint>
#include <cstring>

namespace emu {

constexpr uint32_t SWIZZLE = 128;  // bytes of a row in a box

// Of 16 words, as a GPU has them.
struct Map {
  static constexpr uint64_t KNOWN = 0x70616d6f66786f62;
  uint64_t known, address, width, rows, stride, box_width, box_rows;  // in elements, and bytes
};

// Rows of a matrix from element x of row y on.
struct Box {
  Map map;
  int32_t x, y;
};

// The same in three dimensions: runs, those of a row, and rows, with bytes from one to the next. TmaLoader
// have whole runs and are not swizzled.
struct RunMap {
  static constexpr uint64_t KNOWN = 0x70616d666f736e75;
  uint64_t known, address, run, runs, rows, pitch, stride, box_run, box_runs, box_rows;
};

struct Copy {
  char* to;
  const char* from;
  uint32_t bytes;
  uint64_t* bar;
  Box box;  // if its map is known

  void land() const {
    if (box.map.known != Map::KNOWN) {
      std::memcpy(to, from, bytes);
      return;
    }
    for (uint32_t row = 0; row < box.map.box_rows; ++row)
      for (uint32_t k = 0; k < SWIZZLE; k += 2)
        std::memcpy(to + row * SWIZZLE + (k / 16 ^ row % 8) * 16 + k % 16, element(row, k / 2), 2);
  }

 private:
  // Outside of the matrix there are zeros.
  const char* element(uint32_t row, uint32_t k) const {
    static const char zero[2] = {};
    const int64_t x = int64_t(box.x) + k, y = int64_t(box.y) + row;
    const bool in = x >= 0 && x < int64_t(box.map.width) && y >= 0 && y < int64_t(box.map.rows);
    return in ? from + y * int64_t(box.map.stride) + x * 2 : zero;
  }
};

}  // namespace emu
