// Computes: REVERSE_SUBSEQUENCES on a CPU, of lanes that cross rows, each of its own length.
// Idea: a strip of lanes is reversed in a small buffer: short lanes by delays, long ones by tiles.
// Ownership: a block is one thread and owns neighbouring strips; it reads each length once.
// Requires: strips that fit shared storage with a tile's rows; no dimension for the axis.
// Chosen when: blocks have one thread, and neighbouring lanes have lengths of their own.
#include "common/intrinsics.cuh"
#include "common/serial_copy.cuh"
#include "common/tiles.cuh"
#include "common/vectors.cuh"
#include "reverse_subsequences/lane_space.cuh"
#include "reverse_subsequences/short_lanes.cuh"

struct Storage {
  // The lengths of a strip, its lanes, and a tile's rows of it: as many as the launch has bytes for.
  Int64 lengths[1];
};

// In items; dimension 0 counts the strips of a row.
struct ReverseSerialColumnsParams : LaneSpace {
  Int64 num_strips;
  Int64 strips_per_block;
  Int64 row_items;
  Int64 strip_items;  // lanes of a strip
  Int64 lane_items;   // from lane to lane in the buffer
  Int64 row_source_stride;
  Int64 row_target_stride;
  Int64 row_length_stride;
  Int64 axis_source_stride;
  Int64 axis_target_stride;
  Int32 is_large;  // whether the target is too large for caches
};

// Rows are prefetched this many rows ahead, if they come from memory. In a cache, rows that are a power of
// two apart would evict each other before they are read.
constexpr int kRowsAhead = 16;

// Rows that are farther apart, in bytes, compete for the same few places of a near cache. Then the rows of a
// tile are written one after another, and short lanes pass through tiles as well.
constexpr Int64 kMaxNearPitch = 2048;

// Rows whose distance is no multiple of this are in different places of the cache, however far apart.
constexpr Int64 kMinFarPitch = 512;

// Shorter lanes are reversed faster item by item. A delayed row has many narrow items.
constexpr Int64 kMinTiledItems = 32;
template <class Item>
constexpr Int64 kMinShortItems = sizeof(Item) <= 2 ? 4 : 32;

// Rows that are at most this far apart are reversed item by item where they lie.
constexpr Int64 kMaxDensePitch = 2 * kLineBytes;

// Visits the first items of tiles; at least one tile fits, and the last may overlap the one before.
template <class Item, class Visit>
__device__ __forceinline__ void visit_tiles(Int64 num_items, Visit visit) {
  const Int64 last = num_items - kTileItems<Item>;
  for (Int64 item = 0; item < last; item += kTileItems<Item>) visit(item);
  visit(last);
}

template <class Item>
__device__ __forceinline__ void prefetch_rows(const UInt8* rows, Int64 pitch, Int64 num_bytes) {
  for (int row = kRowsAhead; row < kRowsAhead + kTileItems<Item>; ++row) {
    for (Int64 b = 0; b < num_bytes; b += kLineBytes) prefetch(rows + row * pitch + b);
  }
}

// Swaps the items of a column, `pitch` bytes apart, from the outer ones to the middle.
template <class Item>
__device__ __forceinline__ void reverse_column(UInt8* column, Int64 length, Int64 pitch) {
  constexpr int kItemBytes = sizeof(Item);
  UInt8* low = column;
  UInt8* high = column + (length - 1) * pitch;
  for (; low < high; low += pitch, high -= pitch) {
    Item first, last;
    move_bytes<kItemBytes>(&first, low);
    move_bytes<kItemBytes>(&last, high);
    move_bytes<kItemBytes>(low, &last);
    move_bytes<kItemBytes>(high, &first);
  }
}

// Reverses the lanes of a strip in place, item by item. Lanes are `step` bytes apart, and their items `pitch`
// bytes.
template <class Item>
__device__ __forceinline__ void reverse_each(UInt8* lanes, const Int64* lengths, Int64 num_lanes,
                                             Int64 step, Int64 pitch) {
  for (Int64 lane = 0; lane < num_lanes; ++lane) {
    reverse_column<Item>(lanes + lane * step, lengths[lane], pitch);
  }
}

// Reverses a strip item by item, in the target if its rows are dense, else as columns of a buffer.
// Rows may have gaps.
template <class Item>
__device__ __forceinline__ void reverse_columns(const ReverseSerialColumnsParams& p, UInt8* to,
                                                const UInt8* from, const Int64* lengths,
                                                Int64 num_lanes, UInt8* columns) {
  constexpr int kItemBytes = sizeof(Item);
  const Int64 source_pitch = p.axis_source_stride * kItemBytes;
  const Int64 target_pitch = p.axis_target_stride * kItemBytes;
  const bool in_place = max(target_pitch, -target_pitch) <= kMaxDensePitch;
  UInt8* rows = in_place ? to : columns;
  const Int64 pitch = in_place ? target_pitch : num_lanes * kItemBytes;
  const Int64 row_stride = in_place ? p.row_target_stride : 1;
  const bool touch = p.row_source_stride == 1 && row_stride == 1 &&
                     source_pitch == num_lanes * kItemBytes && pitch == source_pitch;
  if (touch) {
    copy_run(rows, from, p.axis_size * pitch);
  } else {
    for (Int64 i = 0; i < p.axis_size; ++i) {
      copy_row<Item>(rows + i * pitch, from + i * source_pitch, num_lanes, row_stride,
                     p.row_source_stride);
    }
  }
  reverse_each<Item>(rows, lengths, num_lanes, row_stride * kItemBytes, pitch);
  if (in_place) return;
  for (Int64 i = 0; i < p.axis_size; ++i) {
    copy_row<Item>(to + i * target_pitch, columns + i * pitch, num_lanes, p.row_target_stride, 1);
  }
}

// Reverses a strip through tiles, so that its lanes are contiguous in the buffer. `rows` holds a tile's rows.
template <class Item>
__device__ __forceinline__ void reverse_tiles(const ReverseSerialColumnsParams& p, UInt8* to,
                                              const UInt8* from, const Int64* lengths,
                                              Int64 num_lanes, UInt8* lanes, UInt8* rows) {
  constexpr int kItemBytes = sizeof(Item);
  const Int64 source_pitch = p.axis_source_stride * kItemBytes;
  const Int64 target_pitch = p.axis_target_stride * kItemBytes;
  const Int64 lane_bytes = p.lane_items * kItemBytes;
  const Int64 row_bytes = num_lanes * kItemBytes;
  visit_tiles<Item>(p.axis_size, [&](Int64 i) {
    const UInt8* tiles = from + i * source_pitch;
    if (p.is_large) prefetch_rows<Item>(tiles, source_pitch, row_bytes);
    visit_tiles<Item>(num_lanes, [&](Int64 lane) {
      transpose_tile<Item>(lanes + lane * lane_bytes + i * kItemBytes, lane_bytes,
                           tiles + lane * kItemBytes, source_pitch);
    });
  });
  for (Int64 lane = 0; lane < num_lanes; ++lane) {
    reverse_lane<Item>(lanes + lane * lane_bytes, lengths[lane], p.axis_size);
  }
  const bool in_place = !p.is_large && max(target_pitch, -target_pitch) <= kMaxNearPitch;
  visit_tiles<Item>(p.axis_size, [&](Int64 i) {
    UInt8* row = to + i * target_pitch;
    UInt8* tiles = in_place ? row : rows;
    const Int64 pitch = in_place ? target_pitch : row_bytes;
    visit_tiles<Item>(num_lanes, [&](Int64 lane) {
      transpose_tile<Item>(tiles + lane * kItemBytes, pitch,
                           lanes + lane * lane_bytes + i * kItemBytes, lane_bytes);
    });
    if (in_place) return;
    for (int r = 0; r < kTileItems<Item>; ++r, row += target_pitch) {
      if (p.is_large) {
        stream_run(row, rows + r * row_bytes, row_bytes);
      } else {
        copy_run(row, rows + r * row_bytes, row_bytes);
      }
    }
  });
}

// Loops of fixed length vectorise.
constexpr int kLengthsAtOnce = 8;

// Loads the lengths of a strip, from `index` on. Returns whether they differ.
__device__ __forceinline__ bool load_lengths(const ReverseSerialColumnsParams& p,
                                             const void* lengths, Int64 index, Int64 num_lanes,
                                             Int64* strip_lengths) {
  Int64 lane = 0;
  UInt64 difference = 0;
  if (p.length_bytes == 8 && p.row_length_stride == 1) {
    const UInt64* from = static_cast<const UInt64*>(lengths) + index;
    const UInt64 axis_size = static_cast<UInt64>(p.axis_size);
    const UInt64 sign_bits = p.length_is_signed ? ~UInt64{0} : 0;
    const UInt64 first = static_cast<UInt64>(length_at(p, lengths, index));
    UInt64 differences[kLengthsAtOnce] = {};
    for (; lane + kLengthsAtOnce <= num_lanes; lane += kLengthsAtOnce) {
      UInt64 several[kLengthsAtOnce];
      move_bytes<sizeof(several)>(several, from + lane);
      for (int i = 0; i < kLengthsAtOnce; ++i) {
        const UInt64 if_negative = (0 - (several[i] >> 63)) & sign_bits;
        const UInt64 length = several[i] & ~if_negative;
        several[i] = length < axis_size ? length : axis_size;
        differences[i] |= several[i] ^ first;
      }
      move_bytes<sizeof(several)>(strip_lengths + lane, several);
    }
    for (int i = 0; i < kLengthsAtOnce; ++i) difference |= differences[i];
  }
  for (; lane < num_lanes; ++lane) {
    strip_lengths[lane] = length_at(p, lengths, index + lane * p.row_length_stride);
    difference |= static_cast<UInt64>(strip_lengths[lane] ^ strip_lengths[0]);
  }
  return difference != 0;
}

// Writes each lane's length to every byte of its item. Lengths are below 256.
template <class Item>
__device__ __forceinline__ void spread_lengths(UInt8* bytes, const Int64* lengths,
                                               Int64 num_lanes) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr UInt64 kOnes = 0x0101010101010101;
  Int64 lane = 0;
  if constexpr (kItemBytes <= 8) {
    for (; lane + kLengthsAtOnce <= num_lanes; lane += kLengthsAtOnce) {
      UInt64 several[kLengthsAtOnce];
      Item items[kLengthsAtOnce];
      move_bytes<sizeof(several)>(several, lengths + lane);
      for (int i = 0; i < kLengthsAtOnce; ++i) items[i] = static_cast<Item>(several[i] * kOnes);
      move_bytes<sizeof(items)>(bytes + lane * kItemBytes, items);
    }
  }
  for (; lane < num_lanes; ++lane) {
    const UInt64 length = static_cast<UInt64>(lengths[lane]) * kOnes;
    const UInt64 item[] = {length, length};
    move_bytes<kItemBytes>(bytes + lane * kItemBytes, item);
  }
}

// Reverses a strip of short lanes. `buffer` holds a row, and kRowBytes of every row.
template <class Item>
__device__ __forceinline__ void reverse_short(const ReverseSerialColumnsParams& p, UInt8* to,
                                              const UInt8* from, const Int64* lengths,
                                              Int64 num_lanes, UInt8* buffer) {
  constexpr int kItemBytes = sizeof(Item);
  const Int64 num_bytes = num_lanes * kItemBytes;
  spread_lengths<Item>(buffer, lengths, num_lanes);
  // The last bytes may overlap the ones before.
  for (Int64 b = 0; b < num_bytes; b += kRowBytes) {
    const Int64 first = min(b, num_bytes - kRowBytes);
    const ByteRow item_lengths = load_row(buffer + first);
    const UInt8 axis_size = static_cast<UInt8>(p.axis_size);
    const ByteRow delays = minus(axis_size, item_lengths);
    ShortLanes lanes = {from + first,
                        from + first + (p.axis_size - 1) * p.axis_source_stride * kItemBytes,
                        p.axis_source_stride * kItemBytes,
                        to + first + (p.axis_size - 1) * p.axis_target_stride * kItemBytes,
                        p.axis_target_stride * kItemBytes,
                        buffer + num_bytes,
                        p.axis_size,
                        item_lengths,
                        minus(axis_size, ByteRow{}),
                        with_bit(delays, kLowBits),
                        with_bit(delays, kLowBits + 1),
                        DelayLine(delays)};
    lanes.reverse();
  }
}

template <class Item>
__global__ void reverse_serial_columns(const void* source, const void* lengths, void* target,
                                       ReverseSerialColumnsParams p) {
  SHARED_STORAGE(Storage, storage);
  constexpr int kItemBytes = sizeof(Item);
  Int64* strip_lengths = storage.lengths;
  const Int64 lane_bytes = p.lane_items * kItemBytes;
  UInt8* lanes = reinterpret_cast<UInt8*>(strip_lengths + p.strip_items) + kMirroredBytes;
  UInt8* rows = lanes + p.strip_items * lane_bytes + 2 * kMirroredBytes;
  const bool has_rows = p.row_source_stride == 1 && p.row_target_stride == 1;
  const Int64 pitch = max(max(p.axis_source_stride, -p.axis_source_stride),
                          max(p.axis_target_stride, -p.axis_target_stride));
  const bool is_short =
      has_rows && p.axis_size >= kMinShortItems<Item> && p.axis_size <= kMaxShortItems &&
      (pitch * kItemBytes <= kMaxNearPitch || pitch * kItemBytes % kMinFarPitch != 0);
  // A row's last strip is the narrowest.
  const Int64 fewest_lanes = p.row_items - (p.sizes[0] - 1) * p.strip_items;
  const bool has_tiles = has_rows && p.axis_size >= max(kMinTiledItems, kTileItems<Item>) &&
                         !(is_short && fewest_lanes * kItemBytes >= kRowBytes);
  const Int64 first = blockIdx.x * p.strips_per_block;
  const Int64 stop = min(first + p.strips_per_block, p.num_strips);

  // Bytes that are read before and behind lanes have to be initialised.
  if (has_tiles) {
    const Bytes<kMirroredBytes> zeros{};
    move_bytes<kMirroredBytes>(lanes - kMirroredBytes, &zeros);
    move_bytes<kMirroredBytes>(rows - 2 * kMirroredBytes, &zeros);
    move_bytes<kMirroredBytes>(rows - kMirroredBytes, &zeros);
    for (Int64 lane = 0; lane < p.strip_items; ++lane) {
      for (Int64 b = p.axis_size * kItemBytes; b < lane_bytes; ++b)
        lanes[lane * lane_bytes + b] = 0;
    }
  }
  for (Int64 strip = first; strip < stop; ++strip) {
    const LanePosition at = position_of(p, strip, -1);
    // If lines are streamed, strips begin where lines do, apart from the first strip.
    const Int64 row_lane = at.part * p.strip_items;
    const UInt8* row = static_cast<const UInt8*>(target) + (at.target - row_lane) * kItemBytes;
    const Int64 skew =
        p.is_large && has_rows
            ? static_cast<Int64>(reinterpret_cast<UInt64>(row) % kLineBytes) / kItemBytes
            : 0;
    const Int64 first_lane = max(row_lane - skew, Int64{0});
    const Int64 num_lanes = min(row_lane - skew + p.strip_items, p.row_items) - first_lane;
    if (num_lanes <= 0) continue;
    // Only strips of contiguous rows move.
    const Int64 moved = first_lane - row_lane;
    const Int64 source_item = at.source + moved;
    const Int64 target_item = at.target + moved;
    const Int64 length_index = at.length + moved * p.row_length_stride;
    const UInt8* from = static_cast<const UInt8*>(source) + source_item * kItemBytes;
    UInt8* to = static_cast<UInt8*>(target) + target_item * kItemBytes;

    if (!load_lengths(p, lengths, length_index, num_lanes, strip_lengths)) {
      for (Int64 i = 0; i < p.axis_size; ++i) {
        const Int64 origin = origin_of(i, strip_lengths[0]);
        copy_row<Item>(to + i * p.axis_target_stride * kItemBytes,
                       from + origin * p.axis_source_stride * kItemBytes, num_lanes,
                       p.row_target_stride, p.row_source_stride);
      }
    } else if (is_short && num_lanes * kItemBytes >= kRowBytes) {
      reverse_short<Item>(p, to, from, strip_lengths, num_lanes, lanes);
    } else if (has_tiles && num_lanes >= kTileItems<Item>) {
      reverse_tiles<Item>(p, to, from, strip_lengths, num_lanes, lanes, rows);
    } else {
      reverse_columns<Item>(p, to, from, strip_lengths, num_lanes, lanes);
    }
  }
  finish_streaming();
}
