// Computes: GRU layers on top of each other, over a whole sequence, by one cooperative grid.
// Idea: layers run as in gru/grid.cu, a step apart; those above multiply W with states sent up.
// Ownership: a group of blocks shares the units of some sequences in one layer, W and R on chip.
// Requires: all blocks resident, `exchange` zeroed, fixed items, no weights in memory.
// Chosen when: all layers fit at once and this is estimated to be the fastest (gru/wave.py).

#include "gru/exchanged_grid.cuh"
#include "gru/grid_product.cuh"

// Most layers of a grid.
constexpr int kMaxLayers = 4;
// Sequences whose products are accumulated together.
constexpr int kWaveBatch = 2;
// Chunks of 256 columns whose weights are in registers, of R and of W each, by a thread's hidden units.
template <int kUnits>
constexpr int kWaveRegisterChunks = 4 / kUnits;
// States that are passed to the layer above are written once.
constexpr UInt32 kPassedTag = 1;

// kUnits: hidden units of a thread. With more, a load of a state serves more of them, fewer blocks exchange
// states, and more layers find room, but fewer chunks of weights are in registers.
template <class Element, bool kStandard, bool kLinearBeforeReset, int kUnits>
struct WaveBlock : ExchangedGrid<WaveBlock<Element, kStandard, kLinearBeforeReset, kUnits>, Element,
                                 kStandard, kLinearBeforeReset> {
  using Weights = ResidentWeights<Element, kUnits, kGridWarps, kWaveRegisterChunks<kUnits>, false,
                                  0, kGridThreads>;
  using Item = FixedItem<Element, kGridThreads, true>;
  // The sums of an item: the candidate's products with W and with R stay apart.
  static constexpr int kNumItemSums = kNumGates + 1;
  static constexpr int kPassUnits = Weights::kUnitsPerWarp;
  static constexpr bool kIsLayered = true;

  using Grid = typename WaveBlock::ExchangedGrid;
  using Grid::layer;
  using Grid::part;

  Weights weights;
  // For the states of the layer below; unused in the lowest layer, as are `states_below` and `from_below`.
  Weights input_weights;
  float* inputs;
  float* states;
  float* states_below;
  float* partials;  // warp, gate, sequence, unit
  // States that layers pass to the layer above, by step and sequence: of the layer below, null for the lowest
  // layer, and of this layer, null for the highest.
  const UInt64* from_below;
  UInt64* to_above;

  __device__ __forceinline__ int row_stride() const {
    return weights.num_chunks() * Weights::kChunkColumns;
  }
  __device__ __forceinline__ int round_batch() const { return layer.params.round_batch; }
  __device__ __forceinline__ int items_per_round() const { return round_batch() * kPassUnits; }
  __device__ __forceinline__ int sums_per_pass() const {
    return kGridWarps * kNumItemSums * items_per_round();
  }
  __device__ __forceinline__ int sum_place(int warp, int gate, int row, int unit) const {
    return (warp * kNumItemSums + gate) * items_per_round() + row * kPassUnits + unit;
  }

  __device__ __forceinline__ void load_weights() {
    weights.load(part.first_unit, kPassUnits);
    if (from_below == nullptr) return;
    input_weights.load(part.first_unit, kPassUnits);
    // As `states`: columns past the hidden size stay 0.
    for (int i = threadIdx.x; i < round_batch() * row_stride(); i += kGridThreads) {
      states_below[i] = 0.0f;
    }
  }

  // A step's first sums are those of W and R; the candidate's with W follows the others.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply_all(int count) const {
    in_batches<kWaveBatch>(count, [&](int row, auto number) {
      constexpr int kCount = decltype(number)::value;
      constexpr int kNumSums = kLast - kFirst + (kFirst == kUpdate ? 1 : 0);
      float sums[kCount * kUnits][kNumSums];
      clear(sums);
      const int offset = row * row_stride();
      if constexpr (kFirst == kUpdate) {
        if (from_below != nullptr) {
          input_weights.template accumulate<kUpdate, kNumGates, kCount, kNumSums - 1>(
              sums, states_below + offset, row_stride(), 0);
        }
      }
      weights.template accumulate<kFirst, kLast, kCount, kCandidate - kFirst>(sums, states + offset,
                                                                              row_stride(), 0);
      store_sums<kFirst, kCount>(*this, sums, row, partials);
    });
  }

  // The first word of a row of states for the layer above.
  __device__ __forceinline__ Int64 passed(UInt32 step, Int64 n) const {
    const Int64 row = static_cast<Int64>(step) * layer.params.batch_size + n;
    return row * (TaggedFloats::kNumWords * this->loads_per_row());
  }

  // Brings the block's own states, and those of the layer below if there is one. Both are on their way at
  // once.
  __device__ __forceinline__ void gather_both(UInt32 tag, const typename Grid::Loads& loads,
                                              UInt32 step) {
    if (from_below == nullptr) {
      if (tag > 0) this->gather_all(tag, loads);
      return;
    }
    const Int64 offset = loads.first - this->exchanged(0);
    const typename Grid::Stream below = {kPassedTag, from_below + passed(step, 0) + offset,
                                         states_below + loads.target};
    if (tag > 0) {
      typename Grid::Stream streams[] = {below, this->stream_of(tag, loads)};
      this->gather_streams(streams, loads, kWaitForLayers);
    } else {
      typename Grid::Stream streams[] = {below};
      this->gather_streams(streams, loads, kWaitForLayers);
    }
  }

  // The products with W for the update and reset gates are in the sums already. The candidate's product with
  // W is a sum of a step's first half.
  template <int kFirst, int kLast>
  __device__ __forceinline__ GateInputs inputs_of(Item& item) const {
    if (from_below == nullptr) return item.fetched_inputs();
    float& candidate = item.slots[kCandidate * kGridThreads];
    if (kFirst == kCandidate) return {0.0f, 0.0f, candidate};
    float product[1];
    add_up<kLast>(*this, product, partials, static_cast<int>(threadIdx.x) / kPassUnits,
                  static_cast<int>(threadIdx.x) % kPassUnits);
    candidate = product[0];
    return {0.0f, 0.0f, product[0]};
  }

  // Passes a state on as the next layer takes it: rounded to the type of the tensors.
  __device__ __forceinline__ void pass_on(const Item& item, UInt32 step) const {
    if (to_above == nullptr) return;
    Element rounded;
    store(&rounded, item.state);
    store_relaxed(to_above + passed(step, item.n) + item.unit,
                  TaggedFloats::word(to_float(rounded), kPassedTag));
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kUnits>
__global__ void __launch_bounds__(kGridThreads, 1)
    gru_wave(const float* projection, const Element* recurrence_0, const Element* recurrence_1,
             const Element* recurrence_2, const Element* recurrence_3, const Element* weights_1,
             const Element* weights_2, const Element* weights_3, const Element* bias_0,
             const Element* bias_1, const Element* bias_2, const Element* bias_3,
             const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
             UInt64* exchange, WaitReport* report, GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  using Block = WaveBlock<Element, kStandard, kLinearBeforeReset, kUnits>;
  GridPart part = GridPart::of_block(params, Block::kPassUnits);
  // Blocks are ordered by layer; in other kernels, they are ordered by direction.
  const int number = part.direction;
  part.direction = 0;
  const bool is_lowest = number == 0;
  const int num_layers = 2 + (recurrence_2 != nullptr) + (recurrence_3 != nullptr);
  const bool is_highest = number == num_layers - 1;
  const Element* recurrence = number == 0   ? recurrence_0
                              : number == 1 ? recurrence_1
                              : number == 2 ? recurrence_2
                                            : recurrence_3;
  const Element* weights = number <= 1 ? weights_1 : number == 2 ? weights_2 : weights_3;
  const Element* bias = number == 0 ? bias_0 : number == 1 ? bias_1 : number == 2 ? bias_2 : bias_3;
  if (initial != nullptr) initial += number * params.initial_strides[0];
  single += number * params.single_strides[0];
  const Layer<Element> layer = {
      is_lowest ? projection : nullptr, recurrence, bias,   initial, lengths,
      is_highest ? sequence : nullptr,  single,     params, 0};
  // The rows of W, as those of R of another layer.
  Layer<Element> layer_of_inputs = layer;
  layer_of_inputs.recurrence = weights;
  const Int64 row_words = (params.hidden_size + TaggedFloats::kNumWords - 1) /
                          TaggedFloats::kNumWords * TaggedFloats::kNumWords;
  const Int64 rows_words = params.batch_size * row_words;
  const Int64 layer_words = params.num_steps * rows_words;
  // The states that layers pass on follow the exchanges of all layers.
  UInt64* const passed = exchange + num_layers * 2 * rows_words;
  Block block = {{layer, part, exchange + number * 2 * rows_words, {report}},
                 {layer, nullptr, nullptr, {}},
                 {layer_of_inputs, nullptr, nullptr, {}},
                 reinterpret_cast<float*>(shared.words),
                 nullptr,
                 nullptr,
                 nullptr,
                 is_lowest ? nullptr : passed + (number - 1) * layer_words,
                 is_highest ? nullptr : passed + number * layer_words};
  block.states = block.inputs + kNumGates * kGridThreads;
  block.states_below = block.states + params.round_batch * block.row_stride();
  block.partials = block.states_below + params.round_batch * block.row_stride();
  block.weights.stored =
      reinterpret_cast<WeightQuad<Element>*>(block.partials + block.sums_per_pass());
  block.input_weights.stored =
      block.weights.stored + params.num_stored_chunks * block.weights.quads_per_chunk();
  block.run();
}
