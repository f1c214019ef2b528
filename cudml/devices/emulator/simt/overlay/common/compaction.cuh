// The emulator's twin of kernels/common/compaction.cuh: with AVX-512 instructions, if there are any.
#pragma once

#if defined(__AVX512F__)
#include "common/types.cuh"

constexpr UInt32 kCompacted = 16;

template <class Item>
constexpr bool kCompactsAtOnce = sizeof(Item) == 4 || sizeof(Item) == 8;

template <class Item>
struct CompactedRegister {
  typedef Item Items __attribute__((vector_size(64)));  // which GCC ignores after `using`
  typedef int Words __attribute__((vector_size(64)));
  typedef long long Pairs __attribute__((vector_size(64)));
  static constexpr int kItems = 64 / int(sizeof(Item));
  static constexpr UInt32 kAll = (1u << kItems) - 1;
  static constexpr int kAbove = 6;  // the comparison "not less or equal"

  Items items;

  explicit __device__ __forceinline__ CompactedRegister(const Item* from) {
    __builtin_memcpy(&items, from, sizeof(items));
  }
  __device__ __forceinline__ UInt32 bits_above(Item limit) const {
    const Items limits = limit - Items{};
    if constexpr (sizeof(Item) == 4) {
      return __builtin_ia32_ucmpd512_mask((Words)items, (Words)limits, kAbove, kAll);
    } else {
      return __builtin_ia32_ucmpq512_mask((Pairs)items, (Pairs)limits, kAbove, kAll);
    }
  }
  __device__ __forceinline__ void store_where(Item* to, UInt32 bits) const {
    Items wanted;
    if constexpr (sizeof(Item) == 4) {
      wanted = (Items)__builtin_ia32_compresssi512_mask((Words)items, Words{}, bits);
    } else {
      wanted = (Items)__builtin_ia32_compressdi512_mask((Pairs)items, Pairs{}, bits);
    }
    __builtin_memcpy(to, &wanted, sizeof(wanted));
  }
};

template <class Key>
__device__ __forceinline__ UInt32 bits_above(const Key* keys, Key limit) {
  using Register = CompactedRegister<Key>;
  UInt32 bits = 0;
  for (UInt32 i = 0; i < kCompacted; i += Register::kItems) {
    bits |= Register(keys + i).bits_above(limit) << i;
  }
  return bits;
}

template <class Item>
__device__ __forceinline__ void store_where(Item* to, const Item* from, UInt32 bits) {
  using Register = CompactedRegister<Item>;
  for (UInt32 i = 0; i < kCompacted; i += Register::kItems) {
    const UInt32 here = bits >> i & Register::kAll;
    Register(from + i).store_where(to, here);
    to += __popc(here);
  }
}

#else
#include_next "common/compaction.cuh"
#endif
