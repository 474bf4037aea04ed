// How a product of packed panels with many columns goes, which the loader, the bringers of x, the
// tasks and the way without a stream agree on. Groups of four panels (the 64 rows of one wgmma) are
// summed up for up to 64 columns (a pass), whose sums stay in registers while K goes by: two groups
// in a round, each by half of the warps, or the halves share a last one that is alone, and take its
// pages in turn.
//
// Bits are the same in place and from the stream: sums go up in K, those of a lone group as two,
// over even and odd pages. Nor does a column's result hang on how many others there are.
#pragma once
#include "../portable.h"

namespace et {

constexpr uint32_t GROUP = 4;          // panels
constexpr uint32_t LINE = 256;         // bytes of K that x is brought by
constexpr uint32_t MOST_COLUMNS = 64;  // of a pass

// How a product of `panels` panels with rows of `row` bytes goes.
struct Walk {
  uint32_t panels, row, log;  // log: of the bytes of K in a page, of as many panels as a group has

  Walk() = default;
  ET_HOT Walk(uint32_t panels_, uint32_t row_)
      : panels(panels_), row(row_), log(panels_ == 1 ? 10 : panels_ == 2 ? 9 : 8) {}

  ET_HOT uint32_t span() const { return 1u << log; }
  ET_HOT uint32_t pages() const { return row + span() - 1 >> log; }  // of a group
  ET_HOT bool lone(uint32_t panel) const { return panel + GROUP >= panels; }
  // Panels that are taken together with this one, the first of a round.
  ET_HOT uint32_t round(uint32_t panel) const { return lone(panel) ? GROUP : 2 * GROUP; }
  // Panels of the group that begins with this one.
  ET_HOT uint32_t count(uint32_t panel) const {
    return panels - panel < GROUP ? panels - panel : GROUP;
  }
};

}  // namespace et
