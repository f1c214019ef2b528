// Block barriers and warp collectives. Each wrapper passes its caller's file and line to the runtime.
#pragma once

inline void __syncthreads(SIMT_PLACE) { simt_barrier(0, 0, kBarrierPlain, 0, SIMT_HERE); }
inline int __syncthreads_or(int predicate, SIMT_PLACE) {
  return simt_barrier(0, 0, kBarrierOr, predicate, SIMT_HERE);
}
inline int __syncthreads_and(int predicate, SIMT_PLACE) {
  return simt_barrier(0, 0, kBarrierAnd, predicate, SIMT_HERE);
}
inline int __syncthreads_count(int predicate, SIMT_PLACE) {
  return simt_barrier(0, 0, kBarrierCount, predicate, SIMT_HERE);
}

inline unsigned simt_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_PLACE) {
  simt_warp(kWarpSync, mask, 0, 0, SIMT_HERE);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_PLACE) {
  return static_cast<unsigned>(simt_warp(kWarpBallot, mask, predicate != 0, 0, SIMT_HERE));
}
inline int __all_sync(unsigned mask, int predicate, SIMT_PLACE) {
  return static_cast<int>(simt_warp(kWarpAll, mask, predicate != 0, 0, SIMT_HERE));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_PLACE) {
  return static_cast<int>(simt_warp(kWarpAny, mask, predicate != 0, 0, SIMT_HERE));
}

// Values travel as 64-bit patterns.
template <class T>
__forceinline__ unsigned long long simt_pattern(T value) {
  static_assert(sizeof(T) <= 8, "a warp collective moves at most 8 bytes a lane");
  unsigned long long pattern = 0;
  __builtin_memcpy(&pattern, &value, sizeof value);
  return pattern;
}
template <class T>
__forceinline__ T simt_value(unsigned long long pattern) {
  T value;
  __builtin_memcpy(&value, &pattern, sizeof value);
  return value;
}

template <class T>
T simt_shuffle(unsigned mask, T value, unsigned source, const char* file, int line) {
  return simt_value<T>(simt_warp(kWarpShuffle, mask, simt_pattern(value), source, file, line));
}

// Overloads for exactly the types that CUDA has, so that promotion and ambiguity are the same. A source
// outside the segment of `width` lanes means the lane itself; only xor may reach a lower segment.
#define SIMT_SHUFFLES(T)                                                                          \
  inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, SIMT_PLACE) {              \
    const unsigned start = simt_lane() & ~(width - 1);                                            \
    return simt_shuffle(mask, v, start + (source & (width - 1)), SIMT_HERE);                      \
  }                                                                                               \
  inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, SIMT_PLACE) {       \
    const unsigned lane = simt_lane(), start = lane & ~(width - 1);                               \
    return simt_shuffle(mask, v, lane < start + delta ? lane : lane - delta, SIMT_HERE);          \
  }                                                                                               \
  inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, SIMT_PLACE) {     \
    const unsigned lane = simt_lane(), end = (lane & ~(width - 1)) + width;                       \
    return simt_shuffle(mask, v, lane + delta >= end ? lane : lane + delta, SIMT_HERE);           \
  }                                                                                               \
  inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, SIMT_PLACE) {            \
    const unsigned lane = simt_lane(), source = lane ^ bits, end = (lane & ~(width - 1)) + width; \
    return simt_shuffle(mask, v, source >= end ? lane : source, SIMT_HERE);                       \
  }                                                                                               \
  inline unsigned __match_any_sync(unsigned mask, T v, SIMT_PLACE) {                              \
    return static_cast<unsigned>(simt_warp(kWarpMatchAny, mask, simt_pattern(v), 0, SIMT_HERE));  \
  }                                                                                               \
  inline unsigned __match_all_sync(unsigned mask, T v, int* all_equal, SIMT_PLACE) {              \
    const auto equal =                                                                            \
        static_cast<unsigned>(simt_warp(kWarpMatchAll, mask, simt_pattern(v), 0, SIMT_HERE));     \
    *all_equal = equal != 0;                                                                      \
    return equal;                                                                                 \
  }
SIMT_SHUFFLES(int)
SIMT_SHUFFLES(unsigned)
SIMT_SHUFFLES(long)
SIMT_SHUFFLES(unsigned long)
SIMT_SHUFFLES(long long)
SIMT_SHUFFLES(unsigned long long)
SIMT_SHUFFLES(float)
SIMT_SHUFFLES(double)
#undef SIMT_SHUFFLES

// Signed values are extended to 64 bits, so that one 64-bit comparison serves both widths.
#define SIMT_REDUCE(name, T, op)                                                             \
  inline T name(unsigned mask, T value, SIMT_PLACE) {                                        \
    return static_cast<T>(simt_warp(op, mask, static_cast<long long>(value), 0, SIMT_HERE)); \
  }
SIMT_REDUCE(__reduce_add_sync, unsigned, kWarpAdd)
SIMT_REDUCE(__reduce_add_sync, int, kWarpAdd)
SIMT_REDUCE(__reduce_min_sync, unsigned, kWarpMinUnsigned)
SIMT_REDUCE(__reduce_min_sync, int, kWarpMinSigned)
SIMT_REDUCE(__reduce_max_sync, unsigned, kWarpMaxUnsigned)
SIMT_REDUCE(__reduce_max_sync, int, kWarpMaxSigned)
SIMT_REDUCE(__reduce_and_sync, unsigned, kWarpAnd)
SIMT_REDUCE(__reduce_or_sync, unsigned, kWarpOr)
SIMT_REDUCE(__reduce_xor_sync, unsigned, kWarpXor)
#undef SIMT_REDUCE
