// From a threshold to a list of the elements at or above it, and from a long list to a shorter one.
//
// The input is read once for each digit of the threshold and once for the list. If another stream changes it
// in between, there may be more elements than were counted: the rest is left out. If there are fewer, missing
// elements fill the list.
#pragma once

#include "common/block_scan.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Calls put(place, key, index) for missing elements of a part, in places [begin, end). They rank behind all
// others.
template <class Word, int kThreads, class Put>
__device__ __forceinline__ void put_missing(const RowPart<Word>& part, UInt32 begin, UInt32 end,
                                            Put put) {
  for (UInt64 i = static_cast<UInt64>(begin) + threadIdx.x; i < end; i += kThreads) {
    const UInt32 place = static_cast<UInt32>(i);
    // Indices behind the row's end, different from those of other parts.
    put(place, Word{0}, kFullMask - part.first_index - (place - begin));
  }
}

// As `put_missing`, but in places of a list.
template <class Word, int kThreads>
__device__ __forceinline__ void list_missing(const List<Word>& list, const RowPart<Word>& part,
                                             UInt32 begin, UInt32 end) {
  put_missing<Word, kThreads>(
      part, begin, end, [&](UInt32 place, Word key, UInt32 index) { list.put(place, key, index); });
}

// The index of a listed element; for a missing one, some index of the row.
__device__ __forceinline__ UInt32 index_in_row(const TopKParams& params, UInt32 index) {
  return min(index, static_cast<UInt32>(params.row_length - 1));
}

// Writes the listed element with this rank. The element of most keys is known without a load from any place
// of the row.
template <bool kIsRagged, class Word>
__device__ __forceinline__ void write_listed(Word key, UInt32 listed,
                                             const Word* __restrict__ input, Word* values,
                                             void* indices, const TopKParams& params,
                                             const RowStart& start, UInt32 length, Int64 rank) {
  const UInt32 index = index_in_row(params, listed);
  Word element;
  if (element_of_key(element, key, params) && index == listed) {
    write_element<kIsRagged>(element, index, length, values, indices, params, start, rank);
  } else {
    write_result<kIsRagged>(input, values, indices, params, start, length, rank, index);
  }
}

// As `row_length`, but the same for all threads of the block, because barriers may depend on it.
template <bool kIsRagged, int kThreads>
__device__ __forceinline__ Int64 block_row_length(const void* lengths, const TopKParams& params,
                                                  const RowStart& start,
                                                  SelectStorage<kThreads>& shared) {
  if constexpr (kIsRagged) {
    // Stored in the place of a digit, which no thread writes before the next barrier.
    if (threadIdx.x == 0) {
      shared.digit = static_cast<UInt32>(row_length<true>(lengths, params, start));
    }
    __syncthreads();  // thread 0 has stored the length before the others read it
    return shared.digit;
  } else {
    return row_length<false>(lengths, params, start);
  }
}

// Lists every element at or above the threshold, in any order. `expected` of them have been counted.
template <class Word, int kThreads>
__device__ __forceinline__ void list_in_any_order(const RowPart<Word>& row,
                                                  const TopKParams& params,
                                                  const Threshold<Word>& threshold, UInt32 expected,
                                                  const List<Word>& list,
                                                  SelectStorage<kThreads>& shared) {
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32 index) {
    if (threshold.high_part(key) >= threshold.prefix) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      if (place >= expected) return;
      list.put(place, key, index);
    }
  });
  __syncthreads();  // all are listed before they are counted
  list_missing<Word, kThreads>(list, row, shared.num_listed, expected);
  __syncthreads();  // the list is complete before it is read, and counted before the next begins
}

// Drops elements below the k-th key, as far as digits tell, from a list of at most kPerThread elements a
// thread. Returns the number that stays, at least k. After the next barrier, the list begins with these
// elements.
template <class Word, int kPerThread, int kThreads>
__device__ __forceinline__ UInt32 shorten_list(Threshold<Word> threshold, const RowPart<Word>& row,
                                               const List<Word>& list, UInt32 count, UInt32 k,
                                               UInt32 enough, SelectStorage<kThreads>& shared) {
  Word keys[kPerThread];
  UInt32 indices[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const UInt32 i = j * kThreads + threadIdx.x;
    keys[j] = i < count ? list.keys[i] : Word{0};
    indices[j] = i < count ? list.indices[i] : kFullMask;
  }
  while (threshold.num_above + threshold.num_equal > enough && !threshold.is_exact()) {
    search_digit(threshold, shared, [&](auto visit) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        if (indices[j] != kFullMask) visit(keys[j]);
      }
    });
  }
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear, and every thread has its elements in registers
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (indices[j] != kFullMask && threshold.high_part(keys[j]) >= threshold.prefix) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      list.put(place, keys[j], indices[j]);
    }
  }
  __syncthreads();  // all that stay are listed before they are counted
  const UInt32 num_staying = shared.num_listed;
  list_missing<Word, kThreads>(list, row, num_staying, k);
  return max(num_staying, k);
}
