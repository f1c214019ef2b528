// Top-k of rows of any length and any k.
// Histograms of key digits find the k-th key; what is at or above it is listed and sorted.
// A block owns a row at a time; the list is in shared storage or in the block's workspace.
// list_capacity >= k; a workspace has two lists a block, else shared storage has the lists.
// Chosen where rows are too long for a warp and numerous enough to occupy the device.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

// Appends to the list every element at or above the threshold, in any order.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ void list_in_any_order(const RowPart<Word>& row,
                                                  const TopKParams& params,
                                                  const Threshold<Word>& threshold,
                                                  const List<Word>& list,
                                                  SelectStorage<kThreads, kLanes>& shared) {
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32 index) {
    if (threshold.high_part(key) >= threshold.prefix) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      list.keys[place] = key;
      list.indices[place] = index;
    }
  });
  __syncthreads();  // the list is complete before it is read
}

// Lists, by ascending index, the elements above the threshold and the first `num_equal` equal to
// it.
template <class Word, int kThreads, int kLanes>
__device__ __forceinline__ void list_in_order(const RowPart<Word>& row, const TopKParams& params,
                                              const Threshold<Word>& threshold, UInt32 num_equal,
                                              const List<Word>& list,
                                              SelectStorage<kThreads, kLanes>& shared) {
  if constexpr (kThreads == 1) {
    UInt32 place = 0;
    UInt32 equal_left = num_equal;
    const UInt32 count = threshold.num_above + num_equal;
    for (UInt32 i = 0; place < count; ++i) {
      const Word key = ordering_key(row.elements[i * row.stride], params);
      const Wide<Word> high = threshold.high_part(key);
      if (high < threshold.prefix || (high == threshold.prefix && equal_left == 0)) continue;
      if (high == threshold.prefix) --equal_left;
      list.keys[place] = key;
      list.indices[place] = i;
      ++place;
    }
  } else {
    constexpr UInt32 kPerThread = RowPart<Word>::kPerLoad;
    UInt32 num_above_before = 0;
    UInt32 num_equal_before = 0;
    for (UInt64 tile = 0; tile < row.length; tile += kThreads * kPerThread) {
      if (num_above_before == threshold.num_above && num_equal_before >= num_equal) break;
      const UInt64 first = tile + threadIdx.x * kPerThread;
      UInt32 num_here = 0;  // above in the low half, equal in the high half
      uint4 bytes = make_uint4(0, 0, 0, 0);
      if (first < row.length) {
        bytes = row.load(static_cast<UInt32>(first));
#pragma unroll
        for (int i = 0; i < static_cast<int>(kPerThread); ++i) {
          const Wide<Word> high =
              threshold.high_part(ordering_key(word_of<Word>(bytes, i), params));
          if (first + i < row.length) {
            num_here += high > threshold.prefix ? 1u : high == threshold.prefix ? 1u << 16 : 0u;
          }
        }
      }
      UInt32 total;
      const UInt32 before =
          block_exclusive_sum<kThreads, kLanes>(num_here, shared.warp_sums, total);
      UInt32 above_rank = num_above_before + (before & 0xffff);
      UInt32 equal_rank = num_equal_before + (before >> 16);
      if (num_here != 0) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(kPerThread); ++i) {
          const Word key = ordering_key(word_of<Word>(bytes, i), params);
          const Wide<Word> high = threshold.high_part(key);
          if (first + i >= row.length || high < threshold.prefix) continue;
          const bool is_equal = high == threshold.prefix;
          if (!is_equal || equal_rank < num_equal) {
            const UInt32 place = above_rank + min(equal_rank, num_equal);
            list.keys[place] = key;
            list.indices[place] = static_cast<UInt32>(first) + i;
          }
          above_rank += is_equal ? 0 : 1;
          equal_rank += is_equal ? 1 : 0;
        }
      }
      num_above_before += total & 0xffff;
      num_equal_before += total >> 16;
    }
    __syncthreads();  // the list is complete before it is read
  }
}

// Drops from the list, of at most kPerThread elements a thread, what is below the k-th key as far
// as digits tell. Returns how many stay; they are the first of the list.
template <class Word, int kPerThread, int kThreads, int kLanes>
__device__ __forceinline__ UInt32 shorten_list(Threshold<Word> threshold, const List<Word>& list,
                                               UInt32 count, UInt32 enough,
                                               SelectStorage<kThreads, kLanes>& shared) {
  Word keys[kPerThread];
  UInt32 indices[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const UInt32 i = j * kThreads + threadIdx.x;
    keys[j] = i < count ? list.keys[i] : Word{0};
    indices[j] = i < count ? list.indices[i] : kFullMask;
  }
  while (threshold.num_above + threshold.num_equal > enough && !threshold.is_exact()) {
    search_digit(threshold, shared, [&](auto visit) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        if (indices[j] != kFullMask) visit(keys[j]);
      }
    });
  }
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();  // the counter is clear, and every thread has its elements in registers
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (indices[j] != kFullMask && threshold.high_part(keys[j]) >= threshold.prefix) {
      const UInt32 place = atomicAdd(&shared.num_listed, 1);
      list.keys[place] = keys[j];
      list.indices[place] = indices[j];
    }
  }
  __syncthreads();  // the shorter list is complete before it is read
  return threshold.num_above + threshold.num_equal;
}

template <class Word, int kThreads, int kLanes>
__global__ void __launch_bounds__(kThreads, 2)
    top_k_block_radix(const Word* __restrict__ input, Word* values, void* indices, UInt8* workspace,
                      const __grid_constant__ TopKParams params) {
  // The longest list that the threads can hold in registers, four elements each.
  constexpr int kListPerThread = 4;
  using Storage = SelectStorage<kThreads, kLanes>;
  SHARED_STORAGE(Storage, shared);
  const Int64 capacity = params.list_capacity;
  UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
  if (workspace != nullptr) {
    storage =
        workspace + blockIdx.x * 2 * capacity * static_cast<Int64>(sizeof(Word) + sizeof(UInt32));
  }
  const UInt32 k = static_cast<UInt32>(params.k);

  for (Int64 number = blockIdx.x; number < params.num_rows; number += gridDim.x) {
    const RowStart start = row_start(params, number);
    const RowPart<Word> row = {input + start.input, params.input_axis_stride,
                               static_cast<UInt32>(params.row_length), 0};
    List<Word> list = List<Word>::in(storage, capacity, 0);

    auto threshold = Threshold<Word>::start(row.length, k);
    while (threshold.num_above + threshold.num_equal > capacity && !threshold.is_exact()) {
      search_digit(threshold, shared, [&](auto visit) {
        row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32) { visit(key); });
      });
    }
    const bool all_fit = threshold.num_above + threshold.num_equal <= capacity;
    if (params.sorts_by_network) {
      UInt32 count = k;
      if (all_fit) {
        list_in_any_order(row, params, threshold, list, shared);
        count = threshold.num_above + threshold.num_equal;
        UInt32 enough = kWarpSize;
        while (enough < k) enough *= 2;
        count = shorten_list<Word, kListPerThread>(threshold, list, count, enough, shared);
      } else {
        list_in_order(row, params, threshold, threshold.num_wanted, list, shared);
      }
      sort_by_network<Word, kThreads>(list, count);
    } else {
      const UInt32 num_equal = all_fit ? threshold.num_equal : threshold.num_wanted;
      list_in_order(row, params, threshold, num_equal, list, shared);
      list = sort_by_radix(list, List<Word>::in(storage, capacity, 1),
                           threshold.num_above + num_equal, shared);
    }
    for (Int64 rank = threadIdx.x; rank < k; rank += kThreads) {
      write_result(input, values, indices, params, start, rank, list.indices[rank]);
    }
    __syncthreads();  // the list is read before the next row's is written
  }
}
