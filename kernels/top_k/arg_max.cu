// Computes: the first element of every row, k = 1.
// Idea: the largest key is found first, then its place among the few loads that it came from.
// Ownership: kLanes lanes or several blocks own a row; the last block to finish writes the result.
// Requires: k is 1; if several blocks share a row, `num_done` is zero, and is left zero.
// Chosen when: k is 1, and rows are contiguous, or few, or short enough for lanes.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/last_block.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"

// Not an index: rows have fewer than 2^32 elements.
constexpr UInt32 kNowhere = kFullMask;

// The search of one of kLanes lanes in a part of a row: the largest key of the lane's share (elements of
// equal rank have one key), and the first of the elements that were loaded with it.
template <class Word, UInt32 kLanes>
struct LaneSearch {
  using Key = Wide<Word>;
  static constexpr UInt32 kPerLoad = 16 / sizeof(Word);
  // Loads of a batch; all are issued before the first is used.
  static constexpr UInt32 kAhead = 4;
  static constexpr Key kElementMask = ~((Key{1} << kSpareBits<Word>)-1);

  const RowPart<Word>& part;
  const FineParams& params;
  UInt32 lane;
  UInt32 head;       // elements before the first whole load
  UInt32 num_loads;  // whole loads
  Key key;
  UInt32 place;        // of the element, or of the first element of its batch
  uint4 held[kAhead];  // the last batch
  UInt32 held_load;    // the batch's first load

  __device__ __forceinline__ LaneSearch(const RowPart<Word>& part, UInt32 lane,
                                        const FineParams& params)
      : part(part), params(params), lane(lane), head(0), num_loads(0), key(0), place(kNowhere) {
    held_load = kNowhere;
    if (part.stride == 1) {
      head = part.num_before_vectors();
      num_loads = (part.length - head) / kPerLoad;
    }
    for (UInt32 load = lane; load < num_loads; load += kAhead * kLanes) look_at_batch(load);
    look_at_rest();
  }

  // The key that all elements of equal rank share.
  __device__ __forceinline__ Key rank_key(Key fine) const {
    return coarse_key<Word>(fine & kElementMask, params);
  }

  __device__ __forceinline__ void consider(Key other, UInt32 other_place) {
    if (other > key || (other == key && other_place < place)) {
      key = other;
      place = other_place;
    }
  }

  __device__ __forceinline__ void load_batch(UInt32 first) {
    constexpr UInt32 kStep = kLanes * kPerLoad;
    const Word* from = part.elements + head + static_cast<Int64>(first) * kPerLoad;
    if (first + (kAhead - 1) * kLanes < num_loads) {
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) held[a] = load_16_bytes(from + a * kStep);
    } else {
      const UInt32 low = static_cast<UInt32>(params.padding);
      const UInt32 high = static_cast<UInt32>(params.padding >> 32);
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        held[a] = make_uint4(low, high, low, high);
        if (first + a * kLanes < num_loads) held[a] = load_16_bytes(from + a * kStep);
      }
    }
    held_load = first;
  }

  __device__ __forceinline__ void look_at_batch(UInt32 first) {
    load_batch(first);
    Key largest = 0;
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
        const Key other = fine_key<Word>(upper_word<Word>(held[a], i), params);
        largest = other > largest ? other : largest;
      }
    }
    consider(rank_key(largest), head + first * kPerLoad);
  }

  // Elements before and after the whole loads, or all elements if they are not contiguous.
  __device__ __forceinline__ void look_at_rest() {
    const UInt32 whole = num_loads * kPerLoad;
    const UInt32 num_left = part.length - whole;
    // The length is below 2^32, but stepping past it must not wrap.
#pragma unroll 1
    for (UInt64 begin = lane; begin < num_left; begin += kAhead * kLanes) {
      Word elements[kAhead];
      UInt32 places[kAhead];
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt64 number = begin + a * kLanes;
        const UInt32 own = static_cast<UInt32>(number < num_left ? number : begin);
        places[a] = own < head ? own : whole + own;
        elements[a] = part.elements[static_cast<Int64>(places[a]) * part.stride];
      }
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const Key bits = static_cast<Key>(elements[a]) << kSpareBits<Word>;
        consider(rank_key(fine_key<Word>(bits, params)), places[a]);
      }
    }
  }

  // The place of this lane's first element with the key `largest`, the largest of all lanes; kNowhere if the
  // lane has none. If the input has changed since the search, the place is that of any element.
  __device__ __forceinline__ UInt32 place_of(Key largest) {
    if (key != largest || place - head >= num_loads * kPerLoad) {
      return key == largest ? place : kNowhere;
    }
    const UInt32 first = (place - head) / kPerLoad;
    if (first != held_load) load_batch(first);
#pragma unroll
    for (int a = kAhead - 1; a >= 0; --a) {
      const UInt32 load = first + a * kLanes;
#pragma unroll
      for (int i = kPerLoad - 1; i >= 0; --i) {
        const bool is_it = fine_key<Word>(upper_word<Word>(held[a], i), params) >= largest;
        if (is_it && load < num_loads) place = head + load * kPerLoad + i;
      }
    }
    return place;
  }
};

// The maximum over kLanes neighbouring lanes; every lane of the warp calls it.
template <UInt32 kLanes, class Key>
__device__ __forceinline__ Key largest_of_lanes(Key key) {
  if constexpr (kLanes == kWarpSize && sizeof(Key) == 4) {
    return warp_max(key);
  } else {
#pragma unroll
    for (UInt32 distance = 1; distance < kLanes; distance *= 2) {
      const Key other = __shfl_xor_sync(kFullMask, key, distance);
      key = other > key ? other : key;
    }
    return key;
  }
}
template <UInt32 kLanes>
__device__ __forceinline__ UInt32 first_of_lanes(UInt32 place) {
  return ~largest_of_lanes<kLanes>(~place);
}

template <bool kIsRagged, class Word>
__device__ __forceinline__ void write_first(const Word* __restrict__ input, Word* values,
                                            void* indices, const FineParams& params,
                                            const RowStart& start, UInt32 length, UInt32 place) {
  const UInt32 index = min(place, static_cast<UInt32>(params.row_length - 1));
  write_result<kIsRagged>(input, values, indices, params, start, length, 0, index);
}

constexpr int kThreads = 256;

template <class Word, UInt32 kLanes, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 4)
    top_k_arg_max(const Word* __restrict__ input, Word* values, void* indices, const void* lengths,
                  const __grid_constant__ FineParams params) {
  constexpr UInt32 kRows = kWarpSize / kLanes;
  constexpr UInt32 kWarps = kThreads / kWarpSize;
  const UInt32 slot = threadIdx.x % kWarpSize / kLanes;
  const UInt32 lane = threadIdx.x % kLanes;
  const Int64 step = static_cast<Int64>(gridDim.x) * kWarps * kRows;
  for (Int64 first_row =
           (static_cast<Int64>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize) * kRows;
       first_row < params.num_rows; first_row += step) {
    const bool is_row = first_row + slot < params.num_rows;
    const RowStart start = row_start(params, first_row + (is_row ? slot : 0));
    const UInt32 length =
        is_row ? static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start)) : 0;
    const RowPart<Word> row = {input + start.input, params.input_axis_stride, length, 0};
    LaneSearch<Word, kLanes> search(row, lane, params);
    const Wide<Word> largest = largest_of_lanes<kLanes>(search.key);
    const UInt32 place = first_of_lanes<kLanes>(search.place_of(largest));
    if (lane == 0 && is_row) {
      write_first<kIsRagged>(input, values, indices, params, start, length, place);
    }
  }
}

constexpr int kBlockThreads = 512;
constexpr int kBlockWarps = kBlockThreads / kWarpSize;

template <class Word>
struct BlockStorage {
  SharedArray<Wide<Word>, kBlockWarps> keys;
  SharedArray<UInt32, kBlockWarps> places;
  UInt32 num_done;
};

// The largest key of the block. The storage is read until the next barrier.
template <class Word>
__device__ __forceinline__ Wide<Word> largest_of_block(Wide<Word> key, BlockStorage<Word>& shared) {
  const UInt32 lane = threadIdx.x % kWarpSize;
  key = largest_of_lanes<kWarpSize>(key);
  if (lane == 0) shared.keys[threadIdx.x / kWarpSize] = key;
  __syncthreads();  // every warp has stored its key before any is read
  return largest_of_lanes<kWarpSize>(shared.keys[lane % kBlockWarps]);
}
template <class Word>
__device__ __forceinline__ UInt32 first_of_block(UInt32 place, BlockStorage<Word>& shared) {
  const UInt32 lane = threadIdx.x % kWarpSize;
  place = first_of_lanes<kWarpSize>(place);
  if (lane == 0) shared.places[threadIdx.x / kWarpSize] = place;
  __syncthreads();  // every warp has stored its place before any is read
  return first_of_lanes<kWarpSize>(shared.places[lane % kBlockWarps]);
}

// The result of one block for its part of a row.
template <class Word>
struct PartFirst {
  Wide<Word> key;
  UInt32 index;
};

// The elements of a row that one block searches.
struct RowStretch {
  UInt32 row_length;
  Int64 begin;
  Int64 end;

  static __device__ __forceinline__ RowStretch of(Int64 length, UInt32 num_parts) {
    // In 64 bits, because a single part of 2^32 - 64 elements or more is rounded up to 2^32.
    const Int64 stretch = (static_cast<UInt32>(length) / num_parts / 64 + 1) * Int64{64};
    const Int64 begin = min(length, blockIdx.x * stretch);
    return {static_cast<UInt32>(length), begin, min(length, begin + stretch)};
  }
};

template <class Word, bool kIsRagged = false>
__global__ void __launch_bounds__(kBlockThreads, 2)
    top_k_arg_max_block(const Word* __restrict__ input, Word* values, void* indices,
                        const void* lengths, UInt32* num_done, PartFirst<Word>* found,
                        const __grid_constant__ FineParams params) {
  SHARED_STORAGE(BlockStorage<Word>, shared);
  // Blocks along x share a row.
  const UInt32 num_parts = gridDim.x;
  auto stretch = RowStretch::of(params.row_length, num_parts);

  for (Int64 row_number = blockIdx.y; row_number < params.num_rows; row_number += gridDim.y) {
    const RowStart start = row_start(params, row_number);
    if constexpr (kIsRagged) {
      stretch = RowStretch::of(row_length<true>(lengths, params, start), num_parts);
    }
    const RowPart<Word> part = {
        input + start.input + stretch.begin * params.input_axis_stride, params.input_axis_stride,
        static_cast<UInt32>(stretch.end - stretch.begin), static_cast<UInt32>(stretch.begin)};
    LaneSearch<Word, kBlockThreads> search(part, threadIdx.x, params);
    const Wide<Word> largest = largest_of_block<Word>(search.key, shared);
    UInt32 place = first_of_block(search.place_of(largest), shared);

    if (num_parts > 1) {
      PartFirst<Word>* row_found = found + row_number * num_parts;
      if (threadIdx.x == 0) {
        // An empty part has no place, and ranks after every other part.
        const UInt32 index = place == kNowhere ? kNowhere : part.first_index + place;
        row_found[blockIdx.x] = {largest, index};
      }
      if (!is_last_block(&num_done[row_number], num_parts, shared.num_done)) continue;
      if (threadIdx.x == 0) num_done[row_number] = 0;
      PartFirst<Word> first = {0, kNowhere};
      for (UInt32 p = threadIdx.x; p < num_parts; p += kBlockThreads) {
        const PartFirst<Word> other = row_found[p];
        if (other.key > first.key || (other.key == first.key && other.index < first.index)) {
          first = other;
        }
      }
      const Wide<Word> first_key = largest_of_block<Word>(first.key, shared);
      place = first_of_block(first.key == first_key ? first.index : kNowhere, shared);
    }
    if (threadIdx.x == 0) {
      write_first<kIsRagged>(input, values, indices, params, start, stretch.row_length, place);
    }
    // Two barriers separate these reads of keys and places from the writes for the next row.
  }
}
