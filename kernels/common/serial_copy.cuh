// Copies rows by a single thread: in blocks, which may be mirrored, if rows are contiguous, else in plain
// loops. Places need no alignment, because a block is a struct of bytes, which the host's compiler moves
// unaligned.
#pragma once

#include "common/tiles.cuh"
#include "common/types.cuh"

// The size of one or two vector registers on most CPUs.
constexpr int kSerialBlockBytes = 64;

// The C library copies runs from this length on faster, by the processor's own instruction for it: on an AMD
// EPYC, 512 rows of 8 KiB in 63 us rather than 78, but 1000 rows of 2 KB in 42 rather than 41.
constexpr Int64 kLibraryBytes = 4096;

template <int kBytes>
struct Bytes {
  UInt8 bytes[kBytes];
};

template <int kBytes>
__device__ __forceinline__ void move_bytes(void* target, const void* source) {
  *static_cast<Bytes<kBytes>*>(target) = *static_cast<const Bytes<kBytes>*>(source);
}

// Moves two blocks, both of which are loaded first: a load after a store has to wait for the store if the low
// 12 bits of their addresses are equal.
template <int kBytes>
__device__ __forceinline__ void move_two(UInt8* target, const UInt8* source) {
  const Bytes<kBytes> first = *reinterpret_cast<const Bytes<kBytes>*>(source);
  const Bytes<kBytes> second = *reinterpret_cast<const Bytes<kBytes>*>(source + kBytes);
  *reinterpret_cast<Bytes<kBytes>*>(target) = first;
  *reinterpret_cast<Bytes<kBytes>*>(target + kBytes) = second;
}

// Copies kBytes at a time; the last block ends with the run and overlaps the one before. num_bytes >= kBytes.
template <int kBytes>
__device__ __forceinline__ void copy_in_blocks(UInt8* target, const UInt8* source,
                                               Int64 num_bytes) {
  const Int64 last = num_bytes - kBytes;
  Int64 b = 0;
  for (; b + kBytes < last; b += 2 * kBytes) move_two<kBytes>(target + b, source + b);
  if (b < last) move_bytes<kBytes>(target + b, source + b);
  move_bytes<kBytes>(target + last, source + last);
}

// Copies at least kSerialBlockBytes. Stores across two lines of a cache are slow, so all but the first and
// the last are aligned, which the C library's copy does only for much longer runs.
__device__ __forceinline__ void copy_long_run(UInt8* target, const UInt8* source, Int64 num_bytes) {
  constexpr int kBytes = kSerialBlockBytes;
  const Int64 last = num_bytes - kBytes;
  move_bytes<kBytes>(target, source);
  Int64 b = kBytes - static_cast<Int64>(reinterpret_cast<UInt64>(target) % kBytes);
  for (; b + kCopiedBytes <= num_bytes; b += kCopiedBytes) copy_at_once(target + b, source + b);
  for (; b < last; b += kBytes) move_bytes<kBytes>(target + b, source + b);
  move_bytes<kBytes>(target + last, source + last);
}

__device__ __forceinline__ void copy_run(UInt8* target, const UInt8* source, Int64 num_bytes) {
  if (num_bytes >= kLibraryBytes) {
    memcpy(target, source, num_bytes);
  } else if (num_bytes >= kSerialBlockBytes) {
    copy_long_run(target, source, num_bytes);
  } else if (num_bytes >= 16) {
    copy_in_blocks<16>(target, source, num_bytes);
  } else if (num_bytes >= 4) {
    copy_in_blocks<4>(target, source, num_bytes);
  } else {
    for (Int64 b = 0; b < num_bytes; ++b) target[b] = source[b];
  }
}

// Item i goes to item num_items - 1 - i; `source` is the place of the first item of the source.
template <class Item>
__device__ __forceinline__ void copy_mirrored_run(UInt8* target, const UInt8* source,
                                                  Int64 num_items) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItems = kSerialBlockBytes / kItemBytes;
  const UInt8* end = source + num_items * kItemBytes;
  Int64 i = 0;
  for (; i + kItems <= num_items; i += kItems) {
    end -= kSerialBlockBytes;
    Mirrored<Item, kSerialBlockBytes>(end).store(target + i * kItemBytes);
  }
  for (; i < num_items; ++i) {
    end -= kItemBytes;
    move_bytes<kItemBytes>(target + i * kItemBytes, end);
  }
}

// `copy_run` past the caches, apart from partial lines at both ends.
__device__ __forceinline__ void stream_run(UInt8* target, const UInt8* source, Int64 num_bytes) {
  const Int64 misaligned = static_cast<Int64>(reinterpret_cast<UInt64>(target) % kLineBytes);
  Int64 b = min((kLineBytes - misaligned) % kLineBytes, num_bytes);
  copy_run(target, source, b);
  for (; b + kLineBytes <= num_bytes; b += kLineBytes) stream_line(target + b, source + b);
  copy_run(target + b, source + b, num_bytes - b);
}

// Copies num_items items of a row: item i from source + i * source_stride to target + i * target_stride, both
// in items. The rows do not overlap.
template <class Item>
__device__ __forceinline__ void copy_row(UInt8* target, const UInt8* source, Int64 num_items,
                                         Int64 target_stride, Int64 source_stride) {
  constexpr int kItemBytes = sizeof(Item);
  if (target_stride == 1 && source_stride == 1) {
    copy_run(target, source, num_items * kItemBytes);
  } else if (target_stride == 1 && source_stride == -1) {
    copy_mirrored_run<Item>(target, source - (num_items - 1) * kItemBytes, num_items);
  } else {
    const Int64 target_step = target_stride * kItemBytes;
    const Int64 source_step = source_stride * kItemBytes;
    for (Int64 i = 0; i < num_items; ++i) {
      move_bytes<kItemBytes>(target + i * target_step, source + i * source_step);
    }
  }
}
