// How a block reads a row: each element once, as its key and its index.
#pragma once

#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/rows.cuh"

// Word i of sixteen bytes, for an i known at compile time.
template <class Word>
__device__ __forceinline__ Word word_of(const uint4& bytes, int i) {
  constexpr int kPerPart = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;
  const UInt32 parts[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  if constexpr (sizeof(Word) == 8) {
    return static_cast<UInt64>(parts[2 * i + 1]) << 32 | parts[2 * i];
  } else {
    return static_cast<Word>(parts[i / kPerPart] >> (i % kPerPart * 8 * sizeof(Word)));
  }
}

// Word i of sixteen bytes, for any i.
template <class Word>
__device__ __forceinline__ Word any_word_of(const uint4& bytes, UInt32 i) {
  const UInt32 first_byte = i * sizeof(Word);
  const UInt64 low = static_cast<UInt64>(bytes.y) << 32 | bytes.x;
  const UInt64 high = static_cast<UInt64>(bytes.w) << 32 | bytes.z;
  return static_cast<Word>((first_byte < 8 ? low : high) >> (first_byte % 8 * 8));
}

// One row, or the part of one that starts at element `first_index`.
template <class Word>
struct RowPart {
  static constexpr UInt32 kPerLoad = 16 / sizeof(Word);
  // Loads of a thread that are in flight before the first is used.
  static constexpr UInt32 kLoadsAhead = sizeof(Word) == 1 ? 1 : 2;

  const Word* elements;
  Int64 stride;
  UInt32 length;
  UInt32 first_index;

  // Calls visit(key, index) for every element of the share of thread `thread` of kThreads, in no particular
  // order.
  template <int kThreads, UInt32 kAhead = kLoadsAhead, class Visit>
  __device__ __forceinline__ void visit(const TopKParams& params, UInt32 thread,
                                        Visit visit_element) const {
    const auto visit_words = [&](const uint4& bytes, UInt32 index) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
        visit_element(ordering_key(word_of<Word>(bytes, i), params), index + i);
      }
    };
    visit_loads<kThreads, kAhead>(params, thread, visit_words, visit_element);
  }

  // As `visit`, but calls visit_words(bytes, index of the first element) for each whole vector load.
  template <int kThreads, UInt32 kAhead, class VisitWords, class Visit>
  __device__ __forceinline__ void visit_loads(const TopKParams& params, UInt32 thread,
                                              VisitWords visit_words, Visit visit_element) const {
    UInt32 scalar_from = 0;  // [0, head) and [scalar_from, length) are not loaded as vectors
    UInt32 head = 0;
    if (stride == 1) {
      head = num_before_vectors();
      const UInt32 num_loads = (length - head) / kPerLoad;
      scalar_from = head + num_loads * kPerLoad;
      for (UInt32 load = thread; load < num_loads; load += kAhead * kThreads) {
        uint4 bytes[kAhead];
#pragma unroll
        for (UInt32 a = 0; a < kAhead; ++a) {
          const UInt32 next = load + a * kThreads;
          // Past the end, the last load is repeated and its result ignored.
          bytes[a] = load_16_bytes(elements + head + min(next, num_loads - 1) * kPerLoad);
        }
#pragma unroll
        for (UInt32 a = 0; a < kAhead; ++a) {
          const UInt32 next = load + a * kThreads;
          if (next < num_loads) {
            visit_words(bytes[a], first_index + head + next * kPerLoad);
          }
        }
      }
      if (thread < head) {
        visit_element(ordering_key(elements[thread], params), first_index + thread);
      }
    }
    // The length is below 2^32, but stepping past it must not wrap.
    for (UInt64 i = static_cast<UInt64>(scalar_from) + thread; i < length; i += kThreads) {
      const Word element = elements[static_cast<Int64>(i) * stride];
      visit_element(ordering_key(element, params), first_index + static_cast<UInt32>(i));
    }
  }

  // The number of elements before the first aligned load, if neighbours are adjacent.
  __device__ __forceinline__ UInt32 num_before_vectors() const {
    const UInt32 misaligned = static_cast<UInt32>(reinterpret_cast<UInt64>(elements) % 16);
    return min(length, (16 - misaligned) % 16 / static_cast<UInt32>(sizeof(Word)));
  }

  // The `count` elements from `begin` on.
  __device__ __forceinline__ RowPart stretch(UInt32 begin, UInt32 count) const {
    return {elements + static_cast<Int64>(begin) * stride, stride, count, first_index + begin};
  }

  // The elements of kLoads loads from `begin` on; those past the end are zero.
  template <UInt32 kLoads>
  __device__ __forceinline__ void load(UInt64 begin, uint4 (&bytes)[kLoads]) const {
    const bool is_whole = begin + kLoads * kPerLoad <= length;
    if (stride == 1 && is_whole && reinterpret_cast<UInt64>(elements + begin) % 16 == 0) {
#pragma unroll
      for (UInt32 i = 0; i < kLoads; ++i) {
        bytes[i] = load_16_bytes(elements + begin + i * kPerLoad);
      }
      return;
    }
#pragma unroll
    for (UInt32 i = 0; i < kLoads; ++i) bytes[i] = gather(begin + i * kPerLoad);
  }

 private:
  // The kPerLoad elements from `begin` on, one by one.
  __device__ __forceinline__ uint4 gather(UInt64 begin) const {
    UInt64 halves[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
      if (begin + i < length) {
        const UInt64 element = elements[static_cast<Int64>(begin + i) * stride];
        halves[i * sizeof(Word) / 8] |= element << (i * sizeof(Word) % 8 * 8);
      }
    }
    return make_uint4(static_cast<UInt32>(halves[0]), static_cast<UInt32>(halves[0] >> 32),
                      static_cast<UInt32>(halves[1]), static_cast<UInt32>(halves[1] >> 32));
  }
};
