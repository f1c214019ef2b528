// Computes: the top k of long rows, in one pass over the input and a look at a small part of it.
// Idea: k / kBlocks loads of each block with the largest keys bound the k-th key; few reach it.
// Ownership: the blocks of a cluster share a row; each ranks a part of what all have listed.
// Requires: elements side by side; a device with clusters.
// Chosen when: all clusters run at once (8 blocks for few rows, 1 for many), and rows are long.
#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"
#include "top_k/cluster_share.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/gather.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/list_sort.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_loads.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Bits of a digit of the search within a block, few enough for a warp to find it alone.
constexpr int kBlockDigitBits = 8;
constexpr int kBlockBins = 1 << kBlockDigitBits;
// The fullest bucket whose elements are ranked by counting, for each block of the cluster.
constexpr UInt32 kMaxBucket = 256;
// A bucket that is fuller than this, for each block of the cluster, is divided if its elements tie.
constexpr UInt32 kManyTies = 32;
// Ties with the last result are not listed if at least 1 in kLoadsPerTie loads has one, and these loads are
// at least kTiesPerResult times the wanted ties.
constexpr UInt32 kLoadsPerTie = 2;
constexpr UInt32 kTiesPerResult = 8;
// If eight blocks share a row of bytes, ties are always listed: NVRTC 12.0 would spill registers otherwise.
template <class Word, UInt32 kBlocks>
constexpr bool kMayHaveTies = sizeof(Word) > 1 || kBlocks < 8;

struct ClusterParams : FineParams {
  Int64 listed_bytes;   // of shared storage for the block's list
  Int64 largest_bytes;  // for its loads' largest keys, and later for the lists of all blocks
};

// Aligned for the loads that follow it.
struct alignas(16) ClusterStorage {
  SelectStorage<kThreads> select;
  KeyBounds bounds;                    // of the largest keys of the block's parts
  SharedArray<UInt64, kMaxTops> tops;  // the largest key of each part of a warp
  UInt64 floor;                        // the block's lower bound
  UInt64 largest;                      // the block's largest key
  UInt64 least;                        // the least key that the bound was compared with
  UInt32 counts[3];     // elements listed: of all loads, of loads that matter, after a cut
  UInt32 num_loads;     // loads of the block that reach the floor
  UInt32 num_above[2];  // loads above the floor: of all loads, and of these
  UInt32 num_ties;      // with the last result in the block's part, counted until enough
  FewStorage few;
};

// One more digit of elements that the blocks of the cluster share, as search_digit does it for a block.
template <UInt32 kBlocks, class Word, class ForEach>
__device__ __forceinline__ void search_digit_together(Threshold<Word>& threshold,
                                                      SelectStorage<kThreads>& shared,
                                                      ForEach for_each) {
  count_digits<Word, kThreads>(threshold, shared.bins, for_each);
  cluster_barrier();  // every block has counted its share before the counts are added
  UInt32 sums[kNumBins / kThreads] = {};
#pragma unroll
  for (UInt32 step = 0; step < kBlocks; ++step) {
    // Each warp begins with another block.
    const Bins& bins = *map_shared(&shared.bins, (threadIdx.x / kWarpSize + step) % kBlocks);
#pragma unroll
    for (int j = 0; j < kNumBins / kThreads; ++j) sums[j] += bins[j * kThreads + threadIdx.x];
  }
  cluster_barrier();  // every block has read the counts before they become sums
#pragma unroll
  for (int j = 0; j < kNumBins / kThreads; ++j) shared.bins[j * kThreads + threadIdx.x] = sums[j];
  __syncthreads();  // all sums are there before they are read
  narrow(threshold, shared.bins, shared);
}

// Finds a digit of kBlockDigitBits, whose counts are in the first bins. A warp calls; one of its threads
// writes the digit.
template <class Word>
__device__ __forceinline__ void find_digit(const Threshold<Word>& threshold,
                                           SelectStorage<kThreads>& shared) {
  const Bins& bins = shared.bins;
  constexpr int kBinsPerLane = kBlockBins / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  // Lane 0 has the highest bins.
  const int first_bin = kBlockBins - 1 - lane * kBinsPerLane;
  UInt32 own[kBinsPerLane];
  UInt32 num_here = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerLane; ++i) {
    own[i] = bins[first_bin - i];
    num_here += own[i];
  }
  UInt32 above = sum_up_to_lane(num_here);
  const UInt32 reached = __ballot_sync(kFullMask, above >= threshold.num_wanted ? 1 : 0);
  const int found = reached == 0 ? kWarpSize - 1 : __ffs(static_cast<int>(reached)) - 1;
  above -= num_here;
  int place = 0;
  UInt32 num_equal = own[0];
  bool goes_on = true;
#pragma unroll
  for (int i = 0; i < kBinsPerLane - 1; ++i) {
    goes_on = goes_on && above + own[i] < threshold.num_wanted;
    if (goes_on) {
      above += own[i];
      place = i + 1;
      num_equal = own[i + 1];
    }
  }
  if (lane != found) return;
  shared.digit = static_cast<UInt32>(first_bin - place);
  shared.num_above = above;
  shared.num_equal = num_equal;
}

// The keys between which a row's results are.
template <class Word>
struct Range {
  Word floor;
  Word top;
  bool is_loose;         // the floor is below the top, and perhaps the key of most loads
  UInt32 num_above = 0;  // loads above a loose floor
  Word tie = 0;          // the key of the last results
  UInt32 num_ties = 0;   // the row's first elements with this key; they are in no list
};

// Finds the largest, the least and the n-th of the tops, by counting. The largest keys of n loads reach the
// n-th top.
template <class Word, UInt32 kNumTops>
__device__ __forceinline__ void find_nth_top(UInt32 n, ClusterStorage& shared) {
  constexpr UInt32 kLanes = kThreads / kNumTops;  // that count for one top
  const UInt32 own = threadIdx.x / kLanes;
  const auto top_of = [&](UInt32 i) { return static_cast<Wide<Word>>(shared.tops[i]); };
  const Wide<Word> key = top_of(own);
  UInt32 before = 0;
#pragma unroll
  for (UInt32 other = threadIdx.x % kLanes; other < kNumTops; other += kLanes) {
    before += (top_of(other) > key) | ((top_of(other) == key) & (other < own)) ? 1 : 0;
  }
#pragma unroll
  for (UInt32 lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    before += __shfl_xor_sync(kFullMask, before, lanes);
  }
  // One lane of each top goes on.
  if (threadIdx.x % kLanes != 0) return;
  if (before == n - 1) shared.floor = key;
  if (before == 0) shared.largest = key;
  if (before == kNumTops - 1) shared.least = key;
}

// The range of the row: from the least of the blocks' floors to the largest key. All blocks of the cluster
// call, and return the same.
template <class Word, UInt32 kBlocks>
__device__ __forceinline__ Range<Word> range_of_all(const Share<Word, kBlocks>& share,
                                                    ClusterStorage& shared) {
  cluster_barrier();  // every block has found its bound before the others read it
  Wide<Word> floor = static_cast<Wide<Word>>(*map_shared(&shared.floor, threadIdx.x % kBlocks));
  Wide<Word> largest = static_cast<Wide<Word>>(*map_shared(&shared.largest, threadIdx.x % kBlocks));
  const Wide<Word> least = static_cast<Wide<Word>>(*map_shared(&shared.least, 0));
#pragma unroll
  for (UInt32 lanes = kBlocks / 2; lanes > 0; lanes /= 2) {
    floor = min(floor, __shfl_xor_sync(kFullMask, floor, lanes));
    largest = max(largest, __shfl_xor_sync(kFullMask, largest, lanes));
  }
  // If elements tie, each is the least of their keys.
  const Word floor_key = share.row.key_of(floor << kSpareBits<Word>);
  const Word top_key = share.row.key_of(largest << kSpareBits<Word>);
  // If no top is below the floor, many loads may tie with the floor. The tops of one block are enough to
  // guess.
  return {floor_key, top_key, floor == least && top_key > floor_key};
}

// The largest key of the row, and a key that at least kBlocks * `wanted` elements reach: the least of the
// blocks' bounds. `wanted` loads of a block reach its bound. All blocks of the cluster return the same. The
// first bins are clear before, and have arbitrary counts afterwards.
template <class Word, UInt32 kBlocks>
__device__ __forceinline__ Range<Word> find_range(const Share<Word, kBlocks>& share, UInt32 wanted,
                                                  ClusterStorage& shared) {
  Bins& bins = shared.select.bins;
  using Own = Share<Word, kBlocks>;
  Wide<Word> own_largest[Own::kParts] = {};
  share.read(own_largest);
  if (wanted <= min(Own::kNumTops, share.chunks) * 3 / 4) {
    // Few loads are wanted: the tops, each from a different load, bound them, and no digit is counted.
#pragma unroll
    for (UInt32 part = 0; part < Own::kParts; ++part) {
      const Wide<Word> top = warp_largest(own_largest[part]);
      const UInt32 place = (part * kThreads + threadIdx.x) / kWarpSize;
      if (threadIdx.x % kWarpSize == 0) shared.tops[place] = top;
    }
    __syncthreads();  // all tops are there before they are compared
    find_nth_top<Word, Own::kNumTops>(wanted, shared);
    return range_of_all<Word, kBlocks>(share, shared);
  }
  Wide<Word> largest_of_all = 0;
  Wide<Word> complement = 0;
#pragma unroll
  for (UInt32 part = 0; part < Own::kParts; ++part) {
    largest_of_all = max(largest_of_all, own_largest[part]);
    // A part without loads bounds nothing.
    const Word own = static_cast<Word>(~static_cast<Word>(own_largest[part]));
    if (part * kThreads + threadIdx.x < share.num_own()) {
      complement = max(complement, static_cast<Wide<Word>>(own));
    }
  }
  shared.bounds.template add<Word>(largest_of_all, complement);
  __syncthreads();  // the bounds are those of all threads
  // One load of each part that has any reaches the least of the parts' largest keys.
  const Wide<Word> least =
      static_cast<Word>(~static_cast<Word>(shared.bounds.complement_of<Word>()));
  const Wide<Word> top = shared.bounds.largest_of<Word>();
  auto threshold = search_up_to<Word>(top - least, share.num_own(), wanted);
  // A few loads more than wanted save a digit.
  const UInt32 enough = wanted + wanted / 8 + 8;
  while (!threshold.fits(enough) && !threshold.is_exact()) {
    const int shift = max(0, threshold.shift - kBlockDigitBits);
    share.for_each_largest([&](const Word(&largest)[kAtOnce], UInt32 place) {
#pragma unroll
      for (UInt32 a = 0; a < kAtOnce; ++a) {
        const Word key = static_cast<Word>(largest[a] - least);
        const bool is_own = place + a * kThreads < share.num_own() && largest[a] >= least;
        if (is_own && threshold.high_part(key) == threshold.prefix) {
          atomicAdd(&bins[static_cast<UInt32>(static_cast<Wide<Word>>(key) >> shift) % kBlockBins],
                    1);
        }
      }
    });
    __syncthreads();  // every load is counted before the counts are read
    if (threadIdx.x < kWarpSize) find_digit(threshold, shared.select);
    __syncthreads();  // the digit is found before all read it
    const int width = min(threshold.shift, kBlockDigitBits);
    threshold.prefix = threshold.prefix << (width % (8 * sizeof(Wide<Word>))) | shared.select.digit;
    threshold.shift -= width;
    threshold.num_above += shared.select.num_above;
    threshold.num_wanted -= shared.select.num_above;
    threshold.num_equal = shared.select.num_equal;
    if (threshold.fits(enough) || threshold.is_exact()) break;
    if (threadIdx.x < kBlockBins) bins[threadIdx.x] = 0;
    __syncthreads();  // bins are clear before any thread counts, and the digit is read by all
  }
  if (threadIdx.x == 0) {
    // If loads are too few, any element can be among the first.
    const bool are_few = share.num_own() < wanted;
    shared.floor = are_few ? 0 : static_cast<Word>(floor_of(threshold) + least);
    shared.largest = top;
    shared.least = least;
  }
  return range_of_all<Word, kBlocks>(share, shared);
}

// The numbers of listed elements: of all blocks, of the block with most, and of this block; in lane r of a
// warp, also of block r and of the blocks before it.
template <UInt32 kBlocks>
struct Listed {
  UInt32 total;
  UInt32 most;
  UInt32 of_block;
  UInt32 of_lane;
  UInt32 before;

  static __device__ __forceinline__ Listed read(UInt32* count, UInt32 rank) {
    const UInt32 lane = threadIdx.x % kWarpSize;
    const UInt32 own = lane < kBlocks ? *map_shared(count, lane % kBlocks) : 0;
    UInt32 sum = own;
#pragma unroll
    for (UInt32 distance = 1; distance < kBlocks; distance *= 2) {
      const UInt32 below = __shfl_up_sync(kFullMask, sum, distance);
      if (lane >= distance) sum += below;
    }
    return {__shfl_sync(kFullMask, sum, kBlocks - 1), warp_max(own),
            __shfl_sync(kFullMask, own, static_cast<int>(rank)), own, sum - own};
  }

  // The block that has listed element `i` of all lists; `place` becomes the element's place in that block's
  // list.
  __device__ __forceinline__ UInt32 block_of(UInt32 i, UInt32& place) const {
    UInt32 block = 0;
#pragma unroll
    for (UInt32 step = kBlocks / 2; step > 0; step /= 2) {
      if (i >= __shfl_sync(kFullMask, before, static_cast<int>(block + step))) block += step;
    }
    place = i - __shfl_sync(kFullMask, before, static_cast<int>(block));
    return block;
  }
};

// Raises a loose floor to the next key if at least k loads reach that key: elements that tie with the old
// floor are no results then. All blocks of the cluster call, and get the same range.
template <class Word, UInt32 kBlocks>
__device__ __forceinline__ void raise_floor(const Share<Word, kBlocks>& share, UInt32 k,
                                            Range<Word>& range, ClusterStorage& shared) {
  const Word above = share.row.key_above(range.floor);
  UInt32 own = 0;
  share.for_each_largest([&](const Word(&largest)[kAtOnce], UInt32 place) {
#pragma unroll
    for (UInt32 a = 0; a < kAtOnce; ++a) {
      own += place + a * kThreads < share.num_own() && largest[a] >= above ? 1 : 0;
    }
  });
  if (own > 0) atomicAdd(&shared.num_above[0], own);
  cluster_barrier();  // every block has counted before the counts are read
  range.num_above = Listed<kBlocks>::read(&shared.num_above[0], share.rank).total;
  if (range.num_above >= k) range = {above, range.top, false};
}

__device__ __forceinline__ void clear(Bins& bins) {
#pragma unroll
  for (int i = 0; i < kNumBins / kThreads; ++i) bins[i * kThreads + threadIdx.x] = 0;
}

// Lists the places of the block's loads that reach `floor`; returns their number.
template <class Word, UInt32 kBlocks>
__device__ __forceinline__ UInt32 list_loads(const Share<Word, kBlocks>& share, Word floor,
                                             UInt16* places, ClusterStorage& shared) {
  if (threadIdx.x == 0) shared.bounds = {0, 0};  // for those of the listed elements
  share.for_each_largest([&](const Word(&largest)[kAtOnce], UInt32 place) {
    UInt32 passing = 0;
#pragma unroll
    for (UInt32 a = 0; a < kAtOnce; ++a) {
      const bool is_own = place + a * kThreads < share.num_own();
      if (is_own && largest[a] >= floor) passing |= 1u << a;
    }
    if (passing == 0) return;
    UInt32 number = atomicAdd(&shared.num_loads, static_cast<UInt32>(__popc(passing)));
#pragma unroll
    for (UInt32 a = 0; a < kAtOnce; ++a) {
      if ((passing >> a & 1) != 0) places[number++] = static_cast<UInt16>(place + a * kThreads);
    }
  });
  __syncthreads();  // all loads are listed before their elements are
  return shared.num_loads;
}

// Lists the elements of the row that can be among its first k: each block those of its loads at `places`,
// `num_loads`. Together they list at most `most`, and at least k unless the row has fewer. If the range has
// ties afterwards, they list only the results before the ties. The bins are clear afterwards.
template <class Word, UInt32 kBlocks>
__device__ __forceinline__ Listed<kBlocks> list_elements(const Share<Word, kBlocks>& share,
                                                         Range<Word>& range, UInt32 k, UInt32 most,
                                                         const UInt16* places, UInt32 num_loads,
                                                         const List<Word>& list,
                                                         ClusterStorage& shared) {
  const Word floor = range.floor;
  const auto put = [&](UInt32 place, Word key, UInt32 index) {
    if (place < most) list.put(place, key, index);
  };
  // Lists the elements at or above `least` in the loads for which matters(place) is true.
  const auto list_of_loads = [&](UInt32& count, Word least, auto matters) {
    share.for_each_load(
        places, num_loads, least, matters, [&](UInt32 load, const uint4& bytes, UInt32 passing) {
          UInt32 place = atomicAdd(&count, static_cast<UInt32>(__popc(passing)));
          share.visit_elements(load, bytes, passing,
                               [&](Word key, UInt32 index) { put(place++, key, index); });
        });
    clear(shared.select.bins);
    cluster_barrier();  // every block's list is complete before it is counted and read
    return Listed<kBlocks>::read(&count, share.rank);
  };
  // Each load has an element that reaches the floor, so that more loads than `most` are not read.
  if (num_loads > most && threadIdx.x == 0) shared.counts[0] = num_loads;
  const auto first =
      list_of_loads(shared.counts[0], floor, [&](UInt32) { return num_loads <= most; });
  if (first.total <= most) return first;

  // Rare: many elements tie with the k-th, or the floor is far below it. All results are in the k loads with
  // the largest keys; among loads that tie, in the first. So few loads are read again.
  const auto from_floor = [&](Word key) { return static_cast<Word>(key - floor); };
  const auto search = [&](auto& threshold, auto visit_each) {
    search_digit_together<kBlocks>(threshold, shared.select, visit_each);
  };
  const UInt32 enough = k + k / 4;
  const auto for_each_key = [&](auto visit) {
#pragma unroll 1
    for (UInt32 i = threadIdx.x; i < num_loads; i += kThreads) {
      visit(from_floor(share.largest_key(places[i])), share.load_at(places[i]));
    }
  };
  UInt32 num_above = range.num_above;
  if (range.top > floor && !range.is_loose) {
    for_each_key([&](Word key, UInt32) { num_above += key > 0 ? 1 : 0; });
    if (num_above > 0) atomicAdd(&shared.num_above[1], num_above);
    cluster_barrier();  // every block has counted before the counts are read
    num_above = Listed<kBlocks>::read(&shared.num_above[1], share.rank).total;
  }
  const UInt32 loads_of_all = Listed<kBlocks>::read(&shared.num_loads, share.rank).total;
  const UInt32 wanted = min(k, loads_of_all);
  auto threshold = search_up_to<Word>(range.top - floor, loads_of_all, wanted);
  // The k-th ties with the floor: no digit is counted.
  if (num_above < wanted) {
    threshold = {0, 0, num_above, loads_of_all - num_above, wanted - num_above};
  }
  auto of_loads = Cut<Word>::by_key(threshold, enough, share.num_loads - 1, for_each_key, search);
  const UInt32 num_equal = of_loads.threshold.num_equal;
  const bool are_dense = num_equal >= share.num_loads / kLoadsPerTie &&
                         num_equal / kTiesPerResult >= of_loads.threshold.num_wanted;
  const bool has_ties = kMayHaveTies<Word, kBlocks> && are_dense &&
                        (range.top == floor || !of_loads.threshold.fits(enough));
  if (has_ties) {
    // Reading the row from its begin finds the first ties soon. Only the results before the ties are listed.
    range.tie = static_cast<Word>(of_loads.floor() + floor);
    if (range.tie == range.top) {
      range.num_ties = k;
      return first;
    }
    range.floor = share.row.key_above(range.tie);
    of_loads.threshold.prefix = static_cast<Word>(range.floor - floor);
  } else {
    of_loads.cut_by_number(enough, for_each_key, search);
  }
  const auto matters = [&](UInt32 place) {
    return of_loads.passes(from_floor(share.largest_key(place)), share.load_at(place));
  };
  const auto second = list_of_loads(shared.counts[1], range.floor, matters);
  if (has_ties) range.num_ties = k - min(k, second.total);
  if (second.total <= most) return second;

  // Rarer: a load has many such elements.
  const auto for_each = [&](auto visit) {
    share.for_each_load(places, num_loads, range.floor, matters,
                        [&](UInt32 load, const uint4& bytes, UInt32 passing) {
                          share.visit_elements(load, bytes, passing, visit);
                        });
  };
  const auto cut = Cut<Word>::of(
      search_up_to<Word>(range.top - floor, second.total, k), enough, share.row.length - 1,
      [&](auto visit) { for_each([&](Word key, UInt32 index) { visit(from_floor(key), index); }); },
      search);
  for_each([&](Word key, UInt32 index) {
    if (cut.passes(from_floor(key), index)) put(atomicAdd(&shared.counts[2], 1), key, index);
  });
  clear(shared.select.bins);
  cluster_barrier();  // every block's last list is complete before it is counted and read
  return Listed<kBlocks>::read(&shared.counts[2], share.rank);
}

// As `rank_together`, for at most kMaxCountedList elements.
template <class Word, UInt32 kBlocks, class Write>
__device__ __forceinline__ void rank_short_lists(const List<Word>& own_list, Listed<kBlocks> listed,
                                                 UInt32 k, const List<Word>& gathered,
                                                 Write write) {
  List<Word> list = own_list;
  if constexpr (kBlocks > 1) {
    UInt32 place;
    const UInt32 block = listed.block_of(threadIdx.x, place);
    if (threadIdx.x < listed.total) {
      gathered.put(threadIdx.x, map_shared(own_list.keys, block)[place],
                   map_shared(own_list.indices, block)[place]);
    }
    __syncthreads();  // the list is complete before it is read
    list = gathered;
  }
  rank_short_list<Word, kThreads>(list, listed.total, own_list, listed.of_block, k, write);
}

// Calls write(rank, key, index) in one of the blocks for each of the first k elements of their lists. Every
// block gathers all lists, in buckets of keys of equal width; its bins are clear. `gathered` has room for all
// and kSpareRoom elements.
template <class Word, UInt32 kBlocks, class Write>
__device__ __forceinline__ void rank_together(const List<Word>& own_list, Listed<kBlocks> listed,
                                              Range<Word> range, const RowLoads<Word>& row,
                                              UInt32 k, UInt32 rank, const List<Word>& gathered,
                                              ClusterStorage& shared, Write write) {
  Bins& bins = shared.select.bins;
  const auto list = PairList<Word>::in(gathered);
  const Wide<Word> top = range.top;
  const UInt32 count = listed.total;
  if (rank == 0) {
    // Behind a row's elements, results are missing.
#pragma unroll 1
    for (UInt32 i = count + threadIdx.x; i < k; i += kThreads) write(i, 0, kFullMask);
  }
  if (count <= kMaxCountedList) {
    rank_short_lists(own_list, listed, k, gathered, write);
    return;
  }
  // Pairs are made later, so that all loads are in flight at once.
  Word keys[kListedPerThread] = {};
  UInt32 indices[kListedPerThread];
  UInt32 places[kListedPerThread];
  UInt32 taken = 0;  // bits of the elements that the thread has
  constexpr UInt32 kReaders = kThreads / kBlocks;
  if (listed.most <= kListedPerThread * kReaders) {
    // Each list has the same number of threads.
    const UInt32 block = threadIdx.x / kReaders;
    const UInt32 here = __shfl_sync(kFullMask, listed.of_lane, static_cast<int>(block));
    const Word* its_keys = map_shared(own_list.keys, block);
    const UInt32* its_indices = map_shared(own_list.indices, block);
#pragma unroll
    for (int j = 0; j < kListedPerThread; ++j) {
      const UInt32 i = j * kReaders + threadIdx.x % kReaders;
      if (i >= here) break;
      keys[j] = its_keys[i];
      indices[j] = its_indices[i];
      taken |= 1u << j;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kListedPerThread; ++j) {
      const UInt32 i = j * kThreads + threadIdx.x;
      UInt32 place;
      const UInt32 block = listed.block_of(i, place);
      if (i >= count) continue;
      keys[j] = map_shared(own_list.keys, block)[place];
      indices[j] = map_shared(own_list.indices, block)[place];
      taken |= 1u << j;
    }
  }
  // Calls visit(j, pair j) for each element that the thread has.
  const auto for_each = [&](auto visit) {
#pragma unroll
    for (int j = 0; j < kListedPerThread; ++j) {
      if ((taken >> j & 1) != 0) visit(j, LongRanked<Word>::of(keys[j], indices[j]));
    }
  };
  Wide<Word> least = range.floor;
  const auto zero = ZeroKey<Word>::of(row);
  if (range.floor == 0 || zero.divides(range.floor, top)) {
    // The floor may be far below all elements.
    Wide<Word> complement = 0;
    for_each([&](int, const auto& pair) {
      complement = max(complement, static_cast<Wide<Word>>(static_cast<Word>(~pair.key())));
    });
    shared.bounds.template add_complement<Word>(complement);
    __syncthreads();  // the bounds are those of all lists
    least = static_cast<Word>(~static_cast<Word>(shared.bounds.complement_of<Word>()));
  }
  const auto buckets = EvenBuckets<Word>::between(least, top, zero);
  // If all results tie, buckets divide indices.
  const bool all_tie = top == range.floor;
  const int length_bits = 32 - __clz(static_cast<int>(row.length));
  const int index_shift = max(0, length_bits - kDigitBits);
  const auto bucket_of = [&](const LongRanked<Word>& pair) {
    // The input may have changed, so that indices are those of padding.
    return all_tie ? min(pair.index() >> index_shift, kNumBins - 1u)
                   : buckets.of(static_cast<Word>(pair.key()));
  };
  for_each([&](int j, const auto& pair) { places[j] = atomicAdd(&bins[bucket_of(pair)], 1); });
  __syncthreads();  // every element is counted, and has a place in its bucket
  constexpr int kBinsPerThread = kNumBins / kThreads;
  const int first_bin = threadIdx.x * kBinsPerThread;
  UInt32 own[kBinsPerThread];
  // Makes the counts of buckets their begins.
  const auto begin_buckets = [&] {
    UInt32 num_here = 0;
#pragma unroll
    for (int i = 0; i < kBinsPerThread; ++i) {
      own[i] = bins[first_bin + i];
      num_here += own[i];
    }
    UInt32 total;
    UInt32 before = block_exclusive_sum<kThreads>(num_here, shared.select.warp_sums, total);
#pragma unroll
    for (int i = 0; i < kBinsPerThread; ++i) {
      bins[first_bin + i] = before;
      before += own[i];
    }
  };
  begin_buckets();
  UInt32 fullest = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) fullest = max(fullest, own[i]);
  // The bins are the begins of the buckets before they are read.
  const int are_many = __syncthreads_or(fullest > kManyTies * kBlocks ? 1 : 0);
  for_each([&](int j, const auto& pair) { list.put(bins[bucket_of(pair)] + places[j], pair); });
  end_list(list, count);
  __syncthreads();  // buckets are complete before they are compared
  if (are_many != 0) {
    // Rare: many results tie, or are close to each other.
    bool differ = false;
#pragma unroll 1
    for (UInt32 i = threadIdx.x + 1; i < count; i += kThreads) {
      const LongRanked<Word> pair = list.at(i);
      const LongRanked<Word> last = list.at(i - 1);
      if (pair.key() != last.key() && bucket_of(pair) == bucket_of(last)) differ = true;
    }
    // All threads have read the begins and the list before these change.
    if (__syncthreads_or(differ || all_tie ? 1 : 0) == 0) {
      // The elements of each bucket tie. They are put into narrower buckets, by their indices.
      UInt32 num_used = 0;
#pragma unroll
      for (int i = 0; i < kBinsPerThread; ++i) num_used += own[i] > 0 ? 1 : 0;
      UInt32 total;
      UInt32 number = block_exclusive_sum<kThreads>(num_used, shared.select.warp_sums, total);
#pragma unroll
      for (int i = 0; i < kBinsPerThread; ++i) {
        bins[first_bin + i] = number;
        number += own[i] > 0 ? 1 : 0;
      }
      const int part_bits = kDigitBits - (32 - __clz(static_cast<int>(total - 1)));
      const int part_shift = max(0, length_bits - part_bits);
      const auto part_of = [&](UInt32 index) {
        return min(index >> part_shift, (1u << part_bits) - 1);
      };
      __syncthreads();  // the bins are the numbers of the buckets before they are read
      for_each([&](int j, const auto& pair) {
        places[j] = bins[bucket_of(pair)] << part_bits | part_of(pair.index());
      });
      __syncthreads();  // the numbers are read before the bins are cleared
      clear(bins);
      __syncthreads();  // the bins are clear before they are counted anew
      UInt32 orders[kListedPerThread];
      for_each([&](int j, const auto&) { orders[j] = atomicAdd(&bins[places[j]], 1); });
      __syncthreads();  // every element is counted, and has a place in its part
      begin_buckets();
      __syncthreads();  // the bins are the begins of the parts before they are read
      for_each([&](int j, const auto& pair) { list.put(bins[places[j]] + orders[j], pair); });
      __syncthreads();  // parts are complete before they are compared
      // The order within a part may differ between blocks, so elements are shared out by their indices.
#pragma unroll 1
      for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
        const LongRanked<Word> pair = list.at(i);
        if (pair.index() % kBlocks != rank) continue;
        const auto is_same = [&](UInt32 other) {
          const LongRanked<Word> its = list.at(other);
          return its.key() == pair.key() && part_of(its.index()) == part_of(pair.index());
        };
        UInt32 begin = i;
        UInt32 num_before = 0;
        for (; begin > 0 && is_same(begin - 1); --begin) {
          num_before += one_if_before(list.at(begin - 1), pair);
        }
        for (UInt32 other = i + 1; other < count && is_same(other); ++other) {
          num_before += one_if_before(list.at(other), pair);
        }
        if (begin + num_before < k) write(begin + num_before, pair.key(), pair.index());
      }
      return;
    }
    if (__syncthreads_or(fullest > kMaxBucket * kBlocks ? 1 : 0) != 0) {
      // Every block sorts all, and writes a part. The first barrier was the last read of the pairs.
      for_each(
          [&](int j, const auto& pair) { gathered.put(bins[bucket_of(pair)] + places[j], pair); });
      sort_by_network<Word, kThreads>(gathered, count);  // begins with a barrier
#pragma unroll 1
      for (UInt32 i = rank * kThreads + threadIdx.x; i < min(k, count); i += kBlocks * kThreads) {
        write(i, gathered.keys[i], gathered.indices[i]);
      }
      return;
    }
  }
  // Each block ranks its own list.
#pragma unroll 1
  for (UInt32 i = threadIdx.x; i < listed.of_block; i += kThreads) {
    const LongRanked<Word> pair = own_list.at(i);
    const UInt32 bucket = bucket_of(pair);
    const UInt32 end = bucket + 1 < kNumBins ? bins[bucket + 1] : count;
    const UInt32 place = rank_in_bucket(list, pair, bins[bucket], end);
    if (place < k) write(place, pair.key(), pair.index());
  }
}

// Calls write(rank, key, index) for the first `count` elements of the row with the key `range.tie`, with
// ranks from `begin` on. Each block has a part of the row, and each of its threads neighbouring loads.
template <class Word, UInt32 kBlocks, class Write>
__device__ __forceinline__ void write_ties(const Share<Word, kBlocks>& share,
                                           const Range<Word>& range, UInt32 begin, UInt32 count,
                                           ClusterStorage& shared, Write write) {
  const UInt32 part = (share.num_loads + kBlocks - 1) / kBlocks;
  const UInt32 end_load = min((share.rank + 1) * part, share.num_loads);
  const Wide<Word> fine_tie = static_cast<Wide<Word>>(range.tie) << kSpareBits<Word>;
  const Wide<Word> fine_above = static_cast<Wide<Word>>(range.floor) << kSpareBits<Word>;
  // Calls visit(number of the first one, bits, load) for loads with such elements, until there are enough.
  const auto for_each_load = [&](UInt32 before, UInt32 enough, auto visit) {
#pragma unroll 1
    for (UInt32 first = share.rank * part; before < enough && first < end_load;
         first += kAtOnce * kThreads) {
      const UInt32 load = first + threadIdx.x * kAtOnce;
      uint4 bytes[kAtOnce];
      share.row.load_neighbours(load, bytes);
      UInt32 bits[kAtOnce];
      UInt32 own = 0;
#pragma unroll
      for (UInt32 a = 0; a < kAtOnce; ++a) {
        bits[a] = load + a < end_load ? share.passing(load + a, bytes[a], fine_tie) : 0;
        if (range.floor > range.tie) bits[a] &= ~share.passing(load + a, bytes[a], fine_above);
        own += __popc(bits[a]);
      }
      UInt32 total;
      UInt32 number = before + block_exclusive_sum<kThreads>(own, shared.select.warp_sums, total);
#pragma unroll
      for (UInt32 a = 0; a < kAtOnce; ++a) {
        if (bits[a] != 0) visit(number, bits[a], load + a);
        number += __popc(bits[a]);
      }
      before += total;
    }
    return before;
  };
  UInt32 before = 0;
  UInt32 end = count;
  if constexpr (kBlocks > 1) {
    const UInt32 here = for_each_load(0, count, [](UInt32, UInt32, UInt32) {});
    if (threadIdx.x == 0) shared.num_ties = here;
    cluster_barrier();  // every block has counted before the counts are read
    const auto counted = Listed<kBlocks>::read(&shared.num_ties, share.rank);
    before = __shfl_sync(kFullMask, counted.before, static_cast<int>(share.rank));
    if (share.rank + 1 < kBlocks) end = min(count, before + here);
  }
  const UInt32 found = for_each_load(before, end, [&](UInt32 number, UInt32 bits, UInt32 load) {
#pragma unroll 1
    for (; bits != 0 && number < end; bits &= bits - 1) {
      const UInt32 i = static_cast<UInt32>(__ffs(static_cast<int>(bits)) - 1);
      write(begin + number++, range.tie, share.row.first_of(load) + i);
    }
  });
  // Elements are missing only if the input has changed since.
#pragma unroll 1
  for (UInt32 i = found + threadIdx.x; i < end; i += kThreads) {
    write(begin + i, range.tie, kFullMask);
  }
}

template <class Word, UInt32 kBlocks, bool kIsRagged = false>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    top_k_cluster(const Word* __restrict__ input, Word* values, void* indices, const void* lengths,
                  const __grid_constant__ ClusterParams params) {
  SHARED_STORAGE(ClusterStorage, shared);
  const UInt32 rank = cluster_rank();
  const UInt32 k = static_cast<UInt32>(params.k);
  const Int64 capacity = params.list_capacity;
  UInt8* listed_here = reinterpret_cast<UInt8*>(&shared + 1);
  UInt8* largest = listed_here + params.listed_bytes;
  UInt16* places = reinterpret_cast<UInt16*>(largest + params.largest_bytes);
  const List<Word> own_list = List<Word>::in(listed_here, capacity, 0);
  const List<Word> gathered = List<Word>::in(largest, capacity + kSpareRoom, 0);

  if (threadIdx.x == 0) {
    shared.bounds = {0, 0};
    shared.num_loads = 0;
    shared.num_above[0] = 0;
    shared.num_above[1] = 0;
    shared.counts[0] = 0;
    shared.counts[1] = 0;
    shared.counts[2] = 0;
  }
  if (threadIdx.x < kBlockBins) shared.select.bins[threadIdx.x] = 0;
  const RowStart start = row_start(params, blockIdx.x / kBlocks);
  const Int64 length = block_row_length<kIsRagged>(lengths, params, start, shared.select);
  const RowLoads<Word> row(input + start.input, length, params);
  const Share<Word, kBlocks> share(row, reinterpret_cast<Word*>(largest), rank);
  const FewResults<Word, kBlocks> few = {shared.few, rank};
  const bool has_few = few.kCanBe && k <= kMaxFewResults;
  if (has_few) few.clear();
  __syncthreads();  // bounds, counts and bins are clear before they are changed

  // ---- Read the row, and find a key that k of its elements reach.
  Range<Word> range = find_range(share, (k + kBlocks - 1) / kBlocks, shared);
  if (range.is_loose) raise_floor(share, k, range, shared);  // rare

  const auto write = [&](UInt32 place, Word key, UInt32 index) {
    bool is_told;
    const Wide<Word> bits =
        bits_of<Word>(static_cast<Wide<Word>>(key) << kSpareBits<Word>, params, is_told);
    Word element = static_cast<Word>(bits >> kSpareBits<Word>);
    // A row of at least k elements lacks some only if the input has changed since it was first read.
    if (index >= row.length) index = place;
    if (!is_told && index < row.length) element = row.elements[index];
    write_element<kIsRagged>(element, index_in_row(params, index), row.length, values, indices,
                             params, start, place);
  };
  // ---- List the loads that reach it. Their elements go to all blocks at once if they may be few.
  const UInt32 num_loads = list_loads(share, range.floor, places, shared);
  if constexpr (few.kCanBe) {
    if (has_few && few.fill(share, places, num_loads, range.floor)) {
      few.write_first(k, write);
      return;
    }
  }

  // ---- Else, list the elements here.
  const auto listed = list_elements(share, range, k, static_cast<UInt32>(capacity), places,
                                    num_loads, own_list, shared);

  // ---- Rank them, in the storage of the loads' largest keys; ties that are in no list are in order already.
  const UInt32 num_ranked = k - range.num_ties;
  if (num_ranked > 0) {
    rank_together(own_list, listed, range, row, num_ranked, rank, gathered, shared, write);
  }
  if constexpr (kMayHaveTies<Word, kBlocks>) {
    if (range.num_ties > 0) {  // rare
      write_ties(share, range, num_ranked, range.num_ties, shared, write);
    }
  }
  cluster_barrier();  // no block ends while others read its list
}
