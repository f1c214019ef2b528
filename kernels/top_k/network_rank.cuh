// The rank of each element of a list, by a bitonic network of 32-bit numbers.
//
// A number has the place of an element in the list in its lower bits. Above are the highest bits in which
// elements differ, of the key and then of the index, as far as they fit. Elements that these bits do not tell
// apart are neighbours after the sort. If they are few, they are compared with each other. If they are many,
// new numbers are made: of the set of equal elements that each belongs to, and of the bits in which the
// elements of a set differ.
#pragma once

#include "common/block_scan.cuh"
#include "common/intrinsics.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"
#include "top_k/key_network.cuh"
#include "top_k/ranked.cuh"
#include "top_k/threshold.cuh"

// Numbers in shared storage. Neither neighbouring numbers nor every eighth are in one bank.
struct Numbers {
  UInt32* words;

  __device__ __forceinline__ UInt32& operator[](UInt32 place) const {
    return words[place ^ (place >> 5 & 7)];
  }
};

// The elements to rank: a list in shared storage.
template <class Word>
struct ListedElements {
  // Whether an element that ties with another one has the higher place if its index is lower.
  static constexpr bool kTiesAreInOrder = false;
  static constexpr UInt32 kPlaceBits = 12;

  const List<Word>& list;

  __device__ __forceinline__ Wide<Word> key(UInt32 place) const { return list.keys[place]; }
  __device__ __forceinline__ UInt32 index(UInt32 place) const { return list.indices[place]; }
};

template <class Elements, int kThreads, class Storage>
struct NetworkRank {
  static constexpr UInt32 kPlaceBits = Elements::kPlaceBits;
  static constexpr UInt32 kDigitBits = 32 - kPlaceBits;
  // Numbers that a lane has in registers when its warp sorts, and numbers of the whole warp: a chunk.
  static constexpr int kItems = 8;
  static constexpr UInt32 kChunk = kItems * kWarpSize;
  // Most elements with the same bits that are compared with each other.
  static constexpr UInt32 kFew = 8;

  Elements elements;
  UInt32 count;
  UInt32 index_bits;  // lower bits, in which indices may differ
  Numbers numbers;
  Storage& shared;

  static __device__ __forceinline__ UInt32 place_of(UInt32 number) {
    return number & ((1u << kPlaceBits) - 1);
  }
  // Whether the bits do not tell apart the elements at two places of the order.
  __device__ __forceinline__ bool are_equal(UInt32 a, UInt32 b) const {
    return numbers[a] >> kPlaceBits == numbers[b] >> kPlaceBits;
  }
  __device__ __forceinline__ UInt32 index_part(UInt32 index) const {
    return ~index & (kFullMask >> (32 - index_bits));
  }

  // How many of the low bits of a key and an index contain every bit in which elements `a` and `b` differ.
  __device__ __forceinline__ UInt32 differing_bits(UInt32 a, UInt32 b) const {
    const auto keys = elements.key(a) ^ elements.key(b);
    if (keys != 0) return index_bits + 64 - __clzll(static_cast<Int64>(keys));
    const UInt32 indices = index_part(elements.index(a)) ^ index_part(elements.index(b));
    return 32 - __clz(static_cast<int>(indices));
  }
  // The largest find() of all threads.
  template <class Find>
  __device__ __forceinline__ UInt32 most_differing(Find find) const {
    if (threadIdx.x == 0) shared.digit = 0;
    __syncthreads();  // it is 0 before it grows, and the list is complete
    const UInt32 own = warp_max(find());
    if (threadIdx.x % kWarpSize == 0) atomicMax(&shared.digit, own);
    __syncthreads();  // every warp's number is in, and all have looked at the order before it changes
    return shared.digit;
  }
  // The bits [from, from + width) of the element's key and index.
  __device__ __forceinline__ UInt32 digit(UInt32 place, UInt32 from, UInt32 width) const {
    const auto key = elements.key(place);
    const UInt64 low = static_cast<UInt64>(key) << index_bits | index_part(elements.index(place));
    const UInt64 bits = from < index_bits ? low >> from : key >> (from - index_bits);
    return static_cast<UInt32>(bits) & ((1u << width) - 1);
  }

  __device__ __forceinline__ void make_numbers(UInt32 num_chunks) {
    const UInt32 end = most_differing([&] {
      UInt32 differing = 0;
#pragma unroll 1
      for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
        differing = max(differing, differing_bits(0, i));
      }
      return differing;
    });
    const UInt32 from = end - min(end, kDigitBits);
    // Places behind the list come last: no number is smaller.
#pragma unroll 1
    for (UInt32 i = threadIdx.x; i < num_chunks * kChunk; i += kThreads) {
      numbers[i] = i < count ? digit(i, from, kDigitBits) << kPlaceBits | i : 0;
    }
  }

  // Makes new numbers for elements that are ordered by the bits so far; returns false if no bits are left.
  __device__ __forceinline__ bool refine_numbers() {
    const UInt32 stretch = (count + kThreads - 1) / kThreads;
    const UInt32 begin = min(count, threadIdx.x * stretch);
    const UInt32 end = min(count, begin + stretch);
    UInt32 starts = 0;  // bit i: the element at begin + i is not equal to the one before
    const UInt32 last_bit = most_differing([&] {
      UInt32 differing = 0;
#pragma unroll 1
      for (UInt32 i = max(begin, 1); i < end; ++i) {
        if (are_equal(i - 1, i)) {
          differing =
              max(differing, differing_bits(place_of(numbers[i - 1]), place_of(numbers[i])));
        } else {
          starts |= 1u << (i - begin);
        }
      }
      return differing;
    });
    if (last_bit == 0) return false;
    UInt32 num_starts;
    UInt32 group = block_exclusive_sum<kThreads>(__popc(starts), shared.warp_sums, num_starts);
    const UInt32 width = kDigitBits - (32 - __clz(static_cast<int>(num_starts)));
    const UInt32 from = last_bit - min(last_bit, width);
#pragma unroll 1
    for (UInt32 i = begin; i < end; ++i) {
      group += starts >> (i - begin) & 1;
      const UInt32 place = place_of(numbers[i]);
      const UInt32 high = (num_starts - group) << width | digit(place, from, width);
      numbers[i] = high << kPlaceBits | place;
    }
    return true;
  }

  static __device__ __forceinline__ void keep(UInt32& own, UInt32 other, bool is_larger) {
    // A comparison and a move run in two pipes; a maximum and a minimum run in one.
    if ((other > own) == is_larger) own = computed_once(other);
  }
  // Sorts a warp's bitonic numbers in falling order, beginning with lanes `distance` apart.
  static __device__ __forceinline__ void merge_lanes(UInt32 (&items)[kItems], UInt32 distance) {
#pragma unroll 1
    for (; distance > 0; distance /= 2) {
      const bool is_lower = (threadIdx.x & distance) == 0;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        keep(items[j], __shfl_xor_sync(kFullMask, items[j], distance), is_lower);
      }
    }
    merge_keys(items);
  }
  static __device__ __forceinline__ void sort_lanes(UInt32 (&items)[kItems]) {
    sort_keys(items);
#pragma unroll 1
    for (UInt32 lanes = 2; lanes <= kWarpSize; lanes *= 2) {
      // Both halves are in order: each number is compared with its mirror image in the other half.
      const bool is_lower = (threadIdx.x & lanes / 2) == 0;
#pragma unroll
      for (int j = 0; j < kItems / 2; ++j) {
        const int mirrored = kItems - 1 - j;
        const UInt32 first = __shfl_xor_sync(kFullMask, items[mirrored], lanes - 1);
        const UInt32 second = __shfl_xor_sync(kFullMask, items[j], lanes - 1);
        keep(items[j], first, is_lower);
        keep(items[mirrored], second, is_lower);
      }
      merge_lanes(items, lanes / 4);
    }
  }

  // Flips the numbers of odd runs, so that they fall where they have to rise: the two runs of a pair can
  // then be merged.
  static __device__ __forceinline__ UInt32 flip_of(UInt32 chunk, UInt32 chunks_per_run) {
    return (chunk & chunks_per_run) != 0 ? kFullMask : 0;
  }
  // Each warp puts chunks of runs in order, by sort_items(items).
  template <class Sort>
  __device__ __forceinline__ void sort_chunks(UInt32 num_chunks, UInt32 chunks_per_run,
                                              Sort sort_items) const {
    const UInt32 lane = threadIdx.x % kWarpSize;
    for (UInt32 chunk = threadIdx.x / kWarpSize; chunk < num_chunks;
         chunk += kThreads / kWarpSize) {
      UInt32* words = numbers.words + chunk * kChunk + lane * kItems;
      const UInt32 flip = flip_of(chunk, chunks_per_run);
      UInt32 items[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) items[j] = words[j ^ (lane / 4)] ^ flip;
      sort_items(items);
#pragma unroll
      for (int j = 0; j < kItems; ++j) words[j ^ (lane / 4)] = items[j] ^ flip;
    }
    __syncthreads();  // the chunks are in order before others read them
  }
  // The steps of a merge that compare whole chunks: each thread compares numbers a multiple of a chunk apart.
  template <int kChunks>
  __device__ __forceinline__ void merge_chunks(UInt32 num_chunks) const {
    for (UInt32 i = threadIdx.x; i < num_chunks / kChunks * kChunk; i += kThreads) {
      const UInt32 first = i / kChunk * kChunks;
      UInt32* words = &numbers[first * kChunk + i % kChunk];
      const UInt32 flip = flip_of(first, kChunks);
      UInt32 items[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) items[i] = words[i * kChunk] ^ flip;
      merge_keys(items);
#pragma unroll
      for (int i = 0; i < kChunks; ++i) words[i * kChunk] = items[i] ^ flip;
    }
  }

  // Puts the numbers of chunks in falling order.
  __device__ __forceinline__ void sort(UInt32 num_chunks) const {
    __syncthreads();  // every number is made before it is sorted
    sort_chunks(num_chunks, 1, [](UInt32(&items)[kItems]) { sort_lanes(items); });
    for (UInt32 run = 2; run <= num_chunks; run *= 2) {
      if (run == 2) merge_chunks<2>(num_chunks);
      if (run == 4) merge_chunks<4>(num_chunks);
      if (run == 8) merge_chunks<8>(num_chunks);
      if (run == 16) merge_chunks<16>(num_chunks);
      __syncthreads();  // elements are in their chunks before these are sorted
      sort_chunks(num_chunks, run,
                  [](UInt32(&items)[kItems]) { merge_lanes(items, kWarpSize / 2); });
    }
  }

  // The end of the elements that the bits do not tell apart from the elements [begin, end). If they are many,
  // the result is some place more than kFew after `begin`.
  __device__ __forceinline__ UInt32 end_of_equal(UInt32 begin, UInt32 end) const {
    while (end < count && end - begin <= kFew && are_equal(end, begin)) ++end;
    return end;
  }
  __device__ __forceinline__ UInt32 begin_of_equal(UInt32 place) const {
    UInt32 begin = place;
    while (begin > 0 && place - begin < kFew && are_equal(begin - 1, place)) --begin;
    return begin;
  }
  // Whether the elements at a place and at the next one, which the bits do not tell apart, are in order.
  __device__ __forceinline__ bool is_settled(UInt32 place) const {
    return Elements::kTiesAreInOrder &&
           elements.key(place_of(numbers[place])) == elements.key(place_of(numbers[place + 1]));
  }
  __device__ __forceinline__ bool is_before(UInt32 a, UInt32 b) const {
    const auto key_of_a = elements.key(a);
    const auto key_of_b = elements.key(b);
    return key_of_a > key_of_b || (key_of_a == key_of_b && elements.index(a) < elements.index(b));
  }

  // Compares elements that the bits do not tell apart with each other, where they are few. Returns whether
  // many are left that are not in order.
  __device__ __forceinline__ bool settle_few() const {
    const UInt32 stretch = (count + kThreads - 1) / kThreads;
    const UInt32 first = threadIdx.x * stretch;
    const UInt32 last = first + stretch;
    UInt32 equals = 0;  // bit i: the elements at first + i and after it are equal
    if (first + 1 < count) {
      UInt32 number = numbers[first];
#pragma unroll 4
      for (UInt32 i = first; i < min(last, count - 1); ++i) {
        const UInt32 next = numbers[i + 1];
        equals |= static_cast<UInt32>((number ^ next) >> kPlaceBits == 0) << (i - first);
        number = next;
      }
    }
    UInt32 begins = equals & ~(equals << 1);  // bit i: at first + i, equal elements begin
    if ((begins & 1) != 0 && first > 0 && are_equal(first - 1, first)) --begins;
    bool has_many = false;
    UInt32 last_end = 0;  // end of elements equal to the last, behind the stretch
    for (UInt32 left = equals; left != 0; left &= left - 1) {
      const UInt32 bit = left & (0 - left);
      const UInt32 place = first + __popc(bit - 1);
      const UInt32 begin = (begins & bit) != 0 ? place : begin_of_equal(place);
      const UInt32 end = end_of_equal(begin, place + 2);
      has_many = has_many || (end - begin > kFew && !is_settled(place));
      last_end = end;
    }
    // All have looked at the order before it changes. After that, no thread looks at elements that another
    // thread moves.
    if (__syncthreads_or(has_many ? 1 : 0) != 0) return true;
    for (; begins != 0; begins &= begins - 1) {
      const int bit = __ffs(static_cast<int>(begins)) - 1;
      const UInt32 begin = first + bit;
      UInt32 end = begin + __ffs(static_cast<int>(~(equals >> bit)));
      if (end > last) end = last_end;
      if (end - begin > kFew) continue;
#pragma unroll 1
      for (UInt32 i = begin + 1; i < end; ++i) {
        const UInt32 number = numbers[i];
        UInt32 place = i;
        for (; place > begin; --place) {
          const UInt32 other = numbers[place - 1];
          if (!is_before(place_of(number), place_of(other))) break;
          numbers[place] = other;
        }
        numbers[place] = number;
      }
    }
    __syncthreads();  // the order is complete before it is read
    return false;
  }
};

// Calls write(rank, key, index) for the first k of `count` elements. No index is greater than `last_index`.
// The list is in shared storage; `numbers` has room for the next power of two of `count`, at least 256.
template <class Word, int kThreads, class Write>
__device__ __forceinline__ void rank_by_network(const List<Word>& list, UInt32 count, UInt32 k,
                                                UInt32 last_index, UInt32* numbers,
                                                SelectStorage<kThreads>& shared, Write write) {
  using Network = NetworkRank<ListedElements<Word>, kThreads, SelectStorage<kThreads>>;
  const UInt32 index_bits = 32 - __clz(static_cast<int>(last_index | 1));
  Network network = {{list}, count, index_bits, {numbers}, shared};
  UInt32 num_chunks = 1;
  while (num_chunks * Network::kChunk < count) num_chunks *= 2;
  network.make_numbers(num_chunks);
  do {
    network.sort(num_chunks);
  } while (network.settle_few() && network.refine_numbers());
#pragma unroll 1
  for (UInt32 rank = threadIdx.x; rank < k; rank += kThreads) {
    const UInt32 place = Network::place_of(network.numbers[rank]);
    write(rank, list.keys[place], list.indices[place]);
  }
}
