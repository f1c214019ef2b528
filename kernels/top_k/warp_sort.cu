// Computes: the top k of short rows, for any k.
// Idea: counting finds a key that k elements reach, and few more; a bitonic network sorts these.
// Ownership: a warp owns a row at a time; its element j * 32 + lane is item j of the lane.
// Requires: rows of at most 32 * kItems elements, and k of at most 32 * kSorted.
// Chosen when: rows have up to 1024 elements and k is too large for warp_select.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/load_rows.cuh"
#include "top_k/row_sort.cuh"
#include "top_k/rows.cuh"

// Blocks per multiprocessor: the largest number whose registers hold the items of every lane.
template <class Word, int kItems, int kSorted>
constexpr int kMinBlocks = kSorted < kItems && sizeof(Word) <= 4 ? (kSorted < 16 ? 5 : 4)
                           : kSorted == 32 && sizeof(Word) == 8  ? 2
                                                                 : 3;

template <class Word, int kItems, int kSorted, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, (kMinBlocks<Word, kItems, kSorted>))
    top_k_warp_sort(const Word* __restrict__ input, Word* values, void* indices,
                    const void* lengths, const __grid_constant__ FineParams params) {
  using Of = Shape<Word, kItems, kSorted>;
  SHARED_STORAGE(typename Of::Storage, shared);
  auto& rows = shared.warps[threadIdx.x / kWarpSize].rows;
  const SortedRow<Word, kItems, kSorted> own = {rows[0], params};
  const UInt32 lane = threadIdx.x % kWarpSize;
  const UInt32 k = static_cast<UInt32>(params.k);

  if constexpr (!kIsRagged) {
    fill_rows<Of>(params, rows);
    __syncwarp();  // the padding is written before the row
  }
  for (Int64 row = static_cast<Int64>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
       row < params.num_rows; row += static_cast<Int64>(gridDim.x) * kWarps) {
    const RowStart start = row_start(params, row);
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
    load_rows<Of, kIsRagged>(input, params, start, length, rows);
    Ranked<Word> items[kSorted];
    own.sort(k, items, [&](Wide<Word> fine, UInt32 index) {
      return Ranked<Word>::of(coarse_key<Word>(fine, params) >> kSpareBits<Word>, index);
    });
    // Each lane stores its part of the sorted list over its part of the list.
#pragma unroll
    for (int j = 0; j < kSorted; ++j) {
      own.row.order[lane * kSorted + j] = static_cast<UInt16>(items[j].index());
    }
    __syncwarp();  // the sorted list is complete before other lanes read it
    for (UInt32 rank = lane; rank < k; rank += kWarpSize) {
      const UInt32 index = own.row.order[rank];
      write_element<kIsRagged>(own.word(index), index, length, values, indices, params, start,
                               rank);
    }
    __syncwarp();  // the row and the list have been read before the next row overwrites them
  }
}
