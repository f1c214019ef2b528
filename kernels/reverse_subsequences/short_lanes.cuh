// Reverses short lanes that cross rows, each of its own length, by a single thread: a mirrored lane is too early
// by what its length lacks of the axis, so rows go through a delay line with a switch for every bit of that.
#pragma once

#include "common/tiles.cuh"
#include "common/types.cuh"

// The first pass delays by the low bits, through registers; the second one by the rest, from a buffer.
constexpr int kLowBits = 4;
constexpr int kHighBits = 2;
constexpr Int64 kLowDelays = 1 << kLowBits;
constexpr Int64 kMaxShortItems = 1 << (kLowBits + kHighBits);

// Delays each byte by the bits of a number of its own: stage b keeps the last 2^b rows.
struct DelayLine {
  ByteRow kept[kLowDelays - 1];
  ByteRow is_late[kLowBits];

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
  const UInt8* source;
  Int64 source_pitch;
  UInt8* target;
  Int64 target_pitch;
  UInt8* buffer;  // axis_size rows
  Int64 axis_size;
  ByteRow lengths;  // of each byte's lane

  __device__ __forceinline__ void delay_by_low_bits(ByteRow delays) const {
    constexpr int kPhases = kLowDelays / 2;
    DelayLine line;
    for (int i = 0; i < kLowDelays - 1; ++i) line.kept[i] = ByteRow{};
#pragma GCC unroll 4
    for (int b = 0; b < kLowBits; ++b) line.is_late[b] = with_bit(delays, b);
    const auto pass = [&](Int64 row, int phase) {
      store_row(buffer + row * kRowBytes, line.next(load_row(source + row * source_pitch), phase));
    };
    Int64 row = 0;
    for (; row + kPhases <= axis_size; row += kPhases) {
#pragma GCC unroll 8
      for (int phase = 0; phase < kPhases; ++phase) pass(row + phase, phase);
    }
#pragma GCC unroll 8
    for (int phase = 0; phase < kPhases - 1; ++phase) {
      if (row + phase < axis_size) pass(row + phase, phase);
    }
  }

  // Rows from..stop, before which kEarlier others are, kLowDelays apart.
  template <int kEarlier>
  __device__ __forceinline__ void delay_by_high_bits(ByteRow delays, Int64 from, Int64 stop) const {
    constexpr Int64 kStep = kLowDelays * kRowBytes;
    const ByteRow is_late = with_bit(delays, kLowBits), is_later = with_bit(delays, kLowBits + 1);
    for (Int64 row = from; row < min(stop, axis_size); ++row) {
      const UInt8* place = buffer + row * kRowBytes;
      ByteRow delayed = load_row(place);
      if (kEarlier > 0) delayed = choose(is_late, load_row(place - kStep), delayed);
      if (kEarlier > 1) {
        ByteRow earlier = load_row(place - 2 * kStep);
        if (kEarlier > 2) earlier = choose(is_late, load_row(place - 3 * kStep), earlier);
        delayed = choose(is_later, earlier, delayed);
      }
      const Int64 mirrored = axis_size - 1 - row;
      const ByteRow straight = load_row(source + mirrored * source_pitch);
      const ByteRow is_reversed = above(lengths, static_cast<UInt8>(mirrored));
      store_row(target + mirrored * target_pitch, choose(is_reversed, delayed, straight));
    }
  }

  __device__ __forceinline__ void reverse() const {
    const ByteRow delays = minus(static_cast<UInt8>(axis_size), lengths);
    delay_by_low_bits(delays);
    delay_by_high_bits<0>(delays, 0, kLowDelays);
    delay_by_high_bits<1>(delays, kLowDelays, 2 * kLowDelays);
    delay_by_high_bits<2>(delays, 2 * kLowDelays, 3 * kLowDelays);
    delay_by_high_bits<3>(delays, 3 * kLowDelays, kMaxShortItems);
  }
};
