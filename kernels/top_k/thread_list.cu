// Computes: the top k of many rows for small k.
// Idea: a sorted list of kCount keys in registers; elements that rank before its last go in.
// Ownership: a thread owns a row at a time, so neighbouring threads read neighbouring rows.
// Requires: k is kCount, which is at most the length of every row that is not ragged.
// Chosen when: k is at most 4, and rows are short, or many neighbours along a strided axis.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/rows.cuh"

// The first-ranked elements so far, sorted. Keys and indices are apart: a key takes a minimum and a maximum,
// and an index moves under the comparisons of the keys. Elements come in order of index, so one that equals
// an element of the list ranks behind it.
template <class Key, int kCount>
struct FirstElements {
  Key keys[kCount];
  UInt32 indices[kCount];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      keys[i] = 0;
      indices[i] = kFullMask;  // of no element
    }
  }

  // Inserts an element into a list of num_before, a constant where it is called.
  __device__ __forceinline__ void insert(Key key, UInt32 index, int num_before = kCount) {
    bool is_before[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) is_before[i] = i >= num_before || key > keys[i];
#pragma unroll
    for (int i = kCount - 1; i > 0; --i) {
      // The moves share out the work over the pipes.
      if (is_before[i]) indices[i] = computed_once(index);
      if (is_before[i - 1]) indices[i] = computed_once(indices[i - 1]);
      if (i > num_before) continue;
      keys[i] = i == num_before ? min(key, keys[i - 1]) : max(keys[i], min(key, keys[i - 1]));
    }
    if (is_before[0]) indices[0] = computed_once(index);
    keys[0] = num_before == 0 ? key : max(keys[0], key);
  }
};

constexpr int kThreads = 128;

// Elements whose loads are in flight before the first is used.
constexpr int kAhead = 8;

// If rows are at least this many times as long as their results, results are read again, 5 % of the input at
// most.
constexpr Int64 kLongRow = 20;

// The bits of a fine key that are the element's.
template <class Word>
constexpr Wide<Word> kElementBits = static_cast<Wide<Word>>(~Wide<Word>{0} << kSpareBits<Word>);

// A key of the rank: larger if the element ranks before, equal if it ties.
template <bool kIsFloat, class Word>
__device__ __forceinline__ Wide<Word> key_of(Word element, const FineParams& params) {
  const Wide<Word> bits = static_cast<Wide<Word>>(element) << kSpareBits<Word>;
  if constexpr (!kIsFloat) {
    return fine_key<Word>(bits, params);
  } else if constexpr (sizeof(Word) == 4) {
    // One addition in place of the comparisons of coarse_key: what ties has the same bits afterwards.
    return fine_key<Word>(plus_zero(bits), params);
  } else {
    return coarse_key<Word>(fine_key<Word>(bits, params) & kElementBits<Word>, params);
  }
}

template <class Word, int kCount, bool kIsFloat, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 4)
    top_k_thread_list(const Word* __restrict__ input, Word* values, void* indices,
                      const void* lengths, const __grid_constant__ FineParams params) {
  using Key = Wide<Word>;
  for (Int64 row = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x; row < params.num_rows;
       row += static_cast<Int64>(gridDim.x) * kThreads) {
    const RowStart begin = row_start(params, row);
    const Word* const elements = input + begin.input;
    const Int64 stride = params.input_axis_stride;
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, begin));
    FirstElements<Key, kCount> first;
    first.clear();
    Word ahead[kAhead];
    // The first elements fill the list; the loop has whole groups, and the rest comes last.
#pragma unroll
    for (UInt32 i = 0; i < kAhead; ++i) {
      if (i < length) ahead[i] = elements[i * stride];
    }
#pragma unroll
    for (UInt32 i = 0; i < kAhead; ++i) {
      const int num_before = i < kCount ? static_cast<int>(i) : kCount;
      if (i < length) first.insert(key_of<kIsFloat>(ahead[i], params), i, num_before);
    }
    UInt32 index = kAhead;
    for (; length >= index && length - index >= kAhead; index += kAhead) {
#pragma unroll
      for (UInt32 i = 0; i < kAhead; ++i) ahead[i] = elements[(index + i) * stride];
#pragma unroll
      for (UInt32 i = 0; i < kAhead; ++i) {
        first.insert(key_of<kIsFloat>(ahead[i], params), index + i);
      }
    }
#pragma unroll
    for (UInt32 i = 0; i < kAhead - 1; ++i) {
      if (index + i < length) ahead[i] = elements[(index + i) * stride];
    }
#pragma unroll
    for (UInt32 i = 0; i < kAhead - 1; ++i) {
      if (index + i < length) first.insert(key_of<kIsFloat>(ahead[i], params), index + i);
    }
    // Computed again, because keeping it in registers until here would cost more.
    const RowStart start = row_start(params, row);
    const bool reads_again = params.row_length >= kLongRow * kCount;
#pragma unroll
    for (int rank = 0; rank < kCount; ++rank) {
      const UInt32 at = first.indices[rank];
      Word element = 0;
      bool is_told = false;
      if (!reads_again) {
        const Key key = coarse_key<Word>(first.keys[rank] & kElementBits<Word>, params);
        element = static_cast<Word>(bits_of<Word>(key, params, is_told) >> kSpareBits<Word>);
      }
      if (!is_told && at < length) element = input[start.input + static_cast<Int64>(at) * stride];
      write_element<kIsRagged>(element, at, length, values, indices, params, start, rank);
    }
  }
}
