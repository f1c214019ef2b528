// Computes: the top k of many rows for small k.
// Idea: a sorted list of kListSize keys in registers; elements that rank before the last go in.
// Ownership: a thread owns a row at a time, so neighbouring threads read neighbouring rows.
// Requires: k is at most kListSize.
// Chosen when: k is at most 4, and rows are short, or many neighbours along a strided axis.
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/ranked.cuh"
#include "top_k/rows.cuh"

// The first-ranked elements so far, sorted.
template <class Pair, int kListSize>
struct FirstElements {
  Pair pairs[kListSize];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kListSize; ++i) pairs[i] = Pair::none();
  }
  __device__ __forceinline__ void insert(Pair pair) {
    if (!pair.is_before(pairs[kListSize - 1])) return;
    // Elements that rank after the new one move down by one.
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

// Where rows are at least this many times as long as their results, results are read again, 5 % of the input
// at most: predicted 149.7 us, from keys 154.9, for 16 x 135 x 29584 float32 and k = 3.
constexpr Int64 kLongRow = 20;

template <class Word, int kListSize, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 4)
    top_k_thread_list(const Word* __restrict__ input, Word* values, void* indices,
                      const void* lengths, const __grid_constant__ TopKParams params) {
  // Loads that are in flight before the first is used.
  constexpr int kAhead = 4;
  using Pair = typename RankedOf<sizeof(Word) == 8 ? 8 : 4>::Type;
  for (Int64 row = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; row < params.num_rows;
       row += static_cast<Int64>(gridDim.x) * kThreads) {
    const RowStart begin = row_start(params, row);
    const Word* next = input + begin.input;
    const Int64 stride = params.input_axis_stride;
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, begin));
    FirstElements<Pair, kListSize> first;
    first.clear();
    UInt32 index = 0;
    for (; length - index >= kAhead; index += kAhead) {
      Word ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i, next += stride) ahead[i] = *next;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        first.insert(Pair::of(ordering_key(ahead[i], params), index + i));
      }
    }
    for (; index < length; ++index, next += stride) {
      first.insert(Pair::of(ordering_key(*next, params), index));
    }
    // Computed again, because keeping it in registers until here would cost more.
    const RowStart start = row_start(params, row);
    const bool reads_again = params.row_length >= kLongRow * params.k;
#pragma unroll
    for (int rank = 0; rank < kListSize; ++rank) {
      if (rank >= params.k) continue;
      const Pair pair = first.pairs[rank];
      Word element = 0;
      bool is_told = false;
      if (!reads_again) element = element_of(static_cast<Word>(pair.key()), params, is_told);
      if (!is_told && pair.index() < length) {
        element = input[start.input + static_cast<Int64>(pair.index()) * stride];
      }
      write_element<kIsRagged>(element, pair.index(), length, values, indices, params, start, rank);
    }
  }
}
