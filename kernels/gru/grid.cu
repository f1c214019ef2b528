// Computes: a GRU layer over a whole sequence by a cooperative grid.
// Idea: a block keeps its rows of R on chip; a step multiplies, applies the gates, sends states.
// Ownership: a group of blocks shares the hidden units of some sequences; 8 warps split columns.
// Requires: all blocks resident, `exchange` zeroed, shared storage for states, sums and chunks.
// Chosen when: several blocks per direction are estimated to be faster than one (gru/paths.py).

#include "gru/exchanged_grid.cuh"
#include "gru/grid_product.cuh"
#include "gru/round_grid.cuh"

// Hidden units of a thread. With more, each load of a state would serve more units, but their sums do not fit
// in registers next to the weights.
constexpr int kGridUnits = 2;
// Sequences whose products are accumulated together.
constexpr int kGridBatch = 4;
// Chunks of 256 columns whose weights are in registers.
constexpr int kGridRegisterChunks = 4;

// How states are exchanged: in words with the number of their exchange if items are fixed, else in counted
// rounds.
template <bool kIsFixed>
struct GridKind {
  template <class Block, class Element, bool kStandard, bool kLinearBeforeReset>
  using Grid = ExchangedGrid<Block, Element, kStandard, kLinearBeforeReset>;
};
template <>
struct GridKind<false> {
  template <class Block, class Element, bool kStandard, bool kLinearBeforeReset>
  using Grid = RoundGrid<Block, Element, kStandard, kLinearBeforeReset>;
};

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kIsFixed>
struct GridBlock
    : GridKind<kIsFixed>::template Grid<GridBlock<Element, kStandard, kLinearBeforeReset, kIsFixed>,
                                        Element, kStandard, kLinearBeforeReset> {
  using Weights = ResidentWeights<Element, kGridUnits, kGridWarps, kGridRegisterChunks>;
  using Grid =
      typename GridKind<kIsFixed>::template Grid<GridBlock, Element, kStandard, kLinearBeforeReset>;
  static constexpr int kPassUnits = Weights::kUnitsPerWarp;
  // Activations that are not known when the kernel is compiled need registers of their own: with four
  // sequences, NVRTC 12.0 spills.
  static constexpr int kBatch = kStandard || kIsFixed ? kGridBatch : kGridBatch / 2;

  static constexpr bool kIsLayered = false;

  using Grid::layer;
  using Grid::part;

  Weights weights;
  float* inputs;
  float* states;
  float* partials;     // half, warp, gate, sequence, unit
  GateBiases* biases;  // unless items are fixed

  __device__ __forceinline__ int row_stride() const {
    return weights.num_chunks() * Weights::kChunkColumns;
  }
  __device__ __forceinline__ int round_batch() const { return layer.params.round_batch; }
  __device__ __forceinline__ int items_per_round() const { return round_batch() * kPassUnits; }
  __device__ __forceinline__ int sums_per_pass() const {
    return kGridWarps * kNumGates * items_per_round();
  }
  __device__ __forceinline__ int sum_place(int warp, int gate, int row, int unit) const {
    return (warp * kNumGates + gate) * items_per_round() + row * kPassUnits + unit;
  }

  __device__ __forceinline__ void load_weights() { weights.load(part.first_unit, kPassUnits); }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply(int pass, const float* from, int count,
                                           float* sums_of_pass) const {
    in_batches<kBatch>(count, [&](int row, auto number) {
      constexpr int kCount = decltype(number)::value;
      float sums[kCount * kGridUnits][kLast - kFirst];
      weights.template multiply<kFirst, kLast, kCount>(sums, from + row * row_stride(),
                                                       row_stride(), pass);
      store_sums<kFirst, kCount>(*this, sums, row, sums_of_pass);
    });
  }
  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply_all(int count) const {
    multiply<kFirst, kLast>(0, states, count, partials);
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kIsFixed>
__global__ void __launch_bounds__(kGridThreads, 1)
    gru_grid(const float* projection, const Element* recurrence, const Element* bias,
             const Element* initial, const UInt32* lengths, Element* sequence, Element* single,
             UInt64* exchange, float* carried, Element* overflow, WaitReport* report,
             GruParams params) {
  SHARED_STORAGE(SharedWords, shared);
  using Block = GridBlock<Element, kStandard, kLinearBeforeReset, kIsFixed>;
  using Grid = typename Block::Grid;
  const GridPart part = GridPart::of_block(params, Block::kPassUnits);
  const Layer<Element> layer = {projection, recurrence, bias,   initial,       lengths,
                                sequence,   single,     params, part.direction};
  // `num_before` floats of inputs or biases come before the states.
  const auto run = [&](const Grid& grid, int num_before, int num_copies) {
    float* const first = reinterpret_cast<float*>(shared.words);
    Block block = {grid,    {layer, nullptr, nullptr, {}},       first, nullptr,
                   nullptr, reinterpret_cast<GateBiases*>(first)};
    block.states = first + num_before;
    block.partials = block.states + num_copies * params.round_batch * block.row_stride();
    block.weights.stored =
        reinterpret_cast<WeightQuad<Element>*>(block.partials + num_copies * block.sums_per_pass());
    block.weights.overflow =
        reinterpret_cast<WeightQuad<Element>*>(overflow) + blockIdx.x * params.overflow_pieces;
    block.run();
  };
  if constexpr (kIsFixed) {
    run({layer, part, exchange, {report}}, kNumGates * kGridThreads, 1);
  } else {
    // The counts of all groups come first, in whole quads.
    const Int64 round_batch = params.round_batch;
    const Int64 rounds = (params.group_batch + round_batch - 1) / round_batch;
    const Int64 per_group = rounds * params.num_shards;
    const Int64 num_counts = params.num_directions * params.num_groups * per_group;
    UInt32* const counts = reinterpret_cast<UInt32*>(exchange);
    float* const states =
        reinterpret_cast<float*>(counts + (num_counts + kQuad - 1) / kQuad * kQuad);
    const Int64 group = blockIdx.x / static_cast<UInt32>(params.num_shards);
    constexpr int kUnitBiases = sizeof(GateBiases) / sizeof(float);
    run({layer,
         part,
         counts + group * per_group,
         states,
         reinterpret_cast<Carried*>(carried),
         {report},
         {}},
        kUnitBiases * params.num_passes * Block::kPassUnits, 2);
  }
}
