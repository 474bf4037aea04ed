// Tiles in memory: strided views, the arena for temporaries, matrix multiplication.
#pragma once
#include "arena.h"
#include "product.h"
#include "view.h"

// The iterations of the next loop touch distinct elements: it may be vectorised.
#if defined(__clang__)
#define ET_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ET_INDEPENDENT _Pragma("GCC ivdep")
#else
#define ET_INDEPENDENT
#endif
