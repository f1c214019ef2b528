// The emulator's twin of kernels/common/tiles.cuh: tiles of the CPU's vector registers.
#pragma once

#include "common/types.cuh"

// Registers are made of quads of 16 bytes, the register size that every CPU has. Items move fastest within a
// quad.
constexpr int kQuadBytes = 16;
#if defined(__AVX2__)
constexpr int kTileBytes = 32;
#else
constexpr int kTileBytes = 16;
#endif
constexpr int kLineBytes = 64;

// The widest register: mirroring it takes little longer than mirroring a narrow one.
#if defined(__AVX512BW__)
constexpr int kMirroredBytes = 64;
#else
constexpr int kMirroredBytes = kTileBytes;
#endif

template <class Item>
constexpr int kTileItems = kTileBytes / static_cast<int>(sizeof(Item));
template <class Item>
constexpr int kQuadItems = kQuadBytes / static_cast<int>(sizeof(Item));

template <class Item, int kBytes = kTileBytes>
struct TileRow {
  typedef Item Vector __attribute__((vector_size(kBytes)));  // which GCC ignores after `using`
};
template <int kBytes>
struct TileRow<Bits128, kBytes> {
  typedef UInt64 Vector __attribute__((vector_size(kBytes)));
};

// In every quad, the first items of `a` and `b` in turn, or if kFirst is half of their number, the last
// items.
template <class Item, int kFirst, size_t... kLanes>
__device__ __forceinline__ typename TileRow<Item>::Vector interleaved(
    typename TileRow<Item>::Vector a, typename TileRow<Item>::Vector b, SimtIndices<kLanes...>) {
#define CUDML_LANE                                                                          \
  (int(kLanes) / kQuadItems<Item> * kQuadItems<Item> + int(kLanes) % kQuadItems<Item> / 2 + \
   kFirst + int(kLanes) % 2 * kTileItems<Item>)
#if defined(__clang__)
  return __builtin_shufflevector(a, b, CUDML_LANE...);
#else
  return __builtin_shuffle(a, b, typename TileRow<Item>::Vector{Item(CUDML_LANE)...});
#endif
#undef CUDML_LANE
}

// Interleaving the first half of the rows with the second half transposes every quad after log2(number of
// rows) steps.
template <class Item>
__device__ __forceinline__ void transpose_quads(
    typename TileRow<Item>::Vector (&rows)[kQuadItems<Item>]) {
  constexpr int kItems = kQuadItems<Item>;
  const typename SimtMakeIndices<kTileItems<Item>>::type lanes;
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

// A quad, and with larger registers a second one, `pitch` bytes apart.
template <class Item>
__device__ __forceinline__ typename TileRow<Item>::Vector load_quads(const UInt8* source,
                                                                     Int64 pitch) {
#if defined(__AVX2__)
  using Half = int __attribute__((vector_size(kQuadBytes)));
  Half low, high;
  __builtin_memcpy(&low, source, kQuadBytes);
  __builtin_memcpy(&high, source + pitch, kQuadBytes);
#if defined(__clang__)
  const auto whole = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  const auto whole = __builtin_ia32_vinsertf128_si256(__builtin_ia32_si256_si(low), high, 1);
#endif
  return reinterpret_cast<typename TileRow<Item>::Vector>(whole);
#else
  typename TileRow<Item>::Vector quad;
  __builtin_memcpy(&quad, source, kQuadBytes);
  return quad;
#endif
}

template <class Item>
__device__ __forceinline__ void transpose_tile(UInt8* target, Int64 target_pitch,
                                               const UInt8* source, Int64 source_pitch) {
  constexpr int kItems = kQuadItems<Item>;
#pragma GCC unroll 2
  for (int q = 0; q < kTileBytes / kQuadBytes; ++q) {
    if constexpr (kItems == 1) {
      for (int r = 0; r < kTileItems<Item>; ++r) {
        __builtin_memcpy(target + q * target_pitch + r * kQuadBytes,
                         source + r * source_pitch + q * kQuadBytes, kQuadBytes);
      }
    } else {
      typename TileRow<Item>::Vector rows[kItems];
#pragma GCC unroll 16
      for (int r = 0; r < kItems; ++r) {
        rows[r] =
            load_quads<Item>(source + r * source_pitch + q * kQuadBytes, kItems * source_pitch);
      }
      transpose_quads<Item>(rows);
#pragma GCC unroll 16
      for (int r = 0; r < kItems; ++r) {
        __builtin_memcpy(target + (q * kItems + r) * target_pitch, &rows[r], kTileBytes);
      }
    }
  }
}

// A register: GCC compares and chooses wider vectors byte by byte.
constexpr int kRowBytes = kMirroredBytes;
typedef UInt8 ByteRow __attribute__((vector_size(kRowBytes)));

__device__ __forceinline__ ByteRow load_row(const UInt8* source) {
  ByteRow row;
  __builtin_memcpy(&row, source, kRowBytes);
  return row;
}
__device__ __forceinline__ void store_row(UInt8* target, ByteRow row) {
  __builtin_memcpy(target, &row, kRowBytes);
}
__device__ __forceinline__ ByteRow minus(UInt8 number, ByteRow row) { return number - row; }
__device__ __forceinline__ ByteRow less_one(ByteRow row) { return row - 1; }
__device__ __forceinline__ ByteRow with_bit(ByteRow row, int bit) {
  return reinterpret_cast<ByteRow>((row & static_cast<UInt8>(1 << bit)) != 0);
}
__device__ __forceinline__ ByteRow choose(ByteRow condition, ByteRow yes, ByteRow no) {
  return condition != 0 ? yes : no;
}
__device__ __forceinline__ ByteRow choose_above(ByteRow a, ByteRow b, ByteRow yes, ByteRow no) {
  return a > b ? yes : no;
}

constexpr int kCopiedBytes = 4 * kLineBytes;
__device__ __forceinline__ void copy_at_once(UInt8* target, const UInt8* source) {
  typedef UInt8 Register __attribute__((vector_size(kMirroredBytes)));
  constexpr int kRegisters = kCopiedBytes / kMirroredBytes;
  Register registers[kRegisters];
#pragma GCC unroll 16
  for (int i = 0; i < kRegisters; ++i) {
    __builtin_memcpy(&registers[i], source + i * kMirroredBytes, kMirroredBytes);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRegisters; ++i) {
    __builtin_memcpy(target + i * kMirroredBytes, &registers[i], kMirroredBytes);
  }
}

// The items of a vector in reverse order. A loop over the items would go through memory, where a wide load
// has to wait for narrow stores.
template <class Item, int kBytes, size_t... kLanes>
__device__ __forceinline__ typename TileRow<Item, kBytes>::Vector mirrored(
    typename TileRow<Item, kBytes>::Vector items, SimtIndices<kLanes...>) {
  constexpr int kItems = sizeof...(kLanes);
#if defined(__clang__)
  return __builtin_shufflevector(items, items, (kItems - 1 - int(kLanes))...);
#else
  return __builtin_shuffle(items,
                           typename TileRow<Item, kBytes>::Vector{Item(kItems - 1 - kLanes)...});
#endif
}

// kBytes of items at a place, mirrored: registers that are all loaded before any is stored.
template <class Item, int kBytes>
struct Mirrored {
  static constexpr bool kIsQuad = sizeof(Item) == kQuadBytes;
  static constexpr int kMostBytes = kIsQuad ? kQuadBytes : kMirroredBytes;
  static constexpr int kRegisterBytes = kBytes < kMostBytes ? kBytes : kMostBytes;
  static constexpr int kRegisters = kBytes / kRegisterBytes;
  using Vector = typename TileRow<Item, kRegisterBytes>::Vector;

  Vector registers[kRegisters];

  __device__ __forceinline__ explicit Mirrored(const UInt8* place) {
    const typename SimtMakeIndices<kRegisterBytes / sizeof(Item)>::type lanes;
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      Vector& items = registers[kRegisters - 1 - i];
      __builtin_memcpy(&items, place + i * kRegisterBytes, kRegisterBytes);
      if constexpr (!kIsQuad) items = mirrored<Item, kRegisterBytes>(items, lanes);
    }
  }

  __device__ __forceinline__ void store(UInt8* place) const {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      __builtin_memcpy(place + i * kRegisterBytes, &registers[i], kRegisterBytes);
    }
  }
};

// Exchanges blocks at both ends, mirrored, while there are two, and moves the ends towards each other.
template <class Item, int kBytes>
__device__ __forceinline__ void exchange_ends(UInt8*& begin, UInt8*& end) {
  for (; end - begin >= 2 * kBytes; begin += kBytes) {
    end -= kBytes;
    const Mirrored<Item, kBytes> first(begin), last(end);
    last.store(begin);
    first.store(end);
  }
}

// Items first, first + 1, ... of a lane whose first `num_reversed` items are in reverse order.
template <class Item, size_t... kLanes>
__device__ __forceinline__ typename TileRow<Item, kMirroredBytes>::Vector load_reversed(
    const UInt8* lane, Int64 first, Int64 num_reversed, SimtIndices<kLanes...>) {
  using Vector = typename TileRow<Item, kMirroredBytes>::Vector;
  constexpr Int64 kItemBytes = sizeof(Item), kItems = kMirroredBytes / kItemBytes;
  // The number of items to mirror, and at most a vector's; a compiler's maximum would be a branch.
  const Int64 rest = num_reversed - first;
  const Int64 num_here = rest & ~(rest >> 63);
  const Int64 excess = num_here - kItems;
  const Vector end = static_cast<Item>(kItems + (excess & excess >> 63)) - Vector{};
  Vector straight;
  __builtin_memcpy(&straight, lane + first * kItemBytes, kMirroredBytes);
  const Mirrored<Item, kMirroredBytes> reversed(lane + excess * kItemBytes);
  return Vector{Item(kLanes)...} < end ? reversed.registers[0] : straight;
}

template <class Item>
__device__ __forceinline__ void reverse_lane(UInt8* lane, Int64 num_items, Int64 lane_items) {
  UInt8* begin = lane;
  UInt8* end = lane + num_items * static_cast<Int64>(sizeof(Item));
  // A single loop, because no CPU predicts where a loop ends.
  exchange_ends<Item, kMirroredBytes>(begin, end);
  if constexpr (sizeof(Item) == kQuadBytes) {
    exchange_ends<Item, kQuadBytes>(begin, end);
  } else {
    // Fewer than two vectors are left.
    constexpr int kItems = kMirroredBytes / static_cast<int>(sizeof(Item));
    const typename SimtMakeIndices<kItems>::type lanes;
    const Int64 rest = (end - begin) / static_cast<Int64>(sizeof(Item));
    const auto low = load_reversed<Item>(begin, 0, rest, lanes);
    if (lane_items > kItems) {
      const auto high = load_reversed<Item>(begin, kItems, rest, lanes);
      __builtin_memcpy(begin + kMirroredBytes, &high, kMirroredBytes);
    }
    __builtin_memcpy(begin, &low, kMirroredBytes);
  }
}

__device__ __forceinline__ void stream_line(UInt8* target, const UInt8* source) {
#if defined(__x86_64__) && !defined(SIMT_CHECK)  // check mode does not see such stores
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
