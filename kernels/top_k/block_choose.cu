// Computes: the top k of rows of some thousand elements, for k up to 1024.
// Idea: the k-th key is found bit by bit, by counting; a network of numbers ranks what reaches it.
// Ownership: a block owns a row at a time, and each of its warps a part of it.
// Requires: parts of at most 32 * kItems elements; k of at most list_capacity: 256, 512 or 1024.
// Chosen when: rows have some thousand elements, and k is too large to merge sorted parts.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/choose.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/load_rows.cuh"
#include "top_k/network_rank.cuh"
#include "top_k/rows.cuh"

// Most elements that are ranked; list_capacity is at most this.
constexpr UInt32 kMostRanked = 1024;
// Items of a lane in a group; groups past the end of the part are skipped.
constexpr int kGroup = 8;

// Blocks per multiprocessor: the largest number whose registers hold the items of every lane.
template <class Word, int kParts, int kItems, bool kIsRagged>
constexpr int kChooseMinBlocks = kParts > 8    ? 2
                                 : kParts > 6  ? 3
                                 : kParts > 4  ? 4
                                 : kItems > 16 ? 5
                                 : kIsRagged   ? 7
                                               : 8;

// The part of a warp, as `load_rows` sees it.
template <class Word, int kItems>
struct LoadedPart {
  static constexpr int kRows = 1;
  static constexpr int kPerVector = 16 / static_cast<int>(sizeof(Word));
  static constexpr UInt32 kLoadsAhead = 2;  // more would not fit the registers
  static constexpr int kVectors = kItems / kPerVector;
  struct Row {
    SharedArray<uint4, kVectors * kWarpSize> vectors;
  };
  struct Warp {
    SharedArray<Row, kRows> rows;
  };
};

template <class Word, int kParts, int kItems>
struct ChooseStorage {
  SharedArray<typename LoadedPart<Word, kItems>::Warp, kParts> parts;
  SharedArray<UInt32, kMostRanked> numbers;
  SharedArray<UInt32, 2 * kParts> bounds;  // largest keys of parts, then complements of least keys
  SharedArray<UInt32, 2 * kParts> sums;    // two sets of a sum for each warp, used in turn
  SharedArray<UInt32, kParts> lengths;     // of a ragged row
  SharedArray<UInt32, kParts> warp_sums;
  UInt32 digit;
};

// A row in shared storage. Elements have slots; every part has the same number of slots.
template <class Word, int kParts, int kItems>
struct PartedRow {
  // The place of an element is the complement of its slot, so that the lower index is the larger number.
  static constexpr bool kTiesAreInOrder = true;
  static constexpr UInt32 kSlots = kItems * kWarpSize;  // of a part
  static constexpr UInt32 kPlaceBits = (kParts > 8   ? 4
                                        : kParts > 4 ? 3
                                                     : 2) +
                                       (kItems > 16 ? 10 : 9);
  static constexpr UInt32 kLastSlot = kParts * kSlots - 1;

  ChooseStorage<Word, kParts, kItems>& shared;
  const PartParams& params;

  __device__ __forceinline__ Word word(UInt32 slot) const {
    const auto& part = shared.parts[slot / kSlots].rows[0];
    return reinterpret_cast<const Word*>(&part.vectors[0])[slot % kSlots];
  }
  __device__ __forceinline__ UInt32 key_at(UInt32 slot) const {
    constexpr UInt32 kElementBits = ~((1u << kSpareBits<Word>)-1);
    const UInt32 bits = static_cast<UInt32>(word(slot)) << kSpareBits<Word>;
    return coarse_key<Word>(fine_key<Word>(bits, params) & kElementBits, params);
  }
  __device__ __forceinline__ UInt32 index_of(UInt32 slot) const {
    return slot / kSlots * static_cast<UInt32>(params.part_length) + slot % kSlots;
  }

  // The interface that `NetworkRank` expects.
  __device__ __forceinline__ UInt32 key(UInt32 place) const { return key_at(kLastSlot - place); }
  __device__ __forceinline__ UInt32 index(UInt32 place) const { return kLastSlot - place; }
};

// Sums over the warps of a block; each sum takes a barrier.
template <int kParts>
struct WarpSums {
  SharedArray<UInt32, 2 * kParts>& sums;
  UInt32 turn;  // which of two sets of sums is written; the other may still be read

  // `own` is the warp's; `before` becomes the sum of the warps before.
  __device__ __forceinline__ UInt32 add(UInt32 own, UInt32& before) {
    const UInt32 warp = threadIdx.x / kWarpSize;
    turn ^= kParts;
    if (threadIdx.x % kWarpSize == 0) sums[turn + warp] = own;
    __syncthreads();  // every warp's sum is written, and all have read those of the turn before last
    UInt32 total = 0;
    before = 0;
#pragma unroll
    for (UInt32 w = 0; w < kParts; ++w) {
      if (w == warp) before = total;
      total += sums[turn + w];
    }
    return total;
  }
};

// The work of a block on its row. Every thread calls every function.
template <class Word, int kParts, int kItems>
struct Choice {
  const PartedRow<Word, kParts, kItems>& row;
  const PartParams& params;
  ChooseStorage<Word, kParts, kItems>& shared;
  WarpSums<kParts> sums;
  UInt32 first_slot;    // the lane's first
  UInt32 num_elements;  // of the part
  UInt32 valid;         // items that are elements, as bits
  UInt32 keys[kItems];

  // Calls visit(j) for the items of a lane, in groups, and not for groups past the part's end.
  template <class Visit>
  __device__ __forceinline__ void for_each_item(Visit visit) const {
#pragma unroll
    for (int group = 0; group < kItems; group += kGroup) {
      if (group * kWarpSize < num_elements) {
#pragma unroll
        for (int j = group; j < group + kGroup; ++j) visit(j);
      }
    }
  }

  __device__ __forceinline__ void load() {
    const UInt32 lane = threadIdx.x % kWarpSize;
    const UInt32 num_items = (max(num_elements, lane) - lane + kWarpSize - 1) / kWarpSize;
    valid = num_items == 0 ? 0 : kFullMask >> (32 - num_items);
    for_each_item([&](int j) { keys[j] = row.key_at(first_slot + j * kWarpSize); });
  }

  // The largest and the least key of the row.
  __device__ __forceinline__ void find_bounds(UInt32& largest, UInt32& least) {
    const int left = static_cast<int>(num_elements) - static_cast<int>(threadIdx.x % kWarpSize);
    largest = 0;  // as the key of padding
    least = kFullMask;
    for_each_item([&](int j) {
      largest = max(largest, keys[j]);
      if (j * kWarpSize < left) least = min(least, keys[j]);
    });
    const UInt32 warp = threadIdx.x / kWarpSize;
    const UInt32 warp_largest = warp_max(largest);
    const UInt32 warp_complement = warp_max(~least);
    if (threadIdx.x % kWarpSize == 0) {
      shared.bounds[warp] = warp_largest;
      shared.bounds[kParts + warp] = warp_complement;
    }
    __syncthreads();  // the bounds of every part are written before they are read
    UInt32 complement = 0;
#pragma unroll
    for (int w = 0; w < kParts; ++w) {
      largest = max(largest, shared.bounds[w]);
      complement = max(complement, shared.bounds[kParts + w]);
    }
    least = ~complement;
  }

  // Chooses at least k and at most `most` elements; returns their number. `chosen` becomes the lane's items
  // among them, as bits, and `least` a lower bound of their keys.
  __device__ __forceinline__ UInt32 choose(UInt32 length, UInt32 k, UInt32 most, UInt32 largest,
                                           UInt32& least, UInt32& chosen) {
    UInt32 before;
    chosen = valid;
    if (length <= most) return length;
    int bit = 31 - __clz(static_cast<int>(largest ^ least));
    least = bit < 0 ? largest : largest >> bit >> 1 << bit << 1;
    UInt32 num_chosen = length;
#pragma unroll 1
    for (; bit >= kSpareBits<Word> && num_chosen > most; --bit) {
      const UInt32 tried = least | 1u << bit;
      UInt32 count = 0;
      for_each_item([&](int j) { count += reaches(keys[j], tried); });
      count = sums.add(warp_sum(count), before);
      if (count >= k) {
        least = tried;
        num_chosen = count;
      }
    }
    chosen = 0;
    if (num_chosen <= most) {
      for_each_item([&](int j) { chosen |= static_cast<UInt32>(keys[j] >= least) << j; });
      chosen &= valid;
      return num_chosen;
    }
    UInt32 equal = 0;
    for_each_item([&](int j) {
      chosen |= static_cast<UInt32>(keys[j] > least) << j;
      equal |= static_cast<UInt32>(keys[j] == least) << j;
    });
    chosen &= valid;
    equal &= valid;
    // Among elements that tie with the last, those of lower index are chosen: by part, item and lane.
    UInt32 equal_before;
    const UInt32 num_above = sums.add(warp_sum(__popc(chosen)), before);
    sums.add(warp_sum(__popc(equal)), equal_before);
    add_equals<kItems>(chosen, equal, num_above + equal_before, k);
    return max(num_above, k);
  }

  // Lists the numbers of the chosen elements.
  template <class NumberOf>
  __device__ __forceinline__ void list(UInt32 chosen, NumberOf number_of, const Numbers& numbers) {
    UInt32 place;
    sums.add(warp_sum(__popc(chosen)), place);
    place += bits_below(chosen);
    for_each_item([&](int j) {
      if ((chosen >> j & 1) != 0) numbers[place++] = number_of(keys[j], first_slot + j * kWarpSize);
    });
  }
};

template <class Word, int kParts, int kItems, bool kIsRagged = false>
__global__ void __launch_bounds__(kParts* kWarpSize,
                                  (kChooseMinBlocks<Word, kParts, kItems, kIsRagged>))
    top_k_block_choose(const Word* __restrict__ input, Word* values, void* indices,
                       const void* lengths, const __grid_constant__ PartParams params) {
  static_assert(sizeof(Word) <= 4, "keys have 32 bits");
  using Of = LoadedPart<Word, kItems>;
  using Storage = ChooseStorage<Word, kParts, kItems>;
  using Row = PartedRow<Word, kParts, kItems>;
  constexpr int kThreads = kParts * kWarpSize;
  using Network = NetworkRank<Row, kThreads, Storage>;
  // Whether a number has all bits of a key.
  constexpr bool kIsWhole = 8 * sizeof(Word) <= Network::kDigitBits;
  SHARED_STORAGE(Storage, shared);
  const UInt32 part_length = static_cast<UInt32>(params.part_length);
  const UInt32 warp = threadIdx.x / kWarpSize;
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 begin = warp * part_length;
  const UInt32 k = static_cast<UInt32>(params.k);
  const UInt32 most = static_cast<UInt32>(params.list_capacity);
  const Row row{shared, params};

  if constexpr (!kIsRagged) {
    fill_rows<Of>(params, shared.parts[warp].rows);
    __syncwarp();  // the padding is written before the row
  }
  for (Int64 number = blockIdx.x; number < params.num_rows; number += gridDim.x) {
    // ---- Load, each warp its part.
    const RowStart start = row_start(params, number);
    const UInt32 length =
        shared_row_length<kIsRagged>(lengths, params, start, warp, shared.lengths);
    const UInt32 num_elements = min(max(length, begin) - begin, part_length);
    RowStart part_start = start;
    part_start.input += begin * params.input_axis_stride;
    load_rows<Of, kIsRagged>(input, params, part_start, num_elements, shared.parts[warp].rows);

    // ---- Choose.
    Choice<Word, kParts, kItems> choice{row, params,       shared, {shared.sums, 0},
                                        0,   num_elements, 0,      {}};
    choice.first_slot = warp * Row::kSlots + lane;
    choice.load();
    UInt32 largest;
    UInt32 least;
    choice.find_bounds(largest, least);
    UInt32 chosen;
    const UInt32 count = choice.choose(length, min(k, length), most, largest, least, chosen);

    // ---- Rank, by the highest bits in which chosen keys differ.
    const UInt32 end = 32 - __clz(static_cast<int>(largest ^ least));
    const UInt32 from = end - min(end, Network::kDigitBits);
    const auto number_of = [&](UInt32 key, UInt32 slot) {
      return key >> from << Network::kPlaceBits | (Row::kLastSlot - slot);
    };
    const Numbers numbers{&shared.numbers[0]};
    UInt32 num_chunks = 1;
    while (num_chunks * Network::kChunk < count) num_chunks *= 2;
    for (UInt32 i = count + threadIdx.x; i < num_chunks * Network::kChunk; i += kThreads) {
      numbers[i] = 0;  // comes last: no number is smaller
    }
    choice.list(chosen, number_of, numbers);
    Network network{row, count, Network::kPlaceBits, numbers, shared};
    do {
      network.sort(num_chunks);
    } while (!kIsWhole && network.settle_few() && network.refine_numbers());

    // ---- Write.
    for (UInt32 rank = threadIdx.x; rank < min(k, length); rank += kThreads) {
      const UInt32 slot = row.index(Network::place_of(numbers[rank]));
      write_element<kIsRagged>(row.word(slot), row.index_of(slot), length, values, indices, params,
                               start, rank);
    }
    if constexpr (kIsRagged) {
      for (UInt32 rank = length + threadIdx.x; rank < k; rank += kThreads) {
        write_element<kIsRagged>(Word{0}, length, length, values, indices, params, start, rank);
      }
    }
    __syncthreads();  // the row and the numbers have been read before the next row overwrites them
  }
}
