// cub::DeviceTopK of one row, for ctypes: `bench/native/__init__.py` builds it, `top_k.py` calls it.
// The results are in no order. Without `temporary`, only its size is computed.
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/output_ordering.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cub/device/device_topk.cuh>
#include <cuda/iterator>
#include <cuda/stream_ref>

namespace {

template <class Value>
int select(void* temporary, size_t* temporary_bytes, const void* input, void* values, int* indices,
           int length, int k, bool is_largest, cudaStream_t stream) {
  namespace execution = cuda::execution;
  const auto requirements = execution::require(execution::determinism::not_guaranteed,
                                               execution::output_ordering::unsorted);
  const auto environment = cuda::std::execution::env{cuda::stream_ref{stream}, requirements};
  const auto* keys = static_cast<const Value*>(input);
  auto* chosen = static_cast<Value*>(values);
  const cuda::counting_iterator<int> places(0);
  return is_largest ? cub::DeviceTopK::MaxPairs(temporary, *temporary_bytes, keys, chosen, places,
                                                indices, length, k, environment)
                    : cub::DeviceTopK::MinPairs(temporary, *temporary_bytes, keys, chosen, places,
                                                indices, length, k, environment);
}

}  // namespace

extern "C" int cub_top_k_float32(void* temporary, size_t* temporary_bytes, const void* input,
                                 void* values, int* indices, int length, int k, int is_largest,
                                 cudaStream_t stream) {
  return select<float>(temporary, temporary_bytes, input, values, indices, length, k,
                       is_largest != 0, stream);
}

extern "C" int cub_top_k_float16(void* temporary, size_t* temporary_bytes, const void* input,
                                 void* values, int* indices, int length, int k, int is_largest,
                                 cudaStream_t stream) {
  return select<__half>(temporary, temporary_bytes, input, values, indices, length, k,
                        is_largest != 0, stream);
}
