// Computes: the top k of rows for k up to 128, best if rows are neighbours in memory, or many.
// Idea: elements that rank after the k-th so far are dropped as they are read, others are listed.
// Ownership: a block owns kColumns neighbouring rows, or a stretch of them; a warp owns one list.
// Requires: k is at most kMaxK.
// Chosen when: rows are neighbours in memory and too long for a warp; or many, and k is small.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

constexpr int kThreads = 512;
constexpr int kColumns = kThreads / kWarpSize;
// Neighbouring elements of a row that the block reads at once, and the number of such loads in flight.
constexpr int kLines = kThreads / kColumns;
constexpr int kAhead = 8;
// Elements that a list always has room for beyond k, whatever their ranks.
constexpr UInt32 kSafeLength = kLines * kAhead;

// ---- Sorting one key or pair of each lane, the first-ranked into lane 0. Every lane of the warp calls.

__device__ __forceinline__ UInt32 first_or_last(UInt32 a, UInt32 b, bool is_first) {
  return is_first ? max(a, b) : min(a, b);
}
__device__ __forceinline__ UInt64 first_or_last(UInt64 a, UInt64 b, bool is_first) {
  return is_first ? max(a, b) : min(a, b);
}
template <class Pair>
__device__ __forceinline__ Pair first_or_last(Pair a, Pair b, bool is_first) {
  return a.is_before(b) == is_first ? a : b;
}

__device__ __forceinline__ UInt32 from_lane_xor(UInt32 own, int lanes) {
  return __shfl_xor_sync(kFullMask, own, lanes);
}
__device__ __forceinline__ UInt64 from_lane_xor(UInt64 own, int lanes) {
  return __shfl_xor_sync(kFullMask, own, lanes);
}
template <class Pair>
__device__ __forceinline__ Pair from_lane_xor(Pair own, int lanes) {
  return own.from_lane_xor(lanes);
}

// Sorts bitonic runs of 2 * kDistance items, in falling order if `falls`.
template <int kDistance, class Item>
__device__ __forceinline__ Item merged_lanes(Item own, bool falls) {
  if constexpr (kDistance > 0) {
    const bool is_lower = (threadIdx.x & kDistance) == 0;
    own = first_or_last(own, from_lane_xor(own, kDistance), is_lower == falls);
    return merged_lanes<kDistance / 2>(own, falls);
  } else {
    return own;
  }
}

template <int kRun = 1, class Item>
__device__ __forceinline__ Item sorted_lanes(Item own) {
  if constexpr (kRun < kWarpSize) {
    const bool falls = (threadIdx.x % kWarpSize & 2 * kRun) == 0;
    return sorted_lanes<2 * kRun>(merged_lanes<kRun>(own, falls));
  } else {
    return own;
  }
}

// Replaces sorted items, 32 in each register, by the first of them and 32 others in any order.
template <int kPerLane, class Item>
__device__ __forceinline__ void insert_lanes(Item (&first)[kPerLane], Item others) {
  others = sorted_lanes(others);
#pragma unroll
  for (int r = 0; r < kPerLane; ++r) {
    // `other` ascends and `first[r]` falls, so the earlier and the later items of all lanes are each bitonic.
    const Item other = from_lane_xor(others, kWarpSize - 1);
    if (r + 1 < kPerLane) {
      others = merged_lanes<kWarpSize / 2>(first_or_last(first[r], other, false), true);
    }
    first[r] = merged_lanes<kWarpSize / 2>(first_or_last(first[r], other, true), true);
  }
}

// The lists of a block, for k up to kMaxK: 16, 32, 64 or 128.
template <int kMaxK>
struct ColumnLists {
  // Items of a lane when a warp sorts the first of a list.
  static constexpr int kPerLane = (kMaxK + kWarpSize - 1) / kWarpSize;
  static constexpr UInt32 kFirsts = kPerLane * kWarpSize;
  // Keys of a lane while a warp looks for a key that k elements reach.
  static constexpr int kBrackets = kMaxK / 16;
  // Longer lists are cut.
  static constexpr UInt32 kMaxKept = kBrackets * kWarpSize;
  // Each stretch is this many times as long as all before it, and lists about this many times the number of
  // elements that reach the floor. A list has room for more, so that few lists overflow if elements are in
  // random order.
  static constexpr UInt32 kGrowth = kMaxK == 16 ? 3 : 2;
  static constexpr UInt32 kCapacity = kSafeLength + (kMaxK < 64 ? 2 : 4) * kMaxK;
  // Lists start in different banks.
  static constexpr UInt32 kPitch = kCapacity + 1;
};

template <class Word, int kMaxK>
struct ColumnStorage {
  using Lists = ColumnLists<kMaxK>;
  SharedArray<LongRanked<Word>, Lists::kPitch * kColumns> pairs;
  SharedArray<Wide<Word>, kColumns> floors;
  SharedArray<UInt32, kColumns> counts;
  SharedArray<UInt32, kColumns> num_kept;  // the length of a list after it was last cut
  UInt32 is_full;                          // whether elements did not fit a list
};

// The work of one thread on its column.
template <class Word, int kMaxK>
struct ColumnFilter {
  using Lists = ColumnLists<kMaxK>;
  using Key = Wide<Word>;
  using Pair = LongRanked<Word>;
  static constexpr Key kSpareMask = (Key{1} << kSpareBits<Word>)-1;

  ColumnStorage<Word, kMaxK>& shared;
  const FineParams& params;
  UInt32 column;
  UInt32 line;

  __device__ __forceinline__ Pair& pair(UInt32 place, UInt32 of_column) const {
    return shared.pairs[of_column * Lists::kPitch + place];
  }

  // The largest fine key among elements with this coarse key.
  __device__ __forceinline__ Key last_of_rank(Key coarse) const {
    Key key =
        coarse == static_cast<Key>(params.other_zero) ? static_cast<Key>(params.zero) : coarse;
    if (coarse == static_cast<Key>(params.first_nan)) key = ~Key{0};
    if (coarse < static_cast<Key>(params.end_nan)) key = static_cast<Key>(params.end_nan) - 1;
    return key | kSpareMask;
  }

  __device__ __forceinline__ Key key_of(Word element) const {
    return fine_key<Word>(static_cast<Key>(element) << kSpareBits<Word>, params);
  }
  static __device__ __forceinline__ Pair pair_of(Key key, UInt32 index, const FineParams& params) {
    return Pair::of(coarse_key<Word>(key & ~kSpareMask, params), index);
  }

  // Loads elements kLines apart, from `first` on; those at `end` or later are 0.
  __device__ __forceinline__ void load(const Word* elements, UInt32 first, UInt32 end,
                                       Word (&ahead)[kAhead]) const {
    const Int64 step = kLines * params.input_axis_stride;
    const Word* next = elements + first * params.input_axis_stride;
    if (first + (kAhead - 1) * kLines < end) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) ahead[a] = next[a * step];
    } else {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        ahead[a] = 0;
        if (first + a * kLines < end) ahead[a] = next[a * step];
      }
    }
  }

  // Lists all elements from `begin` to `end`, at most kSafeLength, in an empty list.
  __device__ __forceinline__ void take_all(const Word* elements, UInt32 begin, UInt32 end) const {
    Word ahead[kAhead];
    load(elements, begin + line, end, ahead);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const UInt32 index = begin + line + a * kLines;
      if (index < end) pair(index - begin, column) = pair_of(key_of(ahead[a]), index, params);
    }
    if (line == 0) shared.counts[column] = end - begin;
  }

  // Lists the elements from `begin` to `end` that rank before the k-th so far. Equal elements rank after it,
  // because their indices are larger.
  __device__ __forceinline__ void filter(const Word* elements, UInt32 begin, UInt32 end) const {
    const Key floor = last_of_rank(shared.floors[column]);
#pragma unroll 1
    for (UInt32 first = begin + line; first < end; first += kAhead * kLines) {
      Word ahead[kAhead];
      load(elements, first, end, ahead);
      Key keys[kAhead];
      UInt32 passing = 0;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        keys[a] = key_of(ahead[a]);
        if (keys[a] > floor) passing |= 1u << a;
      }
      const UInt32 num_loaded = min((end - first + kLines - 1) / kLines, kAhead);
      passing &= (1u << num_loaded) - 1;
      if (passing != 0) append(keys, passing, first);
    }
  }

  // Lists elements kLines apart, from `first` on, whose bit in `passing` is set.
  __device__ __forceinline__ void append(const Key (&keys)[kAhead], UInt32 passing,
                                         UInt32 first) const {
    UInt32 place = atomicAdd(&shared.counts[column], __popc(passing));
    if (place + __popc(passing) > Lists::kCapacity) {
      atomicOr(&shared.is_full, 1);
      return;
    }
#pragma unroll 1
    for (; passing != 0; passing &= passing - 1) {
      const UInt32 own = __ffs(passing) - 1;
      Key key = keys[0];
#pragma unroll
      for (UInt32 a = 1; a < kAhead; ++a) key = own == a ? keys[a] : key;
      pair(place++, column) = pair_of(key, first + own * kLines, params);
    }
  }

  // Shortens the list of the warp's column to at most kMaxKept pairs that include the first k, and sets the
  // floor to a key that k of them reach. The last cut also sorts them.
  __device__ __forceinline__ void cut(bool is_last) const {
    const UInt32 own = threadIdx.x / kWarpSize;
    const UInt32 lane = threadIdx.x % kWarpSize;
    const UInt32 count = shared.counts[own];
    UInt32 num_left = count;
    if (Lists::kBrackets == 1 || count > Lists::kFirsts) {
      set_floor(own, lane, count);
      if (count > Lists::kMaxKept || (Lists::kBrackets > 1 && is_last)) {
        num_left = drop_below_floor(own, lane, count);
      }
    }
    if ((Lists::kBrackets > 1 && count <= Lists::kFirsts) || num_left > Lists::kMaxKept ||
        is_last) {
      sort(own, lane, num_left);
      num_left = min(num_left, Lists::kFirsts);
    }
    __syncwarp();  // every lane has read the count before it is replaced
    if (lane == 0) shared.counts[own] = shared.num_kept[own] = num_left;
  }

  // Sets the floor of a list of more than kFirsts elements to a key that k of them reach: the least of the
  // n-th keys of the full registers, where n is k divided by their number, rounded up.
  __device__ __forceinline__ void set_floor(UInt32 own, UInt32 lane, UInt32 count) const {
    Key first[Lists::kBrackets] = {};
#pragma unroll 1
    for (UInt32 begin = lane; begin < count; begin += Lists::kMaxKept) {
#pragma unroll
      for (int r = 0; r < Lists::kBrackets; ++r) {
        const UInt32 place = begin + r * kWarpSize;
        if (place < count) first[r] = max(first[r], pair(place, own).key());
      }
    }
    const UInt32 num_full = Lists::kBrackets == 1 ? 1 : min(count / kWarpSize, Lists::kBrackets);
    Key floor = sorted_lanes(first[0]);
#pragma unroll
    for (int r = 1; r < Lists::kBrackets; ++r) {
      const Key other = sorted_lanes(first[r]);
      if (r < num_full) floor = min(floor, other);
    }
    if (lane == (static_cast<UInt32>(params.k) - 1) / num_full) shared.floors[own] = floor;
    __syncwarp();  // the floor is written before other lanes read it
  }

  __device__ __forceinline__ UInt32 drop_below_floor(UInt32 own, UInt32 lane, UInt32 count) const {
    const Key floor = shared.floors[own];
    UInt32 num_left = 0;
#pragma unroll 1
    for (UInt32 begin = 0; begin < count; begin += kWarpSize) {
      const UInt32 place = begin + lane;
      const Pair other = place < count ? pair(place, own) : Pair::none();
      const bool stays = place < count && other.key() >= floor;
      const UInt32 mask = __ballot_sync(kFullMask, stays);
      __syncwarp();  // these pairs have been read before others overwrite them
      if (stays) pair(num_left + __popc(mask & ((1u << lane) - 1)), own) = other;
      num_left += __popc(mask);
    }
    __syncwarp();  // the remaining pairs are complete before they are read
    return num_left;
  }

  // Reduces a list to its first kFirsts pairs, sorted.
  __device__ __forceinline__ void sort(UInt32 own, UInt32 lane, UInt32 count) const {
    Pair first[Lists::kPerLane];
#pragma unroll
    for (int r = 0; r < Lists::kPerLane; ++r) first[r] = Pair::none();
#pragma unroll 1
    for (UInt32 begin = 0; begin < count; begin += kWarpSize) {
      const UInt32 place = begin + lane;
      insert_lanes(first, place < count ? pair(place, own) : Pair::none());
    }
#pragma unroll
    for (int r = 0; r < Lists::kPerLane; ++r) {
      const UInt32 place = r * kWarpSize + lane;
      if (place < count) pair(place, own) = first[r];
      if (place == params.k - 1) shared.floors[own] = first[r].key();
    }
  }
};

template <class Word, int kMaxK, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, sizeof(Word) == 8 ? 1 : 2)
    top_k_columns(const Word* __restrict__ input, Word* values, void* indices, const void* lengths,
                  LongRanked<Word>* kept, const __grid_constant__ FineParams params) {
  using Pair = LongRanked<Word>;
  using Storage = ColumnStorage<Word, kMaxK>;
  SHARED_STORAGE(Storage, shared);
  const UInt32 column = threadIdx.x % kColumns;
  const UInt32 line = threadIdx.x / kColumns;
  const UInt32 k = static_cast<UInt32>(params.k);
  ColumnFilter<Word, kMaxK> filter = {shared, params, column, line};
  // The blocks along y share rows.
  const UInt32 num_parts = gridDim.y;
  const UInt32 longest_row = static_cast<UInt32>(params.row_length);
  const UInt32 stretch = longest_row / num_parts + 1;
  const UInt32 part_begin =
      static_cast<UInt32>(min(params.row_length, static_cast<Int64>(blockIdx.y) * stretch));
  const UInt32 part_length = min(stretch, longest_row - part_begin);
  const UInt32 part_end = part_begin + part_length;

  for (Int64 first_row = static_cast<Int64>(blockIdx.x) * kColumns; first_row < params.num_rows;
       first_row += static_cast<Int64>(gridDim.x) * kColumns) {
    const bool is_row = first_row + column < params.num_rows;
    const Int64 row = first_row + (is_row ? column : 0);
    const RowStart start = row_start(params, row);
    const Word* elements = input + start.input;
    UInt32 row_end = static_cast<UInt32>(params.row_length);
    if constexpr (kIsRagged) {
      // One thread reads the length for the whole column; `num_kept` is free until a list is cut.
      if (line == 0) {
        shared.num_kept[column] = static_cast<UInt32>(row_length<true>(lengths, params, start));
      }

      __syncthreads();  // the lengths are stored before they are read
      row_end = shared.num_kept[column];
    }
    if (threadIdx.x == 0) shared.is_full = 0;

    UInt32 begin = part_begin;
    UInt32 length = min(part_length, kSafeLength);
    bool gives_up = false;
    do {
      UInt32 end = is_row ? begin + length : begin;
      if (kIsRagged) end = max(begin, min(end, row_end));
      if (begin == part_begin) {
        filter.take_all(elements, begin, end);
      } else {
        filter.filter(elements, begin, end);
      }
      __syncthreads();  // every element is listed before the lists are read
      if (shared.is_full != 0) {
        // Elements that get better and better: from now on, read only as many at once as always fit.
        gives_up = true;
        __syncthreads();  // every thread has read `is_full` before it is cleared
        if (line == 0) shared.counts[column] = shared.num_kept[column];
        if (threadIdx.x == 0) shared.is_full = 0;
      } else {
        begin += length;
        filter.cut(begin == part_end);
      }
      __syncthreads();  // the lists are cut or restored before any thread appends
      const UInt64 longest =
          gives_up ? kSafeLength
                   : static_cast<UInt64>(begin - part_begin) * Storage::Lists::kGrowth;
      length = static_cast<UInt32>(min(static_cast<UInt64>(part_end - begin), longest));
    } while (begin < part_end);

    const UInt32 count = shared.counts[column];
    for (UInt32 rank = line; rank < k && is_row; rank += kLines) {
      const Pair pair = rank < count ? filter.pair(rank, column) : Pair::none();
      if (num_parts > 1) {
        kept[(row * num_parts + blockIdx.y) * k + rank] = pair;
      } else {
        write_result<kIsRagged>(input, values, indices, params, start, row_end, rank, pair.index());
      }
    }
    __syncthreads();  // the lists have been read before the next rows overwrite them
  }
}

constexpr int kMergeThreads = 128;

// Merges the results of the parts of a row; a warp owns a row.
template <class Word, int kMaxK, bool kIsRagged = false>
__global__ void __launch_bounds__(kMergeThreads)
    top_k_columns_merge(const Word* __restrict__ input, Word* values, void* indices,
                        const void* lengths, const LongRanked<Word>* kept,
                        const __grid_constant__ FineParams params) {
  using Pair = LongRanked<Word>;
  constexpr int kPerLane = ColumnLists<kMaxK>::kPerLane;
  constexpr Int64 kWarps = kMergeThreads / kWarpSize;
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 k = static_cast<UInt32>(params.k);
  const UInt32 num_kept = static_cast<UInt32>(params.blocks_per_row) * k;
  for (Int64 row = blockIdx.x * kWarps + threadIdx.x / kWarpSize; row < params.num_rows;
       row += gridDim.x * kWarps) {
    const Pair* row_kept = kept + row * num_kept;
    Pair first[kPerLane];
#pragma unroll
    for (int r = 0; r < kPerLane; ++r) first[r] = Pair::none();
#pragma unroll 1
    for (UInt32 begin = 0; begin < num_kept; begin += kWarpSize) {
      const UInt32 place = begin + lane;
      insert_lanes(first, place < num_kept ? row_kept[place] : Pair::none());
    }
    const RowStart start = row_start(params, row);
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
#pragma unroll
    for (int r = 0; r < kPerLane; ++r) {
      const UInt32 rank = r * kWarpSize + lane;
      if (rank < k) {
        write_result<kIsRagged>(input, values, indices, params, start, length, rank,
                                first[r].index());
      }
    }
  }
}
