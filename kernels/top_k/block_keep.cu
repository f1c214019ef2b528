// Computes: the top k of rows that shared storage holds, read once; k may be a large part of a row.
// Idea: a histogram of the keys above a guessed floor finds the k-th and makes buckets to rank in.
// Ownership: a block owns a row, and each of its threads some loads of it.
// Requires: elements side by side; indices of narrow ones fit 16 bits; k of at most 4096.
// Chosen when: a row fits a block, and k is too large for lanes and for a filter.
#include "common/block_scan.cuh"
#include "common/for_constants.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/gather.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/network_rank.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_loads.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

constexpr int kThreads = 512;
// Loads of a thread that are in flight at once.
constexpr UInt32 kAhead = 8;

// Elements of a list that one element is compared with at once; as many padding elements follow the list.
constexpr UInt32 kCompared = 4;

// The fullest bucket whose elements are compared with each other: many more take longer than a network.
constexpr UInt32 kFullest = 256;

struct KeepParams : FineParams {
  Int64 kept_bytes;  // of shared storage for the row
  // Loads of a thread in a group: 1, 2, 4 or 8. The guess of the floor is the least of the groups' largest
  // keys, or if this is 0, the least key of all.
  Int64 loads_of_group;
};

struct alignas(16) KeepStorage {
  SelectStorage<kThreads> select;
  KeyBounds bounds;  // the largest key, and the guess of the floor
  UInt64 most;       // the largest distance of a listed element
};

// An element of a list: the distance of its key below the largest key, and its index. The element with the
// smaller distance, then the smaller index, ranks first; in the order of `Ranked`, it is the last.
template <class Word>
struct Listed {
  static constexpr UInt32 kLastIndex = sizeof(Word) < 4 ? 0xffff : kFullMask;

  Ranked<Word> ranked;

  static __device__ __forceinline__ Listed of(Wide<Word> distance, UInt32 index) {
    return {Ranked<Word>::of(static_cast<Word>(distance), kLastIndex - index)};
  }
  // Ranks before no element.
  static __device__ __forceinline__ Listed none() {
    return of(static_cast<Word>(~Word{0}), kLastIndex);
  }
  __device__ __forceinline__ Wide<Word> distance() const { return ranked.key(); }
  __device__ __forceinline__ UInt32 index() const { return kLastIndex - ranked.index(); }
  __device__ __forceinline__ bool is_before(const Listed& other) const {
    return other.ranked.is_before(ranked);
  }
};

__device__ __forceinline__ void clear(Bins& bins) {
#pragma unroll
  for (int i = 0; i < kNumBins / kThreads; ++i) bins[i * kThreads + threadIdx.x] = 0;
}

// A row in shared storage, at the places of its loads.
template <class Word>
struct KeptRow {
  static constexpr UInt32 kPerLoad = RowLoads<Word>::kPerLoad;
  // Elements that are visited at once. Four bytes would take more registers than there are.
  static constexpr UInt32 kAtOnce = sizeof(Word) == 1 || sizeof(Word) == 8 ? 2 : 4;

  const RowLoads<Word>& row;
  uint4* kept;
  UInt32 first_whole;  // the first load that lies in the row as a whole
  UInt32 end_whole;    // end of these loads
  UInt32 head_end;     // elements before this one precede these loads
  UInt32 tail_begin;   // the first element behind these loads

  __device__ __forceinline__ KeptRow(const RowLoads<Word>& row, uint4* kept)
      : row(row), kept(kept) {
    first_whole = row.skipped != 0 ? 1 : 0;
    end_whole = (row.length + row.skipped) / kPerLoad;
    head_end = first_whole != 0 ? min(row.length, kPerLoad - row.skipped) : 0;
    tail_begin = end_whole > 0 ? max(head_end, end_whole * kPerLoad - row.skipped) : head_end;
  }

  __device__ __forceinline__ Word* words() const { return reinterpret_cast<Word*>(kept); }
  __device__ __forceinline__ Word word(UInt32 index) const { return words()[index + row.skipped]; }
  __device__ __forceinline__ Word key(UInt32 index) const {
    return row.key_of(
        fine_key<Word>(static_cast<Wide<Word>>(word(index)) << kSpareBits<Word>, row.params));
  }

  // The thread's element outside of whole loads; the row's length or more if it has none.
  __device__ __forceinline__ UInt32 edge() const {
    return threadIdx.x < head_end ? threadIdx.x : tail_begin + (threadIdx.x - head_end);
  }

  // Reads kAhead of the thread's loads, from `load` on, as far as they are before `end_whole`. The largest
  // key of a group that is cut off there is no bound.
  template <bool kAreWhole>
  __device__ __forceinline__ void read_ahead(UInt32 load, UInt32 group_mask, Wide<Word>& largest,
                                             Wide<Word>& complement) const {
    const Word* address = row.elements + static_cast<Int64>(load) * kPerLoad - row.skipped;
    uint4 bytes[kAhead];
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      if constexpr (!kAreWhole) bytes[a] = row.padding();
      if (kAreWhole || load + a * kThreads < end_whole) {
        bytes[a] = load_16_bytes(address + a * kThreads * kPerLoad);
      }
    }
    Wide<Word> of_group = 0;
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      if (!kAreWhole && load + a * kThreads >= end_whole) break;
      kept[load + a * kThreads] = bytes[a];
      of_group = max(of_group, row.largest_fine(bytes[a]));
      if (((a + 1) & group_mask) == 0) {
        largest = max(largest, of_group);
        complement = max(complement, static_cast<Wide<Word>>(~of_group));
        of_group = 0;
      }
    }
    largest = max(largest, of_group);
  }

  // Reads the row; adds its largest fine key to `largest`, and the complement of the guess to `complement`.
  __device__ __forceinline__ void read(UInt32 loads_of_group, Wide<Word>& largest,
                                       Wide<Word>& complement) const {
    const UInt32 group_mask = loads_of_group - 1;
#pragma unroll 1
    for (UInt32 begin = first_whole; begin < end_whole; begin += kAhead * kThreads) {
      const UInt32 load = begin + threadIdx.x;
      if (begin + kAhead * kThreads <= end_whole) {
        read_ahead<true>(load, group_mask, largest, complement);
      } else {
        read_ahead<false>(load, group_mask, largest, complement);
      }
    }
    if (edge() < row.length) {
      const Word own = row.elements[edge()];
      words()[edge() + row.skipped] = own;
      const Wide<Word> fine =
          fine_key<Word>(static_cast<Wide<Word>>(own) << kSpareBits<Word>, row.params);
      largest = max(largest, fine);
      if (loads_of_group == 0) complement = max(complement, static_cast<Wide<Word>>(~fine));
    }
    if (loads_of_group != 0) return;
#pragma unroll 1
    for (UInt32 load = first_whole + threadIdx.x; load < end_whole; load += kThreads) {
      const uint4 bytes = kept[load];
#pragma unroll
      for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
        const Wide<Word> fine = fine_key<Word>(upper_word<Word>(bytes, i), row.params);
        complement = max(complement, static_cast<Wide<Word>>(~fine));
      }
    }
  }

  __device__ __forceinline__ Wide<Word> upper_at(UInt32 place) const {
    return static_cast<Wide<Word>>(words()[place]) << kSpareBits<Word>;
  }

  // Calls visit(elements, place of the first) for neighbouring elements of the thread, whose bits are in the
  // upper bits: kAtOnce of a load, or one outside of whole loads.
  template <class Visit>
  __device__ __forceinline__ void for_each(Visit visit) const {
#pragma unroll 1
    for (UInt32 load = first_whole + threadIdx.x; load < end_whole; load += kThreads) {
      const uint4 bytes = kept[load];
#pragma unroll
      for (UInt32 begin = 0; begin < kPerLoad; begin += kAtOnce) {
        Wide<Word> bits[kAtOnce];
#pragma unroll
        for (UInt32 i = 0; i < kAtOnce; ++i) bits[i] = upper_word<Word>(bytes, begin + i);
        visit(bits, load * kPerLoad + begin);
      }
    }
    if (edge() < row.length) {
      const Wide<Word> bits[1] = {upper_at(edge() + row.skipped)};
      visit(bits, edge() + row.skipped);
    }
  }
};

// What buckets have to tell apart: keys without NaNs and zeros of both signs; any keys; or few keys, and
// indices.
enum BucketKind { kPlainKeys, kAnyKeys, kFewKeys };

// Distances of keys below the largest key, and buckets of equal width, in which numbers near zero share a
// place: the first bucket has the largest keys, the last has everything below the floor. If there are few
// keys, buckets also tell indices apart, so that many equal elements do not fill one bucket.
template <class Word>
struct Buckets {
  using Key = Wide<Word>;
  static constexpr UInt32 kLast = kNumBins - 1;
  // Bits of keys and indices together. One bit less than a digit's, so that no such bucket is the last one.
  static constexpr int kFewBits = kDigitBits - 1;
  static constexpr Key kAllOnes = static_cast<Word>(~Word{0});
  const FineParams& params;
  Key top;       // the largest key
  UInt32 shift;  // bits dropped from a distance, to leave 32: the units of the buckets
  UInt32 range;  // distance of the floor below the largest key, in units
  Distances distances;
  UInt32 width;        // of a bucket, about
  UInt32 scale;        // 2^32 / width, rounded down
  UInt32 index_bits;   // upper bits of the index that buckets tell apart
  UInt32 index_shift;  // its lower bits, which buckets do not tell apart
  bool has_zeros;      // zeros of both signs may occur, whose keys differ though they tie
  BucketKind kind;
  Key plain_factor;  // factor and offset from ordered bits to a distance, in the upper bits
  Key plain_offset;

  static __device__ __forceinline__ Buckets of(Key top, Key least, UInt32 length,
                                               const RowLoads<Word>& row) {
    constexpr int kSpare = kSpareBits<Word>;
    const FineParams& params = row.params;
    Buckets made = {params, top, 0, 0, {}, 0, 0, 0, 31, false, kFewKeys, 0, 0};
    const int range_bits = 64 - __clzll(static_cast<Int64>(UInt64{top - least}));
    if constexpr (sizeof(Word) == 8) made.shift = max(0, range_bits - 32);
    const auto units = [&](Key keys) { return static_cast<UInt32>(keys >> made.shift); };
    made.distances = Distances::between<Word>(least, top, ZeroKey<Word>::of(row), units);
    made.range = units(top - least);
    made.width = (made.range - made.distances.middle) / kLast + 1;
    made.scale = kFullMask / made.width;
    made.index_bits = max(0, kFewBits - range_bits);
    if (made.index_bits > 0) {
      const UInt32 bits = 32 - __clz(static_cast<int>(length));
      made.index_shift = bits - min(bits, made.index_bits);
    }
    const Key zero = static_cast<Key>(params.zero) >> kSpare;
    const Key other_zero = static_cast<Key>(params.other_zero) >> kSpare;
    const Key first_nan = static_cast<Key>(params.first_nan) >> kSpare;
    const Key end_nan = static_cast<Key>(params.end_nan) >> kSpare;
    // Buckets but the last one may reach somewhat below the floor.
    const UInt64 reach = sizeof(Word) == 8
                             ? (UInt64{made.range} << made.shift) + (UInt64{1} << made.shift) - 1
                             : UInt64{kNumBins + 1} * made.width + made.distances.middle;
    const Key lowest = top > reach ? static_cast<Key>(top - reach) : 0;
    made.has_zeros = zero != other_zero && other_zero >= lowest && other_zero <= top;
    // A `first_nan` of all ones changes no key.
    const bool has_nans =
        top > first_nan || (top == first_nan && first_nan != kAllOnes) || lowest < end_nan;
    if (made.index_bits == 0) made.kind = made.has_zeros || has_nans ? kAnyKeys : kPlainKeys;
    made.plain_factor = static_cast<Key>(0 - static_cast<Key>(params.factor));
    made.plain_offset =
        (top << kSpare | ((Key{1} << kSpare) - 1)) - static_cast<Key>(params.offset);
    return made;
  }

  // The distance of an element whose bits are in the upper bits.
  template <BucketKind kKind>
  __device__ __forceinline__ Key distance(Key bits) const {
    if constexpr (kKind == kPlainKeys) {
      return (risen<Word>(bits, params) * plain_factor + plain_offset) >> kSpareBits<Word>;
    } else {
      const Key fine = fine_key<Word>(bits, params) & RowLoads<Word>::kElementMask;
      return static_cast<Key>(top - (coarse_key<Word>(fine, params) >> kSpareBits<Word>));
    }
  }
  // The bucket of an element, unless it is in the last bucket.
  template <BucketKind kKind>
  __device__ __forceinline__ UInt32 bucket(Key distance, UInt32 index) const {
    if constexpr (kKind == kFewKeys) {
      return static_cast<UInt32>(distance) << index_bits | index >> index_shift;
    }
    const UInt32 units = static_cast<UInt32>(distance >> shift);
    // Without zeros, nothing is skipped.
    return __umulhi(kKind == kAnyKeys ? distances.of(units) : units, scale);
  }
  // The bucket of any element.
  template <BucketKind kKind>
  __device__ __forceinline__ UInt32 any_bucket(Key distance, UInt32 index) const {
    if constexpr (kKind != kPlainKeys || sizeof(Word) == 8) {
      return distance >> shift > range ? kLast : bucket<kKind>(distance, index);
    } else {
      return min(kLast, bucket<kKind>(distance, index));
    }
  }
  // The largest distance in a bucket and those before it.
  template <BucketKind kKind>
  __device__ __forceinline__ Key most(UInt32 bucket) const {
    if constexpr (kKind == kFewKeys) return bucket >> index_bits;
    // The next bucket begins where a distance times `scale` reaches 2^32 times its number: at that number
    // times the width, and some more, because `scale` is rounded down.
    const UInt32 next = bucket + 1;
    const UInt32 rest = 0 - width * scale;  // 2^32 - width * scale: at least 1, at most `width`
    UInt64 end = UInt64{next} * width + (next * rest - 1) / scale + 1;
    if constexpr (kKind != kPlainKeys || sizeof(Word) == 8) {
      if (end > range - distances.middle) end = UInt64{range - distances.middle} + 1;
    }
    if (kKind == kAnyKeys) end = UInt64{distances.last_of(static_cast<UInt32>(end - 1))} + 1;
    return static_cast<Key>((end << shift) - 1);
  }
};

// Lists the elements that can be among the first `wanted`, by buckets. Returns the number of listed elements;
// 0 if too few are above the floor, or too many are in one bucket. The bins are clear before. Once elements
// are listed, the bins are the ends of the list's buckets.
template <BucketKind kKind, class Word>
__device__ __forceinline__ UInt32 list_by_buckets(const KeptRow<Word>& kept,
                                                  const Buckets<Word>& buckets, UInt32 wanted,
                                                  Listed<Word>* list, KeepStorage& shared) {
  using Key = Wide<Word>;
  Bins& bins = shared.select.bins;
  const UInt32 skipped = kept.row.skipped;
  kept.for_each([&](const auto& bits, UInt32 place) {
#pragma unroll
    for (UInt32 i = 0; i < sizeof(bits) / sizeof(bits[0]); ++i) {
      const Key distance = buckets.template distance<kKind>(bits[i]);
      // Without a branch: lanes that count in one bin, as in the last one, do not take turns.
      atomicAdd(&bins[buckets.template any_bucket<kKind>(distance, place + i - skipped)], 1);
    }
  });
  __syncthreads();  // every element is counted before the counts are read
  constexpr int kBinsPerThread = kNumBins / kThreads;
  const int first_bin = threadIdx.x * kBinsPerThread;
  UInt32 own[kBinsPerThread];
  UInt32 num_here = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    own[i] = bins[first_bin + i];
    num_here += own[i];
  }
  if (threadIdx.x == kThreads - 1) {  // what is below the floor does not count
    num_here -= own[kBinsPerThread - 1];
    own[kBinsPerThread - 1] = 0;
  }
  UInt32 num_above;
  UInt32 before = block_exclusive_sum<kThreads>(num_here, shared.select.warp_sums, num_above);
  UInt32 fullest = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    bins[first_bin + i] = before;
    if (before < wanted) {
      fullest = max(fullest, own[i]);
      if (before + own[i] >= wanted) {
        shared.select.digit = first_bin + i;
        shared.select.num_listed = before + own[i];
        shared.most = buckets.template most<kKind>(first_bin + i);
      }
    }
    before += own[i];
  }
  // The begins of all buckets, and the number, end and largest distance of the last listed bucket, are
  // written before they are read.
  const bool is_crowded = __syncthreads_or(fullest > kFullest ? 1 : 0) != 0;
  if (is_crowded || num_above < wanted) return 0;
  const UInt32 count = shared.select.num_listed;
  const UInt32 last_bucket = shared.select.digit;
  const Key most = static_cast<Key>(shared.most);
  if (threadIdx.x < kCompared) list[count + threadIdx.x] = Listed<Word>::none();
  kept.for_each([&](const auto& bits, UInt32 place) {
    constexpr UInt32 kCount = sizeof(bits) / sizeof(bits[0]);
    Key distances[kCount];
    UInt32 to[kCount];
    bool is_listed[kCount];
#pragma unroll
    for (UInt32 i = 0; i < kCount; ++i) {
      distances[i] = buckets.template distance<kKind>(bits[i]);
      const UInt32 bucket = buckets.template bucket<kKind>(distances[i], place + i - skipped);
      is_listed[i] = distances[i] <= most && (kKind != kFewKeys || bucket <= last_bucket);
      if (is_listed[i]) to[i] = atomicAdd(&bins[bucket], 1);
    }
#pragma unroll
    for (UInt32 i = 0; i < kCount; ++i) {
      if (is_listed[i]) list[to[i]] = Listed<Word>::of(distances[i], place + i - skipped);
    }
  });
  __syncthreads();  // buckets are complete, and the bins their ends, before elements are compared
  return count;
}

// Calls write(rank, index) for the first `wanted` elements of a list in buckets, whose ends are `bins`.
template <BucketKind kKind, class Word, class Write>
__device__ __forceinline__ void rank_in_buckets(const Buckets<Word>& buckets,
                                                const Listed<Word>* list, UInt32 count,
                                                UInt32 wanted, const Bins& bins, Write write) {
  for (UInt32 place = threadIdx.x; place < count; place += kThreads) {
    const Listed<Word> own = list[place];
    const UInt32 bucket = buckets.template bucket<kKind>(own.distance(), own.index());
    const UInt32 begin = bucket == 0 ? 0 : bins[bucket - 1];
    const UInt32 end = bins[bucket];
    UInt32 rank = begin;
    // Elements that are compared from behind the bucket rank behind it.
#pragma unroll 1
    for (UInt32 other = begin; other < end; other += kCompared) {
#pragma unroll
      for (UInt32 i = 0; i < kCompared; ++i) rank += list[other + i].is_before(own) ? 1 : 0;
    }
    if (rank < wanted) write(rank, own.index());
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads, 2)
    top_k_block_keep(const Word* __restrict__ input, Word* values, void* indices,
                     const __grid_constant__ KeepParams params) {
  using Key = Wide<Word>;
  SHARED_STORAGE(KeepStorage, shared);
  Bins& bins = shared.select.bins;
  clear(bins);
  if (threadIdx.x == 0) shared.bounds = {0, 0};
  const RowStart start = row_start(params, blockIdx.x);
  const UInt32 length = static_cast<UInt32>(params.row_length);
  const RowLoads<Word> row(input + start.input, length, params);
  UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
  const KeptRow<Word> kept(row, reinterpret_cast<uint4*>(storage));
  storage += params.kept_bytes;
  const UInt32 k = static_cast<UInt32>(params.k);

  // ---- Read the row.
  Key largest = 0;
  Key complement = 0;
  kept.read(static_cast<UInt32>(params.loads_of_group), largest, complement);
  __syncthreads();  // bins and bounds are clear before they are changed
  shared.bounds.add<Word>(largest >> kSpareBits<Word>, complement >> kSpareBits<Word>);
  __syncthreads();  // the row and the bounds are complete before they are read
  const auto coarse = [&](Key key) { return Key{row.key_of(key << kSpareBits<Word>)}; };
  const Key top = coarse(shared.bounds.largest_of<Word>());
  Key least =
      min(top, coarse(static_cast<Word>(~static_cast<Word>(shared.bounds.complement_of<Word>()))));
  const auto write = [&](UInt32 rank, UInt32 index) {
    write_element<false>(kept.word(index), index, length, values, indices, params, start, rank);
  };

  // ---- List what can be among the first k, and rank it.
  Listed<Word>* by_buckets = reinterpret_cast<Listed<Word>*>(storage);
  UInt32 count = 0;
  auto threshold = search_up_to<Word>(top, length, k);
  const auto for_each = [&](auto visit) {
#pragma unroll 4
    for (UInt32 i = threadIdx.x; i < length; i += kThreads) visit(kept.key(i), i);
  };
  // Bins are cleared without a loop, whose count would be in a register of its own from here on.
  const auto search = [&](auto& found, auto visit_each) {
    clear(bins);
    __syncthreads();  // bins are clear before any thread counts
    add_digits(found, bins, visit_each);
    narrow(found, bins, shared.select);
  };
#pragma unroll 1
  for (bool is_guess = true; count == 0; is_guess = false) {
    if (!is_guess) {
      // The guess is too high, or so low that buckets are too wide. A digit of the k-th key is a better
      // guess.
      search(threshold, [&](auto visit) { for_each([&](Word key, UInt32) { visit(key); }); });
      least = floor_of(threshold);
      clear(bins);
      __syncthreads();  // bins are clear before they are changed
    }
    const auto buckets = Buckets<Word>::of(top, least, length, row);
    // Of long words, a digit takes less time than buckets for both signs, which few results may not need.
    if (sizeof(Word) == 8 && is_guess && buckets.has_zeros && k <= length / 8 * 3) continue;
    const auto list_and_rank = [&](auto kind) {
      constexpr BucketKind kKind = static_cast<BucketKind>(decltype(kind)::value);
      count = list_by_buckets<kKind>(kept, buckets, k, by_buckets, shared);
      if (count > 0) rank_in_buckets<kKind>(buckets, by_buckets, count, k, bins, write);
    };
    if constexpr (sizeof(Word) == 1) {  // at most 256 keys
      list_and_rank(Constant<kFewKeys>());
    } else if (buckets.kind == kPlainKeys) {
      list_and_rank(Constant<kPlainKeys>());
    } else if (buckets.kind == kAnyKeys) {
      list_and_rank(Constant<kAnyKeys>());
    } else {
      list_and_rank(Constant<kFewKeys>());
    }
    if (!is_guess) break;
  }
  if (count == 0) {
    // Rare: many elements are alike.
    const Int64 capacity = params.list_capacity;
    const List<Word> list = List<Word>::in(storage, capacity, 0);
    UInt32* numbers = list.indices + capacity;
    const auto cut =
        Cut<Word>::of(threshold, static_cast<UInt32>(capacity), length - 1, for_each, search);
    if (threadIdx.x == 0) shared.select.num_listed = 0;
    __syncthreads();  // the counter is clear before anyone appends
    for_each([&](Word key, UInt32 index) {
      if (!cut.passes(key, index)) return;
      const UInt32 place = atomicAdd(&shared.select.num_listed, 1);
      list.put(place, key, index);
    });
    __syncthreads();  // all are listed before they are counted
    rank_by_network<Word, kThreads>(list, shared.select.num_listed, k, length - 1, numbers,
                                    shared.select,
                                    [&](UInt32 rank, Word, UInt32 index) { write(rank, index); });
  }
}
