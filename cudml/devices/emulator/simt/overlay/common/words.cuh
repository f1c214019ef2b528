// The emulator's twin of kernels/common/words.cuh: a vector register of the CPU.
#pragma once

#include "common/types.cuh"

#if defined(__AVX512BW__)
constexpr int kWordsBytes = 64;
#elif defined(__AVX2__)
constexpr int kWordsBytes = 32;
#else
constexpr int kWordsBytes = 16;
#endif

// Types of a vector of words, and of the same bytes. GCC ignores the attribute after `using`.
template <int kWordBytes>
struct WordVectors;
#define CUDML_WORDS(kWordBytes, unsigned_word, signed_word)                   \
  template <>                                                                 \
  struct WordVectors<kWordBytes> {                                            \
    typedef unsigned_word Unsigned __attribute__((vector_size(kWordsBytes))); \
    typedef signed_word Signed __attribute__((vector_size(kWordsBytes)));     \
  };
CUDML_WORDS(1, UInt8, Int8)
CUDML_WORDS(2, UInt16, Int16)
CUDML_WORDS(4, UInt32, Int32)
CUDML_WORDS(8, UInt64, Int64)
#undef CUDML_WORDS
typedef char VectorBytes __attribute__((vector_size(kWordsBytes)));

template <class Word>
struct Words {
  using Vector = typename WordVectors<sizeof(Word)>::Unsigned;
  using Signed = typename WordVectors<sizeof(Word)>::Signed;
  static constexpr UInt32 kCount = kWordsBytes / sizeof(Word);

  Vector words;

  static __device__ __forceinline__ Words all(Word word) { return {word - Vector{}}; }
  static __device__ __forceinline__ Words load(const Word* from) {
    Words loaded;
    __builtin_memcpy(&loaded.words, from, sizeof(Vector));
    return loaded;
  }
  static __device__ __forceinline__ Words load(const Word* from, UInt32 count, Word rest) {
    if (count >= kCount) return load(from);
    Words loaded = all(rest);
#if defined(__AVX512BW__)
    const UInt64 bits = (UInt64{1} << count) - 1;
    const auto given = (Signed)loaded.words;
    if constexpr (sizeof(Word) == 1) {
      const auto bytes = (VectorBytes)given;
      loaded.words = (Vector)__builtin_ia32_loaddquqi512_mask((const char*)from, bytes, bits);
    } else if constexpr (sizeof(Word) == 2) {
      loaded.words = (Vector)__builtin_ia32_loaddquhi512_mask((const short*)from, given, bits);
    } else if constexpr (sizeof(Word) == 4) {
      loaded.words = (Vector)__builtin_ia32_loaddqusi512_mask((const int*)from, given, bits);
    } else {
      loaded.words = (Vector)__builtin_ia32_loaddqudi512_mask((const long long*)from, given, bits);
    }
#else
    for (UInt32 i = 0; i < count; ++i) loaded.words[i] = from[i];
#endif
    return loaded;
  }
  __device__ __forceinline__ void store(Word* to) const {
    __builtin_memcpy(to, &words, sizeof(Vector));
  }

  __device__ __forceinline__ Words operator^(Words other) const { return {words ^ other.words}; }
  __device__ __forceinline__ Words operator&(Words other) const { return {words & other.words}; }
  __device__ __forceinline__ Words operator+(Words other) const { return {words + other.words}; }
  __device__ __forceinline__ Words signs() const {
    return {(Vector)((Signed)words >> (8 * int(sizeof(Word)) - 1))};
  }
  __device__ __forceinline__ Words max(Words other) const {
    return {words > other.words ? words : other.words};
  }
  __device__ __forceinline__ Words min(Words other) const {
    return {words < other.words ? words : other.words};
  }
  __device__ __forceinline__ Words if_equal(Words other, Words yes, Words no) const {
    return {words == other.words ? yes.words : no.words};
  }
  __device__ __forceinline__ Words if_above(Words other, Words yes, Words no) const {
    return {words > other.words ? yes.words : no.words};
  }

  __device__ __forceinline__ Word largest() const {
    return largest_of(*this, typename SimtMakeIndices<kCount>::type());
  }
  __device__ __forceinline__ bool any_above(Words limit) const {
    return first_of((Vector)(words > limit.words)) < kCount;
  }
  __device__ __forceinline__ UInt32 first_reaching(Words limit) const {
    return first_of((Vector)(words >= limit.words));
  }

 private:
  // The place of the first word with its bits set; kCount if there is none. Each word has all bits set or
  // none.
  static __device__ __forceinline__ UInt32 first_of(Vector set) {
#if defined(__AVX512BW__)
    const UInt64 bits = __builtin_ia32_cvtb2mask512((VectorBytes)set);
    return bits == 0 ? kCount : __builtin_ctzll(bits) / sizeof(Word);
#elif defined(__AVX2__)
    const UInt32 bits = __builtin_ia32_pmovmskb256((VectorBytes)set);
    return bits == 0 ? kCount : __builtin_ctz(bits) / sizeof(Word);
#elif defined(__SSE2__)
    const UInt32 bits = __builtin_ia32_pmovmskb128((VectorBytes)set);
    return bits == 0 ? kCount : __builtin_ctz(bits) / sizeof(Word);
#else
    UInt32 i = 0;
    while (i < kCount && set[i] == 0) ++i;
    return i;
#endif
  }

  template <size_t... kPlaces>
  static __device__ __forceinline__ Word largest_of(Words all, SimtIndices<kPlaces...>) {
#if defined(__clang__)
#define CUDML_MOVED(distance) \
  __builtin_shufflevector(all.words, all.words, int(kPlaces ^ (distance))...)
#else
#define CUDML_MOVED(distance) __builtin_shuffle(all.words, Vector{Word(kPlaces ^ (distance))...})
#endif
    if constexpr (kCount > 32) all = all.max({CUDML_MOVED(32)});
    if constexpr (kCount > 16) all = all.max({CUDML_MOVED(16)});
    if constexpr (kCount > 8) all = all.max({CUDML_MOVED(8)});
    if constexpr (kCount > 4) all = all.max({CUDML_MOVED(4)});
    if constexpr (kCount > 2) all = all.max({CUDML_MOVED(2)});
    all = all.max({CUDML_MOVED(1)});
#undef CUDML_MOVED
    return all.words[0];
  }
};
