// Computes: SLICE and SLICE1 of a box that is contiguous along another dimension on each side.
// Idea: tiles go through shared storage; bytes or halves of several lines swap in registers.
// Ownership: a block owns a tile of 16 KiB, a thread 64 bytes of it, all loaded before any is used.
// Requires: both dimensions, tile sides, source step, whether strides keep words; any pointers.
// Chosen when: lines fill enough of a tile, and the gather's blocks would read parts of sectors.
#include "common/move_item.cuh"
#include "slice/box_space.cuh"

constexpr int kThreads = 256;
constexpr int kThreadsShift = 8;
// A minimum for the compiler; asking for more would spill registers.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kTileBytes = 16384;
// Rows of four words are padded by a word, longer rows by less.
constexpr int kStorageBytes = kTileBytes / 4 * 5;
constexpr int kBankBytes = 128;  // one word of every bank
constexpr int kWarpShift = 5;

// Offsets and strides count items.
struct SliceTransposeLines {
  Int64 num_tiles;
  Int64 source_offset;
  Int64 target_offset;
  Int64 target_line_items;   // size of the dimension that is contiguous in the target
  Int64 source_line_items;   // size of the dimension that is contiguous in the source
  Int64 target_line_stride;  // of the source, along the target's line
  Int64 source_line_stride;  // of the target, along the source's line
};

// Dimensions 0 and 1 count tiles along target and source lines.
struct SliceTransposeParams : SliceTransposeLines, BoxSpace {
  Int32 source_step;         // 1 or -1
  Int32 target_side_shift;   // log2 of the tile's items along the target's line, at least a word
  Int32 source_side_shift;   // the same along the source's line
  Int32 source_keeps_words;  // whether lines of the source are whole words of 4 bytes apart
  Int32 target_keeps_words;
};

// What a thread moves at once: an item, or a word of narrow ones.
template <class Item>
struct WordOf {
  using Type = Item;
};
template <>
struct WordOf<UInt8> {
  using Type = UInt32;
};
template <>
struct WordOf<UInt16> {
  using Type = UInt32;
};

constexpr int log2_of(int power) { return power == 1 ? 0 : 1 + log2_of(power / 2); }

template <class Item>
struct Shape {
  using Word = typename WordOf<Item>::Type;
  static constexpr int kItemBytes = sizeof(Item);
  static constexpr int kWordItems = sizeof(Word) / sizeof(Item);
  static constexpr int kWordItemsShift = log2_of(kWordItems);
  static constexpr int kThreadWords = kTileBytes / kThreads / sizeof(Word);
};

// Rows are places along the source's line; a row's words lie along the target's.
template <class Item>
struct Storage {
  typename Shape<Item>::Word words[kStorageBytes / sizeof(typename Shape<Item>::Word)];
};

// Words between rows, chosen so that a warp that writes words of different rows reaches every bank once.
template <class Item>
__device__ __forceinline__ int row_pitch(const SliceTransposeParams& p) {
  using S = Shape<Item>;
  constexpr int kWordsAtOnce = kBankBytes / static_cast<int>(sizeof(typename S::Word));
  const int row_words = 1 << (p.target_side_shift - S::kWordItemsShift);
  // Rows of two words or less are not worth padding.
  return row_words <= 2
             ? row_words
             : row_words + max(1, kWordsAtOnce >> (p.source_side_shift - S::kWordItemsShift));
}

// One tile: its first item on both sides, and the number of items along the lines of each side.
struct Tile {
  const UInt8* source;
  UInt8* target;
  int num_t;  // along the target's line
  int num_s;  // along the source's line
};

// A thread's path through the cells of a tile: neighbouring threads have neighbouring cells of a line, and
// step across lines, or along them if there are fewer lines than steps.
struct Walk {
  int along;
  int across;
  int along_step;
  int across_step;
  int step_shift;  // log2 of the step that is not 0

  // How many of the thread's steps lie in a tile of this many cells.
  __device__ __forceinline__ int num_steps(int cells_along, int cells_across) const {
    const int left_along = cells_along - along;
    const int left_across = cells_across - across;
    const int left = across_step != 0 ? left_across : left_along;
    return min(left_along, left_across) > 0 ? (left + (1 << step_shift) - 1) >> step_shift : 0;
  }
};

__device__ __forceinline__ Walk walk_of_thread(int along_shift, int across_shift, int steps_shift) {
  const bool steps_across = across_shift >= steps_shift;
  const int lanes_shift = steps_across ? along_shift : along_shift - steps_shift;
  const int step_shift = steps_across ? kThreadsShift - lanes_shift : lanes_shift;
  const int thread = static_cast<int>(threadIdx.x);
  return Walk{thread & ((1 << lanes_shift) - 1), thread >> lanes_shift,
              steps_across ? 0 : 1 << step_shift, steps_across ? 1 << step_shift : 0, step_shift};
}

// A square of items: word i gets item (i ^ flip) of every word.
__device__ __forceinline__ void transpose_square(UInt32 (&words)[2], int flip) {
  const UInt32 order = flip != 0 ? 0x7632 : 0x5410;
  const UInt32 first = words[0];
  words[0] = __byte_perm(first, words[1], order);
  words[1] = __byte_perm(first, words[1], order ^ 0x2222);
}

__device__ __forceinline__ void transpose_square(UInt32 (&words)[4], int flip) {
  const UInt32 bytes = (flip & 2) != 0 ? 0x7362 : 0x5140;
  const UInt32 halves = (flip & 1) != 0 ? 0x7632 : 0x5410;
  const UInt32 upper_first = __byte_perm(words[0], words[1], bytes);
  const UInt32 upper_second = __byte_perm(words[0], words[1], bytes ^ 0x2222);
  const UInt32 lower_first = __byte_perm(words[2], words[3], bytes);
  const UInt32 lower_second = __byte_perm(words[2], words[3], bytes ^ 0x2222);
  words[0] = __byte_perm(upper_first, lower_first, halves);
  words[1] = __byte_perm(upper_first, lower_first, halves ^ 0x2222);
  words[2] = __byte_perm(upper_second, lower_second, halves);
  words[3] = __byte_perm(upper_second, lower_second, halves ^ 0x2222);
}

template <class Word>
__device__ __forceinline__ void transpose_square(Word (&)[1], int) {}

// How many of a thread's steps along or across words of the target's line reach item `i` of a word.
template <class Item>
__device__ __forceinline__ int steps_with_item(const Walk& w, int cells_along, int num_t, int i) {
  using S = Shape<Item>;
  return w.num_steps(cells_along, (num_t - i + S::kWordItems - 1) >> S::kWordItemsShift);
}

// Loads words from the source into storage, in squares of as many words as a word has items.
template <class Item>
__device__ __forceinline__ void load_words(const SliceTransposeParams& p, const Tile& tile,
                                           int pitch, Storage<Item>& storage) {
  using S = Shape<Item>;
  using Word = typename S::Word;
  constexpr int kSide = S::kWordItems;
  constexpr int kThreadSquares = S::kThreadWords / kSide;
  const int words_shift = p.source_side_shift - S::kWordItemsShift;
  const Walk w = walk_of_thread(words_shift, p.target_side_shift - S::kWordItemsShift,
                                log2_of(kThreadSquares));
  const Int64 line_bytes = p.target_line_stride * S::kItemBytes;
  const Int64 word_bytes = p.source_step * static_cast<int>(sizeof(Word));
  const UInt8* place = tile.source + w.along * word_bytes + w.across * line_bytes * kSide;
  if (p.source_step < 0) place -= (kSide - 1) * S::kItemBytes;
  const Int64 step_bytes = w.along_step * word_bytes + w.across_step * line_bytes * kSide;
  int num_steps[kSide];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    num_steps[i] = steps_with_item<Item>(w, tile.num_s >> S::kWordItemsShift, tile.num_t, i);
  }
  Word words[kThreadSquares][kSide];
#pragma unroll
  for (int k = 0; k < kThreadSquares; ++k) {
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      words[k][i] = Word{};
      if (k < num_steps[i]) words[k][i] = load_item<Word>(place + i * line_bytes);
    }
    place += step_bytes;
  }

  // Lanes whose rows begin in the same bank write the rows of their squares in different orders.
  const int lanes_shift = max(min(words_shift, kWarpShift) - S::kWordItemsShift, 0);
  const int flip = (w.along >> lanes_shift) & (kSide - 1);
  const int mirror = p.source_step < 0 ? kSide - 1 : 0;
  Word* slot = storage.words + w.along * kSide * pitch + w.across;
  const int slot_step = w.along_step * kSide * pitch + w.across_step;
#pragma unroll
  for (int k = 0; k < kThreadSquares; ++k) {
    transpose_square(words[k], flip ^ mirror);
#pragma unroll
    for (int i = 0; i < kSide; ++i) slot[(i ^ flip) * pitch] = words[k][i];
    slot += slot_step;
  }
}

// As `load_words`, but item by item, for source words that are unaligned or partial.
template <class Item>
__device__ __forceinline__ void load_items(const SliceTransposeParams& p, const Tile& tile,
                                           int pitch, Storage<Item>& storage) {
  using S = Shape<Item>;
  constexpr int kBatch = 8 / S::kWordItems;
  const Walk w = walk_of_thread(p.source_side_shift, p.target_side_shift - S::kWordItemsShift,
                                log2_of(S::kThreadWords));
  const Int64 line_bytes = p.target_line_stride * S::kItemBytes;
  const Int64 item_bytes = p.source_step * S::kItemBytes;
  const UInt8* place = tile.source + w.along * item_bytes + w.across * line_bytes * S::kWordItems;
  const Int64 step_bytes = w.along_step * item_bytes + w.across_step * line_bytes * S::kWordItems;
  UInt32* slot = storage.words + w.along * pitch + w.across;
  const int slot_step = w.along_step * pitch + w.across_step;
  int num_steps[S::kWordItems];
#pragma unroll
  for (int i = 0; i < S::kWordItems; ++i) {
    num_steps[i] = steps_with_item<Item>(w, tile.num_s, tile.num_t, i);
  }
#pragma unroll 1
  for (int k = 0; k < S::kThreadWords; k += kBatch) {
    UInt32 items[kBatch][S::kWordItems];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int i = 0; i < S::kWordItems; ++i) {
        items[b][i] = 0;
        if (k + b < num_steps[i]) items[b][i] = load_item<Item>(place + i * line_bytes);
      }
      place += step_bytes;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      UInt32 word = 0;
#pragma unroll
      for (int i = 0; i < S::kWordItems; ++i) word |= items[b][i] << (i * S::kItemBytes * 8);
      *slot = word;
      slot += slot_step;
    }
  }
}

// Stores from storage to the target, in pieces of a word or of an item.
template <class Piece, class Item>
__device__ __forceinline__ void store_pieces(const SliceTransposeParams& p, const Tile& tile,
                                             int pitch, const Storage<Item>& storage) {
  using S = Shape<Item>;
  constexpr int kPieceItems = sizeof(Piece) / sizeof(Item);
  constexpr int kWordPieces = S::kWordItems / kPieceItems;
  constexpr int kThreadPieces = S::kThreadWords * kWordPieces;
  constexpr int kBatch = kThreadPieces < 8 ? kThreadPieces : 8;
  constexpr Int64 kPieceBytes = sizeof(Piece);
  const Walk w = walk_of_thread(p.target_side_shift - log2_of(kPieceItems), p.source_side_shift,
                                log2_of(kThreadPieces));
  const Int64 line_bytes = p.source_line_stride * S::kItemBytes;
  UInt8* place = tile.target + w.along * kPieceBytes + w.across * line_bytes;
  const Int64 step_bytes = w.along_step * kPieceBytes + w.across_step * line_bytes;
  const Piece* slot =
      reinterpret_cast<const Piece*>(storage.words) + w.across * pitch * kWordPieces + w.along;
  const int slot_step = w.across_step * pitch * kWordPieces + w.along_step;
  const int num_steps = w.num_steps(tile.num_t / kPieceItems, tile.num_s);
#pragma unroll 1
  for (int k = 0; k < kThreadPieces; k += kBatch) {
    Piece batch[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      batch[b] = *slot;
      slot += slot_step;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (k + b < num_steps) store_item<Piece>(place, batch[b]);
      place += step_bytes;
    }
  }
}

// Whether a tile of narrow items can be loaded in aligned words that do not reach beyond its lines.
template <class Item>
__device__ __forceinline__ bool loads_in_words(const SliceTransposeParams& p, const Tile& tile) {
  using S = Shape<Item>;
  // In a mirrored line, the first word ends where the first item ends.
  const UInt64 bound = address_of(tile.source) + (p.source_step < 0 ? S::kItemBytes : 0);
  return p.source_keeps_words != 0 && bound % sizeof(typename S::Word) == 0 &&
         tile.num_s % S::kWordItems == 0;
}

// Whether a tile of narrow items can be stored in such words.
template <class Item>
__device__ __forceinline__ bool stores_in_words(const SliceTransposeParams& p, const Tile& tile) {
  using S = Shape<Item>;
  return p.target_keeps_words != 0 && address_of(tile.target) % sizeof(typename S::Word) == 0 &&
         tile.num_t % S::kWordItems == 0;
}

// A tile whose items are not aligned to their size on one side or both.
__device__ __forceinline__ void move_tile_in_pieces(const SliceTransposeParams& p, const Tile& tile,
                                                    int item_bytes, int alignment) {
  const int side = 1 << p.source_side_shift;
  const int num_places = side * tile.num_t;
  for (int i = static_cast<int>(threadIdx.x); i < num_places; i += kThreads) {
    const int s = i & (side - 1);
    const int t = i >> p.source_side_shift;
    if (s < tile.num_s) {
      move_pieces(tile.target + (s * p.source_line_stride + t) * item_bytes,
                  tile.source + (t * p.target_line_stride + s * p.source_step) * item_bytes,
                  item_bytes, alignment);
    }
  }
}

// The tile with this number.
template <class Item>
__device__ __forceinline__ Tile tile_of(const SliceTransposeParams& p, const UInt8* source,
                                        UInt8* target, Int64 index) {
  Int64 t = 0;
  Int64 s = 0;
  Int64 source_item = p.source_offset;
  Int64 target_item = p.target_offset;
  visit_coordinates(p, index, [&](int d, Int64 coordinate) {
    if (d == 0) {
      t = coordinate << p.target_side_shift;
    } else if (d == 1) {
      s = coordinate << p.source_side_shift;
    } else {
      source_item += coordinate * p.source_strides[d];
      target_item += coordinate * p.target_strides[d];
    }
  });
  source_item += t * p.target_line_stride + s * p.source_step;
  target_item += t + s * p.source_line_stride;
  const Int64 rest_t = p.target_line_items - t;
  const Int64 rest_s = p.source_line_items - s;
  const int side_t = 1 << p.target_side_shift;
  const int side_s = 1 << p.source_side_shift;
  return Tile{source + source_item * static_cast<int>(sizeof(Item)),
              target + target_item * static_cast<int>(sizeof(Item)),
              rest_t < side_t ? static_cast<int>(rest_t) : side_t,
              rest_s < side_s ? static_cast<int>(rest_s) : side_s};
}

template <class Item>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    slice_transpose(const void* source, void* target, SliceTransposeParams p) {
  SHARED_STORAGE(Storage<Item>, storage);
  constexpr int kItemBytes = Shape<Item>::kItemBytes;
  const UInt8* from = static_cast<const UInt8*>(source);
  UInt8* to = static_cast<UInt8*>(target);
  const int alignment = common_alignment(source, target, kItemBytes);
  const int pitch = row_pitch<Item>(p);

  for (Int64 index = blockIdx.x; index < p.num_tiles; index += gridDim.x) {
    const Tile tile = tile_of<Item>(p, from, to, index);
    if (alignment != kItemBytes) {
      move_tile_in_pieces(p, tile, kItemBytes, alignment);
      continue;
    }
    __syncthreads();  // the tile before this one has been written out
    if constexpr (Shape<Item>::kWordItems == 1) {
      load_words<Item>(p, tile, pitch, storage);
    } else if (loads_in_words<Item>(p, tile)) {
      load_words<Item>(p, tile, pitch, storage);
    } else {
      load_items<Item>(p, tile, pitch, storage);
    }
    __syncthreads();  // the tile is complete before lines across it are written
    if constexpr (Shape<Item>::kWordItems == 1) {
      store_pieces<Item, Item>(p, tile, pitch, storage);
    } else if (stores_in_words<Item>(p, tile)) {
      store_pieces<UInt32, Item>(p, tile, pitch, storage);
    } else {
      store_pieces<Item, Item>(p, tile, pitch, storage);
    }
  }
}
