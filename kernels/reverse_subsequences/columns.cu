// Computes: REVERSE_SUBSEQUENCES along an outer axis, each lane of its own length.
// Idea: a whole strip of lanes is loaded into shared storage as words, and permuted there.
// Ownership: a block owns a strip; a thread loads a word of every n-th row and stores cells.
// Requires: a strip that fits, of a power of two of lanes, at most one per thread.
// Chosen when: a strip fits; longer lanes go to gather.cu, small boxes of lanes to boxes.cu.
#include "reverse_subsequences/cells.cuh"
#include "reverse_subsequences/lane_space.cuh"

constexpr int kThreadShift = 8;
constexpr int kThreads = 1 << kThreadShift;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 3;

// In items; dimension 0 counts the strips of a row.
struct ReverseColumnsParams : LaneSpace {
  Int64 num_columns;
  Int64 axis_source_stride;
  Int64 axis_target_stride;
  Int64 column_length_stride;
  Int32 column_shift;  // a strip has 1 << column_shift lanes
};

struct Storage {
  uint4 strip[1];  // rows of the strip one after another, as many as the launch has bytes for
};

// A strip's rows in one tensor: from the byte at `first` on, num_bytes of each, `step` bytes apart.
template <class Byte>
struct StripRows {
  Byte* first;
  Int64 step;
  int num_bytes;
  int num_rows;

  // A power of two that divides the start and the bytes of every row.
  __device__ __forceinline__ int alignment() const {
    const UInt64 bits = address_of(first) | static_cast<UInt64>(step) |
                        static_cast<UInt64>(num_bytes) | sizeof(uint4);
    return static_cast<int>(bits & -bits);
  }
};

constexpr int floor_log2(int value) { return value < 2 ? 0 : 1 + floor_log2(value / 2); }

// A thread's part of rows that are 1 << row_shift bytes apart in shared storage: the same word or cell of
// every row_step-th row. In storage, the words or cells are as far apart as the block has threads.
template <class Word>
struct Share {
  int first_row;
  int row_step;
  int byte;
  int num_words;

  __device__ __forceinline__ Share(int row_shift, int num_bytes, int num_rows) {
    const int shift = row_shift - floor_log2(sizeof(Word));
    const int thread = static_cast<int>(threadIdx.x);
    first_row = thread >> shift;
    row_step = kThreads >> shift;
    byte = (thread - (first_row << shift)) * static_cast<int>(sizeof(Word));
    const int rows_left = byte < num_bytes ? max(num_rows - first_row, 0) : 0;
    num_words = (rows_left + row_step - 1) >> (kThreadShift - shift);
  }
};

// Copies the next words of a thread to shared storage: kLoads of them, or those that are left.
template <class Word, int kLoads, bool kIsWhole>
__device__ __forceinline__ void load_words(Word* to, const UInt8* from, Int64 step, int num_left) {
  Word words[kLoads];
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    if (kIsWhole || k < num_left) words[k] = load_item<Word>(from);
    from += step;
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    if (kIsWhole || k < num_left) to[k * kThreads] = words[k];
  }
}

// Copies the rows to shared storage.
template <class Word>
__device__ __forceinline__ void load_rows(UInt8* strip, int row_shift,
                                          const StripRows<const UInt8>& rows) {
  // At least 64 bytes per thread are in flight, if 32 registers hold them.
  constexpr int kLoads = sizeof(Word) >= 8 ? 8 : (sizeof(Word) == 4 ? 16 : 32);
  const Share<Word> share(row_shift, rows.num_bytes, rows.num_rows);
  const UInt8* from = rows.first + share.first_row * rows.step + share.byte;
  const Int64 step = share.row_step * rows.step;
  Word* to = reinterpret_cast<Word*>(strip) + threadIdx.x;
  int num_left = share.num_words;
#pragma unroll 1
  for (; num_left >= kLoads; num_left -= kLoads) {
    load_words<Word, kLoads, true>(to, from, step, num_left);
    from += kLoads * step;
    to += kLoads * kThreads;
  }
  if (num_left > 0) load_words<Word, kLoads, false>(to, from, step, num_left);
}

// One strip: loaded in words as wide as the source's rows are aligned, stored in cells of the target.
template <class Item, class Cell>
__device__ __forceinline__ void move_strip(const ReverseColumnsParams& p, const void* lengths,
                                           Int64 length_index, UInt8* strip, int row_shift,
                                           const StripRows<const UInt8>& from,
                                           const StripRows<UInt8>& to) {
  constexpr int kItemBytes = sizeof(Item);
  constexpr int kItems = sizeof(Cell) / sizeof(Item);
  const Share<Cell> share(row_shift, to.num_bytes, to.num_rows);
  UInt64 length_bits[kItems];  // in flight together with the strip
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const Int64 index = length_index + (share.byte / kItemBytes + i) * p.column_length_stride;
    length_bits[i] = share.num_words > 0 ? load_length(lengths, index, p.length_bytes) : 0;
  }
  const int source_alignment = from.alignment();
  if (source_alignment == sizeof(Bits128)) {
    load_rows<Bits128>(strip, row_shift, from);
  } else if (source_alignment >= static_cast<int>(sizeof(typename CellOf<Item>::Type))) {
    load_rows<typename CellOf<Item>::Type>(strip, row_shift, from);
  } else {
    load_rows<Item>(strip, row_shift, from);
  }
  int last
      [kItems];  // the place in the strip that a lane's first item comes from; negative if it stays
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const Int64 length =
        clamp_length(length_bits[i], p.length_bytes, p.length_is_signed, p.axis_size);
    last[i] = (static_cast<int>(length) - 1) * (1 << row_shift);
  }
  __syncthreads();  // the strip is complete before its lanes are read in another order
  UInt8* place = to.first + share.first_row * to.step + share.byte;
  const Int64 step = share.row_step * to.step;
  int straight = share.first_row << row_shift;
#pragma unroll 4
  for (int cell = 0; cell < share.num_words; ++cell) {
    Item items[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int mirrored = last[i] - straight;
      const int at = mirrored >= 0 ? mirrored : straight;
      items[i] = *reinterpret_cast<const Item*>(strip + at + share.byte + i * kItemBytes);
    }
    store_item<Cell>(place, joined(items));
    place += step;
    straight += kThreads * static_cast<int>(sizeof(Cell));
  }
}

// A block has one strip. In a loop over strips, the compiler keeps the offsets of all loads, and spills them.
template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    reverse_columns(const void* source, const void* lengths, void* target, ReverseColumnsParams p) {
  SHARED_STORAGE(Storage, storage);
  using Cell = typename CellOf<Item>::Type;
  constexpr int kItemBytes = sizeof(Item);
  UInt8* strip_bytes = reinterpret_cast<UInt8*>(storage.strip);
  const int row_shift = p.column_shift + floor_log2(kItemBytes);
  const int num_rows = static_cast<int>(p.axis_size);

  const LanePosition at = position_of(p, blockIdx.x, -1);
  const Int64 column = at.part << p.column_shift;
  const Int64 length_index = at.length + column * p.column_length_stride;
  const Int64 columns_left = p.num_columns - column;
  const int width = 1 << p.column_shift;
  const int num_bytes =
      (columns_left < width ? static_cast<int>(columns_left) : width) * kItemBytes;
  const StripRows<const UInt8> from{
      static_cast<const UInt8*>(source) + (at.source + column) * kItemBytes,
      p.axis_source_stride * kItemBytes, num_bytes, num_rows};
  const StripRows<UInt8> to{static_cast<UInt8*>(target) + (at.target + column) * kItemBytes,
                            p.axis_target_stride * kItemBytes, num_bytes, num_rows};
  const int alignment = min(from.alignment(), to.alignment());

  if (alignment < kItemBytes) {
    const Share<Item> share(row_shift, num_bytes, num_rows);
    if (share.num_words == 0) return;
    const int length = static_cast<int>(
        length_at(p, lengths, length_index + share.byte / kItemBytes * p.column_length_stride));
#pragma unroll 1
    for (int row = share.first_row; row < num_rows; row += share.row_step) {
      move_pieces(to.first + row * to.step + share.byte,
                  from.first + origin_of(row, length) * from.step + share.byte, kItemBytes,
                  alignment);
    }
    return;
  }
  if (to.alignment() >= static_cast<int>(sizeof(Cell))) {
    move_strip<Item, Cell>(p, lengths, length_index, strip_bytes, row_shift, from, to);
  } else {
    move_strip<Item, Item>(p, lengths, length_index, strip_bytes, row_shift, from, to);
  }
}
