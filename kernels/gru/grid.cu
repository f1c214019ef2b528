// Computes: a GRU layer over a whole sequence by a cooperative grid.
// Idea: a block keeps its rows of R on chip; a step multiplies, applies the gates, sends states.
// Ownership: a group of blocks shares the hidden units of some sequences; 8 warps split columns.
// Requires: all blocks resident, `exchange` zeroed, shared storage for states, sums and chunks.
// Chosen when: several blocks per direction are estimated to be faster than one (gru/paths.py).

#include "gru/exchanged_grid.cuh"
#include "gru/grid_product.cuh"

// Sequences whose products are accumulated together.
constexpr int kGridBatch = 4;
// Chunks of 256 columns whose weights are in registers.
constexpr int kGridRegisterChunks = 4;

template <class Element, bool kStandard, bool kLinearBeforeReset, bool kIsFixed>
struct GridBlock : ExchangedGrid<GridBlock<Element, kStandard, kLinearBeforeReset, kIsFixed>,
                                 Element, kStandard, kLinearBeforeReset, kIsFixed> {
  using Weights = ResidentWeights<Element, kGridUnits, kGridWarps, kGridRegisterChunks>;
  static constexpr int kPassUnits = Weights::kUnitsPerWarp;
  // Activations that are not known when the kernel is compiled need registers of their own: with four
  // sequences, NVRTC 12.0 spills.
  static constexpr int kBatch = kStandard || kIsFixed ? kGridBatch : kGridBatch / 2;

  static constexpr bool kIsLayered = false;

  using Grid = typename GridBlock::ExchangedGrid;
  using Grid::layer;
  using Grid::part;

  Weights weights;
  float* inputs;
  float* states;
  float* partials;  // parity of the pass, warp, gate, sequence, unit

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
  __device__ __forceinline__ void multiply_round(int pass, int count, float* sums_of_pass) const {
    in_batches<kBatch>(count, [&](int row, auto number) {
      constexpr int kCount = decltype(number)::value;
      float sums[kCount * kGridUnits][kLast - kFirst];
      weights.template multiply<kFirst, kLast, kCount>(sums, states + row * row_stride(),
                                                       row_stride(), pass);
      store_sums<kFirst, kCount>(*this, sums, row, sums_of_pass);
    });
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
  const GridPart part = GridPart::of_block(params, Block::kPassUnits);
  const Layer<Element> layer = {projection, recurrence, bias,   initial,       lengths,
                                sequence,   single,     params, part.direction};
  Block block = {{layer, part, exchange, reinterpret_cast<Carried*>(carried), {report}},
                 {layer, nullptr, nullptr, {}},
                 reinterpret_cast<float*>(shared.words),
                 nullptr,
                 nullptr};
  block.states = block.inputs + (kIsFixed ? kNumGates * kGridThreads : 0);
  block.partials = block.states + params.round_batch * block.row_stride();
  const int num_halves = params.num_passes > 1 ? 2 : 1;
  block.weights.stored =
      reinterpret_cast<WeightQuad<Element>*>(block.partials + num_halves * block.sums_per_pass());
  block.weights.overflow =
      reinterpret_cast<WeightQuad<Element>*>(overflow) + blockIdx.x * params.overflow_pieces;
  block.run();
}
