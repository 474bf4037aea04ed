// Pages of a product from the stream, as Loader::rows, Loader::run or Loader::panels brings them.
#pragma once
#include "claimed.cuh"

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

// JOINED: the panels of a page are of products one after the other.
template <uint32_t SPAN, uint32_t BUNDLE_, bool JOINED_ = false> struct PanelsFromRing : FromRing {
  static constexpr uint32_t BUNDLE = BUNDLE_;
  static constexpr bool JOINED = JOINED_;
  using FromRing::FromRing;
  template <uint32_t> using Page = PanelPage<SPAN, BUNDLE, JOINED ? 1 : BUNDLE, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, Own own) {
    return {pages_.page(number) + own.panel * (JOINED ? BYTES : SPAN) * PANEL, own};
  }
};

struct RowsFromRing : FromRing {
  static constexpr uint32_t BUNDLE = 1;
  static constexpr bool JOINED = false;
  using FromRing::FromRing;
  template <uint32_t BYTES> using Page = RowsPage<BYTES, uint32_t>;
  template <uint32_t BYTES>
  ET_HOT Page<BYTES> page(uint32_t, uint32_t, uint32_t number, uint32_t, Own own) {
    const uint32_t low = pages_.page(number) + warp_row() * BYTES;
    return {low, low + 8 * BYTES, own};
  }
};

}  // namespace et

#if ET_WIDE
#include "wide_stream.cuh"
#endif
