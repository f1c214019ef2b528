// Scales a vector and adds a value that another array may give: out = in * factor + (bias ? bias[0]
// : 0). Idea: one item a thread, so that every argument of the launch decides the result. A block
// owns blockDim.x items; dynamic shared storage is only there to be asked for. The host guarantees
// as many threads as items and arrays of that many items. Tests of the CUDA device pick it.
#include "common/types.cuh"

struct ScaleParams {
  Int32 bias_index;
  Int64 num_items;
  Float32 factor;
  UInt32 unused[3];
};

template <class Item, int kVariant>
__global__ void scale(const Item* in, const Item* bias, Item* out, ScaleParams p) {
  const Int64 i = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < p.num_items) out[i] = in[i] * p.factor + (bias ? bias[p.bias_index] : 0);
}
