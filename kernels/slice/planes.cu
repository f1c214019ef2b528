// Computes: SLICE and SLICE1 of pixels of 2 to 4 narrow items into planes, or planes into pixels.
// Idea: bytes change places in registers; shared storage puts the words of lanes in a row.
// Ownership: 4 to 32 lanes own a piece of a line, a lane a word of each plane; blocks stride.
// Requires: lines of adjacent pixels on one side, of items on the other, the extent; any pointers.
// Chosen when: the output is large, items have 1 or 2 bytes and lines fill the lanes.
#include "common/run_copy.cuh"
#include "slice/box_space.cuh"

constexpr int kThreads = 256;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kRegisterBytes = 4;
constexpr int kWordRegisters = kWordBytes / kRegisterBytes;

// Offsets, strides and extents count bytes.
struct SlicePlanesLines {
  Int64 num_pieces;
  Int64 line_items;  // of a plane
  Int64 source_offset;
  Int64 target_offset;
  Int64 source_begin;
  Int64 source_end;
  Int64 plane_stride;
};

// Dimension 0 counts the pieces of a line.
struct SlicePlanesParams : SlicePlanesLines, BoxSpace {
  Int32 num_planes;  // fewer than a pixel's items if some are left out
  Int32
      source_alignment;  // a power of two, at most a word's bytes, that divides the source's strides
  Int32 target_alignment;
  Int32 group_shift;  // 1 << group_shift lanes own a piece: a word of each plane per lane
};

// Each lane has as many words as a pixel has items; the words of a group are together.
template <int kPixelItems>
struct Storage {
  uint4 words[kThreads * kPixelItems];
};

// Bytes that are adjacent in memory, in registers.
template <int kWords>
struct Stretch {
  UInt32 registers[kWords * kWordRegisters];
};

// Loads the first num_bytes bytes of a stretch. Registers past these bytes may have any value.
template <int kWords>
__device__ __forceinline__ void load(Stretch<kWords>& stretch, const UInt8* from, int num_bytes,
                                     int alignment, const Extent& extent) {
  constexpr int kBytes = kWords * kWordBytes;
  constexpr int kRegisters = kWords * kWordRegisters;
  const int ahead = static_cast<int>(address_of(from)) & (kRegisterBytes - 1);
  const UInt8* aligned = from - ahead;
  if (alignment == kWordBytes && from + kBytes <= extent.end) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const uint4 word = load_16_bytes(from + w * kWordBytes);
      stretch.registers[w * kWordRegisters] = word.x;
      stretch.registers[w * kWordRegisters + 1] = word.y;
      stretch.registers[w * kWordRegisters + 2] = word.z;
      stretch.registers[w * kWordRegisters + 3] = word.w;
    }
  } else if (aligned >= extent.begin && aligned + kBytes + kRegisterBytes <= extent.end) {
    UInt32 loaded[kRegisters + 1];
#pragma unroll
    for (int r = 0; r <= kRegisters; ++r) {
      loaded[r] = load_item<UInt32>(aligned + r * kRegisterBytes);
    }
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) {
      stretch.registers[r] = __funnelshift_r(loaded[r], loaded[r + 1], ahead * 8);
    }
  } else {
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) {
      UInt32 bytes = 0;
#pragma unroll
      for (int i = 0; i < kRegisterBytes; ++i) {
        const int at = r * kRegisterBytes + i;
        if (at < num_bytes) bytes |= static_cast<UInt32>(from[at]) << (i * 8);
      }
      stretch.registers[r] = bytes;
    }
  }
}

template <int kWords>
__device__ __forceinline__ uint4 word_of(const Stretch<kWords>& stretch, int w) {
  const UInt32* registers = stretch.registers + w * kWordRegisters;
  return uint4{registers[0], registers[1], registers[2], registers[3]};
}

// Stores bytes that a group has in shared storage, up to kWords words for each lane: in aligned words, and
// the bytes before and after these.
template <int kWords>
__device__ __forceinline__ void store_kept(const uint4* kept, UInt8* to, int num_bytes, int lane,
                                           int num_lanes) {
  const int head = min(static_cast<int>(-address_of(to)) & (kWordBytes - 1), num_bytes);
  const int num_words = (num_bytes - head) / kWordBytes;
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const int w = lane + k * num_lanes;
    if (w < num_words) {
      uint4 word;
      if (head == 0) {
        word = kept[w];
      } else {
        const UInt32* from = reinterpret_cast<const UInt32*>(kept + w) + head / kRegisterBytes;
        const UInt32 shift = head % kRegisterBytes * 8;
        word = uint4{
            __funnelshift_r(from[0], from[1], shift), __funnelshift_r(from[1], from[2], shift),
            __funnelshift_r(from[2], from[3], shift), __funnelshift_r(from[3], from[4], shift)};
      }
      store_16_bytes(to + head + w * kWordBytes, word);
    }
  }
  const int tail = head + num_words * kWordBytes;
  const int bits = static_cast<int>(address_of(to)) | num_bytes | kMaxUnitBytes;
  const int unit_bytes = bits & -bits;
#pragma unroll 1
  for (int e = lane * unit_bytes; e < head + num_bytes - tail; e += num_lanes * unit_bytes) {
    const int at = e < head ? e : e - head + tail;
    move_unit(to + at, reinterpret_cast<const UInt8*>(kept) + at, unit_bytes);
  }
}

// A register with the given bytes: its byte b is byte `bytes[b]` of all registers. A permutation takes bytes
// from two registers, so each register after the first takes one permutation.
template <int kRegisters>
__device__ __forceinline__ UInt32 gathered(const UInt32 (&registers)[kRegisters],
                                           const int (&bytes)[kRegisterBytes]) {
  UInt32 result = registers[bytes[0] / kRegisterBytes];
  bool is_placed = false;
#pragma unroll
  for (int k = 1; k < kRegisterBytes; ++k) {
    const int added = bytes[k] / kRegisterBytes;
    bool is_new = true;
#pragma unroll
    for (int b = 0; b < k; ++b) is_new = is_new && bytes[b] / kRegisterBytes != added;
    if (is_new) {
      UInt32 order = 0;
#pragma unroll
      for (int b = 0; b < kRegisterBytes; ++b) {
        const int own = bytes[b] % kRegisterBytes;
        const int kept = is_placed ? b : own;
        order |= (bytes[b] / kRegisterBytes == added ? kRegisterBytes + own : kept) << (b * 4);
      }
      result = __byte_perm(result, registers[added], order);
      is_placed = true;
    }
  }
  return result;
}

// The place of byte `at` of plane `plane` among the bytes of the pixels.
template <int kItemBytes, int kPixelItems>
__device__ __forceinline__ constexpr int byte_of_pixels(int plane, int at) {
  return (at / kItemBytes * kPixelItems + plane) * kItemBytes + at % kItemBytes;
}

// The bytes of one plane, out of the bytes of the pixels.
template <int kItemBytes, int kPixelItems>
__device__ __forceinline__ void split(const Stretch<kPixelItems>& pixels, int plane,
                                      Stretch<1>& items) {
#pragma unroll
  for (int r = 0; r < kWordRegisters; ++r) {
    int bytes[kRegisterBytes];
#pragma unroll
    for (int b = 0; b < kRegisterBytes; ++b) {
      bytes[b] = byte_of_pixels<kItemBytes, kPixelItems>(plane, r * kRegisterBytes + b);
    }
    items.registers[r] = gathered(pixels.registers, bytes);
  }
}

// The reverse: `planes` has a word of each plane, one after the other.
template <int kItemBytes, int kPixelItems>
__device__ __forceinline__ void join(const Stretch<kPixelItems>& planes,
                                     Stretch<kPixelItems>& pixels) {
#pragma unroll
  for (int r = 0; r < kPixelItems * kWordRegisters; ++r) {
    int bytes[kRegisterBytes];
#pragma unroll
    for (int b = 0; b < kRegisterBytes; ++b) {
      const int item = (r * kRegisterBytes + b) / kItemBytes;
      bytes[b] = item % kPixelItems * kWordBytes + item / kPixelItems * kItemBytes + b % kItemBytes;
    }
    pixels.registers[r] = gathered(planes.registers, bytes);
  }
}

template <class Item, int kPixelItems, bool kSplits>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_planes(const void* source, void* target, SlicePlanesParams p) {
  SHARED_STORAGE(Storage<kPixelItems>, storage);
  constexpr int kItemBytes = sizeof(Item);
  const UInt8* from = static_cast<const UInt8*>(source) + p.source_offset;
  UInt8* to = static_cast<UInt8*>(target) + p.target_offset;
  const Extent extent{static_cast<const UInt8*>(source) + p.source_begin,
                      static_cast<const UInt8*>(source) + p.source_end};
  const int source_alignment = common_alignment(from, from, p.source_alignment);
  const int target_alignment = common_alignment(to, to, p.target_alignment);
  const int num_lanes = 1 << p.group_shift;
  const int lane = static_cast<int>(threadIdx.x) & (num_lanes - 1);
  const int pieces_per_block = kThreads >> p.group_shift;
  uint4* kept = storage.words + (threadIdx.x - lane) * kPixelItems;

  for (Int64 first = static_cast<Int64>(blockIdx.x) * pieces_per_block; first < p.num_pieces;
       first += static_cast<Int64>(gridDim.x) * pieces_per_block) {
    const Int64 index = first + (threadIdx.x >> p.group_shift);
    const UInt8* piece_source = from;
    UInt8* piece_target = to;
    int num_bytes = 0;  // of the piece in each plane
    if (index < p.num_pieces) {
      visit_coordinates(p, index, [&](int d, Int64 coordinate) {
        if (d == 0) {
          const Int64 rest = p.line_items * kItemBytes - coordinate * num_lanes * kWordBytes;
          num_bytes =
              static_cast<int>(rest < num_lanes * kWordBytes ? rest : num_lanes * kWordBytes);
        }
        piece_source += coordinate * p.source_strides[d];
        piece_target += coordinate * p.target_strides[d];
      });
    }
    const int own_bytes = min(num_bytes - lane * kWordBytes, kWordBytes);
    const bool is_aligned = target_alignment == kWordBytes && num_bytes % kWordBytes == 0;

    Stretch<kPixelItems> given{};
    if (own_bytes > 0) {
      if constexpr (kSplits) {
        // Items of the last pixel that belong to no plane may be outside the source.
        const int left_out = (kPixelItems - p.num_planes) * kItemBytes;
        load(given, piece_source + lane * kPixelItems * kWordBytes,
             own_bytes * kPixelItems - left_out, source_alignment, extent);
      } else {
#pragma unroll
        for (int plane = 0; plane < kPixelItems; ++plane) {
          Stretch<1> word;
          load(word, piece_source + plane * p.plane_stride + lane * kWordBytes, own_bytes,
               source_alignment, extent);
#pragma unroll
          for (int r = 0; r < kWordRegisters; ++r) {
            given.registers[plane * kWordRegisters + r] = word.registers[r];
          }
        }
      }
    }
    __syncwarp();  // every lane has stored the last pieces before these overwrite them
    if constexpr (kSplits) {
#pragma unroll
      for (int plane = 0; plane < kPixelItems; ++plane) {
        if (plane < p.num_planes) {
          Stretch<1> items;
          split<kItemBytes>(given, plane, items);
          if (!is_aligned) {
            kept[plane * num_lanes + lane] = word_of(items, 0);
          } else if (own_bytes > 0) {
            store_16_bytes(piece_target + plane * p.plane_stride + lane * kWordBytes,
                           word_of(items, 0));
          }
        }
      }
    } else {
      Stretch<kPixelItems> pixels;
      join<kItemBytes>(given, pixels);
#pragma unroll
      for (int w = 0; w < kPixelItems; ++w) kept[lane * kPixelItems + w] = word_of(pixels, w);
    }
    __syncwarp();  // pieces are complete before any lane stores them
    if constexpr (kSplits) {
      if (!is_aligned) {
#pragma unroll 1
        for (int plane = 0; plane < p.num_planes; ++plane) {
          store_kept<1>(kept + plane * num_lanes, piece_target + plane * p.plane_stride, num_bytes,
                        lane, num_lanes);
        }
      }
    } else {
      store_kept<kPixelItems>(kept, piece_target, num_bytes * kPixelItems, lane, num_lanes);
    }
  }
}
