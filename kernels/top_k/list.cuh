// The list of a row's candidates, in shared or global storage, and two ways to put it in order.
//
// The network needs a power of two in shared storage and orders (key, index) pairs, whatever order
// they come in: best for some hundreds. The radix sort is stable, so its input is in the order of
// the indices; it alternates between two lists.
#pragma once

#include "common/block_scan.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/threshold.cuh"

template <class Word>
struct List {
  Word* keys;
  UInt32* indices;

  // `number`-th list of `capacity` elements in `storage`.
  static __device__ __forceinline__ List in(UInt8* storage, Int64 capacity, int number) {
    UInt8* begin = storage + number * capacity * static_cast<Int64>(sizeof(Word) + sizeof(UInt32));
    return {reinterpret_cast<Word*>(begin),
            reinterpret_cast<UInt32*>(begin + capacity * static_cast<Int64>(sizeof(Word)))};
  }
};

// Sorts the first `count` elements, in shared storage, into the order of rank.
template <class Word, int kThreads>
__device__ __forceinline__ void sort_by_network(const List<Word>& list, UInt32 count) {
  UInt32 size = 2;
  while (size < count) size *= 2;
  // Padding ranks behind every element: no element has this index.
  for (UInt32 i = count + threadIdx.x; i < size; i += kThreads) {
    list.keys[i] = 0;
    list.indices[i] = kFullMask;
  }
  __syncthreads();  // the list and its padding are complete before they are exchanged
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
      // A warp's 32 pairs lie in 64 neighbouring elements where the distance is 32 or less, in this
      // step and the next alike; above that, other warps read what this one wrote.
      if (distance > kWarpSize || (distance == 1 && run >= 2 * kWarpSize)) {
        __syncthreads();  // exchanges across warps are done before the next step reads them
      } else {
        __syncwarp();  // as above, within the warp
      }
    }
  }
  __syncthreads();  // the sorted list is complete before it is read
}

// Sorts `count` elements of `from`, which are in the order of their indices, into the order of
// rank. The result lies in the list returned; `other` is the scratch. No thread reads it before a
// barrier.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ List<Word> sort_by_radix(List<Word> from, List<Word> other, UInt32 count,
                                                    SelectStorage<kThreads, kLanes>& shared) {
  constexpr int kWarps = kThreads / kLanes;
  // A warp counts in bins of its own; the bins of all warps fit where the histogram was.
  constexpr int kSortBits = kLanes == 1 ? 8 : 7;
  constexpr int kSortBins = 1 << kSortBits;
  static_assert(kSortBins * kWarps <= kNumBins,
                "the bins of all warps share the histogram's storage");
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  const UInt32 lanes_below = (1u << lane) - 1;
  // Each warp has a stretch of the list, a multiple of its lanes long.
  const Int64 stretch = (static_cast<Int64>(count) / kThreads + 1) * kLanes;
  const Int64 begin = min(static_cast<Int64>(count), warp * stretch);
  const Int64 end = min(static_cast<Int64>(count), begin + stretch);

  if (threadIdx.x == 0) shared.varying = 0;
  __syncthreads();  // the list is complete and `varying` is clear
  UInt64 varying = 0;
  for (Int64 i = threadIdx.x; i < count; i += kThreads) {
    varying |= static_cast<Wide<Word>>(from.keys[i] ^ from.keys[0]);
  }
  if (varying != 0) atomicOr(&shared.varying, varying);
  __syncthreads();  // every thread's bits are in
  varying = shared.varying;

  for (int shift = 0; shift < 8 * static_cast<int>(sizeof(Word)); shift += kSortBits) {
    if ((varying >> shift & (kSortBins - 1)) == 0) continue;
    // The digit of the complement: the largest key comes first.
    const auto digit_of = [&](Word key) {
      return static_cast<UInt32>(~static_cast<Wide<Word>>(key) >> shift) & (kSortBins - 1);
    };
    for (int bin = threadIdx.x; bin < kSortBins * kWarps; bin += kThreads) shared.bins[bin] = 0;
    __syncthreads();  // bins are clear, and the last round's moves are done
    for (Int64 i = begin + lane; i < end; i += kLanes) {
      UInt32& bin = shared.bins[digit_of(from.keys[i]) * kWarps + warp];
      if constexpr (kLanes == 1) {
        ++bin;
      } else {
        atomicAdd(&bin, 1);
      }
    }
    __syncthreads();  // every count is in before the bins are summed

    // From counts to places: digit by digit, and within a digit warp by warp.
    constexpr int kBinsPerThread = kSortBins * kWarps / kThreads;
    UInt32* bins = shared.bins + threadIdx.x * kBinsPerThread;
    UInt32 num_here = 0;
    for (int i = 0; i < kBinsPerThread; ++i) num_here += bins[i];
    UInt32 total;
    UInt32 place = block_exclusive_sum<kThreads, kLanes>(num_here, shared.warp_sums, total);
    for (int i = 0; i < kBinsPerThread; ++i) {
      const UInt32 num_in_bin = bins[i];
      bins[i] = place;
      place += num_in_bin;
    }
    __syncthreads();  // every place is known before elements move

    for (Int64 first = begin; first < end; first += kLanes) {
      const Int64 i = first + lane;
      if constexpr (kLanes == 1) {
        const Word key = from.keys[i];
        const UInt32 to = shared.bins[digit_of(key)]++;
        other.keys[to] = key;
        other.indices[to] = from.indices[i];
      } else {
        const bool is_element = i < end;
        const Word key = is_element ? from.keys[i] : Word{0};
        const UInt32 bin = is_element ? digit_of(key) * kWarps + warp : kFullMask;
        const UInt32 peers = __match_any_sync(kFullMask, bin);
        UInt32 to = 0;
        if (is_element) to = shared.bins[bin] + __popc(peers & lanes_below);
        __syncwarp();  // every lane has read its bin before the first of its peers moves it on
        if (is_element) {
          if ((peers & lanes_below) == 0) shared.bins[bin] += __popc(peers);
          other.keys[to] = key;
          other.indices[to] = from.indices[i];
        }
        __syncwarp();  // the bins have moved on before the next elements read them
      }
    }
    __syncthreads();  // all elements have moved before the lists change places
    const List<Word> moved = other;
    other = from;
    from = moved;
  }
  return from;
}
