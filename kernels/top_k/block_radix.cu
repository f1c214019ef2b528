// Computes: the top k of rows of any length, for any k.
// Idea: histograms of key digits find the k-th key; elements at or above it are listed and sorted.
// Ownership: a block owns one row at a time; its list is in shared storage or in the workspace.
// Requires: list_capacity >= k; space per block for one list, for two if they are sorted by digits.
// Chosen when: rows are too long for a warp, and there are enough of them to occupy the device.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/gather.cuh"
#include "top_k/list_sort.cuh"
#include "top_k/put_in_order.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

constexpr int kThreads = 512;

// Finds one more digit of the row's threshold. The next one begins at the first bit that differs between keys
// counted for this one. For the first digit, keys below the middle do not count: a few negative numbers among
// positive ones differ from these in every bit.
template <bool kIsFirst, class Word>
__device__ __forceinline__ void find_digit(Threshold<Word>& threshold, const RowPart<Word>& row,
                                           const TopKParams& params,
                                           SelectStorage<kThreads>& shared) {
  constexpr Wide<Word> kMiddle = Wide<Word>{1} << (8 * sizeof(Word) - 1);
  BitsSeen<Word> seen;
  if (threadIdx.x == 0) shared.ones = shared.zeros = 0;
  search_digit(threshold, shared, [&](auto visit) {
    row.template visit<kThreads>(params, threadIdx.x, [&](Word key, UInt32) {
      const bool is_seen = kIsFirst ? key >= kMiddle : threshold.equals(key);
      if (kMaySkipBits<Word> && is_seen) seen.add(key);
      visit(key);
    });
  });
  if (!kMaySkipBits<Word> || threshold.fits(params.list_capacity) || threshold.is_exact()) return;
  seen.share(shared);
  __syncthreads();  // every warp has added its bits
  if (!kIsFirst || threshold.prefix << threshold.shift >= kMiddle) {
    threshold.skip_alike(shared.ones, shared.zeros);
  }
  __syncthreads();  // every thread has read the bits before they are cleared
}

// The threshold of a row's k-th key: digits until a list has room for all that may be among the first k.
template <class Word>
__device__ __forceinline__ Threshold<Word> find_threshold(const RowPart<Word>& row,
                                                          const TopKParams& params, UInt32 k,
                                                          SelectStorage<kThreads>& shared) {
  auto threshold = Threshold<Word>::start(row.length, k);
  const auto is_found = [&] {
    return threshold.fits(params.list_capacity) || threshold.is_exact();
  };
  if (kMaySkipBits<Word> && !is_found()) find_digit<true>(threshold, row, params, shared);
  while (!is_found()) find_digit<false>(threshold, row, params, shared);
  return threshold;
}

// Lists the first k of a row, in order of index unless `any_order`. Returns how many are listed: more than k
// if the list has room for elements that further digits would tell apart.
template <class Word>
__device__ __forceinline__ UInt32 list_first(const RowPart<Word>& row, const TopKParams& params,
                                             const Threshold<Word>& threshold, bool any_order,
                                             const List<Word>& list,
                                             SelectStorage<kThreads>& shared) {
  const bool fits = threshold.fits(params.list_capacity);
  // If the input has changed, fewer than k may be left: missing elements fill the list.
  const UInt32 num_equal =
      fits ? max(threshold.num_equal, threshold.num_wanted) : threshold.num_wanted;
  if (fits && any_order) {
    list_in_any_order(row, params, threshold, threshold.num_above + num_equal, list, shared);
  } else {
    put_all_in_order<RowPart<Word>::kLoadsAhead, true>(
        row, params, threshold, num_equal, {0, 0},
        {threshold.num_above, max(threshold.num_equal, num_equal)}, shared,
        [&](UInt32 place, Word key, UInt32 index) { list.put(place, key, index); });
  }
  return threshold.num_above + num_equal;
}

template <class Word, bool kInMemory, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 2)
    top_k_block_radix(const Word* __restrict__ input, Word* values, void* indices,
                      const void* lengths, UInt8* workspace,
                      const __grid_constant__ TopKParams params) {
  // Elements of the list that a thread may hold in registers.
  constexpr int kListPerThread = 4;
  SHARED_STORAGE(SelectStorage<kThreads>, shared);
  const Int64 capacity = params.list_capacity;
  const auto find_storage = [&] {
    UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
    if constexpr (kInMemory) {
      const Int64 list_bytes = capacity * static_cast<Int64>(sizeof(Word) + sizeof(UInt32));
      storage = workspace + blockIdx.x * (params.sort_mode != kByDigits ? 1 : 2) * list_bytes;
    }
    return storage;
  };
  UInt8* const storage = find_storage();
  // Again where it is needed, if keys leave no registers for it while a row is read.
  const auto list_of = [&](int number) {
    return List<Word>::in(sizeof(Word) == 8 ? find_storage() : storage, capacity, number);
  };
  const UInt32 k = static_cast<UInt32>(params.k);

  for (Int64 number = blockIdx.x; number < params.num_rows; number += gridDim.x) {
    const RowStart start = row_start(params, number);
    const UInt32 length =
        static_cast<UInt32>(block_row_length<kIsRagged>(lengths, params, start, shared));
    const RowPart<Word> row = {input + start.input, params.input_axis_stride, length, 0};
    const Threshold<Word> threshold = find_threshold(row, params, k, shared);
    List<Word> list = list_of(0);
    UInt32 count = list_first(row, params, threshold, params.sort_mode != kByDigits, list, shared);
    if (params.sort_mode != kByDigits) {
      UInt32 enough = kWarpSize;
      while (enough < k) enough *= 2;
      if (count > enough) {
        count = shorten_list<Word, kListPerThread>(threshold, row, list, count, k, enough, shared);
      }
      sort_by_network<Word, kThreads>(list, count);
    } else {
      list = sort_by_radix(list, list_of(1), count, shared);
    }
    for (Int64 rank = threadIdx.x; rank < k; rank += kThreads) {
      write_listed<kIsRagged>(list.keys[rank], list.indices[rank], input, values, indices, params,
                              start, length, rank);
    }
    // The next row's list is written after a barrier, when all threads have read this one.
  }
}
