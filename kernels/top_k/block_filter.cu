// Computes: the top k of long rows for small k, in one pass over the input.
// Idea: elements that cannot be results are dropped as they are read; see filter.cuh.
// Ownership: blocks_per_row blocks share a row; the last to finish merges what all of them kept.
// Requires: list_capacity >= 2k + a tile; if rows are shared, `num_done` zeroed.
// Chosen when: k is at most some hundreds and rows are many, or too long to be read twice.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/filter.cuh"
#include "top_k/gather.cuh"
#include "top_k/list.cuh"
#include "top_k/network_sort.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Where a list fills more often than this, and than once in so many tiles, the row is searched by radix
// instead. Elements in no order fill it some 1 + ln(tiles) times: the n-th tile lists k / n of them.
constexpr UInt32 kMaxCuts = 8;
constexpr UInt32 kTilesPerCut = 16;

constexpr int kThreads = 256;

struct FilterStorage {
  SelectStorage<kThreads> select;
  UInt32 num_done;
};

template <class Word>
__global__ void __launch_bounds__(kThreads, 3)
    top_k_block_filter(const Word* __restrict__ input, Word* values, void* indices,
                       UInt32* num_done, UInt8* kept, const __grid_constant__ TopKParams params) {
  using RowFilter = Filter<Word, kThreads>;
  SHARED_STORAGE(FilterStorage, shared);
  const Int64 capacity = params.list_capacity;
  UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
  const UInt32 k = static_cast<UInt32>(params.k);
  const UInt32 num_parts = static_cast<UInt32>(params.blocks_per_row);
  const Int64 stretch = (params.row_length / num_parts / 64 + 1) * 64;

  for (Int64 number = blockIdx.x; number < params.num_rows * num_parts; number += gridDim.x) {
    const Int64 row_number = number / num_parts;
    const UInt32 part_number = static_cast<UInt32>(number % num_parts);
    const Int64 begin = min(params.row_length, part_number * stretch);
    const Int64 end = min(params.row_length, begin + stretch);
    const RowPart<Word> part = {
        input + row_start(params, row_number).input + begin * params.input_axis_stride,
        params.input_axis_stride, static_cast<UInt32>(end - begin), static_cast<UInt32>(begin)};

    RowFilter filter = {List<Word>::in(storage, capacity, 0), static_cast<UInt32>(capacity), k,
                        false, shared.select};
    filter.start();
    // A list that fills again and again comes from elements in ascending order of rank.
    bool gives_up = false;
    for (UInt64 tile = 0; tile < part.length && !gives_up; tile += RowFilter::kTile) {
      filter.make_room();
      const UInt32 from = static_cast<UInt32>(tile);
      filter.append_tile(part.stretch(from, min(RowFilter::kTile, part.length - from)), params);
      gives_up = filter.num_cuts > kMaxCuts + from / (kTilesPerCut * RowFilter::kTile);
    }
    UInt32 count = filter.finish();
    if (gives_up) {
      Threshold<Word> threshold;
      count = list_by_radix(part, params, k, true, filter.list, capacity, threshold, shared.select);
      if (count > k) keep_first(filter.list, count, k, false, shared.select);
      count = k;
    }

    if (num_parts > 1) {
      // Every part gives k elements; where it has fewer, the rest is marked by an impossible index.
      const Int64 row_capacity = (static_cast<Int64>(num_parts) * k + 7) / 8 * 8;
      const List<Word> row_kept = List<Word>::in(kept, row_capacity, static_cast<int>(row_number));
      const UInt32 first = part_number * k;
      for (UInt32 i = threadIdx.x; i < k; i += kThreads) {
        row_kept.keys[first + i] = i < count ? filter.list.keys[i] : Word{0};
        row_kept.indices[first + i] = i < count ? filter.list.indices[i] : kFullMask;
      }
      __threadfence();
      __syncthreads();  // all that this block kept is published before it counts as done
      if (threadIdx.x == 0) shared.num_done = atomicAdd(&num_done[row_number], 1);
      __syncthreads();  // every thread knows whether its block is the last
      if (shared.num_done != num_parts - 1) continue;
      __threadfence();  // what the other blocks published is read after their counting

      filter.keeps_equal = true;
      filter.floor = {0, true};
      filter.start();
      const UInt32 num_kept = num_parts * k;
      for (UInt32 tile = 0; tile < num_kept; tile += RowFilter::kTile) {
        filter.make_room();
        const UInt32 tile_end = min(num_kept, tile + RowFilter::kTile);
        for (UInt32 i = tile + threadIdx.x; i < tile_end; i += kThreads) {
          if (row_kept.indices[i] < params.row_length)
            filter.append(row_kept.keys[i], row_kept.indices[i]);
        }
      }
      count = filter.finish();
    }
    if (count < k) list_missing<Word, kThreads>(filter.list, part, count, k);

    sort_by_network<Word, kThreads>(filter.list, k);
    const RowStart start = row_start(params, row_number);
    for (UInt32 rank = threadIdx.x; rank < k; rank += kThreads) {
      const UInt32 index = index_in_row(params, filter.list.indices[rank]);
      write_result(input, values, indices, params, start, rank, index);
    }
    // The next row's list is written after a barrier: this one has been read by then.
  }
}
