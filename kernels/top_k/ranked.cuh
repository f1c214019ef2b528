// A key and an index as one value in a total order: larger key first, then lower index. No two values are
// equal, so every sort and every selection gives the same result. Lists of them are in shared or global
// storage.
#pragma once

#include "common/copied_by_member.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"

// Words of 8 and 16 bits in rows of at most 65535 elements.
struct Ranked32 {
  UInt32 bits;

  static __device__ __forceinline__ Ranked32 of(UInt32 key, UInt32 index) {
    return {key << 16 | (0xffffu - index)};
  }
  // Ranks after every element, whatever its key: no index reaches 0xffff.
  static __device__ __forceinline__ Ranked32 none() { return {0}; }
  __device__ __forceinline__ UInt32 key() const { return bits >> 16; }
  __device__ __forceinline__ UInt32 index() const { return 0xffffu - (bits & 0xffffu); }
  __device__ __forceinline__ bool is_before(Ranked32 other) const { return bits > other.bits; }
  // Becomes the first of itself and `other`, or the last.
  __device__ __forceinline__ void keep(Ranked32 other, bool is_first) {
    bits = is_first ? max(bits, other.bits) : min(bits, other.bits);
  }
  __device__ __forceinline__ Ranked32 moved() const { return *this; }
  __device__ __forceinline__ Ranked32 from_lane_xor(int lanes) const {
    return {__shfl_xor_sync(kFullMask, bits, lanes)};
  }
};

// Words of 32 bits.
struct Ranked64 {
  UInt64 bits;

  static __device__ __forceinline__ Ranked64 of(UInt32 key, UInt32 index) {
    return {static_cast<UInt64>(key) << 32 | ~index};
  }
  static __device__ __forceinline__ Ranked64 none() { return {0}; }
  __device__ __forceinline__ UInt32 key() const { return static_cast<UInt32>(bits >> 32); }
  __device__ __forceinline__ UInt32 index() const { return ~static_cast<UInt32>(bits); }
  __device__ __forceinline__ bool is_before(Ranked64 other) const { return bits > other.bits; }
  // For an exchange under a condition, whose moves share out the work over the pipes. From the values
  // themselves, compilers make a maximum and a minimum, each with its own comparison.
  __device__ __forceinline__ Ranked64 moved() const {
    return {static_cast<UInt64>(computed_once(key())) << 32 |
            computed_once(static_cast<UInt32>(bits))};
  }
  __device__ __forceinline__ void keep(Ranked64 other, bool is_first) {
    if (other.is_before(*this) == is_first) *this = other;
  }
  __device__ __forceinline__ Ranked64 from_lane_xor(int lanes) const {
    return {__shfl_xor_sync(kFullMask, bits, lanes)};
  }
  __device__ __forceinline__ Ranked64 from_lane(int lane) const {
    return {__shfl_sync(kFullMask, bits, lane)};
  }
};

// Words of 64 bits.
struct Ranked96 {
  UInt64 whole_key;
  UInt32 backward_index;
  COPIED_BY_MEMBER(Ranked96, whole_key, backward_index)

  static __device__ __forceinline__ Ranked96 of(UInt64 key, UInt32 index) { return {key, ~index}; }
  static __device__ __forceinline__ Ranked96 none() { return {0, 0}; }
  __device__ __forceinline__ UInt64 key() const { return whole_key; }
  __device__ __forceinline__ UInt32 index() const { return ~backward_index; }
  __device__ __forceinline__ bool is_before(Ranked96 other) const {
    return whole_key > other.whole_key ||
           (whole_key == other.whole_key && backward_index > other.backward_index);
  }
  __device__ __forceinline__ Ranked96 moved() const { return *this; }
  __device__ __forceinline__ void keep(Ranked96 other, bool is_first) {
    if (other.is_before(*this) == is_first) *this = other;
  }
  __device__ __forceinline__ Ranked96 from_lane_xor(int lanes) const {
    return {__shfl_xor_sync(kFullMask, whole_key, lanes),
            __shfl_xor_sync(kFullMask, backward_index, lanes)};
  }
  __device__ __forceinline__ Ranked96 from_lane(int lane) const {
    return {__shfl_sync(kFullMask, whole_key, lane), __shfl_sync(kFullMask, backward_index, lane)};
  }
};

// 1 if `a` is before `b`, else 0, for a sum of ranks.
template <class Pair>
__device__ __forceinline__ UInt32 one_if_before(const Pair& a, const Pair& b) {
  return a.is_before(b) ? 1 : 0;
}
// A carry: two instructions with its sum, where a comparison takes three. For 64 bits, it would take more.
__device__ __forceinline__ UInt32 one_if_before(const Ranked32& a, const Ranked32& b) {
  return static_cast<UInt32>((static_cast<UInt64>(a.bits) + ~b.bits) >> 32);
}
// Without the branch that `is_before` may have where keys tie.
__device__ __forceinline__ UInt32 one_if_before(const Ranked96& a, const Ranked96& b) {
  const bool ties_before = (a.whole_key == b.whole_key) & (a.backward_index > b.backward_index);
  return (a.whole_key > b.whole_key) | ties_before ? 1 : 0;
}

template <int kBytes>
struct RankedOf {
  using Type = Ranked32;
};
template <>
struct RankedOf<4> {
  using Type = Ranked64;
};
template <>
struct RankedOf<8> {
  using Type = Ranked96;
};
template <class Word>
using Ranked = typename RankedOf<sizeof(Word)>::Type;
// Of rows of any length.
template <class Word>
using LongRanked = typename RankedOf<sizeof(Word) == 8 ? 8 : 4>::Type;

template <class Word>
struct List {
  Word* keys;
  UInt32* indices;

  // List number `number`, of `capacity` elements, in `storage`.
  static __device__ __forceinline__ List in(UInt8* storage, Int64 capacity, int number) {
    UInt8* begin = storage + number * capacity * static_cast<Int64>(sizeof(Word) + sizeof(UInt32));
    return {reinterpret_cast<Word*>(begin),
            reinterpret_cast<UInt32*>(begin + capacity * static_cast<Int64>(sizeof(Word)))};
  }
  __device__ __forceinline__ void put(UInt32 place, Word key, UInt32 index) const {
    keys[place] = key;
    indices[place] = index;
  }
  __device__ __forceinline__ void put(UInt32 place, const LongRanked<Word>& pair) const {
    put(place, pair.key(), pair.index());
  }
  __device__ __forceinline__ LongRanked<Word> at(UInt32 place) const {
    return LongRanked<Word>::of(keys[place], indices[place]);
  }
  __device__ __forceinline__ List from(UInt32 begin) const {
    return {keys + begin, indices + begin};
  }
};

// A list whose pairs are moved by one access each, if they are numbers of 64 bits.
template <class Word>
struct PairList : List<Word> {
  // In the storage of a list that was made by `List::in`.
  static __device__ __forceinline__ PairList in(const List<Word>& list) { return {list}; }
};
template <>
struct PairList<UInt32> {
  Ranked64* pairs;

  static __device__ __forceinline__ PairList in(const List<UInt32>& list) {
    return {reinterpret_cast<Ranked64*>(list.keys)};
  }
  __device__ __forceinline__ void put(UInt32 place, const Ranked64& pair) const {
    pairs[place] = pair;
  }
  __device__ __forceinline__ Ranked64 at(UInt32 place) const { return pairs[place]; }
  __device__ __forceinline__ PairList from(UInt32 begin) const { return {pairs + begin}; }
};
