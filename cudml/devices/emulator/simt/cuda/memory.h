// Fences, loads and stores with cache hints, and giving way while waiting.
#pragma once

#include "vectors.h"

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

inline void __nanosleep(unsigned, SIMT_PLACE) { simt_yield(SIMT_HERE); }

// The hints say where the hardware should cache; the value is that of a plain access.
#define SIMT_LOAD(name)                      \
  template <class T>                         \
  __forceinline__ T name(const T* address) { \
    return *address;                         \
  }
SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldlu)
SIMT_LOAD(__ldcv)
#undef SIMT_LOAD

#define SIMT_STORE(name)                           \
  template <class T>                               \
  __forceinline__ void name(T* address, T value) { \
    *address = value;                              \
  }
SIMT_STORE(__stwb)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwt)
#undef SIMT_STORE

// ---- Sixteen bytes at once. The device traps if the address is not a multiple of 16.

__forceinline__ void simt_require_aligned_16(const void* address, const char* file, int line) {
  if (__builtin_expect(reinterpret_cast<uintptr_t>(address) % 16 != 0, 0))
    simt_fail("misaligned access: the address must be a multiple of 16", file, line);
}

#ifdef SIMT_CHECK
// As one access; compiled inline, check mode would see four.
extern "C" void simt_load_16(const void* from, void* to);
extern "C" void simt_store_16(void* to, const void* from);
#else
__forceinline__ void simt_load_16(const void* from, void* to) { __builtin_memcpy(to, from, 16); }
__forceinline__ void simt_store_16(void* to, const void* from) { __builtin_memcpy(to, from, 16); }
#endif

__forceinline__ uint4 simt_load_aligned_16(const void* address, const char* file, int line) {
  simt_require_aligned_16(address, file, line);
  uint4 value;
  simt_load_16(address, &value);
  return value;
}
__forceinline__ void simt_store_aligned_16(void* address, uint4 value, const char* file, int line) {
  simt_require_aligned_16(address, file, line);
  simt_store_16(address, &value);
}

// ---- Shared storage.

#ifdef SIMT_CHECK
extern "C" void simt_bad_index(long long index, long long size);
// Inlined, because a report would otherwise name this function.
__forceinline__ void simt_require_index(long long index, long long size) {
  if (__builtin_expect(index < 0 || index >= size, 0)) simt_bad_index(index, size);
}
#else
__forceinline__ void simt_require_index(long long, long long) {}
#endif

// The running block's shared storage for SHARED_STORAGE.
template <class Storage>
__forceinline__ Storage& simt_shared_storage(const char* file, int line) {
  if (__builtin_expect(sizeof(Storage) > simt_shared_bytes, 0))
    simt_fail("the launch gives less shared storage than the kernel's storage struct needs", file,
              line);
  return *reinterpret_cast<Storage*>(simt_shared);
}
