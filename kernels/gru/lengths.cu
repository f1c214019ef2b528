// Computes: the lengths of a GRU layer's sequences as UInt32, from integers of any type.
// Idea: a negative length counts as 0, one above the number of steps as that number.
// Ownership: a thread owns lengths that are a grid apart; nothing is shared.
// Requires: a stride between the lengths that is the same for all, of either sign or 0.
// Chosen when: the lengths are not UInt32, or blocks have one thread; others are copied.

#include "common/lengths.cuh"

struct LengthsParams {
  Int64 num_lengths;
  Int64 stride;  // in lengths
  Int64 num_steps;
  Int32 length_bytes;
  Int32 length_is_signed;
};

__global__ void gru_lengths(const void* lengths, UInt32* converted, LengthsParams p) {
  const Int64 num_threads = static_cast<Int64>(gridDim.x) * blockDim.x;
#pragma unroll 1  // there are few
  for (Int64 n = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x; n < p.num_lengths;
       n += num_threads) {
    const UInt64 bits = load_length(lengths, n * p.stride, p.length_bytes);
    converted[n] =
        static_cast<UInt32>(clamp_length(bits, p.length_bytes, p.length_is_signed, p.num_steps));
  }
}
