// The functions that code compiled with -fsanitize=thread,alignment,bounds calls. No sanitizer library is
// linked, so nothing else in the process is affected. Each function takes its own return address, because
// that is the place of the access in the kernel.
#include <cstdint>
#include <cstring>
#include <string>

#include "../runtime/errors.h"
#include "checker.h"

using simt::check::checker;

#define SIMT_HOOK extern "C" __attribute__((visibility("default")))
#define SIMT_PC __builtin_return_address(0)

// ---- Life cycle: nothing to do.

SIMT_HOOK void __tsan_init() {}
SIMT_HOOK void __tsan_func_entry(void*) {}
SIMT_HOOK void __tsan_func_exit() {}
SIMT_HOOK void __tsan_vptr_update(void**, void*) {}
SIMT_HOOK void __tsan_vptr_read(void**) {}
SIMT_HOOK void __tsan_atomic_signal_fence(int) {}

// ---- Plain accesses.

// A call of the plain name means that the compiler relies on the address being a multiple of the size. For 16
// bytes, a multiple of 8 is enough, because both compilers call it for structures of 16 bytes.
static inline void aligned_access(const void* pc, const void* p, size_t bytes, bool is_write) {
  const size_t alignment = bytes < 8 ? bytes : 8;
  if (reinterpret_cast<uintptr_t>(p) % alignment) checker->misaligned(pc, p, alignment);
  checker->plain(pc, p, bytes, is_write);
}

#define SIMT_PLAIN(bytes)                                                                  \
  SIMT_HOOK void __tsan_read##bytes(void* p) { aligned_access(SIMT_PC, p, bytes, false); } \
  SIMT_HOOK void __tsan_write##bytes(void* p) { aligned_access(SIMT_PC, p, bytes, true); } \
  SIMT_HOOK void __tsan_volatile_read##bytes(void* p) {                                    \
    aligned_access(SIMT_PC, p, bytes, false);                                              \
  }                                                                                        \
  SIMT_HOOK void __tsan_volatile_write##bytes(void* p) {                                   \
    aligned_access(SIMT_PC, p, bytes, true);                                               \
  }                                                                                        \
  SIMT_HOOK void __tsan_unaligned_read##bytes(void* p) {                                   \
    checker->plain(SIMT_PC, p, bytes, false);                                              \
  }                                                                                        \
  SIMT_HOOK void __tsan_unaligned_write##bytes(void* p) {                                  \
    checker->plain(SIMT_PC, p, bytes, true);                                               \
  }                                                                                        \
  SIMT_HOOK void __tsan_read_write##bytes(void* p) {                                       \
    aligned_access(SIMT_PC, p, bytes, false);                                              \
    checker->plain(SIMT_PC, p, bytes, true);                                               \
  }
SIMT_PLAIN(1)
SIMT_PLAIN(2)
SIMT_PLAIN(4)
SIMT_PLAIN(8)
SIMT_PLAIN(16)
#undef SIMT_PLAIN

SIMT_HOOK void __tsan_read_range(void* p, size_t bytes) {
  checker->plain(SIMT_PC, p, bytes, false);
}
SIMT_HOOK void __tsan_write_range(void* p, size_t bytes) {
  checker->plain(SIMT_PC, p, bytes, true);
}

// Compilers call the first name; if one calls the C library's, the linker turns it into the second.
#define SIMT_COPY(name, function)                                  \
  SIMT_HOOK void* name(void* to, const void* from, size_t bytes) { \
    if (bytes == 0) return to;                                     \
    checker->plain(SIMT_PC, from, bytes, false);                   \
    checker->plain(SIMT_PC, to, bytes, true);                      \
    return function(to, from, bytes);                              \
  }
#define SIMT_SET(name)                                      \
  SIMT_HOOK void* name(void* to, int value, size_t bytes) { \
    if (bytes == 0) return to;                              \
    checker->plain(SIMT_PC, to, bytes, true);               \
    return std::memset(to, value, bytes);                   \
  }
SIMT_COPY(__tsan_memcpy, std::memcpy)
SIMT_COPY(__wrap_memcpy, std::memcpy)
SIMT_COPY(__tsan_memmove, std::memmove)
SIMT_COPY(__wrap_memmove, std::memmove)
SIMT_SET(__tsan_memset)
SIMT_SET(__wrap_memset)
#undef SIMT_SET
#undef SIMT_COPY

// The 16-byte accesses of common/intrinsics.cuh: one access instead of the compiler's four.
SIMT_HOOK void simt_load_16(const void* from, void* to) {
  checker->plain(SIMT_PC, from, 16, false);
  std::memcpy(to, from, 16);
}
SIMT_HOOK void simt_store_16(void* to, const void* from) {
  checker->plain(SIMT_PC, to, 16, true);
  std::memcpy(to, from, 16);
}

// An index outside of an array of a shared struct.
SIMT_HOOK void simt_bad_index(long long index, long long size) {
  checker->bad_index(SIMT_PC, index, size);
}

// ---- Atomics: checked, then executed. In check mode, one operating-system thread runs all blocks, so the
// strongest order costs nothing.

#define SIMT_UPDATE(T, bits, name, builtin)                                     \
  SIMT_HOOK T __tsan_atomic##bits##_##name(volatile T* p, T value, int order) { \
    T* const address = const_cast<T*>(p);                                       \
    checker->before_atomic(SIMT_PC, address, sizeof(T), true, true, order);     \
    const T old = builtin(address, value, __ATOMIC_SEQ_CST);                    \
    checker->after_atomic(address, true, order);                                \
    return old;                                                                 \
  }
// A compare-exchange that will fail only reads; nothing can change the value in between.
#define SIMT_COMPARE_EXCHANGE(T, bits, kind)                                   \
  SIMT_HOOK int __tsan_atomic##bits##_compare_exchange_##kind(                 \
      volatile T* p, T* expected, T desired, int order, int failure_order) {   \
    T* const address = const_cast<T*>(p);                                      \
    const bool succeeds = *address == *expected;                               \
    const int used = succeeds ? order : failure_order;                         \
    checker->before_atomic(SIMT_PC, address, sizeof(T), true, succeeds, used); \
    if (succeeds)                                                              \
      *address = desired;                                                      \
    else                                                                       \
      *expected = *address;                                                    \
    checker->after_atomic(address, true, used);                                \
    return succeeds;                                                           \
  }
#define SIMT_ATOMIC(T, bits)                                                                   \
  SIMT_HOOK T __tsan_atomic##bits##_load(const volatile T* p, int order) {                     \
    T* const address = const_cast<T*>(p);                                                      \
    checker->before_atomic(SIMT_PC, address, sizeof(T), true, false, order);                   \
    const T value = *address;                                                                  \
    checker->after_atomic(address, true, order);                                               \
    return value;                                                                              \
  }                                                                                            \
  SIMT_HOOK void __tsan_atomic##bits##_store(volatile T* p, T value, int order) {              \
    T* const address = const_cast<T*>(p);                                                      \
    checker->before_atomic(SIMT_PC, address, sizeof(T), false, true, order);                   \
    *address = value;                                                                          \
  }                                                                                            \
  SIMT_UPDATE(T, bits, exchange, __atomic_exchange_n)                                          \
  SIMT_UPDATE(T, bits, fetch_add, __atomic_fetch_add)                                          \
  SIMT_UPDATE(T, bits, fetch_sub, __atomic_fetch_sub)                                          \
  SIMT_UPDATE(T, bits, fetch_and, __atomic_fetch_and)                                          \
  SIMT_UPDATE(T, bits, fetch_or, __atomic_fetch_or)                                            \
  SIMT_UPDATE(T, bits, fetch_xor, __atomic_fetch_xor)                                          \
  SIMT_COMPARE_EXCHANGE(T, bits, strong)                                                       \
  SIMT_COMPARE_EXCHANGE(T, bits, weak)                                                         \
  SIMT_HOOK T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T desired, \
                                                         int order, int failure_order) {       \
    T* const address = const_cast<T*>(p);                                                      \
    const T old = *address;                                                                    \
    const bool succeeds = old == expected;                                                     \
    const int used = succeeds ? order : failure_order;                                         \
    checker->before_atomic(SIMT_PC, address, sizeof(T), true, succeeds, used);                 \
    if (succeeds) *address = desired;                                                          \
    checker->after_atomic(address, true, used);                                                \
    return old;                                                                                \
  }
SIMT_ATOMIC(uint8_t, 8)
SIMT_ATOMIC(uint16_t, 16)
SIMT_ATOMIC(uint32_t, 32)
SIMT_ATOMIC(uint64_t, 64)
#undef SIMT_ATOMIC
#undef SIMT_COMPARE_EXCHANGE
#undef SIMT_UPDATE

SIMT_HOOK void __tsan_atomic_thread_fence(int) { checker->fence(); }

// ---- Alignment and array bounds. The layouts are those of the compilers' own run-time library.

namespace {

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};

struct TypeMismatch {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment, access_kind;
};

struct OutOfBounds {
  SourceLocation location;
  const TypeDescriptor *array_type, *index_type;
};

std::string text_of(const SourceLocation& location) {
  return std::string(location.file) + ":" + std::to_string(location.line);
}

}  // namespace

SIMT_HOOK void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data, const void* address) {
  checker->misaligned_at(text_of(data->location), address, size_t{1} << data->log_alignment);
}
SIMT_HOOK void __ubsan_handle_out_of_bounds(const OutOfBounds* data, intptr_t index) {
  checker->bad_index(text_of(data->location),
                     std::to_string(index) + " in an array of type " + data->array_type->name);
}
