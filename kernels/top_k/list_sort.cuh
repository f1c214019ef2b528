// Sorts of a list by a block: a bitonic network, the fastest for a few hundred elements in shared storage,
// and a radix sort from the lowest digit, for lists of any length in shared or global memory.
#pragma once

#include "common/block_scan.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/threshold.cuh"

// Sorts the first `count` elements of a list in shared storage by rank. On return, every thread may read the
// list if it has more than 32 elements, else only the first warp.
template <class Word, int kThreads>
__device__ __forceinline__ void sort_by_network(const List<Word>& list, UInt32 count) {
  UInt32 size = 2;
  while (size < count) size *= 2;
  // Padding ranks behind every element, because no element has this index.
  for (UInt32 i = count + threadIdx.x; i < size; i += kThreads) {
    list.keys[i] = 0;
    list.indices[i] = kFullMask;
  }
  __syncthreads();  // all elements and the padding are written before the first exchange
  for (UInt32 run = 2; run <= size; run *= 2) {
    for (UInt32 distance = run / 2; distance > 0; distance /= 2) {
      for (UInt32 pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const UInt32 lower = 2 * pair - (pair & (distance - 1));
        const UInt32 upper = lower + distance;
        const Word lower_key = list.keys[lower];
        const Word upper_key = list.keys[upper];
        const UInt32 lower_index = list.indices[lower];
        const UInt32 upper_index = list.indices[upper];
        const bool upper_first =
            upper_key > lower_key || (upper_key == lower_key && upper_index < lower_index);
        if (upper_first == ((lower & run) == 0)) {
          list.keys[lower] = upper_key;
          list.keys[upper] = lower_key;
          list.indices[lower] = upper_index;
          list.indices[upper] = lower_index;
        }
      }
      // If the distance is 32 or less, the 32 pairs of a warp are in 64 consecutive elements, in this step
      // and in the next one, unless that starts a run of more than 64 elements. Else other warps read what
      // this warp has written.
      if (distance > kWarpSize || (distance == 1 && run >= 2 * kWarpSize)) {
        __syncthreads();  // exchanges of all warps are done before the next step reads the elements
      } else {
        __syncwarp();  // exchanges of this warp are done before its next step reads the elements
      }
    }
  }
}

// The radix sort. It is stable, so the list must be in the order of its indices. Each warp owns a stretch of
// the list. For each digit, the warps count their elements in separate bins, a prefix sum turns the counts
// into positions, and the elements move there.
template <int kThreads>
struct RadixSort {
  static constexpr int kWarps = kThreads / kWarpSize;
  // The bins of all warps fit the storage of the search's histogram.
  static constexpr int kBits = 7;
  static constexpr int kBins = 1 << kBits;
  static_assert(kBins * kWarps <= kNumBins, "the bins of all warps share the histogram's storage");

  SelectStorage<kThreads>& shared;
  Int64 begin;  // this warp's stretch of the list
  Int64 end;

  static __device__ __forceinline__ RadixSort of(SelectStorage<kThreads>& shared, UInt32 count) {
    const Int64 stretch = (count / kThreads + 1) * kWarpSize;
    const Int64 begin = threadIdx.x / kWarpSize * stretch;
    return {shared, min(static_cast<Int64>(count), begin),
            min(static_cast<Int64>(count), begin + stretch)};
  }

  // bins[digit * kWarps + warp] becomes the count of each warp's elements.
  template <class Word>
  __device__ __forceinline__ void count_digits(const List<Word>& from, int shift) const {
    for (int bin = threadIdx.x; bin < kBins * kWarps; bin += kThreads) shared.bins[bin] = 0;
    __syncthreads();  // bins are clear, and the last digit's moves are done
    const int warp = threadIdx.x / kWarpSize;
    for (Int64 i = begin + threadIdx.x % kWarpSize; i < end; i += kWarpSize) {
      atomicAdd(&shared.bins[falling_digit<kBits>(from.keys[i], shift) * kWarps + warp], 1);
    }
    __syncthreads();  // every element is counted before the bins are summed
  }

  // Turns counts into positions: by digit, then by warp.
  __device__ __forceinline__ void sum_counts() const {
    constexpr int kBinsPerThread = kBins * kWarps / kThreads;
    Bins& bins = shared.bins;
    const int first = threadIdx.x * kBinsPerThread;
    UInt32 num_here = 0;
    for (int i = 0; i < kBinsPerThread; ++i) num_here += bins[first + i];
    UInt32 total;
    UInt32 place = block_exclusive_sum<kThreads>(num_here, shared.warp_sums, total);
    for (int i = 0; i < kBinsPerThread; ++i) {
      const UInt32 num_in_bin = bins[first + i];
      bins[first + i] = place;
      place += num_in_bin;
    }
    __syncthreads();  // every place is known before elements move
  }

  // Moves the warp's elements to the positions in the bins.
  template <class Word>
  __device__ __forceinline__ void move(const List<Word>& from, const List<Word>& to,
                                       int shift) const {
    const int lane = threadIdx.x % kWarpSize;
    const int warp = threadIdx.x / kWarpSize;
    const UInt32 lanes_below = (1u << lane) - 1;
    for (Int64 first = begin; first < end; first += kWarpSize) {
      const Int64 i = first + lane;
      const bool is_element = i < end;
      const Word key = is_element ? from.keys[i] : Word{0};
      const UInt32 bin = is_element ? falling_digit<kBits>(key, shift) * kWarps + warp : kFullMask;
      UInt32 place = 0;
      const UInt32 peers = __match_any_sync(kFullMask, bin);
      if (is_element) place = shared.bins[bin] + __popc(peers & lanes_below);
      __syncwarp();  // every lane has read its bin before the bin's first lane advances it
      if (is_element && (peers & lanes_below) == 0) shared.bins[bin] += __popc(peers);
      __syncwarp();  // the bins are advanced before the next elements read them
      if (is_element) {
        to.keys[place] = key;
        to.indices[place] = from.indices[i];
      }
    }
  }
};

// Sorts `count` elements of `from` by rank. The returned list, one of the two, has the result; the other one
// is scratch.
template <class Word, int kThreads>
__device__ __forceinline__ List<Word> sort_by_radix(List<Word> from, List<Word> other, UInt32 count,
                                                    SelectStorage<kThreads>& shared) {
  using Sort = RadixSort<kThreads>;
  if (threadIdx.x == 0) shared.ones = shared.zeros = 0;
  __syncthreads();  // the list is complete and the bits are clear
  BitsSeen<Word> seen;
  for (Int64 i = threadIdx.x; i < count; i += kThreads) seen.add(from.keys[i]);
  seen.share(shared);
  __syncthreads();  // every warp has added its bits
  const UInt64 varying = shared.ones & shared.zeros;

  const Sort sort = Sort::of(shared, count);
  for (int shift = 0; shift < 8 * static_cast<int>(sizeof(Word)); shift += Sort::kBits) {
    if ((varying >> shift & (Sort::kBins - 1)) == 0) continue;
    sort.count_digits(from, shift);
    sort.sum_counts();
    sort.move(from, other, shift);
    __syncthreads();  // all elements have moved before the lists are swapped
    const List<Word> moved = other;
    other = from;
    from = moved;
  }
  return from;
}
