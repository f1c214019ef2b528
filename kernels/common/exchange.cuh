// Numbers that blocks of a running grid pass to each other. Each is in one word with the number of its
// exchange, so that the data is its own flag: no fence, no counter, one write and one read.
//
// Exchanges count from 1 in zeroed memory; two buffers take turns. A word has one writer and, in every block,
// one reader, which waits for the number of the exchange. A block writes exchange e + 2 over exchange e, when
// nobody may still wait for e. That holds if a block computes what it sends in e + 1 from everything that it
// reads of e, and what it sends in e + 2 from something of e + 1 of every block. A read of e that found e + 2
// would then be among its own causes, through dependent instructions, shared storage and words like these,
// but PTX's memory model has no values out of thin air. Barriers in between are only for the shared storage:
// no relaxed access has to be complete at a barrier. A thread's reads of one word also never go back from e +
// 2 to e (sequential consistency per location). Loading several words at once promises nothing beyond single
// words.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"

// A float, and the 32-bit number of its exchange.
struct TaggedFloats {
  using Word = UInt64;
  using Words = WordPair;
  using Value = float;
  static constexpr int kNumWords = 2;  // per load

  __device__ __forceinline__ static Words load(const Word* address) {
    return load_pair_relaxed(address);
  }
  __device__ __forceinline__ static Value value_of(float number) { return number; }
  __device__ __forceinline__ static Word word(Value value, UInt32 tag) {
    return static_cast<UInt64>(tag) << 32 | __float_as_uint(value);
  }
  // 0 if the word has the tag.
  __device__ __forceinline__ static UInt32 difference(Word word, UInt32 tag) {
    return static_cast<UInt32>(word >> 32) ^ tag;
  }
  // The values go to neighbouring places, the first of which is a multiple of kNumWords.
  __device__ __forceinline__ static void unpack(const Words& from, Value* to) {
    float2 floats;
    floats.x = __uint_as_float(static_cast<UInt32>(from.words[0]));
    floats.y = __uint_as_float(static_cast<UInt32>(from.words[1]));
    *reinterpret_cast<float2*>(to) = floats;
  }
};

// Two neighbouring values of a 16-bit floating-point type, and a tag of one bit in place of bit 14 of both.
// That bit of a number below 2 is 0, and states of a GRU are hardly ever larger. A word with other values has
// the tag in its lower half only, and its values are in words of their own, of TaggedFloats.
//
// An exchange has another tag than the one before it in the same buffer, or zeroed memory. This suffices if
// every word is sent in every exchange, and read by the same threads: these find exchange e or e - 2.
struct TaggedPairs {
  using Word = UInt32;
  static constexpr int kNumValues = 2;
  static constexpr UInt32 kTagBits = 0x40004000;
  // Bits of a word without its tag: it has not come; its values are in other words.
  static constexpr UInt32 kIsMissing = 0x4000;
  static constexpr UInt32 kIsElsewhere = 0x40000000;

  __device__ __forceinline__ static UInt32 tag_bits(UInt32 tag) {
    return ((tag + 1) & 2) * (kTagBits / 2);
  }
  __device__ __forceinline__ static bool fits(UInt32 values) { return (values & kTagBits) == 0; }
  __device__ __forceinline__ static Word word(UInt32 values, UInt32 tag) {
    return (fits(values) ? values : kIsElsewhere) ^ tag_bits(tag);
  }
};

// How the tags of the first `num_words` words differ; the other words are never sent. Without a branch,
// because it follows the load that all threads wait for.
template <class Format>
__device__ __forceinline__ UInt32 differences(const typename Format::Words& from, int num_words,
                                              UInt32 tag) {
  UInt32 found = 0;
#pragma unroll
  for (int i = 0; i < Format::kNumWords; ++i) {
    found |= i < num_words ? Format::difference(from.words[i], tag) : 0;
  }
  return found;
}
