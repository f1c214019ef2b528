// Copies runs of bytes by groups of lanes, forwards or with their items in reverse order, from any
// address to any address, in aligned 16-byte words on both sides.
//
// The target's whole words are written by lanes a group's width apart. Such a word needs two neighbouring
// source words unless both sides are misaligned alike; the second is the word that the next lane loaded, so
// every source word is loaded once. The few bytes before and after the whole words move one unit at a time, a
// unit being as wide as both sides are aligned, up to 4 bytes.
#pragma once

#include "common/intrinsics.cuh"
#include "common/move_item.cuh"
#include "common/types.cuh"

constexpr int kWordBytes = 16;
constexpr int kWordsAtOnce = 4;  // independent loads that a lane has in flight
constexpr int kMaxUnitBytes = 4;

// One contiguous stretch of bytes; both pointers are to the lowest byte. Target item i is
// source item i, or num_items - 1 - i where the run is reversed.
struct Run {
  const UInt8* source;
  UInt8* target;
  int num_bytes;
};

// The bytes that a tensor addresses, from the first to past the last.
struct Extent {
  const UInt8* begin;
  const UInt8* end;
};

// The neighbouring lanes that copy a run together. All members but `lane` are the same in every thread.
struct RunGroup {
  int lane;       // in the group
  int num_lanes;  // a power of two, at most a warp's
  int item_bytes;
  int unit_bytes;  // divides an item, and the addresses of all runs
  Extent source;
};

// The group of this thread where 1 << group_shift lanes copy a run together, of items at these pointers.
__device__ __forceinline__ RunGroup group_of_thread(int group_shift, int item_bytes,
                                                    const void* source, const void* target,
                                                    Extent extent) {
  const int num_lanes = 1 << group_shift;
  return RunGroup{static_cast<int>(threadIdx.x) & (num_lanes - 1), num_lanes, item_bytes,
                  common_alignment(source, target, min(item_bytes, kMaxUnitBytes)), extent};
}

// The start of the aligned word that holds a byte.
template <class Byte>
__device__ __forceinline__ Byte* word_of(Byte* byte) {
  return byte - (address_of(byte) & (kWordBytes - 1));
}

// The bytes of a run that a piece covers.
struct Piece {
  Int64 begin;
  Int64 end;
};

// Piece `number` of a run that is cut every piece_bytes, a multiple of words: all but the first begin where a
// word of the target does, as far as no item is cut.
__device__ __forceinline__ Piece piece_of(Int64 number, Int64 piece_bytes, Int64 run_bytes,
                                          const UInt8* target, int item_bytes) {
  const int lead = static_cast<int>(address_of(target)) & (kWordBytes - 1) & -item_bytes;
  const Int64 begin = number * piece_bytes;
  const Int64 end = begin + piece_bytes;
  return Piece{begin > 0 ? begin - lead : 0, end < run_bytes ? end - lead : run_bytes};
}

// Bytes offset .. offset + 15 of the 32 bytes low, high; offset is 0 to 15. `order` is the order of each 4,
// as for `__byte_perm`.
__device__ __forceinline__ uint4 bytes_at(uint4 low, uint4 high, UInt32 offset, UInt32 order) {
  UInt32 w0 = low.x, w1 = low.y, w2 = low.z, w3 = low.w, w4 = high.x, w5 = high.y, w6 = high.z;
  const UInt32 w7 = high.w;
  if (offset & 8) {
    w0 = w2, w1 = w3, w2 = w4, w3 = w5, w4 = w6, w5 = w7;
  }
  if (offset & 4) {
    w0 = w1, w1 = w2, w2 = w3, w3 = w4, w4 = w5;
  }
  order += (offset & 3) * 0x1111;
  uint4 v;
  v.x = __byte_perm(w0, w1, order);
  v.y = __byte_perm(w1, w2, order);
  v.z = __byte_perm(w2, w3, order);
  v.w = __byte_perm(w3, w4, order);
  return v;
}

// Four words in the order that reverses items of item_bytes bytes; narrow items within a word stay in order.
__device__ __forceinline__ uint4 reverse_words(uint4 v, int item_bytes) {
  if (item_bytes < 16) v = uint4{v.z, v.w, v.x, v.y};
  if (item_bytes < 8) v = uint4{v.y, v.x, v.w, v.z};
  return v;
}

// Moves a unit of 1, 2 or 4 bytes.
__device__ __forceinline__ void move_unit(UInt8* target, const UInt8* source, int unit_bytes) {
  if (unit_bytes == 4) {
    move_item<UInt32>(target, source);
  } else if (unit_bytes == 2) {
    move_item<UInt16>(target, source);
  } else {
    move_item<UInt8>(target, source);
  }
}

// Copies a run. All lanes of the warp call it together, each group with its own run, which may be empty.
template <bool kIsReversed>
__device__ __forceinline__ void copy_run(const RunGroup& group, const Run& run) {
  constexpr int kDirection = kIsReversed ? -1 : 1;
  int head = min(static_cast<int>(-address_of(run.target)) & (kWordBytes - 1), run.num_bytes);
  int num_words = (run.num_bytes - head) / kWordBytes;
  // Words would cut items that are not aligned to their size in the target.
  if (kIsReversed && (head & (group.item_bytes - 1)) != 0) num_words = 0;

  // The source bytes of the first word begin at `start`. `own` is the aligned word that holds the first of
  // them, or if reversed the last; the rest is in the neighbour, which is the own word of the next lane.
  const UInt8* start = run.source + (kIsReversed ? run.num_bytes - kWordBytes - head : head);
  const UInt32 shift = static_cast<UInt32>(address_of(start)) & (kWordBytes - 1);
  const UInt8* own = word_of(kIsReversed ? start + (kWordBytes - 1) : start);
  if (shift != 0) {
    // The first or the last word may need bytes that are not the tensor's.
    const UInt8* first = own;
    const UInt8* last = own + kDirection * kWordBytes * num_words;
    const bool begins_out =
        kIsReversed ? first + kWordBytes > group.source.end : first < group.source.begin;
    const bool ends_out =
        kIsReversed ? last < group.source.begin : last + kWordBytes > group.source.end;
    if (begins_out && num_words > 0) {
      head += kWordBytes;
      own += kDirection * kWordBytes;
      --num_words;
    }
    if (ends_out && num_words > 0) --num_words;
  }
  const int num_loads = num_words == 0 ? 0 : num_words + (shift != 0 ? 1 : 0);
  const bool any_shifted = __any_sync(kFullMask, shift != 0);
  const int next_lane = (group.lane + 1) & (group.num_lanes - 1);
  const int next_in_warp =
      (static_cast<int>(threadIdx.x) & (kWarpSize - 1)) - group.lane + next_lane;
  const UInt32 order = !kIsReversed || group.item_bytes >= 4 ? 0x3210
                       : group.item_bytes == 2               ? 0x1032
                                                             : 0x0123;

  UInt8* to = run.target + head;
  uint4 words[kWordsAtOnce + 1];
  words[0] = uint4{0, 0, 0, 0};
  if (group.lane < num_loads) {
    words[0] = load_16_bytes(own + kDirection * kWordBytes * group.lane);
  }
#pragma unroll 1
  for (int word = group.lane; __any_sync(kFullMask, word < num_words);
       word += kWordsAtOnce * group.num_lanes) {
#pragma unroll
    for (int k = 1; k <= kWordsAtOnce; ++k) {
      const int at = word + k * group.num_lanes;
      words[k] = uint4{0, 0, 0, 0};
      if (at < num_loads) words[k] = load_16_bytes(own + kDirection * kWordBytes * at);
    }
#pragma unroll
    for (int k = 0; k < kWordsAtOnce; ++k) {
      const int at = word + k * group.num_lanes;
      uint4 v = words[k];
      if (any_shifted) {
        // The neighbour of the group's last word is the first lane's next one.
        const uint4 given = group.lane == 0 ? words[k + 1] : words[k];
        uint4 next;
        next.x = __shfl_sync(kFullMask, given.x, next_in_warp);
        next.y = __shfl_sync(kFullMask, given.y, next_in_warp);
        next.z = __shfl_sync(kFullMask, given.z, next_in_warp);
        next.w = __shfl_sync(kFullMask, given.w, next_in_warp);
        // If reversed, an own word holds the last bytes, or all of them if nothing is shifted.
        v = kIsReversed && shift != 0 ? bytes_at(next, v, shift, order)
                                      : bytes_at(v, next, shift, order);
      } else if (kIsReversed) {
        v = bytes_at(v, v, 0, order);
      }
      if (kIsReversed) v = reverse_words(v, group.item_bytes);
      if (at < num_words) store_16_bytes(to + kWordBytes * at, v);
    }
    words[0] = words[kWordsAtOnce];
  }

  const int tail = head + num_words * kWordBytes;
  const int num_edge_bytes = head + run.num_bytes - tail;
#pragma unroll 1
  for (int e = group.lane * group.unit_bytes; e < num_edge_bytes;
       e += group.num_lanes * group.unit_bytes) {
    const int at = e < head ? e : e - head + tail;
    const int in_item = at & (group.item_bytes - 1);
    const int from = kIsReversed ? run.num_bytes - group.item_bytes - at + 2 * in_item : at;
    move_unit(run.target + at, run.source + from, group.unit_bytes);
  }
}
