// Computes: a GRU layer over a whole sequence by blocks of one thread, on a CPU.
// Idea: compute a tile's products with a few sequences, then their gates, several units at once.
// Ownership: a block owns sequences of a direction: their states in global memory and outputs.
// Requires: `projection` and `panels` of serial_prepare.cu; three padded rows per sequence.
// Chosen when: blocks of one thread are the fastest; with panels if they are read often.

#include "common/vector_math.cuh"
#include "gru/panels.cuh"

// The hidden units of a tile.
struct Tile {
  int first;      // its first hidden unit
  int num_units;  // below kTileUnits in the last tile
  int number;
};

constexpr int kNumStateRows = 3;
constexpr int kNumBiasRows = kNumGates + 1;

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kPanels>
struct SerialGroup {
  Layer<Element> layer;
  const float* panels;  // of the direction
  // Rows of one sequence each: the states of two steps in turn if linear before reset, else the states, the
  // reset states and the update gates. Then one row per bias.
  float* rows;
  Int64 first_sequence;
  Int64 num_sequences;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int stride() const { return padded_units(hidden()); }
  __device__ __forceinline__ float* row(int buffer, Int64 sequence) const {
    return rows + (buffer * layer.params.group_batch + sequence) * stride();
  }

  // Added to the products of the gates; at kNumGates, to the candidate's recurrent product.
  __device__ __forceinline__ float* biases(int gate) const {
    return rows + (kNumStateRows * layer.params.group_batch + gate) * stride();
  }

  // The input's products for a gate of a tile, of one sequence at one time.
  __device__ __forceinline__ const float* inputs(Int64 time, Int64 n, int gate,
                                                 const Tile& tile) const {
    const Int64 place =
        (time * layer.params.batch_size + n) * layer.params.num_directions + layer.direction;
    return layer.projection + place * kNumGates * stride() +
           (tile.number * kNumGates + gate) * kTileUnits;
  }

  __device__ __forceinline__ Floats activate(int gate, Floats x) const {
    if constexpr (kStandard) {
      return gate == kCandidate ? hyperbolic_tangent(x) : sigmoid(x);
    } else {
      const Activations activations = layer.activations();
      float values[kVectorFloats];
      store_floats(values, x);
      for (int i = 0; i < kVectorFloats; ++i) {
        values[i] = apply_activation(activations, gate, values[i]);
      }
      return load_floats(values);
    }
  }

  __device__ __forceinline__ static void store_units(Element* target, Int64 stride,
                                                     const float* states, int num_units) {
    if (stride == 1 && num_units == kTileUnits) {
      for (int i = 0; i < kTileUnits; ++i) store(target + i, states[i]);
    } else {
      for (int i = 0; i < num_units; ++i) store(target + i * stride, states[i]);
    }
  }

  __device__ __forceinline__ void store_output(UInt32 step, UInt32 length, Int64 n,
                                               const Tile& tile, const float* states) const {
    const Int64* strides = layer.params.sequence_strides;
    if (layer.sequence != nullptr) {
      Element* target = layer.sequence + layer.time(step, length) * strides[0] +
                        layer.direction * strides[1] + n * strides[2] + tile.first * strides[3];
      store_units(target, strides[3], states, tile.num_units);
    }
    if (step != length - 1) return;
    for (int i = 0; i < tile.num_units; ++i) layer.store_single(n, tile.first + i, states[i]);
  }

  // The gates kFirst to kLast - 1 of a tile for kBatch sequences from `sequence` on. Not inlined, so that its
  // local arrays are on the stack only once.
  template <int kFirst, int kLast, int kBatch, class Weights>
  __device__ __noinline__ void process(UInt32 step, Int64 sequence, const Tile& tile,
                                       const Weights& weights) const {
    const int from = kLinearBeforeReset ? static_cast<int>(step & 1) : kFirst == kCandidate ? 1 : 0;
    const int to = kLinearBeforeReset ? 1 - from : 0;
    const auto products =
        multiply<kFirst, kLast, kBatch>(weights, row(from, sequence), stride(), hidden());
    for (int b = 0; b < kBatch; ++b) {
      const Int64 own = sequence + b;
      const Int64 n = first_sequence + own;
      const UInt32 length = layer.length(n);
      if (step >= length) continue;
      const Int64 time = layer.time(step, length);
      for_constants<kTileVectors>([&](auto v) {
        const int place = v.value * kVectorFloats;
        const auto bias = [&](int gate) { return load_floats(biases(gate) + tile.first + place); };
        const auto input = [&](int gate) {
          return load_floats(inputs(time, n, gate, tile) + place);
        };
        const auto product = [&](auto gate) {
          return products.values[b][gate.value - kFirst][v.value];
        };
        const auto unit = [&](int buffer) { return row(buffer, own) + tile.first + place; };
        Floats update, candidate;
        if constexpr (kFirst == kUpdate) {
          update =
              activate(kUpdate, input(kUpdate) + (product(Constant<kUpdate>()) + bias(kUpdate)));
          const Floats reset =
              activate(kReset, input(kReset) + (product(Constant<kReset>()) + bias(kReset)));
          if constexpr (kLinearBeforeReset) {
            const Floats recurrent = product(Constant<kCandidate>()) + bias(kNumGates);
            candidate =
                activate(kCandidate, input(kCandidate) + bias(kCandidate) + reset * recurrent);
          } else {
            store_floats(unit(1), reset * load_floats(unit(0)));
            store_floats(unit(2), update);
            return;
          }
        } else {
          update = load_floats(unit(2));
          const Floats recurrent = product(Constant<kCandidate>()) + bias(kNumGates);
          candidate = activate(kCandidate, input(kCandidate) + bias(kCandidate) + recurrent);
        }
        const Floats state = load_floats(unit(kLinearBeforeReset ? from : 0));
        store_floats(unit(to), fused(update, state, (1.0f - update) * candidate));
      });
      if constexpr (kLast == kNumGates) {
        store_output(step, length, n, tile, row(to, own) + tile.first);
      }
    }
  }

  // The weights of the gates from kFirst on, which one call multiplies together.
  template <int kFirst>
  __device__ __forceinline__ auto weights_of(int tile) const {
    const Int64 num_rows = static_cast<Int64>(kNumGates) * kTileUnits * tile;
    constexpr int kRowsBefore = kFirst == kCandidate ? kCandidate * kTileUnits : 0;
    if constexpr (kPanels) {
      return PanelWeights{panels + (num_rows + kRowsBefore) * hidden()};
    } else {
      return MatrixWeights<Element>{layer.recurrence + layer.weight_row(0, 0), hidden(), tile,
                                    hidden()};
    }
  }

  // A tile's weights are multiplied with every sequence before the next tile is read.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process_all(UInt32 step) const {
    for (int number = 0; number < num_tiles(hidden()); ++number) {
      const int first = number * kTileUnits;
      const Tile tile = {first, min(kTileUnits, hidden() - first), number};
      const auto weights = weights_of<kFirst>(number);
      for_batches<decltype(weights)::kBatch>(0, num_sequences, [&](auto batch, Int64 sequence) {
        process<kFirst, kLast, batch.value>(step, sequence, tile, weights);
      });
    }
  }

  __device__ __forceinline__ void run() const {
    layer.store_padding(first_sequence, num_sequences, 0, hidden(), 0, 1);
    UInt32 num_steps = 0;
    for (Int64 sequence = 0; sequence < num_sequences; ++sequence) {
      const Int64 n = first_sequence + sequence;
      num_steps = max(num_steps, layer.length(n));
      for (int unit = 0; unit < stride(); ++unit) {
        row(0, sequence)[unit] = unit < hidden() ? layer.initial_state(n, unit) : 0.0f;
        // Sequences that have ended are multiplied, too, so their rows must be initialised.
        row(1, sequence)[unit] = 0.0f;
        row(2, sequence)[unit] = 0.0f;
      }
    }
    for (int unit = 0; unit < hidden(); ++unit) {
      const GateBiases of_unit = layer.load_biases(unit);
      biases(kUpdate)[unit] = of_unit.update;
      biases(kReset)[unit] = of_unit.reset;
      biases(kCandidate)[unit] = of_unit.candidate;
      biases(kNumGates)[unit] = of_unit.recurrent;
    }
    for (int gate = 0; gate < kNumBiasRows; ++gate) {
      for (int unit = hidden(); unit < stride(); ++unit) biases(gate)[unit] = 0.0f;
    }
    for (UInt32 step = 0; step < num_steps; ++step) {
      if constexpr (kLinearBeforeReset) {
        process_all<kUpdate, kNumGates>(step);
      } else {
        process_all<kUpdate, kCandidate>(step);
        process_all<kCandidate, kNumGates>(step);
      }
    }
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kPanels>
__global__ void __launch_bounds__(1)
    gru_serial(const float* projection, const Element* recurrence, const Element* bias,
               const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
               float* states, const float* panels, GruParams params) {
  // Blocks in order of direction and group.
  const int group = blockIdx.x % params.num_groups;
  const int direction = blockIdx.x / params.num_groups;
  const Layer<Element> layer = {projection, recurrence, bias,   initial,  lengths,
                                sequence,   single,     params, direction};
  const Int64 first_sequence = group * params.group_batch;
  const Int64 num_rows = kNumStateRows * params.group_batch + kNumBiasRows;
  const Int64 panel_floats =
      static_cast<Int64>(kNumGates) * padded_units(params.hidden_size) * params.hidden_size;
  const SerialGroup<Element, kStandard, kLinearBeforeReset, kPanels> part = {
      layer, kPanels ? panels + direction * panel_floats : nullptr,
      states + blockIdx.x * num_rows * padded_units(params.hidden_size), first_sequence,
      min(params.group_batch, params.batch_size - first_sequence)};
  part.run();
}
