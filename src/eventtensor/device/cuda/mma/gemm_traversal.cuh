// The order of a product of packed panels with many columns. The producer, the activation
// producers, the tasks and the path without a pipeline agree on it. Groups of four panels (the 64
// rows of one wgmma) are summed up for up to 128 columns (a pass), whose sums stay in registers
// while K goes by, span by span: up to four groups in a round (two, where columns are many), in turn
// by one and the other half of the warps. The halves share a last odd group, half of the columns
// each.
//
// Bits are the same in place and from the pipeline: sums go up in K. Nor does a column's result
// depend on how many others there are.
#pragma once
#include "cuda/constants.cuh"

namespace et {

// Groups of a round at most: a thread holds sums of half of them.
constexpr ET_FN uint32_t groups_for(uint32_t columns) { return columns > N64 ? 2 : 4; }

// How a product of `panels` panels with rows of `row` bytes, in spans of `span` bytes, and of so many
// columns goes. In memory `bundle` panels, which divide a group, lie together span by span.
struct GemmTraversal {
  uint32_t panels, row, span, bundle, columns;

  GemmTraversal() = default;
  ET_HOT constexpr GemmTraversal(uint32_t panels_, uint32_t row_, uint32_t span_, uint32_t bundle_,
                                 int64_t columns_)
      : panels(panels_), row(row_), span(span_), bundle(bundle_), columns(uint32_t(columns_)) {}

  // Spans of a page, which has those of all panels of a group, and pages of a group.
  ET_HOT uint32_t spans() const { return panels == 1 ? 4 : panels == 2 ? 2 : 1; }
  ET_HOT uint32_t pages() const { return (along() + spans() - 1) / spans(); }
  ET_HOT uint32_t along() const { return row / span; }  // spans of K
  ET_HOT uint32_t passes() const { return (columns + N128 - 1) / N128; }
  // Groups from this panel on, in all and of the round that begins with it, and panels of these.
  ET_HOT uint32_t left(uint32_t panel) const { return (panels - panel + GROUP - 1) / GROUP; }
  ET_HOT uint32_t groups(uint32_t panel) const {
    const uint32_t all = left(panel), most = groups_for(columns);
    return all < most ? all : most;
  }
  ET_HOT uint32_t round(uint32_t panel) const { return groups(panel) * GROUP; }
  // Panels of the group that begins with this one.
  ET_HOT uint32_t count(uint32_t panel) const {
    return panels - panel < GROUP ? panels - panel : GROUP;
  }
};

}  // namespace et
