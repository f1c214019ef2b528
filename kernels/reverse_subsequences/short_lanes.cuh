// Reverses short lanes that cross rows, each of its own length, by a single thread. In the mirrored rows, a
// lane comes too early by the size of the axis minus its length. So the rows pass through a delay line that
// has a switch for every bit of this number.
#pragma once

#include "common/tiles.cuh"
#include "common/types.cuh"

// The low bits delay through registers, the high ones from a buffer of earlier rows.
constexpr int kLowBits = 4;
constexpr int kHighBits = 2;
constexpr Int64 kLowDelays = 1 << kLowBits;
constexpr Int64 kMaxShortItems = 1 << (kLowBits + kHighBits);

// Delays each byte by the low bits of a number of its own: stage b keeps the last 2^b rows.
struct DelayLine {
  ByteRow kept[kLowDelays - 1];
  ByteRow is_late[kLowBits];

  __device__ __forceinline__ explicit DelayLine(ByteRow delays) {
#pragma GCC unroll 16
    for (int i = 0; i < kLowDelays - 1; ++i) kept[i] = ByteRow{};
#pragma GCC unroll 4
    for (int b = 0; b < kLowBits; ++b) is_late[b] = with_bit(delays, b);
  }

  // The rows come in turn: `phase` is a row's number modulo half of kLowDelays.
  __device__ __forceinline__ ByteRow next(ByteRow row, int phase) {
#pragma GCC unroll 4
    for (int b = 0; b < kLowBits; ++b) {
      ByteRow& oldest = kept[(1 << b) - 1 + phase % (1 << b)];
      const ByteRow earlier = oldest;
      oldest = row;
      row = choose(is_late[b], earlier, row);
    }
    return row;
  }
};

// Lanes side by side, kRowBytes of each row. Items behind their lane's length stay where they are.
struct ShortLanes {
  const UInt8* source;    // of the next row
  const UInt8* mirrored;  // of the row as far from the last row as `source` is from the first
  Int64 source_pitch;
  UInt8* target;  // of the mirrored row
  Int64 target_pitch;
  UInt8* buffer;  // for the next row; there is one for every row
  Int64 rows_left;
  ByteRow lengths;            // of each byte's lane
  ByteRow place;              // rows_left in every byte
  ByteRow is_late, is_later;  // whether the delay has each of the high bits
  DelayLine line;

  // Reads a row and writes its mirror image. At least kEarlier * kLowDelays rows came before it.
  template <int kEarlier>
  __device__ __forceinline__ void reverse_row(int phase, bool is_kept) {
    constexpr Int64 kStep = kLowDelays * kRowBytes;
    ByteRow delayed = line.next(load_row(source), phase);
    if (is_kept) store_row(buffer, delayed);
    if (kEarlier > 0) delayed = choose(is_late, load_row(buffer - kStep), delayed);
    if (kEarlier > 1) {
      ByteRow earlier = load_row(buffer - 2 * kStep);
      if (kEarlier > 2) earlier = choose(is_late, load_row(buffer - 3 * kStep), earlier);
      delayed = choose(is_later, earlier, delayed);
    }
    --rows_left;
    place = less_one(place);
    store_row(target, choose_above(lengths, place, delayed, load_row(mirrored)));
    source += source_pitch;
    mirrored -= source_pitch;
    target -= target_pitch;
    buffer += kRowBytes;
  }

  // The next kLowDelays rows, if that many are left.
  template <int kEarlier>
  __device__ __forceinline__ void reverse_rows() {
    constexpr int kPhases = kLowDelays / 2;
    Int64 here = min(kLowDelays, rows_left);
    const bool is_kept = rows_left > kLowDelays;
    for (; here >= kPhases; here -= kPhases) {
#pragma GCC unroll 8
      for (int phase = 0; phase < kPhases; ++phase) reverse_row<kEarlier>(phase, is_kept);
    }
#pragma GCC unroll 8
    for (int phase = 0; phase < kPhases - 1; ++phase) {
      if (phase < here) reverse_row<kEarlier>(phase, is_kept);
    }
  }

  __device__ __forceinline__ void reverse() {
    reverse_rows<0>();
    reverse_rows<1>();
    reverse_rows<2>();
    reverse_rows<3>();
  }
};
