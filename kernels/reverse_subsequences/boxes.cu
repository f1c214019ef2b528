// Computes: REVERSE_SUBSEQUENCES of short lanes, in small boxes that lie one after another.
// Idea: many boxes are loaded into shared storage as 16-byte words, and reversed there in place.
// Ownership: a block owns a tile of whole boxes; a thread moves words, and swaps pairs of a lane.
// Requires: tiles that fit; boxes of the same layout in source and target, without gaps.
// Chosen when: boxes are below a few KiB; a box is a lane, or all lanes that cross its rows.
#include "common/run_copy.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreadShift = 8;
constexpr int kThreads = 1 << kThreadShift;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kTileWords = 1024;
constexpr int kLoads = kTileWords / kThreads;
constexpr int kLengthsAtOnce = 4;
constexpr int kTileLanes = kLengthsAtOnce * kThreads;  // more only if a box has more

// In items; the index space has the lanes only, ordered within a box and then from box to box.
struct ReverseBoxesParams : LaneSpace {
  Int64 num_lanes;
  UInt32 row_multiplier;  // divides by row_lanes
  Int32 row_shift;
  Int32 box_items;
  Int32 row_lanes;  // lanes that cross each row of a box
  Int32 tile_lanes;
  Int32 group_shift;  // 1 << group_shift threads reverse a lane
};

struct Storage {
  uint4 words[kTileWords];
  UInt16 lengths[1];  // one for each lane of a tile
};

// The bytes of a word that lie in [begin, end), the others 0.
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

// Loads the lengths of a tile's lanes first, first + kThreads, ...
__device__ __forceinline__ void load_lengths(const ReverseBoxesParams& p, const void* lengths,
                                             Int64 first_lane, int first, int num_lanes,
                                             UInt64 (&bits)[kLengthsAtOnce]) {
  LanePosition positions[kLengthsAtOnce];
  positions_of(p, first_lane + first, kThreads, -1, positions);
#pragma unroll
  for (int k = 0; k < kLengthsAtOnce; ++k) {
    if (first + k * kThreads < num_lanes) {
      bits[k] = load_length(lengths, positions[k].length, p.length_bytes);
    }
  }
}

__device__ __forceinline__ void store_lengths(const ReverseBoxesParams& p,
                                              const UInt64 (&bits)[kLengthsAtOnce], int first,
                                              int num_lanes, UInt16* lengths) {
#pragma unroll
  for (int k = 0; k < kLengthsAtOnce; ++k) {
    const int lane = first + k * kThreads;
    if (lane < num_lanes) {
      lengths[lane] = static_cast<UInt16>(
          clamp_length(bits[k], p.length_bytes, p.length_is_signed, p.axis_size));
    }
  }
}

// The lanes of a tile that a thread works on, with the others of its group. Neighbouring threads have
// neighbouring items: of a lane, or of a row if boxes have several lanes.
template <bool kHasRows>
struct Share {
  int first_lane;
  int lane_step;
  int first_item;  // of each lane
  int item_step;

  __device__ __forceinline__ explicit Share(int group_shift) {
    const int thread = static_cast<int>(threadIdx.x);
    lane_step = kThreads >> group_shift;
    item_step = 1 << group_shift;
    first_lane = kHasRows ? thread & (lane_step - 1) : thread >> group_shift;
    first_item =
        kHasRows ? thread >> (kThreadShift - group_shift) : thread & ((1 << group_shift) - 1);
  }
};

// The number of a lane's first item in its tile.
template <bool kHasRows>
__device__ __forceinline__ int lane_begin(const ReverseBoxesParams& p, int lane) {
  if (!kHasRows) return lane * p.box_items;
  const int box =
      static_cast<int>(divide(static_cast<UInt32>(lane), p.row_multiplier, p.row_shift));
  return lane + box * (p.box_items - p.row_lanes);
}

// Reverses the lanes of a tile in shared storage.
template <class Item, bool kHasRows>
__device__ __forceinline__ void reverse_tile(const ReverseBoxesParams& p, Item* items,
                                             const UInt16* lengths, int num_lanes) {
  const Share<kHasRows> share(p.group_shift);
  const int row = kHasRows ? p.row_lanes : 1;
  for (int lane = share.first_lane; lane < num_lanes; lane += share.lane_step) {
    const int length = lengths[lane];
    const int begin = lane_begin<kHasRows>(p, lane);
    int low = begin + share.first_item * row;
    int high = begin + (length - 1 - share.first_item) * row;
#pragma unroll 1
    for (; low < high; low += share.item_step * row, high -= share.item_step * row) {
      const Item item = items[low];
      items[low] = items[high];
      items[high] = item;
    }
  }
}

// Writes whole words of a tile; the first begins `offset` bytes into `words`.
template <bool kIsShifted>
__device__ __forceinline__ void store_words(UInt8* to, const uint4* words, UInt32 offset,
                                            int num_words) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint4* own = words + thread;
  UInt8* place = to + thread * kWordBytes;
  uint4 stored[kLoads];
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    if (thread + k * kThreads < num_words) {
      stored[k] = own[k * kThreads];
      if (kIsShifted) stored[k] = bytes_at(stored[k], own[k * kThreads + 1], offset, 0x3210);
    }
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    if (thread + k * kThreads < num_words) {
      store_16_bytes(place + k * kThreads * kWordBytes, stored[k]);
    }
  }
}

// Writes a tile, which is `lead` bytes into `words`, in aligned words, and the items before and after these.
template <class Item>
__device__ __forceinline__ void store_tile(UInt8* to, const uint4* words, int lead, int num_bytes) {
  constexpr int kItemBytes = sizeof(Item);
  const int head = min(static_cast<int>(-address_of(to)) & (kWordBytes - 1), num_bytes);
  const int num_words = static_cast<UInt32>(num_bytes - head) / kWordBytes;
  const UInt32 begin = static_cast<UInt32>(lead + head);
  const UInt32 offset = begin % kWordBytes;
  if (offset == 0) {
    store_words<false>(to + head, words + begin / kWordBytes, offset, num_words);
  } else {
    store_words<true>(to + head, words + begin / kWordBytes, offset, num_words);
  }
  const int edge = static_cast<int>(threadIdx.x) * kItemBytes;
  const int byte = edge < head ? edge : edge + num_words * kWordBytes;
  if (edge < 2 * kWordBytes && byte < num_bytes) {
    const UInt8* stored = reinterpret_cast<const UInt8*>(words) + lead;
    store_item<Item>(to + byte, *reinterpret_cast<const Item*>(stored + byte));
  }
}

// Moves the lanes of a tile whose items are not aligned to their size on both sides.
template <bool kHasRows>
__device__ __forceinline__ void move_tile_in_pieces(const ReverseBoxesParams& p, UInt8* to,
                                                    const UInt8* from, const UInt16* lengths,
                                                    int num_lanes, int item_bytes, int alignment) {
  const Share<kHasRows> share(p.group_shift);
  const int row = kHasRows ? p.row_lanes : 1;
  for (int lane = share.first_lane; lane < num_lanes; lane += share.lane_step) {
    const int length = lengths[lane];
    const int begin = lane_begin<kHasRows>(p, lane);
    for (int place = share.first_item; place < static_cast<int>(p.axis_size);
         place += share.item_step) {
      move_pieces(to + (begin + place * row) * item_bytes,
                  from + (begin + origin_of(place, length) * row) * item_bytes, item_bytes,
                  alignment);
    }
  }
}

template <class Item, bool kHasRows>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_boxes(const void* source, const void* lengths, void* target, ReverseBoxesParams p) {
  SHARED_STORAGE(Storage, storage);
  constexpr int kItemBytes = sizeof(Item);
  const int thread = static_cast<int>(threadIdx.x);
  const UInt8* all = static_cast<const UInt8*>(source) + p.source_offset * kItemBytes;
  const UInt8* all_end = all + p.num_lanes * p.axis_size * kItemBytes;
  const int alignment = common_alignment(source, target, kItemBytes);

  const Int64 first_lane = static_cast<Int64>(blockIdx.x) * p.tile_lanes;
  const Int64 lanes_left = p.num_lanes - first_lane;
  const int num_lanes = lanes_left < p.tile_lanes ? static_cast<int>(lanes_left) : p.tile_lanes;
  const int num_items = num_lanes * static_cast<int>(p.axis_size);
  const Int64 first_byte = first_lane * p.axis_size * kItemBytes;
  const UInt8* from = all + first_byte;
  const UInt8* from_end = from + num_items * kItemBytes;
  UInt8* to = static_cast<UInt8*>(target) + p.target_offset * kItemBytes + first_byte;

  UInt64 bits[kLengthsAtOnce];  // in flight together with the words
  load_lengths(p, lengths, first_lane, thread, num_lanes, bits);
  // The tensor's first and last words may reach beyond it. A tile's words from first_whole to end_whole do
  // not.
  const UInt8* first_word = word_of(from);
  const int num_words = static_cast<int>(from_end - first_word + (kWordBytes - 1)) / kWordBytes;
  const int first_whole = first_word < all ? 1 : 0;
  const int end_whole = first_word + num_words * kWordBytes > all_end ? num_words - 1 : num_words;
  uint4 words[kLoads];
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const int place = thread + k * kThreads;
    if (place >= first_whole && place < end_whole) {
      words[k] = load_16_bytes(first_word + place * kWordBytes);
    }
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const int place = thread + k * kThreads;
    if (place >= first_whole && place < end_whole) storage.words[place] = words[k];
  }
  // One thread for each edge word; only thread 0 if the tile has one word.
  const int edge = thread == 0 ? 0 : num_words - 1;
  if (thread == 0 ? first_whole > 0 || end_whole == 0
                  : thread == 1 && end_whole < num_words && num_words > 1) {
    storage.words[edge] = load_bytes_between(first_word + edge * kWordBytes, all, all_end);
  }
  store_lengths(p, bits, thread, num_lanes, storage.lengths);
#pragma unroll 1
  for (int first = thread + kThreads * kLengthsAtOnce; first < num_lanes;
       first += kThreads * kLengthsAtOnce) {
    load_lengths(p, lengths, first_lane, first, num_lanes, bits);
    store_lengths(p, bits, first, num_lanes, storage.lengths);
  }
  __syncthreads();  // the tile and its lengths are complete before any thread reverses a lane

  if (alignment == kItemBytes) {
    const int lead = static_cast<int>(from - word_of(from));
    reverse_tile<Item, kHasRows>(
        p, reinterpret_cast<Item*>(reinterpret_cast<UInt8*>(storage.words) + lead), storage.lengths,
        num_lanes);
    __syncthreads();  // every lane is reversed before the tile is written
    store_tile<Item>(to, storage.words, lead, num_items * kItemBytes);
  } else {
    move_tile_in_pieces<kHasRows>(p, to, from, storage.lengths, num_lanes, kItemBytes, alignment);
  }
}
