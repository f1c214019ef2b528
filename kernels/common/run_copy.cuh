// Copies runs of bytes by groups of lanes, forwards or with their items in reverse order, from any
// address to any address, in aligned 16-byte words on both sides.
//
// The target is divided into words at multiples of 16 bytes; a lane writes words that are a group's width
// apart. Such a word needs two neighbouring source words unless both sides are misaligned by the same amount.
// The next lane has loaded the second one, so every source word is loaded once. Words that reach beyond the
// run are stored partially, and loaded whole only if the whole word belongs to the source tensor.
#pragma once

#include "common/intrinsics.cuh"
#include "common/move_item.cuh"
#include "common/types.cuh"

constexpr int kWordBytes = 16;
constexpr int kWordsPerLane = 4;  // independent loads that a lane has in flight
constexpr int kMaxPieceBytes = 1 << 24;

// One contiguous stretch of bytes; both pointers are to the lowest byte. Target item i is source item i, or
// num_items - 1 - i if reversed.
struct Run {
  const UInt8* source;
  UInt8* target;
  Int64 num_bytes;
  bool is_reversed;
};

// The bytes [first, past the last) that a tensor addresses.
struct Extent {
  const UInt8* begin;
  const UInt8* end;
};

// The threads that copy a run together: a group of up to 32 neighbouring lanes that exchange words, and as
// many such groups as the run needs. All members except the first two are the same for every thread of a
// launch.
struct RunGroup {
  int lane;        // in the group
  int first_byte;  // where this group begins in the bytes that the threads copy at once
  int num_lanes;   // of the group, a power of two
  int step_bytes;  // bytes that the threads copy at once
  int num_words;   // words of these per lane, at most kWordsPerLane
  int item_bytes;
  Extent source;
};

// The group of this thread, if 1 << owner_shift threads of the block copy a run together.
__device__ __forceinline__ RunGroup group_of_thread(int owner_shift, int num_words, int item_bytes,
                                                    Extent source) {
  const int num_owners = 1 << owner_shift;
  const int owner = static_cast<int>(threadIdx.x) & (num_owners - 1);
  const int num_lanes = min(num_owners, kWarpSize);
  const int lane = owner & (num_lanes - 1);
  return RunGroup{lane,      (owner - lane) * num_words * kWordBytes,
                  num_lanes, num_owners * num_words * kWordBytes,
                  num_words, item_bytes,
                  source};
}

// The start of the aligned word that holds a byte.
template <class Byte>
__device__ __forceinline__ Byte* word_of(Byte* byte) {
  return byte - (address_of(byte) & (kWordBytes - 1));
}

// Bytes offset .. offset + 15 of the 32 bytes low, high; offset is 0 to 15.
__device__ __forceinline__ uint4 bytes_at(uint4 low, uint4 high, UInt32 offset) {
  UInt32 w0 = low.x, w1 = low.y, w2 = low.z, w3 = low.w, w4 = high.x, w5 = high.y, w6 = high.z;
  const UInt32 w7 = high.w;
  if (offset & 8) {
    w0 = w2, w1 = w3, w2 = w4, w3 = w5, w4 = w6, w5 = w7;
  }
  if (offset & 4) {
    w0 = w1, w1 = w2, w2 = w3, w3 = w4, w4 = w5;
  }
  const UInt32 bits = (offset & 3) * 8;
  uint4 v;
  v.x = __funnelshift_r(w0, w1, bits);
  v.y = __funnelshift_r(w1, w2, bits);
  v.z = __funnelshift_r(w2, w3, bits);
  v.w = __funnelshift_r(w3, w4, bits);
  return v;
}

// The items of a word in reverse order; item_bytes is 1, 2, 4, 8 or 16.
__device__ __forceinline__ uint4 reverse_items(uint4 v, int item_bytes) {
  if (item_bytes < 16) v = uint4{v.z, v.w, v.x, v.y};
  if (item_bytes < 8) v = uint4{v.y, v.x, v.w, v.z};
  if (item_bytes < 4) {
    const UInt32 order = item_bytes == 1 ? 0x0123 : 0x1032;
    v.x = __byte_perm(v.x, 0, order);
    v.y = __byte_perm(v.y, 0, order);
    v.z = __byte_perm(v.z, 0, order);
    v.w = __byte_perm(v.w, 0, order);
  }
  return v;
}

// The bytes of a word that lie in [begin, end); the others are 0.
__device__ __forceinline__ uint4 load_bytes_between(const UInt8* word, const UInt8* begin,
                                                    const UInt8* end) {
  UInt64 low = 0;
  UInt64 high = 0;
#pragma unroll 1
  for (int b = kWordBytes - 1; b >= 0; --b) {
    high = high << 8 | low >> 56;
    low <<= 8;
    if (word + b >= begin && word + b < end) low |= word[b];
  }
  return uint4{static_cast<UInt32>(low), static_cast<UInt32>(low >> 32), static_cast<UInt32>(high),
               static_cast<UInt32>(high >> 32)};
}

// Stores the bytes [begin, end) of a word, in pieces as wide as their alignment.
__device__ __forceinline__ void store_bytes_between(UInt8* word, uint4 v, int begin, int end) {
  const UInt32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (begin <= 4 * w && 4 * w + 4 <= end) {
      store_item<UInt32>(word + 4 * w, words[w]);
    } else {
#pragma unroll
      for (int b = 4 * w; b < 4 * w + 4; ++b) {
        if (begin <= b && b < end) {
          word[b] = static_cast<UInt8>(words[w] >> (8 * (b & 3)));
        }
      }
    }
  }
}

__device__ __forceinline__ int clamp_to_piece(Int64 position) {
  return position < 0 ? 0
                      : (position > kMaxPieceBytes ? kMaxPieceBytes : static_cast<int>(position));
}

// Copies the part of the run between two places of the target, at most kMaxPieceBytes apart; `first` starts a
// word. All lanes of the warp call it together, each group with its own run. An empty run and `end <= first`
// copy nothing.
__device__ __forceinline__ void copy_words(const RunGroup& group, const Run& run, UInt8* first,
                                           const UInt8* end) {
  const UInt8* source_end = run.source + run.num_bytes;
  const UInt8* target_end = run.target + run.num_bytes;
  // Positions count the target's bytes from `first`; words are at multiples of 16.
  const Int64 run_begin = run.target - first;
  const int begin = clamp_to_piece(run_begin);
  const int stop =
      run.num_bytes == 0 ? 0 : clamp_to_piece((end < target_end ? end : target_end) - first);

  // The 16 source bytes of position 0 begin at `start`. `own` is the aligned word that holds the first of
  // them (the last if reversed). The rest is in its neighbour, which is the own word of the next position.
  // Both move forwards with the position (backwards if reversed).
  const UInt8* start =
      run.is_reversed ? source_end - kWordBytes + run_begin : run.source - run_begin;
  const UInt32 shift = static_cast<UInt32>(address_of(start)) & (kWordBytes - 1);
  const UInt8* own = word_of(run.is_reversed ? start + kWordBytes - 1 : start);
  const Int64 skew = run.is_reversed ? own - start : start - own;
  const int direction = run.is_reversed ? -1 : 1;

  // The own words of positions in [wanted_begin, wanted_end) hold bytes of the run that the piece needs;
  // those in [whole_begin, whole_end) belong to the tensor with all 16 bytes.
  const int wanted_begin = clamp_to_piece(run_begin + skew - (kWordBytes - 1));
  const Int64 held_end = run_begin + run.num_bytes + skew;
  const Int64 needed_end = stop + (shift != 0 ? kWordBytes : 0);
  const int wanted_end = clamp_to_piece(held_end < needed_end ? held_end : needed_end);
  const Int64 extent_begin =
      run.is_reversed ? own + kWordBytes - group.source.end : group.source.begin - own;
  const Int64 extent_end =
      run.is_reversed ? own + 1 - group.source.begin : group.source.end - (kWordBytes - 1) - own;
  const int whole_begin = max(wanted_begin, clamp_to_piece(extent_begin));
  const int whole_end = min(wanted_end, clamp_to_piece(extent_end));

  const int step = group.num_lanes * kWordBytes;
  // Lane 0 also loads the word after the group's last one, as the neighbour of that.
  const int num_loads = group.num_words + (group.lane == 0 && shift != 0 ? 1 : 0);
  const int next_lane = (group.lane + 1) & (group.num_lanes - 1);
  const int next_in_warp = (threadIdx.x & (kWarpSize - 1)) - group.lane + next_lane;
  const bool any_shifted = __any_sync(kFullMask, shift != 0);

  int base = group.first_byte;
  while (base + group.step_bytes <= begin) base += group.step_bytes;
  for (; __any_sync(kFullMask, base < stop); base += group.step_bytes) {
    const int position = base + group.lane * kWordBytes;
    uint4 words[kWordsPerLane + 1];
#pragma unroll
    for (int k = 0; k <= kWordsPerLane; ++k) {
      const int at = position + k * step;
      words[k] = uint4{0, 0, 0, 0};
      if (k < num_loads && at >= whole_begin && at < whole_end) {
        words[k] = load_16_bytes(own + direction * at);
      }
    }
    if (wanted_begin < whole_begin || whole_end < wanted_end) {
#pragma unroll
      for (int k = 0; k <= kWordsPerLane; ++k) {
        const int at = position + k * step;
        if (k < num_loads && at >= wanted_begin && at < wanted_end &&
            (at < whole_begin || at >= whole_end)) {
          words[k] = load_bytes_between(own + direction * at, run.source, source_end);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kWordsPerLane; ++k) {
      if (k >= group.num_words) break;
      const int at = position + k * step;
      // A warp whose words all lie outside skips the rest.
      if (!__any_sync(kFullMask, at + kWordBytes > begin && at < stop)) continue;
      uint4 v = words[k];
      if (any_shifted) {
        const uint4 given = group.lane == 0 ? words[k + 1] : words[k];
        uint4 next;
        next.x = __shfl_sync(kFullMask, given.x, next_in_warp);
        next.y = __shfl_sync(kFullMask, given.y, next_in_warp);
        next.z = __shfl_sync(kFullMask, given.z, next_in_warp);
        next.w = __shfl_sync(kFullMask, given.w, next_in_warp);
        if (shift != 0) v = run.is_reversed ? bytes_at(next, v, shift) : bytes_at(v, next, shift);
      }
      if (run.is_reversed) v = reverse_items(v, group.item_bytes);
      if (at >= begin && at + kWordBytes <= stop) {
        store_16_bytes(first + at, v);
      } else if (at < stop) {
        store_bytes_between(first + at, v, max(begin - at, 0), min(stop - at, kWordBytes));
      }
    }
  }
}

// Whether the runs of all groups of the warp begin and end with whole words, on both sides.
__device__ __forceinline__ bool warp_has_whole_words(const Run& run) {
  const UInt8* mirrored_with_first = run.is_reversed ? run.source + run.num_bytes : run.source;
  const UInt64 bits =
      address_of(mirrored_with_first) | address_of(run.target) | static_cast<UInt64>(run.num_bytes);
  return __all_sync(kFullMask, run.num_bytes == 0 || (bits & (kWordBytes - 1)) == 0);
}

// `copy_words` for such runs, in which every word of the target is one word of the source.
__device__ __forceinline__ void copy_whole_words(const RunGroup& group, const Run& run,
                                                 UInt8* first, const UInt8* end) {
  const Int64 run_begin = run.target - first;
  const Int64 run_end = run_begin + run.num_bytes;
  const int begin = clamp_to_piece(run_begin);
  const int stop = clamp_to_piece(end - first < run_end ? end - first : run_end);
  const UInt8* own = run.is_reversed ? run.source + run.num_bytes - kWordBytes + run_begin
                                     : run.source - run_begin;
  const int direction = run.is_reversed ? -1 : 1;
  const int step = group.num_lanes * kWordBytes;

  int base = group.first_byte;
  while (base + group.step_bytes <= begin) base += group.step_bytes;
  for (; base < stop; base += group.step_bytes) {
    const int position = base + group.lane * kWordBytes;
    uint4 words[kWordsPerLane];
#pragma unroll
    for (int k = 0; k < kWordsPerLane; ++k) {
      const int at = position + k * step;
      if (k < group.num_words && at >= begin && at < stop) {
        words[k] = load_16_bytes(own + direction * at);
      }
    }
#pragma unroll
    for (int k = 0; k < kWordsPerLane; ++k) {
      const int at = position + k * step;
      if (k < group.num_words && at >= begin && at < stop) {
        store_16_bytes(first + at,
                       run.is_reversed ? reverse_items(words[k], group.item_bytes) : words[k]);
      }
    }
  }
}

// `copy_words`, in fewer instructions if possible. It needs more registers.
__device__ __forceinline__ void copy_run(const RunGroup& group, const Run& run, UInt8* first,
                                         const UInt8* end) {
  if (warp_has_whole_words(run)) {
    copy_whole_words(group, run, first, end);
  } else {
    copy_words(group, run, first, end);
  }
}

// `copy_words` for a reversed run whose items are unaligned in the target, so that words would cut them:
// copies the items in bytes begin .. end - 1 of the run.
__device__ __forceinline__ void copy_items_reversed(const RunGroup& group, const Run& run,
                                                    Int64 begin, Int64 end) {
  const int alignment = common_alignment(run.source, run.target, group.item_bytes);
  const int num_owners = group.step_bytes / (group.num_words * kWordBytes);
  const int owner = group.first_byte / (group.num_words * kWordBytes) + group.lane;
  const Int64 stop = end < run.num_bytes ? end : run.num_bytes;
  for (Int64 b = begin + owner * group.item_bytes; b < stop; b += num_owners * group.item_bytes) {
    move_pieces(run.target + b, run.source + (run.num_bytes - group.item_bytes - b),
                group.item_bytes, alignment);
  }
}
