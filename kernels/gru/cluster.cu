// Computes: a GRU layer over a whole sequence, one sequence a cluster of blocks.
// Idea: a warp computes whole rows of R and sends states to all blocks; no barrier in a step.
// Ownership: a warp owns four hidden units of a sequence; eight lanes share the rows of one.
// Requires: a cluster whose warps have all columns; a device with clusters of kBlocks.
// Chosen when: few sequences, up to 512 hidden units, float32 or few steps (gru/paths.py).

#include "common/exchange.cuh"
#include "common/wait.cuh"
#include "gru/product.cuh"

constexpr int kClusterThreads = 256;
// Chunks of 32 columns whose weights are in registers, and chunks whose states are loaded together.
constexpr int kClusterRegisterChunks = 12;
constexpr int kClusterLoadedChunks = 4;

constexpr UInt32 kWaitForStates = 1;

struct alignas(16) SharedWords {
  UInt32 words[4];
};

// A warp of a cluster. Blocks exchange states as common/exchange.cuh has it, but in shared storage: each block
// has two buffers with a word for each column, which all warps of the cluster send, and a warp waits for the
// words that it multiplies. Exchange e is the state before step e - 1, if linear before reset; else a step
// has two exchanges, of states and of reset states.
template <class Element, bool kStandard, bool kLinearBeforeReset, int kBlocks>
struct ClusterWarp {
  using Format = TaggedFloats;
  using Word = Format::Word;
  using Weights = ResidentWeights<Element, 1, 1, kClusterRegisterChunks, false>;
  // The lanes of a row send its unit's state to a block each.
  static constexpr int kTargets = (kBlocks + kLanesPerRow - 1) / kLanesPerRow;

  Layer<Element> layer;
  Int64 n;  // the sequence
  Patience patience;
  Weights weights;
  Word* received;  // of this block: two buffers

  __device__ __forceinline__ int num_columns() const {
    return weights.num_chunks() * Weights::kChunkColumns;
  }
  // Words of a buffer: columns up to whole loads, where those that nobody sends stay 0.
  __device__ __forceinline__ int buffer_words() const {
    constexpr int kLoaded = kClusterLoadedChunks * Weights::kChunkColumns;
    return (layer.params.hidden_size + kLoaded - 1) / kLoaded * kLoaded;
  }

  // Waits for exchange `tag` of the thread's columns in kCount chunks, and adds their products for the gates
  // kFirst to kLast - 1; `weights_of(i, gate, quad)` has the weights of chunk `first + i`.
  template <int kFirst, int kLast, int kCount, class WeightsOf>
  __device__ __forceinline__ void add_chunks(float (&sums)[kLast - kFirst], const Word* buffer,
                                             int first, UInt32 tag, WeightsOf weights_of) {
    constexpr int kLoads = kQuad / Format::kNumWords;
    Format::Words words[kCount][kLoads];
    const auto load = [&] {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
          words[i][j] = load_sent_pair(buffer + Weights::column(first + i) + j * Format::kNumWords);
        }
      }
    };
    load();
    // If the thread has given up, the states are unspecified.
    patience.wait(
        kWaitForStates,
        [&] {
          UInt32 found = 0;
#pragma unroll
          for (int i = 0; i < kCount; ++i) {
            UInt32 of_chunk = 0;
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
              of_chunk |= differences<Format>(words[i][j], Format::kNumWords, tag);
            }
            found |= first + i < weights.num_chunks() ? of_chunk : 0;
          }
          return found == 0;
        },
        load);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int gate = kFirst; gate < kLast; ++gate) {
        float quad[kQuad];
        weights_of(i, gate, quad);
#pragma unroll
        for (int q = 0; q < kQuad; ++q) {
          const Word word = words[i][q / Format::kNumWords].words[q % Format::kNumWords];
          const float state = __uint_as_float(static_cast<UInt32>(word));
          sums[gate - kFirst] = fmaf(quad[q], state, sums[gate - kFirst]);
        }
      }
    }
  }

  // The products of exchange `tag`, for the gates kFirst to kLast - 1; every lane of a row has the sums.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply(float (&sums)[kLast - kFirst], const Word* buffer,
                                           UInt32 tag) {
    const int num_chunks = weights.num_chunks();
#pragma unroll
    for (int s = 0; s < kLast - kFirst; ++s) sums[s] = 0.0f;
#pragma unroll
    for (int first = 0; first < kClusterRegisterChunks; first += kClusterLoadedChunks) {
      if (first >= num_chunks) break;
      add_chunks<kFirst, kLast, kClusterLoadedChunks>(
          sums, buffer, first, tag, [&](int i, int gate, float (&quad)[kQuad]) {
#pragma unroll
            for (int q = 0; q < kQuad; ++q) quad[q] = weights.registers[first + i][gate][0][q];
          });
    }
#pragma unroll 1
    for (int chunk = kClusterRegisterChunks; chunk < num_chunks; ++chunk) {
      const auto* quads = weights.chunk_quads(chunk - kClusterRegisterChunks);
      add_chunks<kFirst, kLast, 1>(sums, buffer, chunk, tag,
                                   [&](int, int gate, float (&quad)[kQuad]) {
                                     const auto stored = quads[gate * static_cast<int>(blockDim.x)];
#pragma unroll
                                     for (int q = 0; q < kQuad; ++q)
                                       quad[q] = to_float(stored.values[q]);
                                   });
    }
#pragma unroll
    for (int bit = 1; bit < kLanesPerRow; bit *= 2) {
#pragma unroll
      for (int s = 0; s < kLast - kFirst; ++s) sums[s] += __shfl_xor_sync(kFullMask, sums[s], bit);
    }
  }

  __device__ __forceinline__ void run() {
    const GruParams& params = layer.params;
    const int block_units = static_cast<int>(blockDim.x) / kLanesPerRow;
    const int first_unit = static_cast<int>(cluster_rank()) * block_units;
    const int unit = first_unit + Weights::first_unit();
    const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
    const bool is_unit = unit < params.hidden_size;
    layer.store_padding(n, 1, first_unit, min(first_unit + block_units, params.hidden_size),
                        threadIdx.x, blockDim.x);
    weights.load(first_unit, block_units);
    // The first exchange, number 1, is in the second buffer.
    const int words = buffer_words();
    for (int column = threadIdx.x; column < words; column += blockDim.x) {
      const float state = column < params.hidden_size ? layer.initial_state(n, column) : 0.0f;
      received[column] = 0;
      received[words + column] = column < num_columns() ? Format::word(state, 1) : 0;
    }
    // The word of the unit in the buffers that are sent next, and the way to the other ones.
    Word* targets[kTargets];
    Int64 to_other = words;
#pragma unroll
    for (int i = 0; i < kTargets; ++i) {
      const int rank = i * kLanesPerRow + lane;
      targets[i] = nullptr;
      if (rank < kBlocks && unit < num_columns()) {
        targets[i] = map_shared(received + unit, static_cast<UInt32>(rank));
      }
    }
    // Columns past the hidden size are sent as 0, whatever the activations make of them.
    const auto send = [&](UInt32 tag, float value) {
      const Word word = Format::word(is_unit ? value : 0.0f, tag);
#pragma unroll
      for (int i = 0; i < kTargets; ++i) {
        if (targets[i] == nullptr) continue;
        send_relaxed(targets[i], word);
        targets[i] += to_other;
      }
      to_other = -to_other;
    };
    const Word* next = received + words;
    Int64 to_next = -words;
    const auto buffer = [&] {
      const Word* taken = next;
      next += to_next;
      to_next = -to_next;
      return taken;
    };

    const UInt32 length = layer.length(n);
    const Activations activations = layer.activations();
    float state = is_unit ? layer.initial_state(n, unit) : 0.0f;
    const GateBiases biases = is_unit ? layer.load_biases(unit) : GateBiases{};
    // Places of a step, and how far apart steps are.
    const Int64 first_time = layer.time(0, length);
    const float* x = layer.inputs_of(first_time, n, unit);
    Int64 input_stride = params.batch_size * params.num_directions * kNumGates * params.hidden_size;
    Element* output = layer.sequence == nullptr
                          ? nullptr
                          : layer.sequence + layer.sequence_offset(first_time, n, unit);
    Int64 output_stride = params.sequence_strides[0];
    if (layer.is_backward()) {
      input_stride = -input_stride;
      output_stride = -output_stride;
    }
    const bool is_owner = is_unit && lane == 0;
    const bool has_output = is_owner && output != nullptr;
    GateInputs inputs = {};
    const auto load_inputs = [&] {
      const int hidden = params.hidden_size;
      inputs = {x[0], x[hidden], x[2 * hidden]};
      x += input_stride;
    };
    if (is_unit && length > 0) load_inputs();
    // Words and first states are there in all blocks before another block sends or loads any.
    cluster_barrier();

    for (UInt32 step = 0; step < length; ++step) {
      const bool is_last = step + 1 == length;
      if constexpr (kLinearBeforeReset) {
        float sums[kNumGates];
        multiply<kUpdate, kNumGates>(sums, buffer(), step + 1);
        state = step_linear_before_reset<kStandard>(activations, inputs, biases, sums, state);
        if (!is_last) send(step + 2, state);
      } else {
        float sums[2];
        multiply<kUpdate, kCandidate>(sums, buffer(), 2 * step + 1);
        const UpdateAndReset gates = step_gates<kStandard>(activations, inputs, biases, sums);
        send(2 * step + 2, gates.reset * state);
        float product[1];
        multiply<kCandidate, kNumGates>(product, buffer(), 2 * step + 2);
        state =
            step_candidate<kStandard>(activations, inputs, biases, product[0], gates.update, state);
        if (!is_last) send(2 * step + 3, state);
      }
      // After the states have been sent, while they are under way.
      if (is_unit && !is_last) load_inputs();
      if (has_output) {
        store(output, state);
        output += output_stride;
      }
    }
    if (is_owner && length > 0) layer.store_single(n, unit, state);
    // No block ends while others may still send to it.
    cluster_barrier();
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kBlocks>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kClusterThreads, 1)
    gru_cluster(const float* projection, const Element* recurrence, const Element* bias,
                const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
                WaitReport* report, GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  const int cluster = blockIdx.x / kBlocks;
  const int direction = cluster / params.num_groups;
  const Layer<Element> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  ClusterWarp<Element, kStandard, kLinearBeforeReset, kBlocks> warp = {
      layer,
      cluster % params.num_groups,
      {report},
      {layer, nullptr, nullptr, {}},
      reinterpret_cast<UInt64*>(shared.words)};
  warp.weights.stored =
      reinterpret_cast<WeightQuad<Element>*>(warp.received + 2 * warp.buffer_words());
  warp.run();
}
