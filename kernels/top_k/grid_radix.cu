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
#include "top_k/exchange.cuh"
#include "top_k/filter.cuh"
#include "top_k/gather.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/list_sort.cuh"
#include "top_k/put_in_order.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
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
// Guesses before a row is searched without one: a second sample is of other places.
constexpr int kGuesses = 2;

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
  Int64 ranked_capacity;  // of the list that a block ranks at once after an exchange
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
  UInt64 sample_largest;  // the largest key of the samples
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
// Calls start_loads() once the blocks have met, before it waits for their counts. Returns false if the wait
// for the other blocks gave up.
template <class StartLoads>
__device__ __forceinline__ bool count_blocks(Counts& before, Counts& all, const Counts& own,
                                             UInt32 block, UInt32* block_counts,
                                             RowBarrier& row_barrier, GridStorage& shared,
                                             StartLoads start_loads) {
  if (threadIdx.x == 0) {
    store_relaxed(&block_counts[2 * block], own.above);
    store_relaxed(&block_counts[2 * block + 1], own.equal);
  }
  if (!row_barrier.wait()) return false;
  start_loads();
  Counts first = {0, 0};
  Counts rest = {0, 0};
  for (UInt32 b = threadIdx.x; b < row_barrier.num_blocks; b += kThreads) {
    const uint2 counts = load_pair_relaxed(&block_counts[2 * b]);
    first.above += b < block ? counts.x : 0;
    first.equal += b < block ? counts.y : 0;
    rest.above += b < block ? 0 : counts.x;
    rest.equal += b < block ? 0 : counts.y;
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
  return {shared.select, shared.own_bins, static_cast<UInt32>(params.ranked_capacity) - kSpareRoom};
}

// Scatters small numbers: 2^32 divided by the golden ratio.
constexpr UInt32 kGoldenRatio = 0x9e3779b9;

// Finds digits of the sample's element of rank `sample_rank`, until at most `most_sampled` of its elements
// are at or above the floor that these digits make. Probably k of the row's elements, and few more, are.
// The first sample is of loads at even distances, the second of a random one in each distance. Returns false
// if the wait for the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool guess_floor(Threshold<Word>& floor, int guess, UInt32 most_sampled,
                                            const RowPart<Word>& part, const TopKParams& params,
                                            RowState<Word>& state, RowBarrier& row_barrier,
                                            GridStorage& shared) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kLoadsOfBlock = kSampledLoads * kThreads;
  uint4 bytes[kSampledLoads][1];
#pragma unroll
  for (UInt32 a = 0; a < kSampledLoads; ++a) {
    // A part has several times as many loads, except for the last part, which may be empty.
    constexpr UInt32 kDistance = ~UInt32{0} / kLoadsOfBlock + 1;
    const UInt32 number = a * kThreads + threadIdx.x;
    const UInt32 within = guess == 0 ? 0 : number * kGoldenRatio % kDistance;
    const UInt32 load = __umulhi(number * kDistance + within, part.length / kPerLoad);
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

// As `list_candidates`, for many elements, and lists them instead of their keys. A warp takes places for all
// of a tile at once, while the next tile's loads are in flight. Calls visit(place) for each listed element.
// If there is not room for all, the list may lack any, and some may not be visited.
template <class Word, class Visit>
__device__ __forceinline__ UInt32 list_by_warps(const RowPart<Word>& part, const TopKParams& params,
                                                const Threshold<Word>& floor,
                                                const PairList<Word>& list, UInt32 room,
                                                SelectShared& shared, Visit visit) {
  constexpr UInt32 kPerLoad = RowPart<Word>::kPerLoad;
  constexpr UInt32 kLoads = kLoadsAhead;
  constexpr UInt32 kPerThread = kLoads * kPerLoad;
  constexpr UInt32 kLoadDistance = kThreads * kPerLoad;
  static_assert(kPerThread <= 32, "bits of a word for a thread");
  constexpr UInt32 kAllOfThread = ~UInt32{0} >> (32 - kPerThread);
  const auto beside = AtOrAbove<Word>::of(floor_of(floor), params);
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone takes places
  const UInt32 head = part.num_before_vectors();
  if (threadIdx.x < head) {
    const Word element = part.elements[threadIdx.x];
    if (beside.is_above(element)) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      if (place < room) {
        list.put(place, LongRanked<Word>::of(element, part.first_index + threadIdx.x));
        visit(place);
      }
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
      if (beside.in_ranges(word_of<Word>(bytes[i / kPerLoad], i % kPerLoad))) left |= 1u << i;
    }
    if (beside.inverts) left ^= kAllOfThread;
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
    UInt32 end = 0;  // of the warp's places
    if (lane == kWarpSize - 1) end = atomicAdd(&shared.num_listed, up_to_lane) + up_to_lane;
    end = __shfl_sync(kFullMask, end, kWarpSize - 1);
    if (end > room) continue;  // the list is full: elements are only counted
    const UInt32 begin = end - __shfl_sync(kFullMask, up_to_lane, kWarpSize - 1);
    UInt32 place = begin + up_to_lane - num_here;
    const UInt32 first_index = rest.first_index + static_cast<UInt32>(first);
#pragma unroll
    for (UInt32 load = 0; load < kLoads; ++load) {
      constexpr UInt32 kAllOfLoad = (1u << kPerLoad) - 1;
      if ((left >> (load * kPerLoad) & kAllOfLoad) == 0) continue;
#pragma unroll
      for (UInt32 i = 0; i < kPerLoad; ++i) {
        if ((left >> (load * kPerLoad + i) & 1) == 0) continue;
        const Word element = word_of<Word>(bytes[load], i);
        list.put(place, LongRanked<Word>::of(element, first_index + load * kLoadDistance + i));
        ++place;
      }
    }
    __syncwarp();  // the warp's elements are listed before other lanes visit them
    for (UInt32 listed = begin + lane; listed < end; listed += kWarpSize) visit(listed);
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

// Clears what the blocks of a row have counted for a guess. Returns false if the wait for the other blocks
// gave up.
template <class Word>
__device__ __forceinline__ bool clear_guess(RowState<Word>& state, UInt32 block,
                                            RowBarrier& row_barrier) {
  if (!row_barrier.wait()) return false;  // all blocks have read the counts before they are cleared
  const UInt32 first = block * kThreads + threadIdx.x;
  for (UInt32 bin = first; bin < kNumBins; bin += row_barrier.num_blocks * kThreads) {
    state.buckets[bin] = 0;
#pragma unroll
    for (int digit = 0; digit < kSampleDigits; ++digit) state.sample_bins[digit][bin] = 0;
  }
  if (first < kSampleDigits) state.sample_ones[first] = state.sample_zeros[first] = 0;
  return row_barrier.wait();  // and they are clear before any is added to
}

// The result of a guess: nothing; a list, of an exchange or in order of index; more elements that tie with
// the floor than the list holds; or a threshold and the counts beside it, but no list.
enum GuessResult : UInt32 { kNothing, kExchanged, kListed, kTies, kCounted };

template <class Word>
struct Guess {
  GuessResult result;
  bool is_last;  // another sample would lead to the same
  UInt32 count;  // elements of the list
  Threshold<Word> threshold;
  Counts own;     // of the block's part
  Counts before;  // of the blocks before this one
};

// Lists the elements of the row that a guessed floor leaves. If they are sorted by digits and not exchanged,
// `seen` gets the bits of their keys. The guess fails if fewer than k are left, or more than the row's list
// holds; if a block or a bucket has no room for some of them, they are counted. Returns false if the wait for
// the other blocks gave up.
template <class Word>
__device__ __forceinline__ bool list_by_guess(Guess<Word>& guess, int number,
                                              const RowPart<Word>& part, const GridParams& params,
                                              RowState<Word>& state,
                                              const RowScratch<Word>& scratch, BitsSeen<Word>& seen,
                                              UInt32 block, RowBarrier& row_barrier,
                                              GridStorage& shared) {
  Threshold<Word>& floor = guess.threshold;
  const UInt32 rank = static_cast<UInt32>(params.sample_rank);
  const UInt32 most_sampled = rank + rank / 32 + 4;
  if (!guess_floor(floor, number, most_sampled, part, params, state, row_barrier, shared)) {
    return false;
  }
  if (!floor.fits(most_sampled)) {
    guess.result = kTies;
    return true;
  }
  const List<Word> own_list =
      List<Word>::in(reinterpret_cast<UInt8*>(&shared + 1), params.own_capacity, 0);
  const auto own_pairs = PairList<Word>::in(own_list);
  const UInt32 room = static_cast<UInt32>(params.own_capacity);
  const bool by_digits = params.sort_mode == kByDigits;
  const bool exchanges = kExchanges<Word> && by_digits;
  const bool in_order = !kExchanges<Word> && params.lists_in_order != 0;
  const auto exchange = exchange_of<Word>(params, shared);
  const auto buckets = EvenBuckets<Word>::between(
      floor_of(floor), static_cast<Word>(state.sample_largest), NoZeroKey());
  UInt16* const order = reinterpret_cast<UInt16*>(own_list.indices + params.own_capacity);
  UInt32 num_own = 0;
  if (!exchanges && !in_order) {
    num_own = list_candidates(part, params, floor, own_list, room, shared.select);
  }
  if constexpr (kExchanges<Word>) {
    if (exchanges) {
      const auto count_listed = [&](UInt32 place) {
        exchange.count(buckets, own_pairs, place, params);
      };
      exchange.clear();  // the list begins with a barrier
      num_own = list_by_warps(part, params, floor, own_pairs, room, shared.select, count_listed);
      // A full list may lack elements; then they are only counted.
      exchange.take_places(buckets, own_pairs, num_own > room ? 0 : num_own, state.buckets, order);
    }
  } else if (in_order) {
    num_own = list_candidates_in_order(part, params, floor, own_list, room, shared.select);
  }
  Counts before;
  Counts all;
  // A list in order that is full may lack elements.
  const Counts own = {num_own, num_own + (in_order ? 1 : 0) > room ? 1u : 0u};
  typename Exchange<Word, kThreads>::RowCounts row_counts;
  const auto start_loads = [&] {
    if (exchanges) row_counts = exchange.load_row(state.buckets);
  };
  if (!count_blocks(before, all, own, block, scratch.block_counts(), row_barrier, shared,
                    start_loads)) {
    return false;
  }
  // A list in order ends where it is full, so that not all are counted.
  guess.is_last = in_order && all.equal != 0;
  if (guess.is_last || all.above < params.k || all.above > params.list_capacity) return true;
  guess.count = all.above;
  if (all.equal != 0 || (exchanges && !exchange.sum_row(row_counts))) {
    // Elements at or above the floor, as if they were equal to it.
    floor = {floor.prefix, floor.shift, 0, all.above, static_cast<UInt32>(params.k)};
    guess.own = {0, num_own};
    guess.before = {0, before.above};
    guess.result = kCounted;
    return true;
  }
  const List<Word> list = scratch.list(0);
  if (exchanges) {
    exchange.move(buckets, own_pairs, num_own, order, PairList<Word>::in(list));
    guess.result = kExchanged;
    return true;
  }
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
  guess.result = kListed;
  return true;
}

// Counts a part's elements above a threshold and those equal to it.
template <class Word>
__device__ __forceinline__ Counts count_beside(const RowPart<Word>& part, const TopKParams& params,
                                               const Threshold<Word>& threshold,
                                               SelectShared& shared) {
  Counts counts = {0, 0};
  part.template visit<kThreads, kLoadsAhead>(params, threadIdx.x, [&](Word key, UInt32) {
    const Wide<Word> high_part = threshold.high_part(key);
    counts.above += high_part > threshold.prefix ? 1 : 0;
    counts.equal += high_part == threshold.prefix ? 1 : 0;
  });
  return {block_sum<kThreads>(counts.above, shared.warp_sums),
          block_sum<kThreads>(counts.equal, shared.warp_sums)};
}

// Whether elements that tie are counted before a search: it finds bytes by one digit, as fast.
template <class Word>
constexpr bool kCountsTies = sizeof(Word) > 1;

// Counts the elements beside a guessed floor that more elements tie with than the list holds. It is a little
// below the k-th key, so that perhaps none of them is wanted. Returns false if the wait for the other blocks
// gave up.
template <class Word>
__device__ __forceinline__ bool count_ties(Guess<Word>& guess, const RowPart<Word>& part,
                                           const TopKParams& params,
                                           const RowScratch<Word>& scratch, UInt32 block,
                                           RowBarrier& row_barrier, GridStorage& shared) {
  Threshold<Word>& threshold = guess.threshold;
  guess.own = count_beside(part, params, threshold, shared.select);
  Counts all;
  if (!count_blocks(guess.before, all, guess.own, block, scratch.block_counts(), row_barrier,
                    shared, [] {})) {
    return false;
  }
  const bool wants_ties = all.above < params.k;
  const bool is_found =
      wants_ties ? Int64{all.above} + all.equal >= params.k : all.above <= params.list_capacity;
  if (is_found) guess.result = kCounted;
  threshold.num_above = all.above;
  threshold.num_equal = wants_ties ? all.equal : 0;
  threshold.num_wanted = wants_ties ? static_cast<UInt32>(params.k) - all.above : 0;
  return true;
}

// As `list_by_guess`, which guesses again if the sample had other elements than the row.
template <class Word>
__device__ __forceinline__ bool list_by_guesses(Guess<Word>& guess, const RowPart<Word>& part,
                                                const GridParams& params, RowState<Word>& state,
                                                const RowScratch<Word>& scratch,
                                                BitsSeen<Word>& seen, UInt32 block,
                                                RowBarrier& row_barrier, GridStorage& shared) {
#pragma unroll 1
  for (int number = 0; number < kGuesses; ++number) {
    if (number > 0 && !clear_guess(state, block, row_barrier)) return false;
    if (!list_by_guess(guess, number, part, params, state, scratch, seen, block, row_barrier,
                       shared)) {
      return false;
    }
    if (guess.result != kNothing || guess.is_last) break;
  }
  if (kCountsTies<Word> && guess.result == kTies &&
      !count_ties(guess, part, params, scratch, block, row_barrier, shared)) {
    return false;
  }
  // All blocks have read `block_counts` before a search without a digit writes there.
  return (guess.result != kNothing && guess.result != kTies) || row_barrier.wait();
}

// Lists the elements of the row that a search for the k-th key, digit by digit, leaves, `count` of them.
// Unless pairs are compared, they are in order of index, and `seen` gets the bits of their keys. The search
// begins with the threshold of a guess, if elements are counted beside it. Returns false if the wait for the
// other blocks gave up.
template <class Word>
__device__ __forceinline__ bool list_by_search(UInt32& count, UInt32 length,
                                               const Guess<Word>& guess, const RowPart<Word>& part,
                                               const TopKParams& params, RowState<Word>& state,
                                               const RowScratch<Word>& scratch,
                                               BitsSeen<Word>& seen, UInt32 block,
                                               RowBarrier& row_barrier, GridStorage& shared) {
  bool are_summed = guess.result == kCounted;
  auto threshold = guess.threshold;
  Counts own = guess.own;
  Counts before = guess.before;
  if (!are_summed) {
    threshold = Threshold<Word>::start(length, static_cast<UInt32>(params.k));
    own = {0, part.length};
  }
  for (int digit = 0; !threshold.fits(params.list_capacity) && !threshold.is_exact(); ++digit) {
    are_summed = false;
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
  if (params.sort_mode != kByDigits && all_fit && !are_summed) {
    if (threadIdx.x == 0) {
      shared.list_begin = atomicAdd(&state.num_listed, own.above + own.equal);
    }
    __syncthreads();  // the block's place in the list is known before it is written
    const List<Word> own_list = {list.keys + shared.list_begin, list.indices + shared.list_begin};
    list_in_any_order(part, params, threshold, own.above + own.equal, own_list, shared.select);
  } else {
    Counts all;
    if (!are_summed && !count_blocks(before, all, own, block, scratch.block_counts(), row_barrier,
                                     shared, [] {})) {
      return false;
    }
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

  Guess<Word> guess = {};
  BitsSeen<Word> seen;
  if (!kIsRagged && params.sample_rank > 0 &&
      !list_by_guesses(guess, part, params, state, scratch, seen, block, row_barrier, shared)) {
    return;
  }
  UInt32 count = guess.count;
  const bool is_exchanged = guess.result == kExchanged;
  if (!is_exchanged && guess.result != kListed &&
      !list_by_search(count, static_cast<UInt32>(length), guess, part, params, state, scratch, seen,
                      block, row_barrier, shared)) {
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
        .rank(PairList<Word>::in(list), count, static_cast<UInt32>(params.k), block, num_blocks,
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
