// Computes: one step of a GRU layer of float32, or half of one: products with the state, and gates.
// Idea: matrix units multiply operands rounded to TF32, of three bytes; float32 adds up 16 columns.
// Ownership: a block has the gates of kUnits hidden units of 64 sequences; 8 warps divide them.
// Requires: kStart first; then kFinish for each step, after kHalf if the reset gate comes first.
// Chosen when: TF32 is allowed and fast, and the weights do not pay on the chip.

#include "gru/matrix_step.cuh"

template <class Element, bool kStandard, bool kLinearBeforeReset, int kPhase, int kUnits>
__global__ void __launch_bounds__(kSplitThreads, 1)
    gru_rounded_products(const float* projection, const Element* recurrence, const Element* bias,
                         const Element* initial, const UInt32* lengths, Element* sequence,
                         Element* single, float* states, float* operands, float* updates,
                         UInt32* counts, float* carried, float* weights, GruParams params) {
  using Block = MatrixStep<Element, kStandard, kLinearBeforeReset, kPhase, kUnits, true>;
  SHARED_STORAGE(typename Block::Storage, shared);
  launch_step<Block>(shared.floats, {states, operands, updates, counts, 0, carried, weights},
                     {projection, recurrence, bias, initial, lengths, sequence, single, params, 0});
}
