// Computes: the top k of rows of any length, for any k, by blocks of one thread.
// Idea: elements that rank before the k-th so far are listed; a full list is cut to the first k.
// Ownership: a block owns a row at a time, and reads all but its first and last elements once.
// Requires: list_capacity >= k + kGroup, a multiple of kGroup, or the row's length; three lists.
// Chosen when: blocks of one thread are the fastest, as on a CPU.
#include "common/compaction.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/rows.cuh"

// Elements that are compared with the floor at once, and keys that are compared with each other at once.
constexpr UInt32 kGroup = 32;
constexpr UInt32 kVector = 16;
// The longest list that is sorted by comparing each pair of its keys.
constexpr UInt32 kMaxCounted = 192;
// The longest list that is sorted whole, and the same if fewer than half of its keys are results.
constexpr UInt32 kMaxRanked = 96;
constexpr UInt32 kMaxRankedWhole = 64;
// The first elements of a row, at most kMaxStretch, are read twice; they stay in a near cache. The first pass
// finds a floor: the k-th of the maxima of interleaved classes. There must be at least 2 * k classes.
constexpr UInt32 kFewClasses = 16;
constexpr UInt32 kClasses = 64;
constexpr UInt32 kMaxStretch = 2048;
// A list is full soon if more than 1 in kSteepness elements passes the floor. In random order, fewer than 1
// in 3 pass, because a list holds three times k or more before it is cut.
constexpr UInt64 kSteepness = 2;
// If more elements of a group pass the floor, all elements of the group are visited, not only the passing
// elements.
constexpr UInt32 kMaxSparse = 10;

struct SerialStorage {
  UInt32 bins[256];
};

// The candidates of a row in order of index. Keys are padded with zeros to a multiple of kVector before they
// are compared.
template <class Word>
struct SerialList {
  using Key = Wide<Word>;

  Key* keys;
  Key* scratch;
  UInt32* indices;
  UInt32 count;

  // In storage of round_up(capacity, kGroup) * (2 * sizeof(Key) + 2 * sizeof(UInt32)) bytes.
  static __device__ __forceinline__ SerialList in(UInt8* storage, Int64 capacity) {
    const Int64 length = (capacity + kGroup - 1) / kGroup * kGroup;
    Key* keys = reinterpret_cast<Key*>(storage);
    return {keys, keys + length, reinterpret_cast<UInt32*>(keys + 2 * length), 0};
  }
  __device__ __forceinline__ void append(Key key, UInt32 index, bool passes) {
    keys[count] = key;
    indices[count] = index;
    count += passes ? 1 : 0;
  }
};

template <class Key>
__device__ __forceinline__ void pad(Key* keys, UInt32 count) {
  for (UInt32 i = count; i % kVector != 0; ++i) keys[i] = 0;
}

// The number of `count` padded keys that are above a limit.
template <class Key>
__device__ __forceinline__ UInt32 count_above(const Key* keys, UInt32 count, Key limit) {
  const Key* const end = keys + count;
  if constexpr (kCompactsAtOnce<Key>) {
    UInt32 num_above = 0;
    for (; keys < end; keys += kCompacted) num_above += __popc(bits_above(keys, limit));
    return num_above;
  }
  Key above[kVector] = {};
  for (; keys < end; keys += kVector) {
    for (UInt32 j = 0; j < kVector; ++j) above[j] += keys[j] > limit ? 1 : 0;
  }
  Key num_above = 0;
  for (UInt32 j = 0; j < kVector; ++j) num_above += above[j];
  return static_cast<UInt32>(num_above);
}

// Moves the keys above a pivot, or those below, to `kept`, which may be the same storage. Returns their
// number.
template <bool kIsAbove, class Key>
__device__ __forceinline__ UInt32 keep_keys(const Key* keys, UInt32 count, Key pivot, Key* kept) {
  UInt32 num_kept = 0;
  if constexpr (kCompactsAtOnce<Key>) {
    if (!kIsAbove && pivot == 0) return 0;
    const Key limit = kIsAbove ? pivot : static_cast<Key>(pivot - 1);
    for (UInt32 first = 0; first < count; first += kCompacted) {
      const UInt32 above = bits_above(keys + first, limit);
      const UInt32 here = (1u << min(kCompacted, count - first)) - 1;
      const UInt32 bits = (kIsAbove ? above : ~above) & here;
      store_where(kept + num_kept, keys + first, bits);
      num_kept += __popc(bits);
    }
    return num_kept;
  }
  for (UInt32 i = 0; i < count; ++i) {
    const Key key = keys[i];
    kept[num_kept] = key;
    num_kept += (kIsAbove ? key > pivot : key < pivot) ? 1 : 0;
  }
  return num_kept;
}

// The k-th largest key of a list of k or more; `num_above` becomes the number of larger keys.
template <class Word>
__device__ __forceinline__ Wide<Word> kth_key(const SerialList<Word>& list, UInt32 k,
                                              UInt32& num_above) {
  using Key = Wide<Word>;
  const Key* keys = list.keys;
  UInt32 count = list.count;
  num_above = 0;
  // The bounds of the result, inclusive.
  Key lowest = 0;
  Key highest = static_cast<Key>(~Key{0});
  for (UInt32 round = 1; lowest < highest; ++round) {
    // The pivot is the one of three keys whose rank is probably nearest to the wanted rank. Every fourth
    // round halves the interval instead, which limits the number of rounds for any keys.
    const Key a = keys[count / 4];
    const Key b = keys[count / 2];
    const Key c = keys[count - 1 - count / 4];
    const UInt32 num_wanted = k - num_above;
    Key pivot = max(min(a, b), min(max(a, b), c));
    if (num_wanted < count / 4) pivot = max(max(a, b), c);
    if (num_wanted > count - count / 4) pivot = min(min(a, b), c);
    if (round % 4 == 0) pivot = lowest + (highest - lowest) / 2;
    pad(list.scratch, keys == list.scratch ? count : 0);
    const UInt32 num_larger = count_above(keys, count, pivot);
    UInt32 num_kept = 0;
    if (num_above + num_larger >= k) {
      lowest = pivot + 1;
      num_kept = keep_keys<true>(keys, count, pivot, list.scratch);
    } else {
      num_kept = keep_keys<false>(keys, count, pivot, list.scratch);
      const UInt32 num_reached = count - num_kept;
      if (num_above + num_reached >= k) {
        num_above += num_larger;
        return pivot;
      }
      num_above += num_reached;
      highest = pivot - 1;
    }
    keys = list.scratch;
    count = num_kept;
  }
  return lowest;
}

// Cuts a list of more than k elements to the first k, and returns the k-th key.
template <class Word>
__device__ __forceinline__ Wide<Word> cut(SerialList<Word>& list, UInt32 k) {
  using Key = Wide<Word>;
  pad(list.keys, list.count);
  UInt32 num_above;
  const Key kth = kth_key(list, k, num_above);
  // Among the elements that tie with the k-th, those of lower index stay.
  UInt32 num_ties_left = k - num_above;
  UInt32 num_kept = 0;
  UInt32 i = 0;
  if constexpr (kCompactsAtOnce<Key>) {
    // This loop runs as long as all ties of a vector stay. The list ends with a whole vector, padded with
    // zeros.
    for (; i < list.count && num_kept < k; i += kCompacted) {
      const UInt32 above = bits_above(list.keys + i, kth);
      const UInt32 here = (1u << min(kCompacted, list.count - i)) - 1;
      const UInt32 reaching = kth == 0 ? here : bits_above<Key>(list.keys + i, kth - 1) & here;
      const UInt32 num_ties = __popc(reaching ^ above);
      if (num_ties > num_ties_left) break;
      store_where(list.keys + num_kept, list.keys + i, reaching);
      store_where(list.indices + num_kept, list.indices + i, reaching);
      num_kept += __popc(reaching);
      num_ties_left -= num_ties;
    }
  }
  for (; num_kept < k; ++i) {
    const Key key = list.keys[i];
    const UInt32 ties = key == kth && num_ties_left != 0 ? 1 : 0;
    list.keys[num_kept] = key;
    list.indices[num_kept] = list.indices[i];
    num_kept += (key > kth ? 1 : 0) + ties;
    num_ties_left -= ties;
  }
  list.count = k;
  return kth;
}

// The keys of `count` neighbouring elements, padded with zeros to a group.
template <class Word>
__device__ __forceinline__ void load_keys(const Word* elements, Int64 stride, UInt64 count,
                                          const TopKParams& params, Word (&keys)[kGroup]) {
  if (stride == 1 && count >= kGroup) {
    for (UInt32 j = 0; j < kGroup; ++j) keys[j] = ordering_key(elements[j], params);
    return;
  }
  const UInt32 num_loaded = static_cast<UInt32>(min(count, UInt64{kGroup}));
  UInt32 num_before = 0;
  // A vector at once, because a load of a vector soon after its parts were stored has to wait.
  if (stride == 1 && num_loaded >= kVector) {
    for (UInt32 j = 0; j < kVector; ++j) keys[j] = elements[j];
    num_before = kVector;
  }
  for (UInt32 j = num_before; j < num_loaded; ++j) keys[j] = elements[j * stride];
  for (UInt32 j = 0; j < kGroup; ++j) keys[j] = ordering_key(keys[j], params);
  for (UInt32 j = num_loaded; j < kGroup; ++j) keys[j] = 0;
}

// Lists the keys above the floor of a group that begins at `index`.
template <class Word>
__device__ __forceinline__ void filter_group(SerialList<Word>& list, const Word (&keys)[kGroup],
                                             UInt32 index, Word floor) {
  using Key = Wide<Word>;
  if constexpr (kCompactsAtOnce<Key>) {
    constexpr UInt32 kVectors = kGroup / kCompacted;
    Key wide[kGroup];
    UInt32 bits[kVectors];
    UInt32 any = 0;
    for (UInt32 j = 0; j < kGroup; ++j) wide[j] = keys[j];
    for (UInt32 v = 0; v < kVectors; ++v) {
      bits[v] = bits_above<Key>(wide + v * kCompacted, floor);
      any |= bits[v];
    }
    if (any == 0) return;
    for (UInt32 v = 0; v < kVectors; ++v) {
      UInt32 indices[kCompacted];
      for (UInt32 j = 0; j < kCompacted; ++j) indices[j] = index + v * kCompacted + j;
      store_where(list.keys + list.count, wide + v * kCompacted, bits[v]);
      store_where(list.indices + list.count, indices, bits[v]);
      list.count += __popc(bits[v]);
    }
    return;
  }
  constexpr UInt32 kParts = kGroup / 8;
  // One byte per element, so that eight are tested at a time.
  union {
    UInt8 bytes[kGroup];
    UInt64 parts[kParts];
  } passing;
  for (UInt32 j = 0; j < kGroup; ++j) passing.bytes[j] = keys[j] > floor ? 1 : 0;
  UInt64 sums = 0;
  for (UInt32 p = 0; p < kParts; ++p) sums += passing.parts[p];
  if (sums == 0) return;
  const UInt32 num_passing = static_cast<UInt32>(sums * 0x0101010101010101ull >> 56);
  if (num_passing > kMaxSparse) {
    for (UInt32 j = 0; j < kGroup; ++j) list.append(keys[j], index + j, passing.bytes[j] != 0);
    return;
  }
  for (UInt32 p = 0; p < kParts; ++p) {
    for (UInt64 part = passing.parts[p]; part != 0; part &= part - 1) {
      const UInt32 j = 8 * p + (__ffsll(static_cast<Int64>(part)) - 1) / 8;
      list.append(keys[j], index + j, true);
    }
  }
}

// The k-th largest of kCount keys: the least of the keys that have fewer than k keys above them.
template <UInt32 kCount, class Word>
__device__ __forceinline__ Word kth_of_few(const Word (&keys)[kCount], UInt32 k) {
  Word num_above[kCount] = {};
  for (UInt32 i = 0; i < kCount; ++i) {
    for (UInt32 j = 0; j < kCount; ++j) num_above[j] += keys[i] > keys[j] ? 1 : 0;
  }
  const Word num_wanted = static_cast<Word>(k);
  Word kth = static_cast<Word>(~Word{0});
  for (UInt32 j = 0; j < kCount; ++j) kth = min(kth, num_above[j] < num_wanted ? keys[j] : kth);
  return kth;
}

// A key that at least k elements of a stretch reach: the k-th of the maxima of its interleaved classes.
template <UInt32 kNumClasses, class Word>
__device__ __forceinline__ Word reached_key(const Word* elements, const TopKParams& params,
                                            UInt32 length, UInt32 k) {
  Word largest[kNumClasses] = {};
  for (UInt32 i = 0; i + kNumClasses <= length; i += kNumClasses) {
    for (UInt32 c = 0; c < kNumClasses; ++c) {
      largest[c] = max(largest[c], ordering_key(elements[i + c], params));
    }
  }
  return kth_of_few(largest, k);
}

// A key that at least k elements reach: the k-th among the last elements of a row. Of the `num_left`
// elements, it looks at as many as fit behind a list that was just cut.
template <class Word>
__device__ __forceinline__ Word key_reached_at_end(const SerialList<Word>& list,
                                                   const Word* elements, const TopKParams& params,
                                                   UInt64 num_left, UInt32 k) {
  const Int64 stride = params.input_axis_stride;
  const UInt64 first = (list.count + kVector - 1) / kVector * kVector;
  const UInt64 count = min(num_left, static_cast<UInt64>(params.list_capacity) - first);
  if (count < k) return 0;
  const SerialList<Word> last = {list.keys + first, list.scratch, list.indices,
                                 static_cast<UInt32>(count)};
  for (UInt64 j = 0; j < count; ++j) {
    last.keys[j] =
        ordering_key(elements[static_cast<Int64>(num_left - count + j) * stride], params);
  }
  pad(last.keys, last.count);
  UInt32 num_above;
  return static_cast<Word>(kth_key(last, k, num_above));
}

// Lists the first k elements of a row, perhaps with others, in order of index.
template <class Word>
__device__ __forceinline__ void list_row(SerialList<Word>& list, const Word* elements,
                                         const TopKParams& params, UInt32 length, UInt32 k) {
  const Int64 stride = params.input_axis_stride;
  Word keys[kGroup];
  UInt64 i = 0;
  Word reached = 0;
  if (stride == 1) {
    const UInt32 stretch = min(length, kMaxStretch);
    if (k <= kFewClasses / 2 && length >= 4 * kFewClasses) {
      reached = reached_key<kFewClasses>(elements, params, stretch, k);
    } else if (k <= kClasses / 2 && length >= 4 * kClasses) {
      reached = reached_key<kClasses>(elements, params, stretch, k);
    }
  }
  // Keys above the floor are listed. A floor just below `reached` lets the keys equal to it pass.
  Word floor = reached;
  if (reached != 0) {
    --floor;
    list.count = 0;
  } else {
    const UInt32 num_listed =
        static_cast<UInt32>(min(static_cast<Int64>(length), params.list_capacity));
    for (; i < num_listed; i += kGroup) {
      load_keys(elements + i * stride, stride, num_listed - i, params, keys);
      for (UInt32 j = 0; j < kGroup; ++j) list.keys[i + j] = keys[j];
      for (UInt32 j = 0; j < kGroup; ++j) list.indices[i + j] = static_cast<UInt32>(i) + j;
    }
    list.count = num_listed;
    if (num_listed == length) return;
    floor = static_cast<Word>(cut(list, k));
  }
  // If the list is full again soon, the row probably ascends, so that its end tells more. The end is looked
  // at only once.
  const UInt64 slack = params.list_capacity - k;
  UInt64 soon = i + kSteepness * slack;
  for (; i < length; i += kGroup) {
    if (list.count + kGroup > params.list_capacity) {
      floor = max(floor, static_cast<Word>(cut(list, k)));
      if (i < soon) {
        const Word last = key_reached_at_end(list, elements + i * stride, params, length - i, k);
        if (last > floor) floor = last - 1;
        soon = 0;
      } else if (soon != 0) {
        soon = i + kSteepness * slack;
      }
    }
    if (list.count >= k) floor = max(floor, reached);
    load_keys(elements + i * stride, stride, length - i, params, keys);
    filter_group(list, keys, static_cast<UInt32>(i), floor);
  }
  // If the input changed while it was read, fewer than k may have been listed.
  for (; list.count < k; ++list.count) list.keys[list.count] = list.indices[list.count] = 0;
}

// Sorts the indices of a short list by descending key and then by place, without branches: an element's rank
// is the number of elements before it.
template <class Word>
__device__ __forceinline__ void sort_by_counting(const SerialList<Word>& list, UInt32 k,
                                                 UInt32* sorted) {
  using Key = Wide<Word>;
  pad(list.keys, list.count);
  for (UInt32 first = 0; first < list.count; first += kVector) {
    const UInt32 end = min(list.count, first + kVector);
    const Key* const group = list.keys + first;
    Key own[kVector];
    for (UInt32 j = 0; j < kVector; ++j) own[j] = group[j];
    Key ranks[kVector] = {};
    for (UInt32 i = 0; i < first; ++i) {
      for (UInt32 j = 0; j < kVector; ++j) ranks[j] += list.keys[i] >= own[j] ? 1 : 0;
    }
    for (UInt32 i = first; i < end; ++i) {
      const Key key = list.keys[i];
      for (UInt32 j = 0; j < kVector; ++j) {
        ranks[j] += (key > own[j]) | ((key == own[j]) & (i - first < j)) ? 1 : 0;
      }
    }
    for (UInt32 i = end; i < list.count; ++i) {
      for (UInt32 j = 0; j < kVector; ++j) ranks[j] += list.keys[i] > own[j] ? 1 : 0;
    }
    if constexpr (kCompactsAtOnce<Key>) {
      UInt32 results = ~bits_above(ranks, static_cast<Key>(k - 1)) & ((1u << (end - first)) - 1);
      for (; results != 0; results &= results - 1) {
        const UInt32 j = __ffs(static_cast<int>(results)) - 1;
        sorted[ranks[j]] = list.indices[first + j];
      }
      continue;
    }
    for (UInt32 j = first; j < end; ++j) sorted[ranks[j - first]] = list.indices[j];
  }
}

// Sorts a list by descending key; equal keys keep their order. Returns the sorted indices.
template <class Word>
__device__ __forceinline__ const UInt32* sort_serially(const SerialList<Word>& list,
                                                       UInt32* other_indices, UInt32* bins) {
  using Key = Wide<Word>;
  constexpr UInt32 kBins = 256;
  Key ones = 0;
  Key zeros = 0;
  for (UInt32 i = 0; i < list.count; ++i) {
    ones |= list.keys[i];
    zeros |= ~list.keys[i];
  }
  const Key varying = ones & zeros;
  Key* from_keys = list.keys;
  Key* to_keys = list.scratch;
  UInt32* from = list.indices;
  UInt32* to = other_indices;
  for (int shift = 0; shift < 8 * static_cast<int>(sizeof(Word)); shift += 8) {
    if ((varying >> shift & (kBins - 1)) == 0) continue;
    for (UInt32 bin = 0; bin < kBins; ++bin) bins[bin] = 0;
    for (UInt32 i = 0; i < list.count; ++i) ++bins[~from_keys[i] >> shift & (kBins - 1)];
    UInt32 place = 0;
    for (UInt32 bin = 0; bin < kBins; ++bin) {
      const UInt32 num_in_bin = bins[bin];
      bins[bin] = place;
      place += num_in_bin;
    }
    for (UInt32 i = 0; i < list.count; ++i) {
      const UInt32 to_place = bins[~from_keys[i] >> shift & (kBins - 1)]++;
      to_keys[to_place] = from_keys[i];
      to[to_place] = from[i];
    }
    Key* const moved_keys = to_keys;
    to_keys = from_keys;
    from_keys = moved_keys;
    UInt32* const moved = to;
    to = from;
    from = moved;
  }
  return from;
}

template <class Word, bool kIsRagged = false>
__global__ void __launch_bounds__(1)
    top_k_serial(const Word* __restrict__ input, Word* values, void* indices, const void* lengths,
                 UInt8* workspace, const __grid_constant__ TopKParams params) {
  using Key = Wide<Word>;
  SHARED_STORAGE(SerialStorage, shared);
  const Int64 capacity = (params.list_capacity + kGroup - 1) / kGroup * kGroup;
  UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
  if (workspace != nullptr) {
    storage = workspace +
              blockIdx.x * capacity * static_cast<Int64>(2 * sizeof(Key) + 2 * sizeof(UInt32));
  }
  const UInt32 k = static_cast<UInt32>(params.k);
  SerialList<Word> list = SerialList<Word>::in(storage, capacity);
  UInt32* other_indices = list.indices + capacity;

  for (Int64 row = blockIdx.x; row < params.num_rows; row += gridDim.x) {
    const RowStart start = row_start(params, row);
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
    list_row(list, input + start.input, params, length, k);
    // A short list is ranked whole, because cutting it first would take longer. If few elements would be cut,
    // so is a somewhat longer list.
    const UInt32 most = 2 * params.k >= list.count ? kMaxRanked : kMaxRankedWhole;
    if (list.count > k && list.count > most) cut(list, k);
    const UInt32* sorted = other_indices;
    if (list.count > kMaxCounted) {
      sorted = sort_serially(list, other_indices, shared.bins);
    } else {
      sort_by_counting(list, k, other_indices);
    }
    for (UInt32 rank = 0; rank < k; ++rank) {
      const UInt32 index = kIsRagged && rank >= list.count ? kFullMask : sorted[rank];
      write_result<kIsRagged>(input, values, indices, params, start, length, rank, index);
    }
  }
}
