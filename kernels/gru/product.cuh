// The product of states with the rows of R that stay on the chip for the whole sequence.
//
// A thread owns the three gates' rows of kUnits hidden units, in quads of four columns. Eight neighbouring
// lanes share its rows, the four groups of eight in a warp have different units, and kRowWarps warps share
// rows once more. The first kRegisterChunks chunks of its weights for the first pass are in registers, the
// next chunks in shared storage, and the rest in global memory, as a copy in the same order, so that a warp
// reads full lines. No other thread reads a thread's weights. The order of the sums depends only on the
// hidden size, not on the batch, the grid or the storage.
#pragma once

#include "gru/layer.cuh"

constexpr int kLanesPerRow = 8;
constexpr int kGroupsPerWarp = kWarpSize / kLanesPerRow;
constexpr int kQuad = 4;

// Four weights as they are stored.
template <class Element>
struct alignas(kQuad * sizeof(Element)) WeightQuad {
  Element values[kQuad];
};

template <int kPairs, int kNumSums>
__device__ __forceinline__ void clear(float (&sums)[kPairs][kNumSums]) {
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int s = 0; s < kNumSums; ++s) sums[pair][s] = 0.0f;
  }
}

// kHasOverflow says whether some weights may be in global memory. kNumChunks is the number of chunks of the
// only pass if the kernel is compiled for one, else 0; kNumThreads, the threads of a block, else 0.
template <class Element, int kUnits, int kRowWarps, int kRegisterChunks, bool kHasOverflow = true,
          int kNumChunks = 0, int kNumThreads = 0>
struct ResidentWeights {
  static constexpr int kThreadUnits = kUnits;
  static constexpr int kUnitsPerWarp = kUnits * kGroupsPerWarp;
  static constexpr int kChunkColumns = kRowWarps * kLanesPerRow * kQuad;

  const Layer<Element>& layer;
  // By chunk, gate, unit and thread: the first num_stored_chunks in shared storage, the others in global
  // memory.
  WeightQuad<Element>* stored;
  WeightQuad<Element>* overflow;  // null if no chunks are there
  float registers[kRegisterChunks][kNumGates][kUnits][kQuad];

  __device__ __forceinline__ int num_chunks() const {
    if constexpr (kNumChunks > 0) return kNumChunks;
    return (layer.params.hidden_size + kChunkColumns - 1) / kChunkColumns;
  }

  __device__ __forceinline__ int num_register_chunks() const {
    return min(kRegisterChunks, num_chunks());
  }

  __device__ __forceinline__ static int column(int chunk) {
    const int thread = threadIdx.x;
    const int row_warp = thread / kWarpSize % kRowWarps;
    return ((chunk * kRowWarps + row_warp) * kLanesPerRow + thread % kLanesPerRow) * kQuad;
  }

  // The thread's first hidden unit, relative to the block's units of a pass.
  __device__ __forceinline__ static int first_unit() {
    const int thread = threadIdx.x;
    return thread / kWarpSize / kRowWarps * kUnitsPerWarp +
           thread % kWarpSize / kLanesPerRow * kUnits;
  }

  // Four weights of a row, read from R; 0 outside of it.
  template <bool kIsAligned>
  __device__ __forceinline__ WeightQuad<Element> load_quad(int gate, int unit, int column) const {
    const int hidden = layer.params.hidden_size;
    const Element* first = layer.recurrence + (layer.weight_row(gate, unit) + column);
    WeightQuad<Element> quad = {};
    if constexpr (kIsAligned) {
      if (unit < hidden && column < hidden) {
        quad = *reinterpret_cast<const WeightQuad<Element>*>(first);
      }
    } else {
#pragma unroll
      for (int q = 0; q < kQuad; ++q) {
        if (unit < hidden && column + q < hidden) quad.values[q] = first[q];
      }
    }
    return quad;
  }

  __device__ __forceinline__ static UInt32 num_threads() {
    return kNumThreads > 0 ? kNumThreads : blockDim.x;
  }

  __device__ __forceinline__ static int quads_per_chunk() {
    return kNumGates * kUnits * static_cast<int>(num_threads());
  }

  // The thread's first quad of a chunk that is not in registers; the next ones are num_threads() apart.
  __device__ __forceinline__ WeightQuad<Element>* chunk_quads(int m) const {
    if constexpr (!kHasOverflow) return stored + m * quads_per_chunk() + threadIdx.x;
    const int in_overflow = m - layer.params.num_stored_chunks;
    WeightQuad<Element>* quads =
        in_overflow < 0 ? stored + m * quads_per_chunk()
                        : overflow + static_cast<Int64>(in_overflow) * quads_per_chunk();
    return quads + threadIdx.x;
  }

  // The block's units start at `block_unit`; `pass_units` lie between one pass and the next.
  __device__ __forceinline__ void load(int block_unit, int pass_units) {
    // Whether the quads of all rows of R can be loaded as a whole.
    const bool is_aligned =
        layer.params.hidden_size % kQuad == 0 &&
        reinterpret_cast<UInt64>(layer.recurrence) % sizeof(WeightQuad<Element>) == 0;
    if (is_aligned) {
      load_quads<true>(block_unit + first_unit(), pass_units);
    } else {
      load_quads<false>(block_unit + first_unit(), pass_units);
    }
  }

  // Starts at the thread's first unit. All loads of a chunk, or of one of its gates, are in flight before the
  // first is waited for.
  template <bool kIsAligned>
  __device__ __forceinline__ void load_quads(int unit, int pass_units) {
#pragma unroll
    for (int chunk = 0; chunk < kRegisterChunks; ++chunk) {
      WeightQuad<Element> quads[kNumGates][kUnits];
#pragma unroll
      for (int gate = 0; gate < kNumGates; ++gate) {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          quads[gate][i] = {};
          if (chunk < num_chunks()) {
            quads[gate][i] = load_quad<kIsAligned>(gate, unit + i, column(chunk));
          }
        }
      }
#pragma unroll
      for (int gate = 0; gate < kNumGates; ++gate) {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
#pragma unroll
          for (int q = 0; q < kQuad; ++q) {
            registers[chunk][gate][i][q] = to_float(quads[gate][i].values[q]);
          }
        }
      }
    }
    const int num_passes = kNumChunks > 0 ? 1 : layer.params.num_passes;
    const int num_chunks_left = num_passes * num_chunks() - num_register_chunks();
    for (int m = 0; m < num_chunks_left; ++m) {
      const int index = m + num_register_chunks();
      const int pass = index / num_chunks();
      const int chunk = index - pass * num_chunks();
      WeightQuad<Element>* kept = chunk_quads(m);
#pragma unroll 1
      for (int gate = 0; gate < kNumGates; ++gate) {
        WeightQuad<Element> quads[kUnits];
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          quads[i] = load_quad<kIsAligned>(gate, unit + pass * pass_units + i, column(chunk));
        }
#pragma unroll
        for (int i = 0; i < kUnits; ++i) kept[(gate * kUnits + i) * num_threads()] = quads[i];
      }
    }
  }

  // The thread's part of the products of kBatch states, `row_stride` apart, with its rows of one
  // pass: sums[sequence * kUnits + unit][gate - kFirst], for gates kFirst to kLast - 1.
  template <int kFirst, int kLast, int kBatch>
  __device__ __forceinline__ void multiply(float (&sums)[kBatch * kUnits][kLast - kFirst],
                                           const float* states, int row_stride, int pass) const {
    clear(sums);
    accumulate<kFirst, kLast, kBatch, kCandidate - kFirst>(sums, states, row_stride, pass);
  }

  // Adds the same products to `sums`, in which the candidate has a place of its own.
  template <int kFirst, int kLast, int kBatch, int kCandidatePlace, int kNumSums>
  __device__ __forceinline__ void accumulate(float (&sums)[kBatch * kUnits][kNumSums],
                                             const float* states, int row_stride, int pass) const {
    if (pass == 0) {
#pragma unroll
      for (int chunk = 0; chunk < kRegisterChunks; ++chunk) {
        if (chunk >= num_chunks()) break;
        add_chunk<kFirst, kLast, kBatch, kCandidatePlace>(
            sums, states + column(chunk), row_stride, [&](int gate, int i, float (&quad)[kQuad]) {
#pragma unroll
              for (int q = 0; q < kQuad; ++q) quad[q] = registers[chunk][gate][i][q];
            });
      }
    }
    int chunk = pass == 0 ? kRegisterChunks : 0;
    int m = pass == 0 ? 0 : pass * num_chunks() - num_register_chunks();
    const int num_stored =
        kNumChunks > 0 ? kNumChunks - kRegisterChunks : layer.params.num_stored_chunks;
    // Two loops, so that each knows the kind of storage that it reads.
#pragma unroll 1
    for (; chunk < num_chunks() && m < num_stored; ++chunk, ++m) {
      add_kept_chunk<kFirst, kLast, kBatch, kCandidatePlace>(
          sums, states + column(chunk), row_stride, stored + m * quads_per_chunk() + threadIdx.x);
    }
    if constexpr (kHasOverflow) {
#pragma unroll 1
      for (; chunk < num_chunks(); ++chunk, ++m) {
        add_kept_chunk<kFirst, kLast, kBatch, kCandidatePlace>(
            sums, states + column(chunk), row_stride,
            overflow + static_cast<Int64>(m - num_stored) * quads_per_chunk() + threadIdx.x);
      }
    }
  }

 private:
  // Adds the products of a chunk in shared storage or memory; `quads` is the thread's first one.
  template <int kFirst, int kLast, int kBatch, int kCandidatePlace, int kNumSums>
  __device__ __forceinline__ static void add_kept_chunk(float (&sums)[kBatch * kUnits][kNumSums],
                                                        const float* states, int row_stride,
                                                        const WeightQuad<Element>* quads) {
    add_chunk<kFirst, kLast, kBatch, kCandidatePlace>(
        sums, states, row_stride, [&](int gate, int i, float (&quad)[kQuad]) {
          const WeightQuad<Element> weights = quads[(gate * kUnits + i) * num_threads()];
#pragma unroll
          for (int q = 0; q < kQuad; ++q) quad[q] = to_float(weights.values[q]);
        });
  }

  // Adds one chunk's products; `load_weights(gate, unit, quad)` fetches four weights of a row.
  template <int kFirst, int kLast, int kBatch, int kCandidatePlace, int kNumSums, class LoadWeights>
  __device__ __forceinline__ static void add_chunk(float (&sums)[kBatch * kUnits][kNumSums],
                                                   const float* states, int row_stride,
                                                   LoadWeights load_weights) {
    float4 h[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      h[b] = *reinterpret_cast<const float4*>(states + b * row_stride);
#pragma unroll
    for (int gate = kFirst; gate < kLast; ++gate) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        float quad[kQuad];
        load_weights(gate, i, quad);
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          float& sum = sums[b * kUnits + i][gate == kCandidate ? kCandidatePlace : gate - kFirst];
          sum = fmaf(quad[0], h[b].x, sum);
          sum = fmaf(quad[1], h[b].y, sum);
          sum = fmaf(quad[2], h[b].z, sum);
          sum = fmaf(quad[3], h[b].w, sum);
        }
      }
    }
  }
};

// Adds up the sums of the lanes that share rows. Afterwards, sums[0] of a lane has the sum of the pair
// (sequence, unit) that `owned_pair` gives, if `owns_pair`.
template <int kPairs, int kNumSums>
__device__ __forceinline__ void reduce_rows(float (&sums)[kPairs][kNumSums]) {
  const int lane = threadIdx.x % kLanesPerRow;
  int num_pairs = kPairs;
#pragma unroll
  for (int bit = 1; bit < kLanesPerRow; bit *= 2) {
    if (num_pairs > 1) {
      // Each of two lanes gives the other one half of the pairs and keeps the sums of its own half.
      num_pairs /= 2;
      const bool upper = (lane & bit) != 0;
#pragma unroll
      for (int pair = 0; pair < kPairs / 2; ++pair) {
        if (pair < num_pairs) {
#pragma unroll
          for (int s = 0; s < kNumSums; ++s) {
            const float low = sums[pair][s];
            const float high = sums[pair + num_pairs][s];
            sums[pair][s] =
                (upper ? high : low) + __shfl_xor_sync(kFullMask, upper ? low : high, bit);
          }
        }
      }
    } else {
#pragma unroll
      for (int s = 0; s < kNumSums; ++s) sums[0][s] += __shfl_xor_sync(kFullMask, sums[0][s], bit);
    }
  }
}

template <int kPairs>
__device__ __forceinline__ int owned_pair() {
  const int lane = threadIdx.x % kLanesPerRow;
  int pair = 0;
#pragma unroll
  for (int bit = 1, half = kPairs / 2; half > 0; bit *= 2, half /= 2) {
    if (lane & bit) pair += half;
  }
  return pair;
}

template <int kPairs>
__device__ __forceinline__ bool owns_pair() {
  return static_cast<int>(threadIdx.x) % kLanesPerRow < kPairs;
}
