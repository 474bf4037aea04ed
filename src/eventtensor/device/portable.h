// What the shared headers need of a compiler: the standard names they use, and how a function is
// marked. The same code runs on CPU threads and in the threads of a CUDA block.
#pragma once
#if defined(__CUDACC__)
#include "cuda/std.cuh"
#define ET_FN __device__ inline
#define ET_HOT __device__ __forceinline__  // a call would put its registers into memory
#define ET_COLD __device__ __noinline__  // seldom run: one copy keeps compiles short
#define ET_UNROLL_16 _Pragma("unroll")
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#define ET_FN inline
#define ET_COLD inline
#define ET_UNROLL_16 _Pragma("GCC unroll 16")
#endif
