// Computes: the top k of rows of some thousand elements, for k up to some hundred.
// Idea: the warps of a block each sort the first k of a part of the row; pairs of lists are merged.
// Ownership: num_parts warps own a row at a time, and the first of them its results.
// Requires: 2 or 4 parts of at most 1024 elements, of 32 bits at most; k of at most 32 * kSorted.
// Chosen when: rows have up to 4096 elements, and k is too large for lanes.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/load_rows.cuh"
#include "top_k/row_sort.cuh"
#include "top_k/rows.cuh"

// Blocks per multiprocessor: the largest number whose registers hold the items of every lane.
template <int kSorted>
constexpr int kPartMinBlocks = kSorted < 16 ? 5 : 4;

template <class Word, int kSorted>
struct PartStorage {
  typename Shape<Word, kPartItems, kSorted>::Storage parts;
  SharedArray<Ranked<Word>, kThreads * kSorted> lists;
  SharedArray<UInt32, kWarps> lengths;  // of ragged rows, by the warp of their first part
};

// Merges the sorted lists of the parts of each row into that of the first part. Every thread of the block
// calls; item j of a lane is at position lane * kSorted + j of its warp's list.
template <class Pair, int kSorted>
__device__ __forceinline__ void merge_lists(Pair (&items)[kSorted], UInt32 part, UInt32 num_parts,
                                            SharedArray<Pair, kThreads * kSorted>& lists) {
  constexpr UInt32 kListSlots = kWarpSize * kSorted;
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 list = threadIdx.x / kWarpSize * kListSlots;
#pragma unroll 1
  for (UInt32 span = 1; span < num_parts; span *= 2) {
    if (part % (2 * span) == span) {
#pragma unroll
      for (int j = 0; j < kSorted; ++j) lists[list + j * kWarpSize + lane] = items[j];
    }
    __syncthreads();  // a list is written before the warp that takes it reads it
    if (part % (2 * span) != 0) continue;
    // The earlier one of each item and the item at the mirrored position of the other list is kept. The kept
    // items are the first of both lists, and their sequence falls and then rises.
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      const UInt32 mirrored = (kSorted - 1 - j) * kWarpSize + (kWarpSize - 1 - lane);
      const Pair other = lists[list + span * kListSlots + mirrored];
      if (other.is_before(items[j])) items[j] = other;
    }
    merge_warp(items, static_cast<int>(lane), kWarpSize / 2);
  }
}

template <class Word, int kSorted, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, kPartMinBlocks<kSorted>)
    top_k_block_sort(const Word* __restrict__ input, Word* values, void* indices,
                     const void* lengths, const __grid_constant__ PartParams params) {
  using Of = Shape<Word, kPartItems, kSorted>;
  using Part = SortedRow<Word, kPartItems, kSorted>;
  using Pair = Ranked<Word>;
  using Storage = PartStorage<Word, kSorted>;
  SHARED_STORAGE(Storage, shared);
  const UInt32 num_parts = static_cast<UInt32>(params.num_parts);
  const UInt32 part_length = static_cast<UInt32>(params.part_length);
  const UInt32 warp = threadIdx.x / kWarpSize;
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 own_part = warp % num_parts;
  const UInt32 begin = own_part * part_length;
  const UInt32 k = static_cast<UInt32>(params.k);
  const auto part = [&](UInt32 number) {
    return Part{shared.parts.warps[warp - own_part + number].rows[0], params};
  };

  if constexpr (!kIsRagged) {
    fill_rows<Of>(params, shared.parts.warps[warp].rows);
    __syncwarp();  // the padding is written before the row
  }
  const Int64 rows_per_block = kWarps / num_parts;
  for (Int64 first_row = blockIdx.x * rows_per_block; first_row < params.num_rows;
       first_row += gridDim.x * rows_per_block) {
    const Int64 row = first_row + warp / num_parts;
    const bool is_row = row < params.num_rows;
    const RowStart start = row_start(params, is_row ? row : first_row);
    const UInt32 length =
        shared_row_length<kIsRagged>(lengths, params, start, own_part, shared.lengths);
    const UInt32 num_elements = is_row ? min(max(length, begin) - begin, part_length) : 0;
    RowStart part_start = start;
    part_start.input += begin * params.input_axis_stride;
    load_rows<Of, kIsRagged>(input, params, part_start, num_elements,
                             shared.parts.warps[warp].rows);

    // ---- Sort. An element's slot is its place in the part, after the slots of the parts before.
    Pair items[kSorted];
#pragma unroll
    for (int j = 0; j < kSorted; ++j) items[j] = Pair::none();
    if (num_elements > 0) {
      part(own_part).sort(min(k, num_elements), items, [&](Wide<Word> fine, UInt32 index) {
        const Wide<Word> key = coarse_key<Word>(fine, params) >> kSpareBits<Word>;
        return Pair::of(key, own_part * kPartSlots + index);
      });
    }

    // ---- Merge.
    merge_lists(items, own_part, num_parts, shared.lists);
    auto& order = part(0).row.order;
    if (own_part == 0) {
#pragma unroll
      for (int j = 0; j < kSorted; ++j) {
        order[lane * kSorted + j] = static_cast<UInt16>(items[j].index());
      }
    }
    __syncthreads();  // the results are listed before other warps read the list, and parts of the row

    // ---- Write, by all threads of the row.
    const UInt32 num_threads = num_parts * kWarpSize;
    for (UInt32 rank = threadIdx.x % num_threads; is_row && rank < k; rank += num_threads) {
      UInt32 index = length;
      Word element = 0;
      if (rank < length) {
        const UInt32 slot = order[rank];
        index = slot / kPartSlots * part_length + slot % kPartSlots;
        element = part(slot / kPartSlots).word(slot % kPartSlots);
      }
      write_element<kIsRagged>(element, index, length, values, indices, params, start, rank);
    }
    __syncthreads();  // the row and the list have been read before the next row overwrites them
  }
}
