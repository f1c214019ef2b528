// The last steps of a cluster with few results: each block puts what it finds into a list of every block, and
// ranks it there. Nothing is read from another block afterwards, so no block waits for the others at its end.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/cluster_share.cuh"
#include "top_k/counted_rank.cuh"
#include "top_k/list.cuh"
#include "top_k/ranked.cuh"

// Most results for which the candidates go to all blocks at once.
constexpr UInt32 kMaxFewResults = 64;
// Elements of a list.
constexpr UInt32 kFewPlaces = 256;

struct FewStorage {
  SharedArray<UInt64, kFewPlaces * 3 / 2> list;
  SharedArray<UInt32, 8> lacks;  // by block: 1 if some of its candidates are not in the list
  UInt32 num_found;              // candidates of this block
};

// The candidates of all blocks of a cluster, in the storage of each. Bytes have few keys, so that too many of
// them tie with the last result.
template <class Word, UInt32 kBlocks>
struct FewResults {
  static constexpr bool kCanBe = kBlocks > 1 && sizeof(Word) > 1;
  static constexpr UInt32 kPlaces = kFewPlaces / kBlocks;  // of a block
  static constexpr UInt32 kPerLane = kFewPlaces / kWarpSize;
  static_assert(kFewPlaces <= kThreads, "a thread empties one place");

  FewStorage& storage;
  UInt32 rank;  // of the block in its cluster

  __device__ __forceinline__ List<Word> list() const {
    return List<Word>::in(reinterpret_cast<UInt8*>(&storage.list), kFewPlaces, 0);
  }

  // Empties this block's list. A barrier of the cluster has to follow before any block adds to it.
  __device__ __forceinline__ void clear() const {
    if (threadIdx.x < kFewPlaces) list().put(threadIdx.x, LongRanked<Word>::none());
    if (threadIdx.x < kBlocks) storage.lacks[threadIdx.x] = 0;
    if (threadIdx.x == 0) storage.num_found = 0;
  }

  // Puts the elements at or above `floor` of the block's loads at `places` into the lists of all blocks. All
  // blocks of the cluster call; returns whether each had enough places.
  __device__ __forceinline__ bool fill(const Share<Word, kBlocks>& share, const UInt16* places,
                                       UInt32 num_loads, Word floor) const {
    const List<Word> here = list().from(rank * kPlaces);
    const auto tell_lack = [&] {
#pragma unroll
      for (UInt32 block = 0; block < kBlocks; ++block) {
        *map_shared(&storage.lacks[rank], block) = 1;
      }
    };
    // Each load has an element that reaches the floor.
    if (num_loads > kPlaces) {
      if (threadIdx.x == 0) tell_lack();
    } else {
      share.for_each_load(
          places, num_loads, floor, [](UInt32) { return true; },
          [&](UInt32 load, const uint4& bytes, UInt32 bits) {
            const UInt32 count = static_cast<UInt32>(__popc(bits));
            UInt32 place = atomicAdd(&storage.num_found, count);
            if (place <= kPlaces && place + count > kPlaces) tell_lack();  // one thread
            share.visit_elements(load, bytes, bits, [&](Word key, UInt32 index) {
              if (place >= kPlaces) return;
#pragma unroll
              for (UInt32 block = 0; block < kBlocks; ++block) {
                *map_shared(here.keys + place, block) = key;
                *map_shared(here.indices + place, block) = index;
              }
              ++place;
            });
          });
    }
    cluster_barrier();  // every block has put its candidates into all lists before they are read
    return __any_sync(kFullMask, static_cast<int>(storage.lacks[threadIdx.x % kBlocks])) == 0;
  }

  // Calls write(rank, key, index) in one of the blocks for each of the first k elements.
  template <class Write>
  __device__ __forceinline__ void write_first(UInt32 k, Write write) const {
    const UInt32 lane = threadIdx.x % kWarpSize;
    const UInt32 warp = threadIdx.x / kWarpSize;
    const List<Word> own = list().from(rank * kPlaces);
    LongRanked<Word> pairs[kPerLane];
#pragma unroll
    for (UInt32 j = 0; j < kPerLane; ++j) pairs[j] = list().at(j * kWarpSize + lane);
    rank_by_warps<Word, kThreads>(pairs, own, storage.num_found, k, write);
    // Behind a row's elements, results are missing.
    if (rank != 0 || warp != kThreads / kWarpSize - 1) return;
    UInt32 num_here = 0;
#pragma unroll
    for (UInt32 j = 0; j < kPerLane; ++j) num_here += pairs[j].index() != kFullMask ? 1 : 0;
    for (UInt32 i = warp_sum(num_here) + lane; i < k; i += kWarpSize) write(i, 0, kFullMask);
  }
};
