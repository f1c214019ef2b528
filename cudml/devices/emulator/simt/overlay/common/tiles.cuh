// The emulator's twin of kernels/common/tiles.cuh: tiles of 16-byte vector registers, which every CPU has.
#pragma once

#include "common/types.cuh"

constexpr int kTileBytes = 16;
constexpr int kLineBytes = 64;

template <class Item>
constexpr int kTileItems = kTileBytes / static_cast<int>(sizeof(Item));

template <class Item>
struct TileRow {
  typedef Item Vector __attribute__((vector_size(kTileBytes)));  // which GCC ignores after `using`
};

// The first items of `a` and `b` in turn, or with `first` = half of their number the last.
template <class Item, int kFirst, size_t... kLanes>
__device__ __forceinline__ typename TileRow<Item>::Vector interleaved(
    typename TileRow<Item>::Vector a, typename TileRow<Item>::Vector b, SimtIndices<kLanes...>) {
#define CUDML_LANE (int(kLanes) / 2 + kFirst + int(kLanes) % 2 * kTileItems<Item>)
#if defined(__clang__)
  return __builtin_shufflevector(a, b, CUDML_LANE...);
#else
  return __builtin_shuffle(a, b, typename TileRow<Item>::Vector{Item(CUDML_LANE)...});
#endif
#undef CUDML_LANE
}

// Interleaving the first half of the rows with the second as often as two divides their number transposes.
template <class Item>
__device__ __forceinline__ void transpose_rows(
    typename TileRow<Item>::Vector (&rows)[kTileItems<Item>]) {
  constexpr int kItems = kTileItems<Item>;
  const typename SimtMakeIndices<kItems>::type lanes;
  typename TileRow<Item>::Vector next[kItems];
#pragma GCC unroll 4
  for (int step = 1; step < kItems; step *= 2) {
#pragma GCC unroll 8
    for (int r = 0; r < kItems / 2; ++r) {
      next[2 * r] = interleaved<Item, 0>(rows[r], rows[r + kItems / 2], lanes);
      next[2 * r + 1] = interleaved<Item, kItems / 2>(rows[r], rows[r + kItems / 2], lanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kItems; ++r) rows[r] = next[r];
  }
}

template <class Item>
__device__ __forceinline__ void transpose_tile(UInt8* target, Int64 target_pitch,
                                               const UInt8* source, Int64 source_pitch) {
  constexpr int kItems = kTileItems<Item>;
  if constexpr (kItems == 1) {
    __builtin_memcpy(target, source, kTileBytes);
  } else {
    typename TileRow<Item>::Vector rows[kItems];
#pragma GCC unroll 16
    for (int r = 0; r < kItems; ++r) {
      __builtin_memcpy(&rows[r], source + r * source_pitch, kTileBytes);
    }
    transpose_rows<Item>(rows);
#pragma GCC unroll 16
    for (int r = 0; r < kItems; ++r) {
      __builtin_memcpy(target + r * target_pitch, &rows[r], kTileBytes);
    }
  }
}

// kBytes at a place, mirrored.
template <class Item, int kBytes>
struct Mirrored {
  static constexpr int kItems = kBytes / static_cast<int>(sizeof(Item));
  Item items[kItems];

  __device__ __forceinline__ explicit Mirrored(const UInt8* place) {
    Item straight[kItems];
    __builtin_memcpy(straight, place, kBytes);
    for (int k = 0; k < kItems; ++k) items[k] = straight[kItems - 1 - k];
  }
};

// Exchanges blocks at both ends, mirrored, while there are two, and moves the ends towards each other.
template <class Item, int kBytes>
__device__ __forceinline__ void exchange_ends(UInt8*& begin, UInt8*& end) {
  for (; end - begin >= 2 * kBytes; begin += kBytes) {
    end -= kBytes;
    const Mirrored<Item, kBytes> first(begin), last(end);
    __builtin_memcpy(begin, last.items, kBytes);
    __builtin_memcpy(end, first.items, kBytes);
  }
}

// Items first, first + 1, ... of a lane whose first `num_reversed` items are in reverse order.
template <class Item, size_t... kLanes>
__device__ __forceinline__ typename TileRow<Item>::Vector load_reversed(const UInt8* lane,
                                                                        Int64 first,
                                                                        Int64 num_reversed,
                                                                        SimtIndices<kLanes...>) {
  using Vector = typename TileRow<Item>::Vector;
  constexpr Int64 kItems = kTileItems<Item>, kItemBytes = sizeof(Item);
  // The number of items to mirror, and at most a vector's; a compiler's maximum would be a branch.
  const Int64 rest = num_reversed - first;
  const Int64 num_here = rest & ~(rest >> 63);
  const Int64 excess = num_here - kItems;
  const Vector end = static_cast<Item>(kItems + (excess & excess >> 63)) - Vector{};
  Vector straight, mirrored;
  __builtin_memcpy(&straight, lane + first * kItemBytes, kTileBytes);
  __builtin_memcpy(&mirrored, lane + excess * kItemBytes, kTileBytes);
#if defined(__clang__)
  mirrored = __builtin_shufflevector(mirrored, mirrored, (kTileItems<Item> - 1 - int(kLanes))...);
#else
  mirrored = __builtin_shuffle(mirrored, Vector{Item(kItems - 1 - kLanes)...});
#endif
  return Vector{Item(kLanes)...} < end ? mirrored : straight;
}

template <class Item>
__device__ __forceinline__ void reverse_lane(UInt8* lane, Int64 num_items) {
  UInt8* begin = lane;
  UInt8* end = lane + num_items * static_cast<Int64>(sizeof(Item));
  exchange_ends<Item, kLineBytes>(begin, end);
  exchange_ends<Item, kTileBytes>(begin, end);
  if constexpr (sizeof(Item) < kTileBytes) {
    // Fewer than two vectors are left. A loop over items would end where no CPU foresees it.
    const typename SimtMakeIndices<kTileItems<Item>>::type lanes;
    const Int64 rest = (end - begin) / static_cast<Int64>(sizeof(Item));
    const auto low = load_reversed<Item>(begin, 0, rest, lanes);
    const auto high = load_reversed<Item>(begin, kTileItems<Item>, rest, lanes);
    __builtin_memcpy(begin, &low, kTileBytes);
    __builtin_memcpy(begin + kTileBytes, &high, kTileBytes);
  }
}

__device__ __forceinline__ void stream_line(UInt8* target, const UInt8* source) {
#if defined(__x86_64__) && !defined(SIMT_CHECK)  // which does not see such stores
  using Words = long long __attribute__((vector_size(16)));
#pragma GCC unroll 4
  for (int b = 0; b < kLineBytes; b += 16) {
    Words words;
    __builtin_memcpy(&words, source + b, sizeof(words));
#if defined(__clang__)
    __builtin_nontemporal_store(words, reinterpret_cast<Words*>(target + b));
#else
    __builtin_ia32_movntdq(reinterpret_cast<Words*>(target + b), words);
#endif
  }
#else
  __builtin_memcpy(target, source, kLineBytes);
#endif
}

__device__ __forceinline__ void finish_streaming() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}
