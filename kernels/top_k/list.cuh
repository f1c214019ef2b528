// The list of a row's candidates, in shared or global storage.
#pragma once

#include "common/types.cuh"
#include "top_k/ranked.cuh"

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
