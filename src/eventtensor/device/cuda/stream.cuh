// Pages of a product from the stream, as Loader::rows, Loader::run or Loader::panels brings them.
#pragma once
#include "loader.cuh"

namespace et {

// What both kinds of pages do.
class FromRing {
 public:
  ET_HOT explicit FromRing(const Worker& w) : pages_(w.pages) {}
  ET_HOT void done(uint32_t number) { pages_.release(number, TURNS); }
  ET_HOT void end(Worker& w, uint32_t pages) {
    pages_.advance(pages);
    w.pages = pages_;
  }

 protected:
  Pages pages_;
};

template <uint32_t SPAN> struct PanelsFromRing : FromRing {
  using FromRing::FromRing;
  template <uint32_t> using Page = PanelPage<SPAN, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, uint32_t k) {
    return {pages_.page(number), k};
  }
};

struct RowsFromRing : FromRing {
  using FromRing::FromRing;
  template <uint32_t BYTES> using Page = RowsPage<BYTES, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, uint32_t k) {
    const uint32_t low = pages_.page(number) + warp_row() * BYTES;
    return {low, low + 8 * BYTES, k};
  }
};

}  // namespace et

#if ET_WIDE
#include "wide_stream.cuh"
#endif
