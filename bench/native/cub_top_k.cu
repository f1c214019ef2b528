// cub::DeviceTopK of one row, for ctypes: `bench/native/__init__.py` builds it, `top_k.py` calls it. Keys come
// with their indices; int8 keys with int8 values, as CUB's own benchmark has them. The results are in no order.
// Without `temporary`, only its size is computed.
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/output_ordering.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cub/device/device_topk.cuh>
#include <cuda/iterator>
#include <cuda/stream_ref>

namespace {

template <class Key, class Values, class Value>
int select(void* temporary, size_t* temporary_bytes, const void* input, void* keys, Values values,
           Value* chosen, int length, int k, bool is_largest, cudaStream_t stream) {
  namespace execution = cuda::execution;
  const auto requirements = execution::require(execution::determinism::not_guaranteed,
                                               execution::output_ordering::unsorted);
  const auto environment = cuda::std::execution::env{cuda::stream_ref{stream}, requirements};
  const auto* row = static_cast<const Key*>(input);
  auto* chosen_keys = static_cast<Key*>(keys);
  return is_largest ? cub::DeviceTopK::MaxPairs(temporary, *temporary_bytes, row, chosen_keys,
                                                values, chosen, length, k, environment)
                    : cub::DeviceTopK::MinPairs(temporary, *temporary_bytes, row, chosen_keys,
                                                values, chosen, length, k, environment);
}

}  // namespace

extern "C" int cub_top_k_float32(void* temporary, size_t* temporary_bytes, const void* input,
                                 void* values, int* indices, int length, int k, int is_largest,
                                 cudaStream_t stream) {
  return select<float>(temporary, temporary_bytes, input, values, cuda::counting_iterator<int>(0),
                       indices, length, k, is_largest != 0, stream);
}

extern "C" int cub_top_k_float16(void* temporary, size_t* temporary_bytes, const void* input,
                                 void* values, int* indices, int length, int k, int is_largest,
                                 cudaStream_t stream) {
  return select<__half>(temporary, temporary_bytes, input, values, cuda::counting_iterator<int>(0),
                        indices, length, k, is_largest != 0, stream);
}

extern "C" int cub_top_k_int8_pairs(void* temporary, size_t* temporary_bytes, const void* input,
                                    const int8_t* input_values, void* keys, int8_t* values,
                                    int length, int k, int is_largest, cudaStream_t stream) {
  return select<int8_t>(temporary, temporary_bytes, input, keys, input_values, values, length, k,
                        is_largest != 0, stream);
}
