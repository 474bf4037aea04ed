// What a report can say (Report.code, as in codegen/abi.py), and how an event is named in it.
#pragma once
#include "portable.h"

namespace et {

enum Fault : int64_t {
  STUCK_WAIT = 1, STUCK_QUEUE = 2, LOAD_BOUND = 3, REGION_RANGE = 4, COUNT_WRONG = 5,
  GATHER_RANGE = 6, CELL_RANGE = 7, STUCK_FLAG = 8, NO_MEMORY = 9
};

// An event tensor of this launch: its first cell in the set, and its number in the plan.
struct Event { int64_t base; int64_t id; };

}  // namespace et
