// Computes: the top k of many rows for small k.
// Idea: a sorted list of kListSize keys in registers; what ranks before the last is inserted.
// Ownership: a thread owns a row at a time, so neighbouring threads read neighbouring rows.
// Requires: k is at most kListSize.
// Chosen when: rows lie side by side along a strided axis, k is at most 4 and rows are many.
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

// The first elements of a row so far, in order.
template <class Pair, int kListSize>
struct FirstElements {
  Pair pairs[kListSize];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kListSize; ++i) pairs[i] = Pair::none();
  }
  __device__ __forceinline__ void insert(Pair pair) {
    if (!pair.is_before(pairs[kListSize - 1])) return;
    // What ranks behind the new element moves down by one.
#pragma unroll
    for (int i = kListSize - 1; i > 0; --i) {
      pairs[i] = pair.is_before(pairs[i - 1]) ? pairs[i - 1]
                 : pair.is_before(pairs[i])   ? pair
                                              : pairs[i];
    }
    if (pair.is_before(pairs[0])) pairs[0] = pair;
  }
};

constexpr int kThreads = 128;

template <class Word, int kListSize>
__global__ void __launch_bounds__(kThreads, 4)
    top_k_thread_list(const Word* __restrict__ input, Word* values, void* indices,
                      const __grid_constant__ TopKParams params) {
  // Loads that are under way before the first of them is looked at.
  constexpr int kAhead = 4;
  using Pair = typename RankedOf<sizeof(Word) == 8 ? 8 : 4>::Type;
  for (Int64 row = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; row < params.num_rows;
       row += static_cast<Int64>(gridDim.x) * kThreads) {
    const RowStart start = row_start(params, row);
    const Word* elements = input + start.input;
    const Int64 stride = params.input_axis_stride;
    FirstElements<Pair, kListSize> first;
    first.clear();
    Int64 index = 0;
    for (; index + kAhead <= params.row_length; index += kAhead) {
      Word ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead[i] = elements[(index + i) * stride];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        first.insert(Pair::of(ordering_key(ahead[i], params), static_cast<UInt32>(index + i)));
      }
    }
    for (; index < params.row_length; ++index) {
      const Word element = elements[index * stride];
      first.insert(Pair::of(ordering_key(element, params), static_cast<UInt32>(index)));
    }
#pragma unroll
    for (int rank = 0; rank < kListSize; ++rank) {
      if (rank < params.k) {
        write_result(input, values, indices, params, start, rank, first.pairs[rank].index());
      }
    }
  }
}
