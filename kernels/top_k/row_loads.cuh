// How a warp loads a row whose elements lie side by side, wherever it begins.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"

// A row as aligned loads of sixteen bytes. The first and the last may reach beyond it.
template <class Word>
struct RowLoads {
  static constexpr UInt32 kPerLoad = 16 / sizeof(Word);
  static constexpr Wide<Word> kElementMask = ~((Wide<Word>{1} << kSpareBits<Word>)-1);

  const Word* elements;
  UInt32 length;
  const FineParams& params;
  UInt32 skipped;  // elements by which the first load begins before the row

  __device__ __forceinline__ RowLoads(const Word* elements, Int64 length, const FineParams& params)
      : elements(elements), length(static_cast<UInt32>(length)), params(params) {
    skipped = static_cast<UInt32>(reinterpret_cast<UInt64>(elements) % 16 / sizeof(Word));
  }

  // The index of a load's first element. Before the row it wraps to an index beyond the row.
  __device__ __forceinline__ UInt32 first_of(UInt32 load) const {
    return load * kPerLoad - skipped;
  }
  __device__ __forceinline__ bool is_whole(UInt32 load) const {
    return load * kPerLoad >= skipped && (load + 1) * kPerLoad <= length + skipped;
  }

  // Elements outside of the row rank last.
  __device__ __forceinline__ uint4 padding() const {
    const UInt32 low = static_cast<UInt32>(params.padding);
    const UInt32 high = static_cast<UInt32>(params.padding >> 32);
    return make_uint4(low, high, low, high);
  }
  __device__ __forceinline__ uint4 load_whole(UInt32 load) const {
    return load_16_bytes(elements + static_cast<Int64>(load) * kPerLoad - skipped);
  }
  // A load at an end of the row: only elements of the row are read.
  __device__ __forceinline__ uint4 load_part(UInt32 load) const {
    constexpr UInt64 kElement = ~UInt64{0} >> (64 - 8 * sizeof(Word));
    UInt64 halves[2] = {params.padding, params.padding};
#pragma unroll
    for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
      const UInt32 index = first_of(load) + i;
      if (index < length) {
        constexpr int kPerHalf = 8 / sizeof(Word);
        const int shift = i % kPerHalf * 8 * static_cast<int>(sizeof(Word));
        UInt64& half = halves[i / kPerHalf];
        half = (half & ~(kElement << shift)) | static_cast<UInt64>(elements[index]) << shift;
      }
    }
    return make_uint4(static_cast<UInt32>(halves[0]), static_cast<UInt32>(halves[0] >> 32),
                      static_cast<UInt32>(halves[1]), static_cast<UInt32>(halves[1] >> 32));
  }

  // Neighbouring loads, at once if all are whole.
  template <UInt32 kCount>
  __device__ __forceinline__ void load_neighbours(UInt32 load, uint4 (&bytes)[kCount]) const {
    const bool are_whole = is_whole(load) && is_whole(load + kCount - 1);
#pragma unroll
    for (UInt32 a = 0; are_whole && a < kCount; ++a) bytes[a] = load_whole(load + a);
#pragma unroll
    for (UInt32 a = 0; !are_whole && a < kCount; ++a) {
      bytes[a] = is_whole(load + a) ? load_whole(load + a) : load_part(load + a);
    }
  }

  __device__ __forceinline__ Word key_of(Wide<Word> fine) const {
    return static_cast<Word>(coarse_key<Word>(fine & kElementMask, params) >> kSpareBits<Word>);
  }
  // The smallest key of elements that rank before those with a key, if there are any.
  __device__ __forceinline__ Word key_above(Word key) const {
    const Wide<Word> coarse = static_cast<Wide<Word>>(key) << kSpareBits<Word>;
    return static_cast<Word>(fine_key_above<Word>(coarse, params) >> kSpareBits<Word>);
  }
  // The key of zero, of floating-point numbers.
  __device__ __forceinline__ Wide<Word> zero() const {
    return static_cast<Wide<Word>>(params.other_zero) >> kSpareBits<Word>;
  }
  // The largest fine key of the words of a load.
  __device__ __forceinline__ Wide<Word> largest_fine(const uint4& bytes) const {
    Wide<Word> largest = 0;
#pragma unroll
    for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
      const Wide<Word> fine = fine_key<Word>(upper_word<Word>(bytes, i), params);
      largest = fine > largest ? fine : largest;
    }
    return largest;
  }
  __device__ __forceinline__ Word largest_of(const uint4& bytes) const {
    return key_of(largest_fine(bytes));
  }
};

// Loads of a thread, kAhead at once: load a is in chunk first + a * step, if that is before `end`. A chunk
// has one load for each lane of a warp.
template <class Word, UInt32 kAhead>
__device__ __forceinline__ void load_chunks(const RowLoads<Word>& row, UInt32 first, UInt32 step,
                                            UInt32 end, uint4 (&bytes)[kAhead]) {
  const UInt32 lane = threadIdx.x % kWarpSize;
  const auto load_of = [&](UInt32 a) { return (first + a * step) * kWarpSize + lane; };
#pragma unroll
  for (UInt32 a = 0; a < kAhead; ++a) {
    bytes[a] = row.padding();
    if (first + a * step < end && row.is_whole(load_of(a))) bytes[a] = row.load_whole(load_of(a));
  }
#pragma unroll
  for (UInt32 a = 0; a < kAhead; ++a) {
    if (first + a * step < end && !row.is_whole(load_of(a))) bytes[a] = row.load_part(load_of(a));
  }
}
