// raft::matrix::select_k, sorted, for ctypes: `bench/native/__init__.py` builds it, `top_k.py` calls it.
#include <cuda_fp16.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <raft/core/device_mdspan.hpp>
#include <raft/core/resource/cuda_stream.hpp>
#include <raft/core/resources.hpp>
#include <raft/matrix/select_k.cuh>

namespace {

template <class Value>
int select(void* handle, const void* input, void* values, int64_t* indices, int64_t num_rows,
           int64_t length, int64_t k, bool is_largest, cudaStream_t stream) {
  auto& resources = *static_cast<raft::resources*>(handle);
  try {
    raft::resource::set_cuda_stream(resources, cuda::stream_ref{stream});
    raft::matrix::select_k<Value, int64_t>(
        resources,
        raft::make_device_matrix_view<const Value, int64_t>(static_cast<const Value*>(input),
                                                            num_rows, length),
        std::nullopt,
        raft::make_device_matrix_view<Value, int64_t>(static_cast<Value*>(values), num_rows, k),
        raft::make_device_matrix_view<int64_t, int64_t>(indices, num_rows, k), !is_largest,
        /*sorted=*/true);
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}

}  // namespace

// Streams and memory of RAFT, made once.
extern "C" void* raft_resources() {
  try {
    return new raft::resources;
  } catch (const std::exception&) {
    return nullptr;
  }
}

extern "C" int raft_select_k_float32(void* handle, const void* input, void* values,
                                     int64_t* indices, int64_t num_rows, int64_t length, int64_t k,
                                     int is_largest, cudaStream_t stream) {
  return select<float>(handle, input, values, indices, num_rows, length, k, is_largest != 0,
                       stream);
}

extern "C" int raft_select_k_float16(void* handle, const void* input, void* values,
                                     int64_t* indices, int64_t num_rows, int64_t length, int64_t k,
                                     int is_largest, cudaStream_t stream) {
  return select<half>(handle, input, values, indices, num_rows, length, k, is_largest != 0, stream);
}
