// How the blocks of a cluster read a row: each its share, once, into its shared storage.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/bucket_rank.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/row_loads.cuh"

constexpr int kThreads = 512;
// Loads of a thread that are in flight at once, and how many of them are used at once.
constexpr UInt32 kAhead = 8;
constexpr UInt32 kAtOnce = 4;

// A block's share of a row that kBlocks blocks keep: where it is kept, and the largest fine key of each load.
template <class Word, UInt32 kBlocks>
struct Share {
  static constexpr UInt32 kPerLoad = RowLoads<Word>::kPerLoad;

  const RowLoads<Word>& row;
  uint4* kept;
  Word* largest;
  UInt32 rank;       // of the block in its cluster
  UInt32 chunks;     // of 32 loads, which are dealt to the blocks in turn; at least one
  UInt32 num_loads;  // of the row

  __device__ __forceinline__ Share(const RowLoads<Word>& row, uint4* kept, Word* largest,
                                   UInt32 rank)
      : row(row), kept(kept), largest(largest), rank(rank) {
    num_loads = (row.length + row.skipped + kPerLoad - 1) / kPerLoad;
    const UInt32 row_chunks = (num_loads + kWarpSize - 1) / kWarpSize;
    chunks = max(1u, (row_chunks + kBlocks - 1 - rank) / kBlocks);
  }

  // Loads that are kept, some of them perhaps beyond the row.
  __device__ __forceinline__ UInt32 num_kept() const { return chunks * kWarpSize; }
  // The load of the row at a place among those kept, and back.
  __device__ __forceinline__ UInt32 load_at(UInt32 place) const {
    return (place / kWarpSize * kBlocks + rank) * kWarpSize + place % kWarpSize;
  }
  static __device__ __forceinline__ UInt32 place_of(UInt32 load) {
    return load / (kWarpSize * kBlocks) * kWarpSize + load % kWarpSize;
  }
  __device__ __forceinline__ Word largest_word(const uint4& bytes) const {
    return static_cast<Word>(row.largest_fine(bytes) >> kSpareBits<Word>);
  }

  // Reads it, and adds the bounds of the threads' largest keys.
  __device__ __forceinline__ void read(KeyBounds& bounds) const {
    constexpr UInt32 kStep = kThreads * kBlocks;  // loads between two of a thread
    const UInt32 first_whole = row.skipped != 0 ? 1 : 0;
    const UInt32 end_whole = (row.length + row.skipped) / kPerLoad;
    Wide<Word> own_largest = 0;
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
      // Some at once: a branch between them keeps the first from being used after the last has arrived.
#pragma unroll
      for (UInt32 begin = 0; begin < kAhead; begin += kAtOnce) {
        if (place + begin * kThreads >= num_kept()) break;  // the same for all lanes
#pragma unroll
        for (UInt32 a = begin; a < begin + kAtOnce; ++a) {
          const Word key = largest_word(bytes[a]);
          own_largest = max(own_largest, static_cast<Wide<Word>>(key));
          if (place + a * kThreads < num_kept()) {
            kept[place + a * kThreads] = bytes[a];
            largest[place + a * kThreads] = key;
          }
        }
      }
    }
    own_largest = max(own_largest, read_part(0, first_whole != 0 || end_whole == 0));
    own_largest = max(own_largest, read_part(end_whole, end_whole != 0));
    const Word complement = static_cast<Word>(~static_cast<Word>(own_largest));
    bounds.add<Word>(own_largest, threadIdx.x < num_kept() ? complement : Word{0});
  }

  // Reads a load that may reach beyond the row, if it is the thread's; returns its largest key, or 0.
  __device__ __forceinline__ Wide<Word> read_part(UInt32 load, bool is_part) const {
    const UInt32 place = place_of(load);
    const bool is_own = load / kWarpSize % kBlocks == rank && place % kThreads == threadIdx.x;
    if (!is_part || !is_own || load >= num_loads) return 0;
    kept[place] = row.load_part(load);
    largest[place] = largest_word(kept[place]);
    return largest[place];
  }

  // Calls visit(keys, place of the first) for the largest keys of kAtOnce of the thread's loads, which are
  // kThreads apart. Some may be beyond those kept.
  template <class Visit>
  __device__ __forceinline__ void for_each_largest(Visit visit) const {
#pragma unroll 1
    for (UInt32 place = threadIdx.x; place < num_kept(); place += kAtOnce * kThreads) {
      Word keys[kAtOnce];
#pragma unroll
      for (UInt32 a = 0; a < kAtOnce; ++a) {
        keys[a] = largest[min(place + a * kThreads, num_kept() - 1)];
      }
      visit(keys, place);
    }
  }

  // Calls look(place, bits of the elements that are at least the floor) for each of the loads at `places`
  // that has any; a thread gets every kThreads-th.
  template <class Look>
  __device__ __forceinline__ void for_each_load(const UInt16* places, UInt32 count, Word floor,
                                                Look look) const {
    const Wide<Word> fine_floor = static_cast<Wide<Word>>(floor) << kSpareBits<Word>;
#pragma unroll 1
    for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
      const UInt32 place = places[i];
      const uint4 bytes = kept[place];
      UInt32 passing = 0;
#pragma unroll
      for (int j = 0; j < static_cast<int>(kPerLoad); ++j) {
        const Wide<Word> fine = fine_key<Word>(upper_word<Word>(bytes, j), row.params);
        if (fine >= fine_floor) passing |= 1u << j;
      }
      // Only a load at an end of the row, or beyond it, has other elements.
      const UInt32 first = row.first_of(load_at(place));
      if (!row.is_whole(load_at(place))) {
#pragma unroll
        for (UInt32 j = 0; j < kPerLoad; ++j) {
          if (first + j >= row.length) passing &= ~(1u << j);
        }
      }
      if (passing != 0) look(place, passing);
    }
  }

  // Calls visit(key, index) for the elements of a load whose bits are set.
  template <class Visit>
  __device__ __forceinline__ void visit_elements(UInt32 place, UInt32 passing, Visit visit) const {
    const Word* words = reinterpret_cast<const Word*>(kept + place);
    const UInt32 first = row.first_of(load_at(place));
#pragma unroll 1
    for (; passing != 0; passing &= passing - 1) {
      const UInt32 j = static_cast<UInt32>(__ffs(static_cast<int>(passing)) - 1);
      const Wide<Word> bits = static_cast<Wide<Word>>(words[j]) << kSpareBits<Word>;
      visit(row.key_of(fine_key<Word>(bits, row.params)), first + j);
    }
  }
};
