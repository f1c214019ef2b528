// Computes: the top k of a few long rows.
// Idea: a sample's floor leaves few elements, which blocks exchange; else they add up histograms.
// Ownership: block b of a row owns its b-th stretch; a counter in global memory synchronises them.
// Requires: a cooperative launch, blocks_per_row blocks and two lists per row, `states` zeroed.
// Chosen when: there are fewer rows than multiprocessors.
#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"
#include "common/wait.cuh"
#include "top_k/bucket_rank.cuh"
#include "top_k/counted_rank.cuh"
#include "top_k/cut.cuh"
#include "top_k/exchange.cuh"
#include "top_k/gather.cuh"
#include "top_k/list.cuh"
#include "top_k/network_sort.cuh"
#include "top_k/put_in_order.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/sieve.cuh"
#include "top_k/threshold.cuh"
#include "top_k/tile_sort.cuh"

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
// A multiprocessor runs one block, so there are enough registers for many loads in flight.
constexpr UInt32 kLoadsAhead = 4;

// Loads in flight of elements that may be listed: four loads of bytes would take more registers than there
// are.
template <class Word>
constexpr UInt32 kListedLoads = sizeof(Word) == 1 ? 2 : kLoadsAhead;

// Loads in flight of elements that are listed in order; as many loads of the next tile are in flight as well.
constexpr UInt32 kOrderedLoads = 2;

// The largest number of digits of a word.
template <class Word>
constexpr int kMaxDigits = (8 * static_cast<int>(sizeof(Word)) + kDigitBits - 1) / kDigitBits;

// A floor is guessed from at most kSampleDigits digits of a sample, with kSampledLoads loads of each thread.
constexpr int kSampleDigits = 3;
constexpr UInt32 kSampledLoads = 2;

// Whether the bits of the keys that are counted for a digit are looked at for each digit: else only for the
// first, because three digits find nearly all of a word of 32 bits, and the kernel would spill registers.
template <class Word>
constexpr bool kSkipsInEachDigit = sizeof(Word) == 8;

// Whether the elements that a guess leaves are exchanged: short keys that tie would fill single buckets.
template <class Word>
constexpr bool kExchanges = sizeof(Word) >= 4;

// Elements of a list for each block that takes part in sorting it.
constexpr UInt32 kSortedByBlock = 512;

struct GridParams : TopKParams {
  Int64 own_capacity;     // candidates that a block has room for; 0 without a guess
  Int64 ranked_capacity;  // elements that a block ranks at once after an exchange
  Int64 lists_in_order;   // short keys: whether blocks list candidates in order, or sort them
};

// The state that the blocks of a row share in global memory, zero at first.
template <class Word>
struct RowState {
  UInt32 num_arrived;
  UInt32 num_listed;
  UInt64 varying_ones;     // the bits that are one in some key of the list
  UInt64 varying_zeros;    // the bits that are zero in some key
  UInt64 length_plus_one;  // the length of a ragged row, once known
  // The same of the keys that are counted for a digit of the row, and of the sample.
  UInt64 row_ones[kMaxDigits<Word>];
  UInt64 row_zeros[kMaxDigits<Word>];
  UInt64 sample_ones[kSampleDigits];
  UInt64 sample_zeros[kSampleDigits];
  UInt64 sample_largest;  // the largest key of the sample
  // Keeps the counters in their own cache lines.
  UInt32 unused[54 - 4 * (kMaxDigits<Word> + kSampleDigits)];
  UInt32 bins[kMaxDigits<Word>][kNumBins];
  UInt32 sample_bins[kSampleDigits][kNumBins];  // a search after a guess that failed needs its own
  UInt32 buckets[kNumBins];  // the number of elements in each bucket of an exchange
};

// The scratch of a row in global memory. Pointers are made where they are needed, because they would take
// more registers than there are while a row is read.
template <class Word>
struct RowScratch {
  UInt8* lists;
  UInt32* counts;
  Int64 capacity;
  UInt32 row;
  UInt32 num_blocks;

  // One of the row's two lists.
  __device__ __forceinline__ List<Word> list(int number) const {
    return List<Word>::in(lists, capacity, 2 * static_cast<int>(row) + number);
  }
  // One count per digit of the sort for each block of the row.
  __device__ __forceinline__ UInt32* block_counts() const {
    return counts + static_cast<Int64>(row) * num_blocks * TileSort<Word, kThreads>::kBins;
  }
};

using SelectShared = SelectStorage<kThreads>;

struct GridStorage {
  SelectShared select;
  Bins own_bins;
  KeyBounds bounds;
  UInt32 list_begin;
  UInt32 row_length;
};

// The numbers of the waits; `cudml/operators/top_k/radix.py` names them in the same order.
constexpr UInt32 kWaitForRow = 1;

// A barrier of all blocks of a row: writes before it are visible to all blocks after it. If a wait gives up,
// no thread of the block may go on, because the blocks' counts do not match.
struct RowBarrier {
  UInt32* num_arrived;
  UInt32 num_blocks;
  UInt32 round;
  Patience patience;

  __device__ __forceinline__ bool wait() {
    ++round;
    __syncthreads();  // every thread has written before thread 0 releases the writes of its block
    bool has_come = true;
    if (threadIdx.x == 0) {
      add_release(num_arrived, 1);
      has_come = patience.wait(
          kWaitForRow, [&] { return load_acquire(num_arrived) >= round * num_blocks; }, [] {});
    }
    // No thread goes on before thread 0 has seen all blocks arrive.
    return __syncthreads_or(has_come ? 0 : 1) == 0;
  }
};

// As `row_length`, but the same for all blocks of the row, because barriers depend on it: the first block
// that reads a length decides.
template <bool kIsRagged, class Word>
__device__ __forceinline__ Int64 shared_row_length(const void* lengths, const TopKParams& params,
                                                   const RowStart& start, RowState<Word>& state,
                                                   GridStorage& shared) {
  if constexpr (kIsRagged) {
    if (threadIdx.x == 0) {
      const UInt64 own = static_cast<UInt64>(row_length<true>(lengths, params, start)) + 1;
      const UInt64 first = atomicCAS(&state.length_plus_one, UInt64{0}, own);
      shared.row_length = static_cast<UInt32>((first == 0 ? own : first) - 1);
    }
    __syncthreads();  // thread 0 has stored the length before the others read it
    return shared.row_length;
  } else {
    return row_length<false>(lengths, params, start);
  }
}

// Looks at a key's bits if it is counted for the next digit.
template <class Word>
__device__ __forceinline__ void look_at(BitsSeen<Word>& seen, const Threshold<Word>& threshold,
                                        Word key) {
  if (kMaySkipBits<Word> && (!kSkipsInEachDigit<Word> || threshold.equals(key))) seen.add(key);
}

// Adds the bits that a block's threads have seen to those of the row: by one atomic of each block, because
// atomics to one word are served one after the other.
template <class Word>
__device__ __forceinline__ void share_bits(BitsSeen<Word>& seen, UInt64& ones, UInt64& zeros,
                                           SelectShared& shared) {
  if (threadIdx.x == 0) shared.ones = shared.zeros = 0;
  __syncthreads();  // the bits are clear before any warp adds to them
  seen.share(shared);
  __syncthreads();  // every warp has added its bits
  if (threadIdx.x == 0) {
    atomicOr(&ones, shared.ones);
    atomicOr(&zeros, shared.zeros);
  }
}

// Adds a block's bins of a digit to those of the row, and narrows the threshold by these. Returns false if
// the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool narrow_by_row(Threshold<Word>& threshold, UInt32* row_bins,
                                              RowBarrier& row_barrier, GridStorage& shared) {
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    if (shared.own_bins[bin] != 0) atomicAdd(&row_bins[bin], shared.own_bins[bin]);
  }
  if (!row_barrier.wait()) return false;
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    shared.select.bins[bin] = load_relaxed(&row_bins[bin]);
  }
  __syncthreads();  // the row's bins are complete before they are searched
  narrow(threshold, shared.select.bins, shared.select);
  return true;
}

// Finds one more digit of the row's threshold; `own` becomes the counts of this block's part. Returns false
// if the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool search_row_digit(Threshold<Word>& threshold, Counts& own,
                                                 const RowPart<Word>& part,
                                                 const TopKParams& params, RowState<Word>& state,
                                                 int number, RowBarrier& row_barrier,
                                                 GridStorage& shared) {
  const bool looks_at_bits = kMaySkipBits<Word> && (number == 0 || kSkipsInEachDigit<Word>);
  BitsSeen<Word> seen;
  count_digits<Word, kThreads>(threshold, shared.own_bins, [&](auto visit) {
    part.template visit<kThreads, kLoadsAhead>(params, threadIdx.x, [&](Word key, UInt32) {
      look_at(seen, threshold, key);
      visit(key);
    });
  });
  const int seen_in = kSkipsInEachDigit<Word> ? number : 0;
  if (looks_at_bits) {
    share_bits(seen, state.row_ones[seen_in], state.row_zeros[seen_in], shared.select);
  }
  if (!narrow_by_row(threshold, state.bins[number], row_barrier, shared)) return false;

  const int digit = static_cast<int>(shared.select.digit);
  UInt32 own_above = 0;
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    if (bin > digit) own_above += shared.own_bins[bin];
  }
  own.equal = shared.own_bins[digit];
  own.above += block_sum<kThreads>(own_above, shared.select.warp_sums);
  if constexpr (kMaySkipBits<Word>) {
    // Complete since the wait for the digit.
    threshold.skip_alike(state.row_ones[seen_in], state.row_zeros[seen_in]);
  }
  return true;
}

// Sums the counts of the blocks before this one, and of all; every block writes its own to `block_counts`.
// Returns false if the wait for the other blocks gave up.
__device__ __forceinline__ bool count_blocks(Counts& before, Counts& all, const Counts& own,
                                             UInt32 block, UInt32* block_counts,
                                             RowBarrier& row_barrier, GridStorage& shared) {
  if (threadIdx.x == 0) {
    store_relaxed(&block_counts[2 * block], own.above);
    store_relaxed(&block_counts[2 * block + 1], own.equal);
  }
  if (!row_barrier.wait()) return false;
  Counts first = {0, 0};
  Counts rest = {0, 0};
  for (UInt32 b = threadIdx.x; b < row_barrier.num_blocks; b += kThreads) {
    const UInt32 above = load_relaxed(&block_counts[2 * b]);
    const UInt32 equal = load_relaxed(&block_counts[2 * b + 1]);
    first.above += b < block ? above : 0;
    first.equal += b < block ? equal : 0;
    rest.above += b < block ? 0 : above;
    rest.equal += b < block ? 0 : equal;
  }
  const auto sum = [&](UInt32 count) {
    return block_sum<kThreads>(count, shared.select.warp_sums);
  };
  before = {sum(first.above), sum(first.equal)};
  all = {before.above + sum(rest.above), before.equal + sum(rest.equal)};
  return true;
}

// The exchange of a row's candidates, in the storage of its search.
template <class Word>
__device__ __forceinline__ Exchange<Word, kThreads> exchange_of(const GridParams& params,
                                                                GridStorage& shared) {
  return {shared.select, shared.own_bins, static_cast<UInt32>(params.ranked_capacity)};
}

// Finds digits of the sample's element of rank `sample_rank`, until at most `most_sampled` of its elements
// are at or above the floor that these digits make. Probably k of the row's elements, and few more, are.
// Returns false if the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool guess_floor(Threshold<Word>& floor, UInt32 most_sampled,
                                            const RowPart<Word>& part, const TopKParams& params,
                                            RowState<Word>& state, RowBarrier& row_barrier,
                                            GridStorage& shared) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kLoadsOfBlock = kSampledLoads * kThreads;
  uint4 bytes[kSampledLoads][1];
#pragma unroll
  for (UInt32 a = 0; a < kSampledLoads; ++a) {
    // At even distances: a part has several times as many loads, except for the last part, which may be
    // empty.
    const UInt32 number = a * kThreads + threadIdx.x;
    const UInt32 load = __umulhi(number * (~UInt32{0} / kLoadsOfBlock + 1), part.length / kPerLoad);
    part.template load<1>(static_cast<UInt64>(load) * kPerLoad, bytes[a]);
  }
  floor = Threshold<Word>::start(row_barrier.num_blocks * kLoadsOfBlock * kPerLoad,
                                 static_cast<UInt32>(params.sample_rank));
  Wide<Word> largest = 0;
#pragma unroll 1
  for (int digit = 0; digit < kSampleDigits && !floor.fits(most_sampled) && !floor.is_exact();
       ++digit) {
    BitsSeen<Word> seen;
    count_digits<Word, kThreads>(floor, shared.own_bins, [&](auto visit) {
      if (part.length < kLoadsOfBlock * kPerLoad) return;
#pragma unroll
      for (UInt32 i = 0; i < kSampledLoads * kPerLoad; ++i) {
        const Word word = word_of<Word>(bytes[i / kPerLoad][0], i % kPerLoad);
        const Word key = ordering_key(word, params);
        look_at(seen, floor, key);
        largest = max(largest, static_cast<Wide<Word>>(key));
        visit(key);
      }
    });
    const int seen_in = kSkipsInEachDigit<Word> ? digit : 0;
    if (kExchanges<Word> && digit == 0) shared.bounds.template add<Word>(largest, 0);
    if (kMaySkipBits<Word> && (digit == 0 || kSkipsInEachDigit<Word>)) {
      share_bits(seen, state.sample_ones[seen_in], state.sample_zeros[seen_in], shared.select);
    }
    if (kExchanges<Word> && digit == 0 && threadIdx.x == 0) {
      atomicMax(&state.sample_largest, UInt64{shared.bounds.template largest_of<Word>()});
    }
    if (!narrow_by_row(floor, state.sample_bins[digit], row_barrier, shared)) return false;
    // Elements outside the sample may have other values of the skipped bits, but any key can be a floor.
    if constexpr (kMaySkipBits<Word>) {
      floor.skip_alike(state.sample_ones[seen_in], state.sample_zeros[seen_in]);
    }
  }
  return true;
}

// Lists a part's elements at or above a floor, in any order, as far as there is room. Returns their number.
template <class Word>
__device__ __forceinline__ UInt32 list_candidates(const RowPart<Word>& part,
                                                  const TopKParams& params,
                                                  const Threshold<Word>& floor,
                                                  const List<Word>& list, UInt32 room,
                                                  SelectShared& shared) {
  const Word lowest = floor_of(floor);
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  part.template visit<kThreads, kListedLoads<Word>>(
      params, threadIdx.x, [&](Word key, UInt32 index) {
        if (key < lowest) return;
        const UInt32 place = atomicAdd(&shared.num_listed, 1);
        if (place >= room) return;
        list.put(place, key, index);
      });
  __syncthreads();  // all are listed before they are counted
  return shared.num_listed;
}

// Tells by raw bits which elements are at or above a key, as `Sieve` does, but exactly for NaN.
template <class Word>
struct AtOrAbove {
  Word flip;
  Word least;
  Word infinity;
  bool nan_passes;

  static __device__ __forceinline__ AtOrAbove of(Word key, const TopKParams& params) {
    const Floor<Word> below = {static_cast<Word>(key - 1), key == 0};
    const auto sieve = Sieve<Word, false>::of(below, params);
    return {sieve.flip, sieve.least, static_cast<Word>(params.infinity),
            static_cast<Word>(params.nan_key) >= key};
  }
  __device__ __forceinline__ bool is_above(Word element) const {
    const bool is_nan = (element & (Sieve<Word, false>::kSign - 1)) > infinity;
    return is_nan ? nan_passes : (element ^ flip) >= least;
  }
  __device__ __forceinline__ bool is_equal(Word) const { return false; }
};

// As `list_candidates`, for many elements: a warp takes places for all of a tile at once, while the next
// tile's loads are in flight.
template <class Word>
__device__ __forceinline__ UInt32 list_by_warps(const RowPart<Word>& part, const TopKParams& params,
                                                const Threshold<Word>& floor,
                                                const List<Word>& list, UInt32 room,
                                                SelectShared& shared) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kLoads = kLoadsAhead;
  constexpr UInt32 kPerThread = kLoads * kPerLoad;
  constexpr UInt32 kLoadDistance = kThreads * kPerLoad;
  static_assert(kPerThread <= 32, "bits of a word for a thread");
  const Word lowest = floor_of(floor);
  const auto beside = AtOrAbove<Word>::of(lowest, params);
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone takes places
  const UInt32 head = part.num_before_vectors();
  if (threadIdx.x < head) {
    const Word key = ordering_key(part.elements[threadIdx.x], params);
    if (key >= lowest) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      if (place < room) list.put(place, key, part.first_index + threadIdx.x);
    }
  }
  const RowPart<Word> rest = part.stretch(head, part.length - head);
  const UInt32 own_first = threadIdx.x * kPerLoad;
  const UInt32 lane = threadIdx.x % kWarpSize;
  uint4 next[kLoads];
  load_apart<kLoadDistance>(rest, own_first, next);
  for (UInt64 tile = 0; tile < rest.length; tile += kThreads * kPerThread) {
    const UInt64 first = tile + own_first;
    uint4 bytes[kLoads];
#pragma unroll
    for (UInt32 load = 0; load < kLoads; ++load) bytes[load] = next[load];
    UInt32 left = 0;  // a bit for each element of the thread
#pragma unroll
    for (UInt32 i = 0; i < kPerThread; ++i) {
      if (beside.is_above(word_of<Word>(bytes[i / kPerLoad], i % kPerLoad))) left |= 1u << i;
    }
    load_apart<kLoadDistance>(rest, first + kThreads * kPerThread, next);
    if (tile + kThreads * kPerThread > rest.length) {
#pragma unroll
      for (UInt32 i = 0; i < kPerThread; ++i) {
        const UInt64 place = first + i / kPerLoad * kLoadDistance + i % kPerLoad;
        if (place >= rest.length) left &= ~(1u << i);
      }
    }
    if (!__any_sync(kFullMask, left != 0)) continue;
    const UInt32 num_here = __popc(left);
    const UInt32 up_to_lane = sum_up_to_lane(num_here);
    UInt32 place = 0;
    if (lane == kWarpSize - 1) place = atomicAdd(&shared.num_listed, up_to_lane);
    place = __shfl_sync(kFullMask, place, kWarpSize - 1);
    if (place > room) break;  // the list is known to be full
    place += up_to_lane - num_here;
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      const UInt32 i = __ffs(static_cast<int>(left)) - 1;
      const Word key = ordering_key(any_word_of_loads<Word>(bytes, i), params);
      const UInt32 index = static_cast<UInt32>(first) + i / kPerLoad * kLoadDistance + i % kPerLoad;
      if (place < room) list.put(place, key, rest.first_index + index);
      ++place;
    }
  }
  __syncthreads();  // all are listed before they are counted
  return shared.num_listed;
}

// As `list_candidates`, but in order of index, for many elements: threads meet for each tile of the part. A
// list that is full may lack elements.
template <class Word>
__device__ __forceinline__ UInt32 list_candidates_in_order(const RowPart<Word>& part,
                                                           const TopKParams& params,
                                                           const Threshold<Word>& floor,
                                                           const List<Word>& list, UInt32 room,
                                                           SelectShared& shared) {
  const auto put = [&](UInt32 place, Word key, UInt32 index) { list.put(place, key, index); };
  // No barrier: threads meet when blocks exchange their counts, before the list is read.
  return put_in_order<kOrderedLoads, false>(part, params,
                                            AtOrAbove<Word>::of(floor_of(floor), params), 0, {0, 0},
                                            room, shared, put)
      .above;
}

// Lists the elements of the row that a guessed floor leaves, `count` of them. If they are sorted by digits,
// either they are exchanged, or they are in order of index and `seen` gets the bits of their keys. If the
// guess fails, because fewer than k are left, or more than there is room for in lists or a bucket, `count` is
// 0. A search that follows waits for a digit, because the row is longer than its list; so all blocks have
// read `block_counts` before the search writes there. Returns false if the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool list_by_guess(UInt32& count, bool& is_exchanged,
                                              const RowPart<Word>& part, const GridParams& params,
                                              RowState<Word>& state,
                                              const RowScratch<Word>& scratch, BitsSeen<Word>& seen,
                                              UInt32 block, RowBarrier& row_barrier,
                                              GridStorage& shared) {
  count = 0;
  const UInt32 rank = static_cast<UInt32>(params.sample_rank);
  const UInt32 most_sampled = rank + rank / 32 + 4;
  Threshold<Word> floor;
  if (!guess_floor(floor, most_sampled, part, params, state, row_barrier, shared)) return false;
  // More elements tie than the row's list holds.
  if (!floor.fits(most_sampled)) return true;
  const List<Word> own_list =
      List<Word>::in(reinterpret_cast<UInt8*>(&shared + 1), params.own_capacity, 0);
  const UInt32 room = static_cast<UInt32>(params.own_capacity);
  const bool by_digits = params.sort_mode == kByDigits;
  const bool exchanges = kExchanges<Word> && by_digits;
  const bool in_order = !kExchanges<Word> && params.lists_in_order != 0;
  UInt32 num_own;
  if constexpr (kExchanges<Word>) {
    num_own = exchanges ? list_by_warps(part, params, floor, own_list, room, shared.select)
                        : list_candidates(part, params, floor, own_list, room, shared.select);
  } else {
    num_own = in_order
                  ? list_candidates_in_order(part, params, floor, own_list, room, shared.select)
                  : list_candidates(part, params, floor, own_list, room, shared.select);
  }
  const auto exchange = exchange_of<Word>(params, shared);
  const auto buckets =
      EvenBuckets<Word>::between(floor_of(floor), static_cast<Word>(state.sample_largest));
  UInt16* const order = reinterpret_cast<UInt16*>(own_list.indices + params.own_capacity);
  if (exchanges) {
    exchange.take_places(buckets, own_list, min(num_own, room), state.buckets, order);
  }
  Counts before;
  Counts all;
  // A list in order that is full may lack elements.
  const Counts own = {num_own, num_own + (in_order ? 1 : 0) > room ? 1u : 0u};
  if (!count_blocks(before, all, own, block, scratch.block_counts(), row_barrier, shared))
    return false;
  if (all.equal != 0 || all.above < params.k || all.above > params.list_capacity) return true;
  const List<Word> list = scratch.list(0);
  if (exchanges) {
    if (!exchange.sum_row(state.buckets)) return true;
    exchange.move(buckets, own_list, num_own, order, list);
    is_exchanged = true;
  } else {
    const auto put = [&](UInt32 rank, Word key, UInt32 index) {
      list.put(before.above + rank, key, index);
      seen.add(key);
    };
    // The sort by digits keeps the order of equal keys, and parts are in order of index.
    const bool sorts = !kExchanges<Word> && by_digits && !in_order;
    if (sorts && num_own > 0 && num_own <= kThreads) {
      rank_by_counting<Word, kThreads>(own_list, num_own, kThreads, num_own, put);
    } else {
      if (sorts) sort_by_network<Word, kThreads>(own_list, num_own);
#pragma unroll 4
      for (UInt32 i = threadIdx.x; i < num_own; i += kThreads) {
        put(i, own_list.keys[i], own_list.indices[i]);
      }
    }
  }
  count = all.above;
  return true;
}

// Lists the elements of the row that a search for the k-th key, digit by digit, leaves, `count` of them.
// Unless pairs are compared, they are in order of index, and `seen` gets the bits of their keys. Returns
// false if the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool list_by_search(UInt32& count, UInt32 length,
                                               const RowPart<Word>& part, const TopKParams& params,
                                               RowState<Word>& state,
                                               const RowScratch<Word>& scratch,
                                               BitsSeen<Word>& seen, UInt32 block,
                                               RowBarrier& row_barrier, GridStorage& shared) {
  auto threshold = Threshold<Word>::start(length, static_cast<UInt32>(params.k));
  Counts own = {0, part.length};
  for (int digit = 0; !threshold.fits(params.list_capacity) && !threshold.is_exact(); ++digit) {
    if (!search_row_digit(threshold, own, part, params, state, digit, row_barrier, shared)) {
      return false;
    }
  }
  const bool all_fit = threshold.fits(params.list_capacity);
  // If the row has fewer than k elements, or the input has changed, too few are left: the last block lists
  // missing elements.
  const bool too_few = threshold.num_equal < threshold.num_wanted;
  if (too_few && block == row_barrier.num_blocks - 1) {
    own.equal += threshold.num_wanted - threshold.num_equal;
  }
  const UInt32 num_equal = all_fit && !too_few ? threshold.num_equal : threshold.num_wanted;
  count = threshold.num_above + num_equal;

  const List<Word> list = scratch.list(0);
  if (params.sort_mode != kByDigits && all_fit) {
    if (threadIdx.x == 0) {
      shared.list_begin = atomicAdd(&state.num_listed, own.above + own.equal);
    }
    __syncthreads();  // the block's place in the list is known before it is written
    const List<Word> own_list = {list.keys + shared.list_begin, list.indices + shared.list_begin};
    list_in_any_order(part, params, threshold, own.above + own.equal, own_list, shared.select);
  } else {
    Counts before;
    Counts all;
    if (!count_blocks(before, all, own, block, scratch.block_counts(), row_barrier, shared))
      return false;
    const Counts after = {before.above + own.above, before.equal + own.equal};
    put_all_in_order<RowPart<Word>::kLoadsAhead, false>(part, params, threshold, num_equal, before,
                                                        after, shared.select,
                                                        [&](UInt32 place, Word key, UInt32 index) {
                                                          list.put(place, key, index);
                                                          seen.add(key);
                                                        });
  }
  return true;
}

// Ranks each pair of the list by counting the pairs before it. The warps of all blocks of the row share the
// list.
template <bool kIsRagged, class Word>
__device__ __forceinline__ void write_by_counting(const Word* __restrict__ input, Word* values,
                                                  void* indices, const TopKParams& params,
                                                  const RowStart& start, UInt32 length,
                                                  const List<Word>& row_list,
                                                  const List<Word>& copy, UInt32 count,
                                                  UInt32 block) {
  for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
    copy.keys[i] = row_list.keys[i];
    copy.indices[i] = row_list.indices[i];
  }
  __syncthreads();  // the copy is complete before it is read
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 num_warps = static_cast<UInt32>(params.blocks_per_row) * kWarps;
  for (UInt32 i = block * kWarps + threadIdx.x / kWarpSize; i < count; i += num_warps) {
    const Word key = copy.keys[i];
    const UInt32 index = copy.indices[i];
    UInt32 rank = 0;
    for (UInt32 other = lane; other < count; other += kWarpSize) {
      const bool is_before =
          copy.keys[other] > key || (copy.keys[other] == key && copy.indices[other] < index);
      rank += is_before ? 1 : 0;
    }
#pragma unroll
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      rank += __shfl_xor_sync(kFullMask, rank, lanes);
    }
    if (lane == 0 && rank < params.k) {
      write_result<kIsRagged>(input, values, indices, params, start, length, rank,
                              index_in_row(params, index));
    }
  }
}

// Sums the counts of each digit over all blocks, and over the blocks before this one: where the elements of
// this block's stretch go.
template <class Word>
__device__ __forceinline__ void place_digits(const TileSort<Word, kThreads>& sort,
                                             const UInt32* block_counts, UInt32 num_blocks,
                                             UInt32 block) {
  using Sort = TileSort<Word, kThreads>;
  // Neighbouring threads sum the counts of neighbouring digits; two threads sum the counts of one digit.
  constexpr UInt32 kThreadsPerDigit = kThreads / Sort::kBins;
  const UInt32 digit = threadIdx.x % Sort::kBins;
  const UInt32 own_first = threadIdx.x / Sort::kBins;
  UInt32 in_row = 0;
  UInt32 in_blocks_before = 0;
  // Not one load after the other: each takes the way to the L2 cache.
  constexpr UInt32 kCountsAhead = 34;
  const UInt32* counts = &block_counts[own_first * Sort::kBins + digit];
  for (UInt32 first = own_first; first < num_blocks; first += kCountsAhead * kThreadsPerDigit) {
    UInt32 in_block[kCountsAhead];
#pragma unroll
    for (UInt32 i = 0; i < kCountsAhead; ++i) {
      const bool is_block = first + i * kThreadsPerDigit < num_blocks;
      in_block[i] = is_block ? load_relaxed(counts + i * kThreadsPerDigit * Sort::kBins) : 0;
    }
#pragma unroll
    for (UInt32 i = 0; i < kCountsAhead; ++i) {
      in_row += in_block[i];
      in_blocks_before += first + i * kThreadsPerDigit < block ? in_block[i] : 0;
    }
    counts += kCountsAhead * kThreadsPerDigit * Sort::kBins;
  }
  static_assert(kThreadsPerDigit == 2, "one other thread has a digit's other sums");
  if (own_first != 0) {
    sort.shared.places[digit] = in_row;
    sort.shared.distances[digit] = in_blocks_before;
  }
  __syncthreads();  // the other sums are written before they are read
  if (own_first == 0) {
    in_row += sort.shared.places[digit];
    in_blocks_before += sort.shared.distances[digit];
  }
  UInt32 total;
  const UInt32 before =
      block_exclusive_sum<kThreads>(own_first == 0 ? in_row : 0, sort.warp_sums, total);
  if (own_first == 0) sort.shared.places[digit] = before + in_blocks_before;
}

// Sorts the row's list with all blocks of the row; `varying` are the bits in which its keys differ. The
// result is in `from`; `other` is scratch of the same size. Returns false if the wait for the other blocks
// gave up.
template <class Word>
__device__ __forceinline__ bool sort_row_by_radix(List<Word>& from, List<Word> other, UInt32 count,
                                                  UInt64 varying, UInt32 block,
                                                  UInt32* block_counts, RowBarrier& row_barrier,
                                                  GridStorage& shared) {
  using Sort = TileSort<Word, kThreads>;
  // Every block reads the counts of all blocks that sort, which takes longer than sorting a few more
  // elements.
  const UInt32 num_blocks =
      min(row_barrier.num_blocks, (count + kSortedByBlock - 1) / kSortedByBlock);
  const bool is_sorting = block < num_blocks;
  const UInt32 stretch = count / num_blocks + 1;
  const UInt32 begin = min(count, block * stretch);
  const Sort sort = {*reinterpret_cast<typename Sort::Storage*>(&shared + 1),
                     shared.select.warp_sums, begin, min(count, begin + stretch)};
  for (int shift = 0; shift < 8 * static_cast<int>(sizeof(Word)); shift += Sort::kBits) {
    if ((varying >> shift & (Sort::kBins - 1)) == 0) continue;
    if (is_sorting) {
      sort.count_digits(from.keys, shift);
      for (int digit = threadIdx.x; digit < Sort::kBins; digit += kThreads) {
        store_relaxed(&block_counts[block * Sort::kBins + digit], sort.shared.places[digit]);
      }
    }
    if (!row_barrier.wait()) return false;
    if (is_sorting) {
      place_digits(sort, block_counts, num_blocks, block);
      sort.move(from, other, shift);
    }
    if (!row_barrier.wait()) return false;
    const List<Word> moved = other;
    other = from;
    from = moved;
  }
  return true;
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

template <class Word, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 1)
    top_k_grid_radix(const Word* __restrict__ input, Word* values, void* indices,
                     const void* lengths, UInt8* states, UInt32* counts, UInt8* lists,
                     WaitReport* report, const __grid_constant__ GridParams params) {
  SHARED_STORAGE(GridStorage, shared);
  const UInt32 num_blocks = static_cast<UInt32>(params.blocks_per_row);
  const UInt32 row = blockIdx.x / num_blocks;
  const UInt32 block = blockIdx.x % num_blocks;
  RowState<Word>& state = reinterpret_cast<RowState<Word>*>(states)[row];
  RowBarrier row_barrier = {&state.num_arrived, num_blocks, 0, {report}};
  if (threadIdx.x == 0) shared.bounds = {0, 0};  // threads meet before they add a sample's keys
  const RowStart start = row_start(params, row);
  const Int64 capacity = params.list_capacity;
  const RowScratch<Word> scratch = {lists, counts, capacity, row, num_blocks};

  const Int64 length = shared_row_length<kIsRagged>(lengths, params, start, state, shared);
  // A stretch is a whole number of vector loads, so that all stretches are aligned like the row.
  const Int64 stretch = (length / num_blocks / 64 + 1) * 64;
  const Int64 begin = min(length, block * stretch);
  const Int64 end = min(length, begin + stretch);
  const RowPart<Word> part = {input + start.input + begin * params.input_axis_stride,
                              params.input_axis_stride, static_cast<UInt32>(end - begin),
                              static_cast<UInt32>(begin)};

  UInt32 count = 0;
  bool is_exchanged = false;
  BitsSeen<Word> seen;
  if (!kIsRagged && params.sample_rank > 0 &&
      !list_by_guess(count, is_exchanged, part, params, state, scratch, seen, block, row_barrier,
                     shared)) {
    return;
  }
  if (count == 0 && !list_by_search(count, static_cast<UInt32>(length), part, params, state,
                                    scratch, seen, block, row_barrier, shared)) {
    return;
  }
  if (params.sort_mode == kByDigits && !is_exchanged) {
    share_bits(seen, state.varying_ones, state.varying_zeros, shared.select);
  }
  if (!row_barrier.wait()) return;

  const List<Word> list = scratch.list(0);
  if (kExchanges<Word> && is_exchanged) {
    const auto write = [&](UInt32 rank, Word key, UInt32 listed) {
      write_listed<kIsRagged>(key, listed, input, values, indices, params, start,
                              static_cast<UInt32>(length), rank);
    };
    exchange_of<Word>(params, shared)
        .rank(list, count, static_cast<UInt32>(params.k), block, num_blocks,
              reinterpret_cast<UInt8*>(&shared + 1), shared.bounds, write);
  } else if (params.sort_mode != kByDigits) {
    const List<Word> copy = List<Word>::in(reinterpret_cast<UInt8*>(&shared + 1), capacity, 0);
    write_by_counting<kIsRagged>(input, values, indices, params, start, static_cast<UInt32>(length),
                                 list, copy, count, block);
  } else {
    List<Word> sorted = list;
    const UInt64 varying = state.varying_ones & state.varying_zeros;
    if (!sort_row_by_radix(sorted, scratch.list(1), count, varying, block, scratch.block_counts(),
                           row_barrier, shared)) {
      return;
    }
    for (Int64 rank = static_cast<Int64>(block) * kThreads + threadIdx.x; rank < params.k;
         rank += static_cast<Int64>(num_blocks) * kThreads) {
      write_listed<kIsRagged>(sorted.keys[rank], sorted.indices[rank], input, values, indices,
                              params, start, static_cast<UInt32>(length), rank);
    }
  }
}
