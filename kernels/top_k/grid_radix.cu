// Top-k of few long rows.
// As block_radix.cu, but several blocks share a row: they add up their histograms and lists.
// Block b of a row has its b-th stretch; a row's blocks meet at a counter in global storage.
// Cooperative launch, blocks_per_row blocks a row, `state` cleared; lists has two lists a row.
// Chosen where there are fewer rows than multiprocessors.
#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/gather.cuh"
#include "top_k/list.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
// There is one block a multiprocessor: its threads have registers to read far ahead.
constexpr UInt32 kLoadsAhead = 4;

// The most digits a word has.
template <class Word>
constexpr int kMaxDigits = (8 * static_cast<int>(sizeof(Word)) + kDigitBits - 1) / kDigitBits;

// What the blocks of a row share in global storage, all zero at first.
template <class Word>
struct RowState {
  UInt32 num_arrived;
  UInt32 num_listed;
  UInt32 unused[62];  // the counters have cache lines of their own
  UInt32 bins[kMaxDigits<Word>][kNumBins];
};

using SelectShared = SelectStorage<kThreads, kWarpSize>;

struct GridStorage {
  SelectShared select;
  UInt32 own_bins[kNumBins];
  UInt32 list_begin;
};

// Waits for all blocks of the row; what any of them wrote before is seen by all after.
struct RowBarrier {
  UInt32* num_arrived;
  UInt32 num_blocks;
  UInt32 round;

  __device__ __forceinline__ void wait() {
    ++round;
    __threadfence();
    __syncthreads();  // every thread's writes are published before its block arrives
    if (threadIdx.x == 0) {
      add_release(num_arrived, 1);
      while (load_acquire(num_arrived) < round * num_blocks) give_way();
    }
    __syncthreads();  // no thread goes on before thread 0 has seen all blocks
  }
};

// One more digit of the row's threshold; `own` are the counts of this block's part.
template <class Word>
__device__ __forceinline__ void search_row_digit(Threshold<Word>& threshold, Counts& own,
                                                 const RowPart<Word>& part,
                                                 const TopKParams& params, UInt32* row_bins,
                                                 RowBarrier& row_barrier, GridStorage& shared) {
  count_digits<Word, kThreads>(threshold, shared.own_bins, [&](auto visit) {
    part.template visit<kThreads, kLoadsAhead>(params, threadIdx.x,
                                               [&](Word key, UInt32) { visit(key); });
  });
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    if (shared.own_bins[bin] != 0) atomicAdd(&row_bins[bin], shared.own_bins[bin]);
  }
  row_barrier.wait();
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    shared.select.bins[bin] = load_relaxed(&row_bins[bin]);
  }
  __syncthreads();  // the row's bins are there before they are searched
  narrow(threshold, shared.select.bins, shared.select);

  const int digit = static_cast<int>(shared.select.digit);
  UInt32 own_above = 0;
  for (int bin = threadIdx.x; bin < kNumBins; bin += kThreads) {
    if (bin > digit) own_above += shared.own_bins[bin];
  }
  UInt32 total;
  own.equal = shared.own_bins[digit];
  block_exclusive_sum<kThreads, kWarpSize>(own_above, shared.select.warp_sums, total);
  own.above += total;
}

// What lies in the row before this block's part: the counts of the blocks before it, which all
// blocks write to `block_counts` and then read.
__device__ __forceinline__ Counts counts_before(const Counts& own, UInt32 block,
                                                UInt32* block_counts, RowBarrier& row_barrier,
                                                GridStorage& shared) {
  if (threadIdx.x == 0) {
    store_relaxed(&block_counts[2 * block], own.above);
    store_relaxed(&block_counts[2 * block + 1], own.equal);
  }
  row_barrier.wait();
  Counts sums = {0, 0};
  for (UInt32 b = threadIdx.x; b < block; b += kThreads) {
    sums.above += load_relaxed(&block_counts[2 * b]);
    sums.equal += load_relaxed(&block_counts[2 * b + 1]);
  }
  Counts before;
  block_exclusive_sum<kThreads, kWarpSize>(sums.above, shared.select.warp_sums, before.above);
  block_exclusive_sum<kThreads, kWarpSize>(sums.equal, shared.select.warp_sums, before.equal);
  return before;
}

// The rank of a pair is how many of the list come before it: each warp counts for its share of the
// list, all blocks of the row together.
template <class Word>
__device__ __forceinline__ void write_by_counting(const Word* __restrict__ input, Word* values,
                                                  void* indices, const TopKParams& params,
                                                  const RowStart& start, const List<Word>& row_list,
                                                  const List<Word>& copy, UInt32 count,
                                                  UInt32 block) {
  for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
    copy.keys[i] = row_list.keys[i];
    copy.indices[i] = row_list.indices[i];
  }
  __syncthreads();  // the copy is complete before it is compared with
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
      write_result(input, values, indices, params, start, rank, index);
    }
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads, 1)
    top_k_grid_radix(const Word* __restrict__ input, Word* values, void* indices, UInt8* states,
                     UInt32* counts, UInt8* lists, const __grid_constant__ TopKParams params) {
  SHARED_STORAGE(GridStorage, shared);
  const UInt32 num_blocks = static_cast<UInt32>(params.blocks_per_row);
  const UInt32 row = blockIdx.x / num_blocks;
  const UInt32 block = blockIdx.x % num_blocks;
  RowState<Word>& state = reinterpret_cast<RowState<Word>*>(states)[row];
  RowBarrier row_barrier = {&state.num_arrived, num_blocks, 0};
  const RowStart start = row_start(params, row);
  const Int64 capacity = params.list_capacity;
  const List<Word> list = List<Word>::in(lists, capacity, 2 * static_cast<int>(row));
  const List<Word> other_list = List<Word>::in(lists, capacity, 2 * static_cast<int>(row) + 1);

  // Stretches are multiples of every vector load, so that all are as well aligned as the row.
  const Int64 stretch = (params.row_length / num_blocks / 64 + 1) * 64;
  const Int64 begin = min(params.row_length, block * stretch);
  const Int64 end = min(params.row_length, begin + stretch);
  const RowPart<Word> part = {input + start.input + begin * params.input_axis_stride,
                              params.input_axis_stride, static_cast<UInt32>(end - begin),
                              static_cast<UInt32>(begin)};

  auto threshold =
      Threshold<Word>::start(static_cast<UInt32>(params.row_length), static_cast<UInt32>(params.k));
  Counts own = {0, part.length};
  for (int digit = 0; threshold.num_above + threshold.num_equal > capacity && !threshold.is_exact();
       ++digit) {
    search_row_digit(threshold, own, part, params, state.bins[digit], row_barrier, shared);
  }
  const bool all_fit = threshold.num_above + threshold.num_equal <= capacity;
  const UInt32 num_equal = all_fit ? threshold.num_equal : threshold.num_wanted;
  const UInt32 count = threshold.num_above + num_equal;

  if (params.sorts_pairs && all_fit) {
    if (threadIdx.x == 0) {
      shared.list_begin = atomicAdd(&state.num_listed, own.above + own.equal);
    }
    __syncthreads();  // the block's place in the list is known before it is written
    const List<Word> own_list = {list.keys + shared.list_begin, list.indices + shared.list_begin};
    list_in_any_order(part, params, threshold, own_list, shared.select);
  } else {
    const Counts before =
        counts_before(own, block, counts + 2 * num_blocks * row, row_barrier, shared);
    const Counts after = {before.above + own.above, before.equal + own.equal};
    list_in_order(part, params, threshold, num_equal, before, after, list, shared.select);
  }
  row_barrier.wait();

  if (params.sorts_pairs) {
    const List<Word> copy = List<Word>::in(reinterpret_cast<UInt8*>(&shared + 1), capacity, 0);
    write_by_counting(input, values, indices, params, start, list, copy, count, block);
  } else if (block == 0) {
    const List<Word> sorted = sort_by_radix(list, other_list, count, shared.select);
    for (Int64 rank = threadIdx.x; rank < params.k; rank += kThreads) {
      write_result(input, values, indices, params, start, rank, sorted.indices[rank]);
    }
  }
}
