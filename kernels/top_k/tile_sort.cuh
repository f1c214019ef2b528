// One digit of a radix sort of a list in global memory, from the lowest one, by several blocks.
//
// Each block owns a stretch of the list. A tile of it at a time is put in order in shared storage: elements
// of one digit are neighbours there, so that neighbouring threads write to neighbouring places of the list.
// The sort is stable, so the list must be in the order of its indices.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"

template <class Word, int kThreads>
struct TileSort {
  static constexpr int kBits = 8;
  static constexpr int kBins = 1 << kBits;
  static constexpr int kWarps = kThreads / kWarpSize;
  // The tile leaves room for the row's search in 64 KiB.
  static constexpr UInt32 kItemsPerThread = sizeof(Word) == 8 ? 4 : 8;
  static constexpr UInt32 kTile = kThreads * kItemsPerThread;
  // Whether the next tile's loads are in flight while a tile is ranked: for keys of 8 bytes, there are no
  // registers left.
  static constexpr bool kLoadsNext = sizeof(Word) < 8;

  struct Storage {
    SharedArray<Word, kTile> keys;
    SharedArray<UInt32, kTile> indices;
    // The number of each warp's elements with each digit; then their first place in the tile.
    SharedArray<UInt16, kWarps * kBins> bins;
    // Where the stretch's next element of a digit goes, and how far that is from its place in the tile.
    SharedArray<UInt32, kBins> places;
    SharedArray<UInt32, kBins> distances;
  };

  Storage& shared;
  SharedArray<UInt32, kThreads / kWarpSize>& warp_sums;
  UInt32 begin;  // of the block's stretch
  UInt32 end;

  // places[digit] becomes the number of the stretch's elements with the digit.
  __device__ __forceinline__ void count_digits(const Word* keys, int shift) const {
    for (int digit = threadIdx.x; digit < kBins; digit += kThreads) shared.places[digit] = 0;
    __syncthreads();  // the counts are clear before any is added to
    for (UInt32 first = begin + threadIdx.x; first < end; first += kTile) {
      // All loads of a tile are issued before any key is used.
      Word own[kItemsPerThread];
#pragma unroll
      for (UInt32 j = 0; j < kItemsPerThread; ++j) {
        const UInt32 i = first + j * kThreads;
        own[j] = i < end ? keys[i] : Word{0};
      }
#pragma unroll
      for (UInt32 j = 0; j < kItemsPerThread; ++j) {
        if (first + j * kThreads < end)
          atomicAdd(&shared.places[falling_digit<kBits>(own[j], shift)], 1);
      }
    }
    __syncthreads();  // every element is counted before the counts are read
  }

  // A thread's elements of a tile.
  struct Items {
    Word keys[kItemsPerThread];
    UInt32 indices[kItemsPerThread];
  };
  // For each element of a thread, the number of elements with the same digit before it in the warp.
  using Ranks = UInt32[kItemsPerThread];

  // Moves the stretch to the places of its digits. The places may be written right before: all threads meet
  // before the places are read.
  __device__ __forceinline__ void move(const List<Word>& from, const List<Word>& to,
                                       int shift) const {
    Items next;
    if constexpr (kLoadsNext) load_tile(next, from, begin, min(kTile, end - begin));
    for (UInt32 first = begin; first < end; first += kTile) {
      const UInt32 count = min(kTile, end - first);
      if constexpr (!kLoadsNext) load_tile(next, from, first, count);
      const Items items = next;
      const UInt32 after = first + count;
      if constexpr (kLoadsNext) load_tile(next, from, after, min(kTile, end - after));
      Ranks ranks;
      rank_tile(ranks, items, shift, count);
      write_tile(items, ranks, to, shift, count);
    }
  }

  // Loads the thread's elements of a tile.
  __device__ __forceinline__ void load_tile(Items& items, const List<Word>& from, UInt32 first,
                                            UInt32 count) const {
    const UInt32 num_loads = loads_of(count);
    const UInt32 own_first = first_of(num_loads);
    const UInt32 own_end = min(count, own_first + num_loads * kWarpSize);
    const Word* const keys = from.keys + first + own_first;
    const UInt32* const indices = from.indices + first + own_first;
#pragma unroll
    for (UInt32 j = 0; j < kItemsPerThread; ++j) {
      const bool is_element = own_first + j * kWarpSize < own_end;
      items.keys[j] = is_element ? keys[j * kWarpSize] : Word{0};
      items.indices[j] = is_element ? indices[j * kWarpSize] : 0;
    }
  }

  // Counts a tile's digits: `in_tile` tells them, and `write_tile` moves the elements.
  __device__ __forceinline__ void rank_tile(Ranks& ranks, const Items& items, int shift,
                                            UInt32 count) const {
    const UInt32 lane = threadIdx.x % kWarpSize;
    const UInt32 warp = threadIdx.x / kWarpSize;
    const UInt32 num_loads = loads_of(count);
    const UInt32 own_first = first_of(num_loads);
    UInt16* const own_bins = &shared.bins[warp * kBins];
    for (UInt32 digit = lane; digit < kBins; digit += kWarpSize) own_bins[digit] = 0;
    __syncwarp();  // the warp's bins are clear before it counts
#pragma unroll
    for (UInt32 j = 0; j < kItemsPerThread; ++j) {
      if (j >= num_loads) break;
      const bool is_element = own_first + j * kWarpSize < count;
      const UInt32 digit = is_element ? falling_digit<kBits>(items.keys[j], shift) : kFullMask;
      const UInt32 peers = __match_any_sync(kFullMask, digit);
      const UInt32 peers_below = peers & ((1u << lane) - 1);
      const UInt32 before = is_element ? UInt32{own_bins[digit]} : 0;
      ranks[j] = before + __popc(peers_below);
      __syncwarp();  // every lane has read its bin before the bin's first lane advances it
      if (is_element && peers_below == 0) {
        own_bins[digit] = static_cast<UInt16>(before + __popc(peers));
      }
      __syncwarp();  // the bins are advanced before the next elements read them
    }
    __syncthreads();  // every warp has counted before the bins are summed
    sum_bins();
  }

  // The number of a ranked tile's elements with a digit.
  __device__ __forceinline__ UInt32 in_tile(UInt32 digit, UInt32 count) const {
    const UInt32 next = digit + 1 < kBins ? UInt32{shared.bins[digit + 1]} : count;
    return next - shared.bins[digit];
  }

  // Moves a ranked tile to the places of its digits, and advances these.
  __device__ __forceinline__ void write_tile(const Items& items, const Ranks& ranks,
                                             const List<Word>& to, int shift, UInt32 count) const {
    if (threadIdx.x < kBins) {
      const UInt32 digit = threadIdx.x;
      shared.distances[digit] = shared.places[digit] - shared.bins[digit];
      shared.places[digit] += in_tile(digit, count);
    }
    const UInt32 warp = threadIdx.x / kWarpSize;
    const UInt32 own_first = first_of(loads_of(count));
    const UInt16* const own_bins = &shared.bins[warp * kBins];
#pragma unroll
    for (UInt32 j = 0; j < kItemsPerThread; ++j) {
      if (j >= loads_of(count) || own_first + j * kWarpSize >= count) break;
      const UInt32 place = own_bins[falling_digit<kBits>(items.keys[j], shift)] + ranks[j];
      shared.keys[place] = items.keys[j];
      shared.indices[place] = items.indices[j];
    }
    __syncthreads();  // the tile is in order before it is written, and the bins may be cleared
#pragma unroll 4
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      const Word key = shared.keys[i];
      const UInt32 place = shared.distances[falling_digit<kBits>(key, shift)] + i;
      to.keys[place] = key;
      to.indices[place] = shared.indices[i];
    }
  }

 private:
  // Loads of neighbours that each warp has of a tile, so that a short one is work for all warps.
  static __device__ __forceinline__ UInt32 loads_of(UInt32 count) {
    return (count + kThreads - 1) / kThreads;
  }

  // The first of the thread's elements of a tile. The others are a warp apart.
  static __device__ __forceinline__ UInt32 first_of(UInt32 num_loads) {
    return threadIdx.x / kWarpSize * num_loads * kWarpSize + threadIdx.x % kWarpSize;
  }

  // Turns the counts of a tile into places in it: by digit, then by warp.
  __device__ __forceinline__ void sum_bins() const {
    // Neighbouring threads share a digit, and each sums up the counts of neighbouring warps.
    constexpr UInt32 kWarpsPerThread = kWarps * kBins / kThreads;
    const UInt32 first = threadIdx.x * kWarpsPerThread;
    UInt16* const bins = &shared.bins[first % kWarps * kBins + first / kWarps];
    UInt32 counts[kWarpsPerThread];
    UInt32 num_here = 0;
#pragma unroll
    for (UInt32 w = 0; w < kWarpsPerThread; ++w) {
      counts[w] = bins[w * kBins];
      num_here += counts[w];
    }
    UInt32 total;
    UInt32 place = block_exclusive_sum<kThreads>(num_here, warp_sums, total);
#pragma unroll
    for (UInt32 w = 0; w < kWarpsPerThread; ++w) {
      bins[w * kBins] = static_cast<UInt16>(place);
      place += counts[w];
    }
    __syncthreads();  // all places are known before digits and elements take theirs
  }
};
