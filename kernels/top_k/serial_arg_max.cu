// Computes: the first element of every row, k = 1, on a CPU.
// Idea: batches are reduced to their largest keys; only the batch with the best key is searched.
// Ownership: a block of one thread owns neighbouring rows; it reads several columns at a time.
// Requires: k is 1; kIsFloat says whether elements have an exponent.
// Chosen when: k is 1, and blocks of one thread are the fastest, as on a CPU.
#include "common/for_constants.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "common/words.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/rows.cuh"

// Fine keys in an element's own width, of several elements at once.
template <class Word, bool kIsFloat>
struct WordOrder {
  using Several = Words<Word>;

  Word magnitude;
  Word mirror;  // all ones where the smallest ranks first: -x is ~x + 1
  Word offset;
  Word zero;
  Word other_zero;
  Word first_nan;
  Word end_nan;
  Word padding;

  explicit __device__ __forceinline__ WordOrder(const FineParams& params)
      : magnitude(own(params.magnitude)),
        mirror(static_cast<Word>(params.factor == 1 ? 0 : ~Word{0})),
        offset(static_cast<Word>(own(params.offset) - mirror)),
        zero(own(params.zero)),
        other_zero(own(params.other_zero)),
        first_nan(own(params.first_nan)),
        end_nan(own(params.end_nan)),
        padding(static_cast<Word>(params.padding)) {}

  static __device__ __forceinline__ Word own(UInt64 constant) {
    return static_cast<Word>(constant >> kSpareBits<Word>);
  }

  __device__ __forceinline__ Several fine_keys(Several bits) const {
    Several numbers = bits ^ Several::all(mirror);
    if constexpr (kIsFloat) numbers = numbers ^ (bits.signs() & Several::all(magnitude));
    return numbers + Several::all(offset);
  }
  // The smallest keys of the elements with the same rank.
  __device__ __forceinline__ Several coarse_keys(Several keys) const {
    if constexpr (!kIsFloat) return keys;
    keys = keys.if_equal(Several::all(zero), Several::all(other_zero), keys);
    keys = Several::all(end_nan).if_above(keys, Several::all(0), keys);
    return keys.min(Several::all(first_nan));
  }
  // The smallest key of the same rank as one key, and the largest.
  __device__ __forceinline__ Word first_of_rank(Word key) const {
    if (key == zero) key = other_zero;
    if (key < end_nan) key = 0;
    return key < first_nan ? key : first_nan;
  }
  __device__ __forceinline__ Word last_of_rank(Word key) const {
    if (key == other_zero) key = zero;
    if (key < end_nan) key = static_cast<Word>(end_nan - 1);
    return key < first_nan ? key : static_cast<Word>(~Word{0});
  }
};

// The index of the first of a row's contiguous elements.
template <class Word, bool kIsFloat>
__device__ __forceinline__ UInt32 first_of_row(const Word* elements, UInt32 length,
                                               const WordOrder<Word, kIsFloat>& order) {
  using Several = Words<Word>;
  constexpr UInt32 kBatch = 8 * Several::kCount;
  const auto keys = [&](UInt64 from) { return order.fine_keys(Several::load(elements + from)); };
  const auto keys_of_four = [&](UInt64 from) {
    constexpr UInt32 kCount = Several::kCount;
    return keys(from)
        .max(keys(from + kCount))
        .max(keys(from + 2 * kCount).max(keys(from + 3 * kCount)));
  };
  const auto last_keys = [&](UInt64 from) {
    return order.fine_keys(
        Several::load(elements + from, static_cast<UInt32>(length - from), order.padding));
  };
  // If the whole row has the last of all ranks, no key is above `best`: element 0 is the first then.
  Word best = order.last_of_rank(0);
  UInt64 best_begin = 0;
  const auto consider = [&](Several largest, UInt64 begin) {
    if (!largest.any_above(Several::all(best))) return;
    best = order.last_of_rank(largest.largest());
    best_begin = begin;
  };
  UInt64 begin = 0;
  for (; begin + kBatch <= length; begin += kBatch) {
    consider(keys_of_four(begin).max(keys_of_four(begin + kBatch / 2)), begin);
  }
  if (begin < length) {
    Several largest = last_keys(begin);
    for (UInt64 i = begin + Several::kCount; i < length; i += Several::kCount) {
      largest = largest.max(last_keys(i));
    }
    consider(largest, begin);
  }
  const Several reached = Several::all(order.first_of_rank(best));
  for (UInt64 i = best_begin; i < length; i += Several::kCount) {
    const UInt32 place = last_keys(i).first_reaching(reached);
    if (place < Several::kCount) return static_cast<UInt32>(i) + place;
  }
  return 0;  // the row is empty, or the input has changed
}

// As `first_of_row`, for elements that are `stride` apart.
template <class Word, bool kIsFloat>
__device__ __forceinline__ UInt32 first_of_strided_row(const Word* elements, Int64 stride,
                                                       UInt32 length,
                                                       const WordOrder<Word, kIsFloat>& order) {
  using Several = Words<Word>;
  constexpr UInt32 kCount = Several::kCount;
  Word best = order.last_of_rank(0);
  UInt32 place = 0;
  for (UInt64 i = 0; i < length; i += kCount) {
    Word near[kCount];
    const UInt32 count = static_cast<UInt32>(min(length - i, UInt64{kCount}));
    for (UInt32 j = 0; j < count; ++j) near[j] = elements[static_cast<Int64>(i + j) * stride];
    const Several keys = order.fine_keys(Several::load(near, count, order.padding));
    if (!keys.any_above(Several::all(best))) continue;
    const Word largest = keys.largest();
    best = order.last_of_rank(largest);
    const Several reached = Several::all(order.first_of_rank(largest));
    place = static_cast<UInt32>(i) + keys.first_reaching(reached);
  }
  return place;
}

// The first elements of neighbouring columns, at most kColumns.
template <class Word, bool kIsFloat, bool kIsRagged, int kVectors>
struct ColumnSearch {
  using Several = Words<Word>;
  static constexpr UInt32 kCount = Several::kCount;
  static constexpr UInt32 kColumns = kVectors * kCount;
  // Rows that a word can number.
  static constexpr UInt64 kMaxRows = static_cast<Word>(~Word{0});

  const WordOrder<Word, kIsFloat>& order;
  Int64 stride;  // from row to row
  UInt32 num_columns;
  // Arrays are computed with as a whole, at a compile-time size, so that the compiler vectorises.
  UInt32 lengths[kColumns];  // if columns are ragged, 0 past the last one
  UInt32 places[kColumns];   // the results
  Word keys[kColumns];
  Word ends[kColumns];  // of columns, within the rows that are looked at

  __device__ __forceinline__ UInt32 longest() const {
    UInt32 most = 0;
    for (UInt32 c = 0; c < kColumns; ++c) most = max(most, lengths[c]);
    return most;
  }
  __device__ __forceinline__ void run(const Word* elements, UInt32 num_rows) {
    for (UInt32 c = 0; c < kColumns; ++c) keys[c] = 0;
    for (UInt32 c = 0; c < kColumns; ++c) places[c] = 0;
    for (UInt64 begin = 0; begin < num_rows; begin += kMaxRows) {
      look_at(elements + static_cast<Int64>(begin) * stride, static_cast<UInt32>(begin),
              static_cast<UInt32>(min(num_rows - begin, kMaxRows)));
    }
  }

 private:
  __device__ __forceinline__ void look_at(const Word* elements, UInt32 begin, UInt32 num_rows) {
    if constexpr (kIsRagged) {
      for (UInt32 c = 0; c < kColumns; ++c) {
        ends[c] = static_cast<Word>(min(max(lengths[c], begin) - begin, num_rows));
      }
    }
    // No key is below 0, and row 0 is the first that has it.
    Several best[kVectors];
    Several rows[kVectors];
    for_constants<kVectors>([&](auto v) { best[v.value] = rows[v.value] = Several::all(0); });
    for (UInt32 row = 0; row < num_rows; ++row, elements += stride) {
      const Several number = Several::all(static_cast<Word>(row));
      for_constants<kVectors>([&](auto v) {
        constexpr UInt32 kFirst = v.value * kCount;
        const UInt32 count = num_columns > kFirst ? num_columns - kFirst : 0;
        const Several loaded = Several::load(elements + kFirst, count, order.padding);
        Several found = order.coarse_keys(order.fine_keys(loaded));
        if constexpr (kIsRagged) {
          found = Several::load(ends + kFirst).if_above(number, found, Several::all(0));
        }
        rows[v.value] = found.if_above(best[v.value], number, rows[v.value]);
        best[v.value] = best[v.value].max(found);
      });
    }
    Word best_keys[kColumns];
    Word best_rows[kColumns];
    for_constants<kVectors>([&](auto v) {
      best[v.value].store(best_keys + v.value * kCount);
      rows[v.value].store(best_rows + v.value * kCount);
    });
    for (UInt32 c = 0; c < kColumns; ++c) {
      places[c] = best_keys[c] > keys[c] ? begin + best_rows[c] : places[c];
      keys[c] = max(keys[c], best_keys[c]);
    }
  }
};

// The lengths of `count` neighbouring columns, `stride` apart.
template <Int32 kBytes>
__device__ __forceinline__ void load_lengths(const void* lengths, Int64 first, Int64 stride,
                                             bool is_signed, Int64 axis_size, UInt32 count,
                                             UInt32* loaded) {
  for (UInt32 c = 0; c < count; ++c) {
    const UInt64 bits = load_length(lengths, first + c * stride, kBytes);
    loaded[c] = static_cast<UInt32>(clamp_length(bits, kBytes, is_signed, axis_size));
  }
}

// The indices of `count` neighbouring columns' results. The index of a missing result has all bits set.
template <bool kIsRagged, class Index, class Search>
__device__ __forceinline__ void write_indices(Index* indices, Int64 stride, UInt32 count,
                                              const Search& search) {
  for (UInt32 c = 0; c < count; ++c) {
    const bool is_missing = kIsRagged && search.places[c] >= search.lengths[c];
    indices[c * stride] = is_missing ? static_cast<Index>(~Index{0}) : search.places[c];
  }
}

// Writes the results of neighbouring columns, from the column at `row` on. Values that all results need are
// read before any result is stored, because for all that the compiler knows, a store changes them.
template <bool kIsRagged, int kVectors, class Word, bool kIsFloat>
__device__ __noinline__ void reduce_columns(const Word* __restrict__ input, Word* values,
                                            void* indices, const void* lengths,
                                            const FineParams& params,
                                            const WordOrder<Word, kIsFloat>& order, Int64 row,
                                            UInt32 num_columns) {
  ColumnSearch<Word, kIsFloat, kIsRagged, kVectors> search{order, params.input_axis_stride,
                                                           num_columns};
  const int innermost = params.num_outer_dimensions - 1;
  const RowStart first = row_start(params, row);
  UInt32 longest = static_cast<UInt32>(params.row_length);
  if constexpr (kIsRagged) {
    const Int32 num_bytes = params.length_bytes;
    const auto load = num_bytes == 8   ? load_lengths<8>
                      : num_bytes == 4 ? load_lengths<4>
                      : num_bytes == 2 ? load_lengths<2>
                                       : load_lengths<1>;
    load(lengths, first.length, params.length_strides[innermost], params.length_is_signed != 0,
         params.row_length, num_columns, search.lengths);
    for (UInt32 c = num_columns; c < search.kColumns; ++c) search.lengths[c] = 0;
    longest = search.longest();
  }
  const Word* elements = input + first.input;
  search.run(elements, longest);

  const Int64 input_stride = params.input_axis_stride;
  const Int64 value_stride = params.value_strides[innermost];
  const Word missing = static_cast<Word>(params.missing);
  Word* value = values + first.value;
  for (UInt32 c = 0; c < num_columns; ++c, value += value_stride) {
    const UInt32 place = search.places[c];
    // Read even if the result is missing, because a branch on that is not predictable.
    const Word element = elements[c + place * input_stride];
    *value = kIsRagged && place >= search.lengths[c] ? missing : element;
  }
  const Int64 index_stride = params.index_strides[innermost];
  if (params.index_bytes == 8) {
    write_indices<kIsRagged>(static_cast<UInt64*>(indices) + first.index, index_stride, num_columns,
                             search);
  } else {
    write_indices<kIsRagged>(static_cast<UInt32*>(indices) + first.index, index_stride, num_columns,
                             search);
  }
}

// Vectors of columns that are read together: their lines are neighbours.
constexpr int kColumnVectors = 4;

template <class Word, bool kIsFloat, bool kIsRagged = false>
__global__ void __launch_bounds__(1)
    top_k_serial_arg_max(const Word* __restrict__ input, Word* values, void* indices,
                         const void* lengths, const __grid_constant__ FineParams params) {
  constexpr Int64 kVector = Words<Word>::kCount;
  constexpr Int64 kMaxColumns = kColumnVectors * kVector;
  const WordOrder<Word, kIsFloat> order(params);
  const int innermost = params.num_outer_dimensions - 1;
  const bool are_columns = params.loads_by_rows && params.input_strides[innermost] == 1;
  Int64 rows_per_block = (params.num_rows + gridDim.x - 1) / gridDim.x;
  if (are_columns) {
    rows_per_block = (rows_per_block + kMaxColumns - 1) / kMaxColumns * kMaxColumns;
  }
  Int64 row = blockIdx.x * rows_per_block;
  const Int64 end = min(row + rows_per_block, params.num_rows);
  while (row < end) {
    if (are_columns) {
      const Int64 num_left = params.outer_sizes[innermost] - row % params.outer_sizes[innermost];
      const Int64 num_columns = min(min(num_left, end - row), kMaxColumns);
      const auto reduce = num_columns <= kVector
                              ? reduce_columns<kIsRagged, 1, Word, kIsFloat>
                              : reduce_columns<kIsRagged, kColumnVectors, Word, kIsFloat>;
      reduce(input, values, indices, lengths, params, order, row, static_cast<UInt32>(num_columns));
      row += num_columns;
      continue;
    }
    const RowStart start = row_start(params, row);
    const UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
    const Word* elements = input + start.input;
    const Int64 stride = params.input_axis_stride;
    const UInt32 place = stride == 1 ? first_of_row(elements, length, order)
                                     : first_of_strided_row(elements, stride, length, order);
    write_result<kIsRagged>(input, values, indices, params, start, length, 0, place);
    ++row;
  }
}
