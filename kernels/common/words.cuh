// Words that a thread computes with at once: one on a GPU, where each lane is a thread. The emulator's file
// of the same name has a vector register of the CPU, with the same functions.
#pragma once

#include "common/types.cuh"

template <class Word>
struct Words {
  static constexpr UInt32 kCount = 1;

  Word word;

  static __device__ __forceinline__ Words all(Word word) { return {word}; }
  // The address need not be a multiple of more than a word's size.
  static __device__ __forceinline__ Words load(const Word* from) { return {*from}; }
  // At most `count` words, and then `rest`.
  static __device__ __forceinline__ Words load(const Word* from, UInt32 count, Word rest) {
    return {count == 0 ? rest : *from};
  }
  __device__ __forceinline__ void store(Word* to) const { *to = word; }

  __device__ __forceinline__ Words operator^(Words other) const { return all(word ^ other.word); }
  __device__ __forceinline__ Words operator&(Words other) const { return all(word & other.word); }
  __device__ __forceinline__ Words operator+(Words other) const { return all(word + other.word); }
  // All ones in the words whose uppermost bit is set, else 0.
  __device__ __forceinline__ Words signs() const {
    return all(static_cast<Word>(0 - (word >> (8 * sizeof(Word) - 1))));
  }
  __device__ __forceinline__ Words max(Words other) const {
    return word < other.word ? other : *this;
  }
  __device__ __forceinline__ Words min(Words other) const {
    return other.word < word ? other : *this;
  }
  // `yes` for each word that equals, or is above, the other; else `no`.
  __device__ __forceinline__ Words if_equal(Words other, Words yes, Words no) const {
    return word == other.word ? yes : no;
  }
  __device__ __forceinline__ Words if_above(Words other, Words yes, Words no) const {
    return word > other.word ? yes : no;
  }
  // The largest of all words.
  __device__ __forceinline__ Word largest() const { return word; }
  __device__ __forceinline__ bool any_above(Words limit) const { return word > limit.word; }
  // The place of the first word that is not below a limit; kCount if there is none.
  __device__ __forceinline__ UInt32 first_reaching(Words limit) const {
    return word >= limit.word ? 0 : kCount;
  }
};
