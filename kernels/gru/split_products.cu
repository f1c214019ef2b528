// Computes: one step of a GRU layer of float32, or half of one: products with the state, and gates.
// Idea: matrix units multiply operands as two TF32 parts each; float32 adds up sums of 16 columns.
// Ownership: a block has the gates of kUnits hidden units of 64 sequences; 8 warps divide them.
// Requires: kStart first; then kFinish for each step, after kHalf if the reset gate comes first.
// Chosen when: the weights do not pay on the chip, and the device has fast matrices of TF32.

#include "gru/matrix_step.cuh"

template <class Element, bool kStandard, bool kLinearBeforeReset, int kPhase, int kUnits>
__global__ void __launch_bounds__(kSplitThreads, 1)
    gru_split_products(const float* projection, const Element* recurrence, const Element* bias,
                       const Element* initial, const UInt32* lengths, Element* sequence,
                       Element* single, float* states, float* operands, float* updates,
                       UInt32* counts, GruParams params) {
  using Block = MatrixStep<Element, kStandard, kLinearBeforeReset, kPhase, kUnits, false>;
  SHARED_STORAGE(typename Block::Storage, shared);
  launch_step<Block>(shared.floats, {states, operands, updates, counts},
                     {projection, recurrence, bias, initial, lengths, sequence, single, params, 0});
}
