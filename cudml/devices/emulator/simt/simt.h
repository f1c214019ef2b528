// Included before every kernel source: CUDA C++ for a host compiler. What CUDA offers and these files lack is
// an unknown name to the compiler, never a stub.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "interface.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ shared_variables_do_not_exist_in_this_dialect_use_SHARED_STORAGE

constexpr int warpSize = 32;

#include "cuda/atomics.h"
#include "cuda/collectives.h"
#include "cuda/half.h"
#include "cuda/integers.h"
#include "cuda/math.h"
#include "cuda/memory.h"
#include "cuda/vectors.h"
#include "entry.h"

// Independent of NDEBUG, which the compiler of the wheel defines when it optimises.
#undef assert
#define assert(condition) \
  ((condition) ? (void)0  \
               : simt_fail("assertion failed: " #condition, __builtin_FILE(), __builtin_LINE()))

inline void __trap(SIMT_PLACE) { simt_fail("__trap was called", SIMT_HERE); }
