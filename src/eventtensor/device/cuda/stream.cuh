// Pages of a product from the stream, as Loader::rows or (packed panels) Loader::run brings them.
#pragma once
#include "loader.cuh"

namespace et {

class FromRing {
 public:
  ET_HOT explicit FromRing(const Worker& w) : pages_(w.pages) {}

  template <uint32_t BYTES>
  ET_HOT Lines<uint32_t> page(uint32_t, uint32_t, uint32_t number, uint32_t) {
    const uint32_t low = pages_.page(number) + warp_row() * BYTES;
    return {low, low + 8 * BYTES};
  }
  ET_HOT void done(uint32_t number) { pages_.release(number, TURNS); }
  ET_HOT void end(Worker& w, uint32_t pages) {
    pages_.advance(pages);
    w.pages = pages_;
  }

 private:
  Pages pages_;
};

}  // namespace et
