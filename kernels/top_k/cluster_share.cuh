// How the blocks of a cluster share a row: each reads its part once, and again the few loads that matter.
// For few results, what a block finds goes to all blocks at once.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_loads.cuh"
#include "top_k/row_reader.cuh"

constexpr int kThreads = 512;
// Loads of a thread that are in flight at once, and how many of them are used at once.
constexpr UInt32 kAhead = 8;
constexpr UInt32 kAtOnce = 4;
// Most elements of all lists for a thread, and most results: half of them.
constexpr int kListedPerThread = 8;
constexpr UInt32 kMaxK = kListedPerThread * kThreads / 2;
// Most tops of a block.
constexpr UInt32 kMaxTops = kThreads / kWarpSize * kAtOnce;

// A block's share of a row that kBlocks blocks read, and the largest fine key of each of its loads.
template <class Word, UInt32 kBlocks>
struct Share {
  static constexpr UInt32 kPerLoad = RowLoads<Word>::kPerLoad;
  // Parts of a thread's loads. As many loads as there are parts reach the least of the parts' largest keys.
  static constexpr UInt32 kParts = kBlocks > 2 ? 8 / kBlocks : kAtOnce;
  static_assert(kParts * kThreads * kBlocks >= kMaxK, "a part for each load that is wanted");
  // The largest keys of a warp's parts are the tops.
  static constexpr UInt32 kNumTops = kThreads / kWarpSize * kParts;
  static_assert(kAtOnce % kParts == 0,
                "a load used at once with others is always in the same part");

  const RowLoads<Word>& row;
  Word* largest;
  UInt32 rank;       // of the block in its cluster
  UInt32 chunks;     // of 32 loads, which are dealt to the blocks in turn; at least one
  UInt32 num_loads;  // of the row

  __device__ __forceinline__ Share(const RowLoads<Word>& row, Word* largest, UInt32 rank)
      : row(row), largest(largest), rank(rank) {
    num_loads = (row.length + row.skipped + kPerLoad - 1) / kPerLoad;
    const UInt32 row_chunks = (num_loads + kWarpSize - 1) / kWarpSize;
    chunks = max(1u, (row_chunks + kBlocks - 1 - rank) / kBlocks);
  }

  // Loads of the share, some of them perhaps beyond the row.
  __device__ __forceinline__ UInt32 num_own() const { return chunks * kWarpSize; }
  // The load of the row at a place of the share, and back.
  __device__ __forceinline__ UInt32 load_at(UInt32 place) const {
    return (place / kWarpSize * kBlocks + rank) * kWarpSize + place % kWarpSize;
  }
  static __device__ __forceinline__ UInt32 place_of(UInt32 load) {
    return load / (kWarpSize * kBlocks) * kWarpSize + load % kWarpSize;
  }
  static __device__ __forceinline__ UInt32 part_of(UInt32 load) {
    return place_of(load) / kThreads % kParts;
  }
  __device__ __forceinline__ Word largest_word(const uint4& bytes) const {
    return static_cast<Word>(row.largest_fine(bytes) >> kSpareBits<Word>);
  }

  // The largest key of a load; where elements tie, the least of their keys.
  __device__ __forceinline__ Word largest_key(UInt32 place) const {
    return row.key_of(static_cast<Wide<Word>>(largest[place]) << kSpareBits<Word>);
  }

  // Reads the share; `own_largest`, 0 before, becomes the largest keys of the thread's parts.
  __device__ __forceinline__ void read(Wide<Word> (&own_largest)[kParts]) const {
    constexpr UInt32 kStep = kThreads * kBlocks;  // loads between two of a thread
    const UInt32 first_whole = row.skipped != 0 ? 1 : 0;
    const UInt32 end_whole = (row.length + row.skipped) / kPerLoad;
#pragma unroll 1
    for (UInt32 place = threadIdx.x; place / kWarpSize < chunks; place += kAhead * kThreads) {
      const UInt32 load = load_at(place);
      const Word* address = row.elements + static_cast<Int64>(load) * kPerLoad - row.skipped;
      const bool are_whole = load >= first_whole && load + (kAhead - 1) * kStep < end_whole;
      uint4 bytes[kAhead];
      if (__all_sync(kFullMask, are_whole ? 1 : 0) != 0) {
#pragma unroll
        for (UInt32 a = 0; a < kAhead; ++a) {
          bytes[a] = load_16_bytes(address + static_cast<Int64>(a) * kStep * kPerLoad);
        }
      } else {
#pragma unroll
        for (UInt32 a = 0; a < kAhead; ++a) {
          bytes[a] = row.padding();
          const UInt32 own = load + a * kStep;
          if (own >= first_whole && own < end_whole) {
            bytes[a] = load_16_bytes(address + static_cast<Int64>(a) * kStep * kPerLoad);
          }
        }
      }
      // In groups: the branch between groups keeps the first loads from being used only after the last has
      // arrived.
#pragma unroll
      for (UInt32 begin = 0; begin < kAhead; begin += kAtOnce) {
        if (place + begin * kThreads >= num_own()) break;  // the same for all lanes
#pragma unroll
        for (UInt32 i = 0; i < kAtOnce; ++i) {
          const UInt32 a = begin + i;
          const Word key = largest_word(bytes[a]);
          own_largest[i % kParts] = max(own_largest[i % kParts], static_cast<Wide<Word>>(key));
          if (place + a * kThreads < num_own()) largest[place + a * kThreads] = key;
        }
      }
    }
    const Wide<Word> of_first = read_part(0, first_whole != 0 || end_whole == 0);
    const Wide<Word> of_last = read_part(end_whole, end_whole != 0);
#pragma unroll
    for (UInt32 part = 0; part < kParts; ++part) {
      const Wide<Word> of_ends =
          max(part_of(0) == part ? of_first : 0, part_of(end_whole) == part ? of_last : 0);
      own_largest[part] = max(own_largest[part], of_ends);
    }
  }

  // Reads a load that may reach beyond the row, if it is the thread's; returns its largest key, or 0.
  __device__ __forceinline__ Wide<Word> read_part(UInt32 load, bool is_part) const {
    const UInt32 place = place_of(load);
    const bool is_own = load / kWarpSize % kBlocks == rank && place % kThreads == threadIdx.x;
    if (!is_part || !is_own || load >= num_loads) return 0;
    largest[place] = largest_word(row.load_part(load));
    return largest[place];
  }

  // Calls visit(keys, place of the first) for the largest keys of kAtOnce of the thread's loads, which are
  // kThreads apart. Some may be beyond the share.
  template <class Visit>
  __device__ __forceinline__ void for_each_largest(Visit visit) const {
#pragma unroll 1
    for (UInt32 place = threadIdx.x; place < num_own(); place += kAtOnce * kThreads) {
      Word keys[kAtOnce];
#pragma unroll
      for (UInt32 a = 0; a < kAtOnce; ++a) {
        keys[a] = largest[min(place + a * kThreads, num_own() - 1)];
      }
      visit(keys, place);
    }
  }

  // The bits of a load's elements whose fine keys are at least a floor.
  __device__ __forceinline__ UInt32 passing(UInt32 load, const uint4& bytes,
                                            Wide<Word> fine_floor) const {
    UInt32 bits = 0;
#pragma unroll
    for (int j = 0; j < static_cast<int>(kPerLoad); ++j) {
      const Wide<Word> fine = fine_key<Word>(upper_word<Word>(bytes, j), row.params);
      if (fine >= fine_floor) bits |= 1u << j;
    }
    // Only a load at an end of the row, or beyond it, has elements outside the row.
    if (!row.is_whole(load)) {
#pragma unroll
      for (UInt32 j = 0; j < kPerLoad; ++j) {
        if (row.first_of(load) + j >= row.length) bits &= ~(1u << j);
      }
    }
    return bits;
  }

  // Calls look(load, its bytes, bits of the elements at or above the floor) for each load at `places` that
  // has such elements, if matters(place) is true. A thread gets every kThreads-th place.
  template <class Matters, class Look>
  __device__ __forceinline__ void for_each_load(const UInt16* places, UInt32 count, Word floor,
                                                Matters matters, Look look) const {
    const Wide<Word> fine_floor = static_cast<Wide<Word>>(floor) << kSpareBits<Word>;
#pragma unroll 1
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      if (!matters(places[i])) continue;
      const UInt32 load = load_at(places[i]);
      const uint4 bytes = row.is_whole(load) ? row.load_whole(load) : row.load_part(load);
      const UInt32 bits = passing(load, bytes, fine_floor);
      if (bits != 0) look(load, bytes, bits);
    }
  }

  // Calls visit(key, index) for the elements of a load whose bits are set.
  template <class Visit>
  __device__ __forceinline__ void visit_elements(UInt32 load, const uint4& bytes, UInt32 passing,
                                                 Visit visit) const {
#pragma unroll 1
    for (; passing != 0; passing &= passing - 1) {
      const UInt32 i = static_cast<UInt32>(__ffs(static_cast<int>(passing)) - 1);
      const Wide<Word> bits = static_cast<Wide<Word>>(any_word_of<Word>(bytes, i))
                              << kSpareBits<Word>;
      visit(row.key_of(fine_key<Word>(bits, row.params)), row.first_of(load) + i);
    }
  }
};

// Most results for which the candidates go to all blocks at once.
constexpr UInt32 kMaxFewResults = 64;
// Elements of a list.
constexpr UInt32 kFewPlaces = 256;

struct FewStorage {
  SharedArray<UInt64, kFewPlaces * 3 / 2> list;
  SharedArray<UInt32, 8> lacks;  // by block: 1 if some of its candidates are not in the list
  UInt32 num_found;              // candidates of this block
};

// The candidates of all blocks of a cluster, in the storage of each, where the block ranks its own. Nothing
// is read from another block, so no block waits for the others at its end. Bytes have few keys, so that too
// many of them tie with the last result.
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
