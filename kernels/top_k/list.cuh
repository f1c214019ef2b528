// The list of a row's candidates, in shared or global storage.
#pragma once

#include "common/types.cuh"

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
};
