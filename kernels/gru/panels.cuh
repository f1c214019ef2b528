// Products with weights for threads that compute with a whole vector register: one instruction multiplies a
// state with the weights of several neighbouring hidden units, a tile. The weights come from a panel, which
// has the rows of a tile side by side, column after column, or from the matrix itself.
//
// A sum of products has kLoadedColumns parts: of every kSumColumns columns, part p adds up the columns p,
// p + kLoadedColumns, ... in order, starting from 0, and the parts are added to the sum in order. So the bits
// depend neither on the tile or the batch, nor on where the weights come from: a register of weights in place
// has all parts of a few hidden units, which are put in order only at the end, and a panel has the columns of
// a part one after another. Hidden units past the last have unspecified values, finite or not, which never
// affect an existing unit.
#pragma once

#include "common/for_constants.cuh"
#include "common/vectors.cuh"
#include "gru/layer.cuh"

constexpr int kTileVectors = 2;
constexpr int kTileUnits = kTileVectors * kVectorFloats;
// Sequences that are multiplied with a panel at once: the sums of three gates leave registers for a column.
constexpr int kPanelBatch = kVectorRegisters >= 32 ? 4 : 2;
// The same for the matrix itself: the parts of one register of hidden units leave some registers for columns.
constexpr int kRowsBatch = kVectorRegisters >= 32 ? 6 : 2;
constexpr int kSumColumns = 256;
// Columns of a tile's rows that are converted at once if they cannot be read in place.
constexpr int kUnitColumns = 32;

__device__ __forceinline__ int num_tiles(int hidden) {
  return (hidden + kTileUnits - 1) / kTileUnits;
}
__device__ __forceinline__ int padded_units(int hidden) { return num_tiles(hidden) * kTileUnits; }

// Sums of the gates kFirst to kLast - 1 for kBatch sequences.
template <int kFirst, int kLast, int kBatch>
struct TileSums {
  Floats values[kBatch][kLast - kFirst][kTileVectors];
};

// The weights of a tile's gates in a panel.
struct PanelWeights {
  static constexpr int kBatch = kPanelBatch;
  const float* columns;  // starts with the first column of all products
};

// The weights of a tile's gates in the matrix.
template <class Element>
struct MatrixWeights {
  static constexpr int kBatch = kRowsBatch;
  const Element* matrix;  // of the direction
  int hidden;
  int tile;
  int num_columns;

  // The row of a hidden unit of the tile; past the last unit, the last unit's row.
  __device__ __forceinline__ const Element* row(int gate, int unit) const {
    const Int64 number =
        static_cast<Int64>(gate) * hidden + min(tile * kTileUnits + unit, hidden - 1);
    return matrix + number * num_columns;
  }
};

// Rows of floats, `stride` apart.
struct FloatRows {
  const float* first;
  Int64 stride;
};

// Columns [begin, end) of the rows that `row_at` returns, converted into `buffer`, which has kColumns per
// row; zeros up to a multiple of kLoadedColumns.
template <int kRows, int kColumns, class RowAt>
__device__ __forceinline__ FloatRows converted_rows(const RowAt& row_at, int begin, int end,
                                                    float* buffer) {
  for (int i = 0; i < kRows; ++i) {
    float* row = buffer + i * kColumns;
    int c = begin;
    for (; c < end; ++c) row[c - begin] = to_float(row_at(i)[c]);
    for (; (c - begin) % kLoadedColumns != 0; ++c) row[c - begin] = 0.0f;
  }
  return {buffer - begin, kColumns};
}

// Some columns of the rows of a register of hidden units.
struct UnitRows {
  FloatRows rows;
  int end;  // past the last column; zeros follow up to a multiple of kLoadedColumns
};

// Columns of the rows of a register of hidden units, from the tile's `unit` on. They begin at `begin`, a
// multiple of kLoadedColumns, and end at `end` at most: all columns that can be read in place, or else some
// that are converted.
template <class Element>
__device__ __forceinline__ UnitRows unit_rows(const MatrixWeights<Element>& weights, int gate,
                                              int unit, int begin, int end, float* buffer) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    const bool is_whole = weights.tile * kTileUnits + unit + kVectorFloats <= weights.hidden;
    const int whole = end / kLoadedColumns * kLoadedColumns;
    if (is_whole && begin < whole) return {{weights.row(gate, unit), weights.num_columns}, whole};
  }
  end = min(begin + kUnitColumns, end);
  return {converted_rows<kVectorFloats, kUnitColumns>(
              [&](int i) { return weights.row(gate, unit + i); }, begin, end, buffer),
          end};
}

// Adds the products of kBatch rows, `stride` floats apart, with the columns [begin, end), at most
// kSumColumns from a multiple of kSumColumns on.
template <int kFirst, int kLast, int kBatch>
__device__ __forceinline__ void add_products(TileSums<kFirst, kLast, kBatch>& sums,
                                             const PanelWeights& weights, const float* rows,
                                             Int64 stride, int begin, int end) {
  constexpr int kVectors = (kLast - kFirst) * kTileVectors;
  const float* panel = weights.columns + static_cast<Int64>(begin) * kVectors * kVectorFloats;
  for (int part = 0; part < kLoadedColumns; ++part) {
    Floats parts[kBatch][kVectors] = {};
    for (int column = begin + part; column < end; column += kLoadedColumns) {
      Floats units[kVectors];
      for_constants<kVectors>([&](auto v) {
        units[v.value] = in_register(load_floats(panel + v.value * kVectorFloats));
      });
      for_constants<kBatch>([&](auto b) {
        const Floats state = broadcast(rows[b.value * stride + column]);
        for_constants<kVectors>([&](auto v) {
          parts[b.value][v.value] = fused(units[v.value], state, parts[b.value][v.value]);
        });
      });
      panel += kVectors * kVectorFloats;
    }
    for_constants<kBatch>([&](auto b) {
      for_constants<kVectors>([&](auto v) {
        Floats& sum = sums.values[b.value][v.value / kTileVectors][v.value % kTileVectors];
        sum = sum + parts[b.value][v.value];
      });
    });
  }
}

template <int kFirst, int kLast, int kBatch, class Element>
__device__ __forceinline__ void add_products(TileSums<kFirst, kLast, kBatch>& sums,
                                             const MatrixWeights<Element>& weights,
                                             const float* rows, Int64 stride, int begin, int end) {
  float buffer[kVectorFloats * kUnitColumns];
  // Elements behind the last column may be infinite, and infinity times 0 is NaN.
  float last_states[kBatch * kLoadedColumns];
  const int last = end / kLoadedColumns * kLoadedColumns;
  for (int i = 0; i < kBatch * kLoadedColumns; ++i) {
    const int column = last + i % kLoadedColumns;
    last_states[i] = column < end ? rows[i / kLoadedColumns * stride + column] : 0.0f;
  }
  for (int v = 0; v < (kLast - kFirst) * kTileVectors; ++v) {
    const int gate = v / kTileVectors;
    const int vector = v % kTileVectors;
    Floats parts[kBatch][kLoadedColumns] = {};
    for (int from = begin; from < end;) {
      const UnitRows units =
          unit_rows(weights, kFirst + gate, vector * kVectorFloats, from, end, buffer);
      for (; from < units.end; from += kLoadedColumns) {
        Floats quads[kLoadedColumns];
        load_quads(quads, units.rows.first + from, units.rows.stride);
        const float* states = from < last ? rows + from : last_states;
        const Int64 states_stride = from < last ? stride : kLoadedColumns;
        for_constants<kLoadedColumns>(
            [&](auto i) { quads[i.value] = in_register(quads[i.value]); });
        for_constants<kBatch>([&](auto b) {
          const Floats state = in_register(broadcast_quad(states + b.value * states_stride));
          for_constants<kLoadedColumns>([&](auto i) {
            parts[b.value][i.value] = fused(quads[i.value], state, parts[b.value][i.value]);
          });
        });
      }
    }
    for_constants<kBatch>([&](auto b) {
      transpose_quads(parts[b.value]);
      Floats& sum = sums.values[b.value][gate][vector];
      for_constants<kLoadedColumns>([&](auto part) { sum = sum + parts[b.value][part.value]; });
    });
  }
}

template <int kFirst, int kLast, int kBatch, class Weights>
__device__ __forceinline__ TileSums<kFirst, kLast, kBatch> multiply(const Weights& weights,
                                                                    const float* rows, Int64 stride,
                                                                    int num_columns) {
  TileSums<kFirst, kLast, kBatch> sums = {};
  for (int begin = 0; begin < num_columns; begin += kSumColumns) {
    add_products(sums, weights, rows, stride, begin, min(begin + kSumColumns, num_columns));
  }
  return sums;
}

// Calls `visit` for up to kBatch rows of [begin, num_rows) at a time, with the number of rows, as a constant,
// and the first row.
template <int kBatch, class Visit>
__device__ __forceinline__ void for_batches(Int64 begin, Int64 num_rows, const Visit& visit) {
  for (; begin + kBatch <= num_rows; begin += kBatch) visit(Constant<kBatch>(), begin);
  if constexpr (kBatch > 1)
    for_batches<(kBatch > 4 ? kBatch - 2 : kBatch - 1)>(begin, num_rows, visit);
}

// The weights of a tile of a direction in a packed matrix.
template <class Element>
__device__ __forceinline__ MatrixWeights<Element> tile_of(const Element* matrix, int direction,
                                                          int tile, int hidden, int num_columns) {
  const Int64 rows = static_cast<Int64>(direction) * kNumGates * hidden;
  return {matrix + rows * num_columns, hidden, tile, num_columns};
}

// Copies columns [begin, end), at most kSumColumns from a multiple of kSumColumns on, of the gates kFirst to
// kLast - 1 to the start of `panel`, part after part.
template <int kFirst, int kLast, class Element>
__device__ __forceinline__ void copy_part(float* panel, const MatrixWeights<Element>& weights,
                                          int begin, int end) {
  constexpr int kRows = (kLast - kFirst) * kTileUnits;
  const int num_whole = (end - begin) / kLoadedColumns;
  const int num_left = (end - begin) % kLoadedColumns;
  float buffer[kVectorFloats * kUnitColumns];
  for (int first = 0; first < kRows; first += kVectorFloats) {
    float* to[kLoadedColumns];
    for_constants<kLoadedColumns>([&](auto part) {
      to[part.value] = panel + first + (part.value * num_whole + min(part.value, num_left)) * kRows;
    });
    for (int from = begin; from < end;) {
      const UnitRows units =
          unit_rows(weights, kFirst + first / kTileUnits, first % kTileUnits, from, end, buffer);
      for (; from < units.end; from += kLoadedColumns) {
        Floats loaded[kLoadedColumns];
        load_quads(loaded, units.rows.first + from, units.rows.stride);
        transpose_quads(loaded);
        for_constants<kLoadedColumns>([&](auto part) {
          if (from + part.value < end) store_floats(to[part.value], loaded[part.value]);
          to[part.value] += kRows;
        });
      }
    }
  }
}

template <int kFirst, int kLast, class Element>
__device__ __forceinline__ void copy_rows(float* panel, const MatrixWeights<Element>& weights) {
  for (int begin = 0; begin < weights.num_columns; begin += kSumColumns) {
    copy_part<kFirst, kLast>(panel + static_cast<Int64>(begin) * (kLast - kFirst) * kTileUnits,
                             weights, begin, min(begin + kSumColumns, weights.num_columns));
  }
}
