// Atomics. Those on global memory are relaxed, as CUDA's are. A block runs on one operating-system thread, so
// on its shared storage a plain read-modify-write is already atomic. In check mode all are real atomics,
// because the hooks must see them as such.
#pragma once

#include "integers.h"

template <class T>
__forceinline__ bool simt_is_shared(const T* address) {
#ifdef SIMT_CHECK
  return false;
#else
  return static_cast<unsigned long long>(reinterpret_cast<const unsigned char*>(address) -
                                         simt_shared) < simt_shared_bytes;
#endif
}

// Replaces *address by update(*address) and returns the old value.
template <class T, class Update>
__forceinline__ T simt_atomic_update(T* address, Update update) {
  if (simt_is_shared(address)) {
    const T old = *address;
    *address = update(old);
    return old;
  }
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T desired = update(old);
    // Compares bits, so that a NaN does not loop forever.
    if (__atomic_compare_exchange(address, &old, &desired, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED))
      return old;
  }
}

#define SIMT_ATOMIC_BUILTIN(name, builtin, expression, T) \
  inline T name(T* address, T value) {                    \
    if (simt_is_shared(address)) {                        \
      const T old = *address;                             \
      *address = static_cast<T>(expression);              \
      return old;                                         \
    }                                                     \
    return builtin(address, value, __ATOMIC_RELAXED);     \
  }
#define SIMT_ATOMIC_UPDATE(name, expression, T)                                 \
  inline T name(T* address, T value) {                                          \
    return simt_atomic_update(address, [=](T old) -> T { return expression; }); \
  }

using SimtULL = unsigned long long;

SIMT_ATOMIC_BUILTIN(atomicAdd, __atomic_fetch_add,
                    static_cast<unsigned>(old) + static_cast<unsigned>(value), int)
SIMT_ATOMIC_BUILTIN(atomicAdd, __atomic_fetch_add, old + value, unsigned)
SIMT_ATOMIC_BUILTIN(atomicAdd, __atomic_fetch_add, old + value, SimtULL)
SIMT_ATOMIC_UPDATE(atomicAdd, old + value, float)
SIMT_ATOMIC_UPDATE(atomicAdd, old + value, double)
SIMT_ATOMIC_BUILTIN(atomicSub, __atomic_fetch_sub,
                    static_cast<unsigned>(old) - static_cast<unsigned>(value), int)
SIMT_ATOMIC_BUILTIN(atomicSub, __atomic_fetch_sub, old - value, unsigned)
SIMT_ATOMIC_UPDATE(atomicInc, old >= value ? 0 : old + 1, unsigned)
SIMT_ATOMIC_UPDATE(atomicDec, old == 0 || old > value ? value : old - 1, unsigned)

#define SIMT_ATOMIC_INTEGERS(T)                                     \
  SIMT_ATOMIC_UPDATE(atomicMin, value < old ? value : old, T)       \
  SIMT_ATOMIC_UPDATE(atomicMax, old < value ? value : old, T)       \
  SIMT_ATOMIC_BUILTIN(atomicAnd, __atomic_fetch_and, old& value, T) \
  SIMT_ATOMIC_BUILTIN(atomicOr, __atomic_fetch_or, old | value, T)  \
  SIMT_ATOMIC_BUILTIN(atomicXor, __atomic_fetch_xor, old ^ value, T)
SIMT_ATOMIC_INTEGERS(int)
SIMT_ATOMIC_INTEGERS(unsigned)
SIMT_ATOMIC_INTEGERS(SimtULL)
#undef SIMT_ATOMIC_INTEGERS
SIMT_ATOMIC_UPDATE(atomicMin, value < old ? value : old, long long)
SIMT_ATOMIC_UPDATE(atomicMax, old < value ? value : old, long long)

SIMT_ATOMIC_BUILTIN(atomicExch, __atomic_exchange_n, value, int)
SIMT_ATOMIC_BUILTIN(atomicExch, __atomic_exchange_n, value, unsigned)
SIMT_ATOMIC_BUILTIN(atomicExch, __atomic_exchange_n, value, SimtULL)
inline float atomicExch(float* address, float value) {
  return __uint_as_float(atomicExch(reinterpret_cast<unsigned*>(address), __float_as_uint(value)));
}
#undef SIMT_ATOMIC_BUILTIN
#undef SIMT_ATOMIC_UPDATE

// A failed exchange may be the body of a waiting loop, so it gives way.
#define SIMT_ATOMIC_CAS(T)                                                              \
  inline T atomicCAS(T* address, T expected, T desired, SIMT_PLACE) {                   \
    const T wanted = expected;                                                          \
    if (simt_is_shared(address)) {                                                      \
      expected = *address;                                                              \
      if (expected == wanted) *address = desired;                                       \
    } else {                                                                            \
      __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, \
                                  __ATOMIC_RELAXED);                                    \
    }                                                                                   \
    if (expected != wanted) simt_yield(SIMT_HERE);                                      \
    return expected;                                                                    \
  }
SIMT_ATOMIC_CAS(int)
SIMT_ATOMIC_CAS(unsigned)
SIMT_ATOMIC_CAS(SimtULL)
SIMT_ATOMIC_CAS(unsigned short)
#undef SIMT_ATOMIC_CAS
