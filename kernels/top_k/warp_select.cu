// Computes: the top k of short rows for small k.
// Idea: all results are in the units (neighbouring elements) whose largest keys rank first.
// Ownership: kLanes lanes own a row at a time, in shared storage.
// Requires: rows of at most kLanes * kUnits * kUnit elements, and k of at most kFirst.
// Chosen when: k is small, and rows have up to some thousand elements.
#include "common/compiler.cuh"
#include "common/intrinsics.cuh"
#include "common/lane_sum.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/key_network.cuh"
#include "top_k/load_rows.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

// A warp for each partition of a multiprocessor.
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;

// A unit is kUnit neighbouring elements; a lane has kUnits of them. The k units with the largest maxima (the
// lower index if equal) contain all results, because their k maxima rank before every element of the other
// units. An element of these units can be a result only if it reaches the smallest of the maxima, as few more
// than k do. The network that finds the k-th maximum is made for a k of kFirst, so that up to kFirst units
// are chosen.
template <class Word, int kLanes, int kUnits, int kUnit, int kFirst>
struct Shape {
  static constexpr int kCapacity = kLanes * kUnits * kUnit;
  static constexpr int kPerVector = 16 / static_cast<int>(sizeof(Word));
  static constexpr UInt32 kLoadsAhead = 4;
  // A lane reads blocks of whole vectors and whole units: its block m is block m * kLanes + lane of the row.
  static constexpr int kBlock = kUnit > kPerVector ? kUnit : kPerVector;
  static constexpr int kBlocks = kUnits * kUnit / kBlock;
  static constexpr int kUnitsOfBlock = kBlock / kUnit;
  static constexpr int kVectorsOfBlock = kBlock / kPerVector;
  static constexpr int kVectors = kBlocks * kVectorsOfBlock;
  static constexpr int kRows = kWarpSize / kLanes;

  static constexpr bool kIsSmall = kUnits <= 8 && (kFirst <= 8 || (kFirst <= 16 && kUnit <= 8));

  // More candidates than this are not compared with each other. Only wide units may have more, and small
  // shapes of bytes for up to 8 results have no registers left.
  static constexpr UInt32 kMany = kLanes > 16 ? 128 : 64;
  static constexpr bool kMayBeMany = sizeof(Word) <= 2 && kFirst * kUnit > kMany &&
                                     !(kIsSmall && kFirst <= 8 && sizeof(Word) == 1);

  struct Row {
    SharedArray<uint4, kLanes * kVectors> vectors;
    SharedArray<Ranked<Word>, kFirst * kUnit> candidates;
    SharedArray<UInt16, kFirst> units;
  };
  struct Warp {
    SharedArray<Row, kRows> rows;
  };
  // Small shapes fit 64 registers per thread, so that 32 warps run at once. Other shapes need more, above all
  // shapes that list the elements themselves, because their keys are kept for that. For the longest rows,
  // shared storage limits the threads.
  static constexpr int kMinThreads =
      (kCapacity > 2048            ? (kCapacity * sizeof(Word) > 8192 ? 384 : 512)
       : kIsSmall                  ? 1024
       : kFirst <= 8               ? 640
       : kFirst <= 16 || kUnit > 1 ? 512
                                   : 384) /
      (sizeof(Word) == 8 ? 2 : 1);
  static constexpr int kMinBlocks = kMinThreads / kThreads;
  // Compilers of CUDA 12 need a few registers more, and would spill them; so would others, for some
  // architectures, if a unit has many elements.
  static constexpr bool kIsTight = kIsSmall || (kFirst > 16 && kUnit > 1);
  static constexpr int kBoundBlocks =
      kMinBlocks - (kIsTight && (kCompilerMajor < 13 || kUnit > 8) ? 1 : 0);
  struct Storage {
    SharedArray<Warp, kWarps> warps;
  };
};

// The sum of `own` over the lower lanes of the group; `total` becomes the sum over all of its lanes.
template <int kLanes>
__device__ __forceinline__ UInt32 sum_below(UInt32 own, UInt32& total) {
  const UInt32 sum = sum_up_to_lane<kLanes>(own);
  total = __shfl_sync(kFullMask, sum, kLanes - 1, kLanes);
  return sum - own;
}

// The work of kLanes lanes on their row. Every lane of the warp calls every function.
template <class Word, int kLanes, int kUnits, int kUnit, int kFirst>
struct Group {
  using Of = Shape<Word, kLanes, kUnits, kUnit, kFirst>;
  using Key = Wide<Word>;
  using Pair = Ranked<Word>;
  // Narrow keys have room for the number of their unit, which makes them distinct.
  static constexpr bool kHasNumber = sizeof(Word) <= 2;
  static constexpr Key kNumberMask = kHasNumber ? 0xffff : 0;
  static constexpr Key kElementMask = ~((Key{1} << kSpareBits<Word>)-1);
  // Whether two keys are made at once, and the maxima of units two by two.
  static constexpr bool kIsPaired = kHasHalves && sizeof(Word) == 2 && kUnit > 1;
  // Whether the range of a row's keys is found. For units of one element and for keys of 64 bits, it takes
  // less time to look at all candidates.
  static constexpr bool kHasRange = kUnit > 1 && sizeof(Word) < 8;
  // Candidates that another one is compared with at once; the list's size is a multiple of this.
  static constexpr UInt32 kAtOnce = kHasRange ? 4 : 1;
  static constexpr int kUnrolled = kUnit == 1 ? kFirst : 4 / kAtOnce;

  typename Of::Row& row;
  const FineParams& params;
  UInt32 lane;
  UInt32 first_unit;  // the lane's first unit

  __device__ __forceinline__ UInt32 unit_of(int j) const {
    return first_unit + j / Of::kUnitsOfBlock * kLanes * Of::kUnitsOfBlock + j % Of::kUnitsOfBlock;
  }

  // The largest key of each of the lane's units.
  __device__ __forceinline__ void find_first_keys(Key (&first)[kUnits]) const {
    if constexpr (kIsPaired) {
      find_paired_keys(first);
    } else {
#pragma unroll
      for (int m = 0; m < Of::kBlocks; ++m) {
#pragma unroll
        for (int v = 0; v < Of::kVectorsOfBlock; ++v) {
          const uint4 bytes = row.vectors[(m * kLanes + lane) * Of::kVectorsOfBlock + v];
#pragma unroll
          for (int i = 0; i < Of::kPerVector; ++i) {
            const Key key = fine_key<Word>(upper_word<Word>(bytes, i), params);
            const int element = v * Of::kPerVector + i;
            Key& unit = first[m * Of::kUnitsOfBlock + element / kUnit];
            unit = element % kUnit == 0 || key > unit ? key : unit;
          }
        }
      }
    }
    if constexpr (kHasNumber) {
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
        first[j] = (first[j] & kElementMask) | (kNumberMask - unit_of(j));
      }
    }
  }

  // The same for words of 16 bits: the largest key of each half first, which are then compared.
  __device__ __forceinline__ void find_paired_keys(Key (&first)[kUnits]) const {
    const PairedKeys paired(params);
#pragma unroll
    for (int m = 0; m < Of::kBlocks; ++m) {
#pragma unroll
      for (int v = 0; v < Of::kVectorsOfBlock; ++v) {
        const uint4 bytes = row.vectors[(m * kLanes + lane) * Of::kVectorsOfBlock + v];
        const UInt32 pairs[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int element = v * Of::kPerVector + 2 * c;
          Key& unit = first[m * Of::kUnitsOfBlock + element / kUnit];
          unit = element % kUnit == 0 ? paired.of(pairs[c]) : paired.max_with(unit, pairs[c]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kUnits; ++j) first[j] = max(first[j], first[j] << 16);
  }

  // Among units whose maxima tie with the last one, chooses those of lower index.
  __device__ __forceinline__ UInt32 break_ties(const Key (&first)[kUnits], Key last) const {
    UInt32 chosen = 0;
    UInt32 equal = 0;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      const Key key = coarse_key<Word>(first[j] & ~kNumberMask, params);
      chosen |= static_cast<UInt32>(key > last) << j;
      equal |= static_cast<UInt32>(key == last) << j;
    }
    UInt32 num_before;
    sum_below<kLanes>(__popc(chosen), num_before);
    // In the order of units: blocks of all lanes, lane by lane.
    constexpr UInt32 kBlockMask = (1u << Of::kUnitsOfBlock) - 1;
#pragma unroll 1
    for (int m = 0; m < Of::kBlocks; ++m) {
      UInt32 bits = equal >> m * Of::kUnitsOfBlock & kBlockMask;
      UInt32 total;
      UInt32 before = num_before + sum_below<kLanes>(__popc(bits), total);
      num_before += total;
      for (; bits != 0 && before < kFirst; ++before) {
        chosen |= (bits & (0 - bits)) << m * Of::kUnitsOfBlock;
        bits &= bits - 1;
      }
    }
    return chosen;
  }

  // A key that at least k units reach and, but for ties, at most kFirst. The network finds the kFirst-th key.
  // To make it about the k-th of the units, up to kFirst - k lanes replace the key of their last unit by one
  // above all others: fewer candidates have to be ranked. Units of one element are candidates themselves, and
  // kFirst of them, a constant, are ranked in less time than fewer.
  __device__ __forceinline__ Key find_last_key(const Key (&first)[kUnits]) const {
    Key searched[kUnits];
#pragma unroll
    for (int j = 0; j < kUnits; ++j) searched[j] = first[j];
    if constexpr (kUnit > 1) {
      if (lane < kFirst - static_cast<UInt32>(params.k)) searched[kUnits - 1] = ~Key{0};
    }
    return kth_of_lanes<kFirst, kLanes>(searched);
  }

  // Chooses at least k and at most kFirst units that contain all results: `num_units`. Lists them, or their
  // elements if each is one element, and returns the smallest key that a result can have. `largest` becomes
  // the largest key of the lane's units if kHasRange.
  __device__ __forceinline__ Key choose_units(UInt32& num_units, Key& largest) const {
    Key first[kUnits];
    find_first_keys(first);
    largest = 0;
    if constexpr (kHasRange) {
#pragma unroll
      for (int j = 0; j < kUnits; ++j) largest = max(largest, first[j]);
      largest &= ~kNumberMask;
    }
    Key last = find_last_key(first);
    UInt32 chosen = 0;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      if (first[j] >= last) chosen |= 1u << j;
    }
    UInt32 place = sum_below<kLanes>(__popc(chosen), num_units);
    last &= ~kNumberMask;
    const Key least = coarse_key<Word>(last, params);
    bool is_tied = least != last || num_units > kFirst;
    if constexpr (kHasNumber) {  // keys of the same rank may have been left out
      constexpr Key kStep = Key{1} << kSpareBits<Word>;
      is_tied = is_tied || coarse_key<Word>(last + kStep, params) == last;
    }
    if (__any_sync(kFullMask, is_tied)) {
      chosen = break_ties(first, least);
      place = sum_below<kLanes>(__popc(chosen), num_units);
    }
    if constexpr (kUnit == 1) {
      Pair* next = &row.candidates[0] + place;
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
        if ((chosen >> j & 1) != 0) *next++ = candidate(first[j], unit_of(j));
      }
    } else {
      UInt16* next = &row.units[0] + place;
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
        if ((chosen >> j & 1) != 0) *next++ = static_cast<UInt16>(unit_of(j));
      }
    }
    __syncwarp();  // the list is written before other lanes read it
    return least;
  }

  // The results among the elements of the listed units, as a bit for each of `keys`. Takes less time than
  // comparing more than `kMany` candidates with each other, which occur in rows of few distinct elements, in
  // sorted rows, and in rows of fewer units than are chosen.
  template <int kNumKeys>
  __device__ __forceinline__ UInt32 results_of_many(Key (&keys)[kNumKeys], UInt32 hits,
                                                    const UInt32* begin) const {
    // Keys become distinct: the key and the index of a candidate; 0 for an element that is no candidate.
#pragma unroll
    for (int n = 0; n < kNumKeys; ++n) {
      const Key key = coarse_key<Word>(keys[n] & kElementMask, params);
      keys[n] = (hits >> n & 1) != 0 ? candidate(key, begin[n / kUnit] + n % kUnit).bits : 0;
    }
    // The k-th key, bit by bit, until just k keys reach it.
    const UInt32 k = static_cast<UInt32>(params.k);
    UInt32 least = 0;
    UInt32 num_reached = kNumKeys * kLanes;
#pragma unroll 1
    for (UInt32 bit = 1u << 31; __any_sync(kFullMask, bit != 0 && num_reached > k); bit >>= 1) {
      UInt32 own = 0;
#pragma unroll
      for (int n = 0; n < kNumKeys; ++n) own += keys[n] >= (least | bit);
      UInt32 total;
      sum_below<kLanes>(own, total);
      if (total >= k) {
        least |= bit;
        num_reached = total;
      }
    }
    UInt32 results = 0;
#pragma unroll
    for (int n = 0; n < kNumKeys; ++n) {
      if (keys[n] >= least) results |= 1u << n;
    }
    return results & hits;
  }

  // Lists the elements of the chosen units that can be results; returns their number.
  __device__ __forceinline__ UInt32 list_candidates(UInt32 num_units, Key least) const {
    constexpr int kRounds = kFirst > kLanes ? kFirst / kLanes : 1;
    Key keys[kRounds * kUnit];
    UInt32 begin[kRounds];
    UInt32 hits = 0;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const UInt32 place = r * kLanes + lane;
      const bool is_unit = place < num_units;
      begin[r] = row.units[is_unit ? place : 0] * kUnit;
      Key unit[kUnit];
      load_unit(begin[r], unit);
      UInt32 reached = 0;
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        keys[r * kUnit + i] = unit[i];
        reached |= static_cast<UInt32>(unit[i] >= least) << i;
      }
      if (is_unit) hits |= reached << r * kUnit;
    }
    UInt32 total;
    UInt32 place = sum_below<kLanes>(__popc(hits), total);
    if constexpr (Of::kMayBeMany) {
      if (__any_sync(kFullMask, total > Of::kMany)) {
        hits = results_of_many(keys, hits, begin);
        place = sum_below<kLanes>(__popc(hits), total);
      }
    }
    Pair* next = &row.candidates[0] + place;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        const int n = r * kUnit + i;
        if ((hits >> n & 1) != 0) *next++ = candidate(keys[n], begin[r] + i);
      }
    }
    if constexpr (kAtOnce > 1) {
      // The list's size is a multiple of kAtOnce, too. If only the lanes that have to write did so, NVRTC 13
      // would fail for sm_100, as it finds too few predicates.
      const UInt32 after = total + lane;
      if (lane < kAtOnce - 1 && after < kFirst * kUnit) row.candidates[after] = Pair::none();
    }
    __syncwarp();  // the candidates are listed before other lanes read them
    return total;
  }

  // The keys of the unit that begins at an element.
  __device__ __forceinline__ void load_unit(UInt32 begin, Key (&keys)[kUnit]) const {
    constexpr int kBytes = kUnit * static_cast<int>(sizeof(Word));
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int v = 0; v < kBytes / 16; ++v) {
        const uint4 bytes = row.vectors[begin / Of::kPerVector + v];
        if constexpr (kIsPaired) {
          const PairedKeys paired(params);
          const UInt32 pairs[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const UInt32 pair = paired.of(pairs[c]);
            keys[v * Of::kPerVector + 2 * c] = pair << 16;
            keys[v * Of::kPerVector + 2 * c + 1] = pair;
          }
        } else {
#pragma unroll
          for (int i = 0; i < Of::kPerVector; ++i) {
            keys[v * Of::kPerVector + i] = fine_key<Word>(upper_word<Word>(bytes, i), params);
          }
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        const Key bits = static_cast<Key>(word(begin + i)) << kSpareBits<Word>;
        keys[i] = fine_key<Word>(bits, params);
      }
    }
  }

  __device__ __forceinline__ Word word(UInt32 index) const {
    return reinterpret_cast<const Word*>(&row.vectors[0])[index];
  }

  // Narrow keys stay in the upper bits.
  static __device__ __forceinline__ Pair candidate(Key fine, UInt32 index) {
    if constexpr (kHasNumber) {
      return Pair{(fine & kElementMask) | (kNumberMask - index)};
    } else {
      return Pair::of(fine, index);
    }
  }
  static __device__ __forceinline__ Key key_of(const Pair& candidate) {
    if constexpr (kHasNumber) {
      return candidate.bits & kElementMask;
    } else {
      return candidate.key();
    }
  }

  // Gives candidates of equal rank the same key. Their keys are from `least` to the largest of the row, and
  // are the same already if neither zeros nor NaNs are in this range, as in most rows. Of a zero's two keys,
  // only the larger one has to be looked for: the smaller one is the key that candidates get.
  __device__ __forceinline__ void even_out(UInt32 num_candidates, Key least, Key largest) const {
    bool differ = false;
    if constexpr (kHasRange) {
      const Key zero = static_cast<Key>(params.zero);
      differ = (least <= zero && largest >= zero) || least < static_cast<Key>(params.end_nan) ||
               largest > static_cast<Key>(params.first_nan);
    } else {
      for (UInt32 i = lane; i < num_candidates; i += kLanes) {
        const Key fine = key_of(row.candidates[i]);
        differ = differ || coarse_key<Word>(fine, params) != fine;
      }
    }
    if (__any_sync(kFullMask, differ)) {
      for (UInt32 i = lane; i < num_candidates; i += kLanes) {
        const Pair pair = row.candidates[i];
        row.candidates[i] = candidate(coarse_key<Word>(key_of(pair), params), pair.index());
      }
      __syncwarp();  // the keys are equal before they are compared
    }
  }

  // Calls visit(rank, index) for each result, whose rank is the number of candidates before it.
  template <class Visit>
  __device__ __forceinline__ void rank(UInt32 num_candidates, Visit visit) const {
    const UInt32 k = static_cast<UInt32>(params.k);
    for (UInt32 first = lane; first < num_candidates; first += 2 * kLanes) {
      const UInt32 second = first + kLanes;
      const Pair own = row.candidates[first];
      const Pair other = second < num_candidates ? row.candidates[second] : Pair::none();
      UInt32 rank = 0;
      UInt32 other_rank = 0;
#pragma unroll kUnrolled
      for (UInt32 i = 0; i < num_candidates; i += kAtOnce) {
#pragma unroll
        for (UInt32 j = 0; j < kAtOnce; ++j) {
          const Pair pair = row.candidates[i + j];
          rank += one_if_before(pair, own);
          other_rank += one_if_before(pair, other);
        }
      }
      if (rank < k) visit(rank, own.index());
      if (other_rank < k && second < num_candidates) visit(other_rank, other.index());
    }
    __syncwarp();  // the list has been read before the next row overwrites it
  }
};

template <class Word, int kLanes, int kUnits, int kUnit, int kFirst, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads,
                                  (Shape<Word, kLanes, kUnits, kUnit, kFirst>::kBoundBlocks))
    top_k_warp_select(const Word* __restrict__ input, Word* values, void* indices,
                      const void* lengths, const __grid_constant__ FineParams params) {
  using Of = Shape<Word, kLanes, kUnits, kUnit, kFirst>;
  SHARED_STORAGE(typename Of::Storage, shared);
  const UInt32 warp = threadIdx.x / kWarpSize;
  const UInt32 slot = threadIdx.x % kWarpSize / kLanes;
  const UInt32 lane = threadIdx.x % kLanes;
  const UInt32 first_unit = computed_once(lane * Of::kUnitsOfBlock);
  auto& rows = shared.warps[warp].rows;

  if constexpr (!kIsRagged) {
    fill_rows<Of>(params, rows);
    __syncwarp();  // the padding is written before the row
  }

  const Int64 step = static_cast<Int64>(gridDim.x) * kWarps * Of::kRows;
  for (Int64 first_row = (static_cast<Int64>(blockIdx.x) * kWarps + warp) * Of::kRows;
       first_row < params.num_rows; first_row += step) {
    const bool is_row = first_row + slot < params.num_rows;
    // Lanes without a row select from the warp's first row again: padding ties, which takes the whole warp
    // longer.
    const RowStart start = row_start(params, first_row + (is_row ? slot : 0));
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
    load_rows<Of, kIsRagged>(input, params, start, length, rows);
    const Group<Word, kLanes, kUnits, kUnit, kFirst> group{rows[slot], params, lane, first_unit};
    UInt32 num_units;
    Wide<Word> largest;
    const Wide<Word> least = group.choose_units(num_units, largest);
    const UInt32 num_candidates = kUnit == 1 ? kFirst : group.list_candidates(num_units, least);
    group.even_out(num_candidates, least, largest);
    group.rank(num_candidates, [&](UInt32 rank, UInt32 index) {
      if (!is_row) return;
      write_element<kIsRagged>(group.word(index), index, length, values, indices, params, start,
                               rank);
    });
  }
}
