// Constants that generated code and these headers share. Printed from the table in
// codegen/cuda/constants.py: change them there, then `make constants`.
#pragma once
#include "portable.h"

namespace et {

constexpr uint32_t PANEL = 16;  // rows of packed weights that lie together
constexpr uint32_t GROUP = 4;  // panels: the 64 rows of one wgmma
constexpr uint32_t MOST_SPAN = 256;  // bytes of K that lie together in a panel
constexpr uint32_t SWIZZLE = 128;  // bytes of a column of x that lie together
constexpr uint32_t N16 = 16;  // of a pass: products have as many as hold all of theirs,
constexpr uint32_t N64 = 64;  // or go over them
constexpr uint32_t N128 = 128;  // in several passes
constexpr uint32_t RUN = 2048;  // bytes of weights that lie together in all boxes
constexpr uint32_t MAX_CLAIMED_TILES = 2;  // tiles claimed before they are begun
constexpr uint32_t PERSISTENT_BYTES = 65536;  // bytes of a pipeline that tasks may borrow
constexpr uint32_t BATCH_SUMS = 512;  // sums of a warp that are folded at once

}  // namespace et
