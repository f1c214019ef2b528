// The functions of librmm.so that RAFT's top-k calls, over the CUDA runtime that the program loads: librmm.so
// carries a runtime of its own, which needs a driver. Memory is cudaMalloc's, as it is by default; limits are
// not kept.
#include <cuda_runtime_api.h>

#include <memory>
#include <new>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/runtime_shutdown.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <utility>

RMM_NAMESPACE_BEGIN

cuda_device_id get_current_cuda_device() {
  int number = 0;
  cudaGetDevice(&number);
  return cuda_device_id{number};
}

cuda_stream_view::cuda_stream_view(cudaStream_t stream) noexcept : stream_{stream} {}
cuda_stream_view::operator cuda::stream_ref() const noexcept { return stream_; }

namespace detail {
void register_process_exit_hook() noexcept {}  // nothing outlives the runtime
}  // namespace detail

namespace mr {

void* cuda_memory_resource::allocate_sync(std::size_t bytes, std::size_t) {
  void* place = nullptr;
  if (bytes && cudaMalloc(&place, bytes) != cudaSuccess) throw std::bad_alloc{};
  return place;
}
void cuda_memory_resource::deallocate_sync(void* place, std::size_t, std::size_t) noexcept {
  cudaFree(place);
}
void* cuda_memory_resource::allocate(cuda::stream_ref, std::size_t bytes, std::size_t alignment) {
  return allocate_sync(bytes, alignment);
}
void cuda_memory_resource::deallocate(cuda::stream_ref, void* place, std::size_t bytes,
                                      std::size_t alignment) noexcept {
  deallocate_sync(place, bytes, alignment);
}
bool cuda_memory_resource::operator==(const cuda_memory_resource&) const noexcept { return true; }

namespace detail {

limiting_resource_adaptor_impl::limiting_resource_adaptor_impl(
    cuda::mr::any_resource<cuda::mr::device_accessible> upstream, std::size_t limit,
    std::size_t alignment)
    : upstream_mr_{std::move(upstream)},
      allocation_limit_{limit},
      allocated_bytes_{0},
      alignment_{alignment} {}
void* limiting_resource_adaptor_impl::allocate(cuda::stream_ref stream, std::size_t bytes,
                                               std::size_t alignment) {
  return upstream_mr_.allocate(stream, bytes, alignment);
}
void limiting_resource_adaptor_impl::deallocate(cuda::stream_ref stream, void* place,
                                                std::size_t bytes, std::size_t alignment) noexcept {
  upstream_mr_.deallocate(stream, place, bytes, alignment);
}
void* limiting_resource_adaptor_impl::allocate_sync(std::size_t bytes, std::size_t alignment) {
  return upstream_mr_.allocate_sync(bytes, alignment);
}
void limiting_resource_adaptor_impl::deallocate_sync(void* place, std::size_t bytes,
                                                     std::size_t alignment) noexcept {
  upstream_mr_.deallocate_sync(place, bytes, alignment);
}

}  // namespace detail

limiting_resource_adaptor::limiting_resource_adaptor(
    cuda::mr::any_resource<cuda::mr::device_accessible> upstream, std::size_t limit,
    std::size_t alignment)
    : shared_base(cuda::mr::make_shared_resource<detail::limiting_resource_adaptor_impl>(
          std::move(upstream), limit, alignment)) {}

}  // namespace mr

device_buffer::device_buffer(std::size_t size, cuda::stream_ref stream,
                             cuda::mr::any_resource<cuda::mr::device_accessible> resource)
    : device_buffer(size, CUDA_ALLOCATION_ALIGNMENT, stream, std::move(resource)) {}
device_buffer::device_buffer(std::size_t size, std::size_t alignment, cuda::stream_ref stream,
                             cuda::mr::any_resource<cuda::mr::device_accessible> resource)
    : _size{size},
      _alignment{alignment},
      _capacity{size},
      _stream{stream},
      _mr{std::move(resource)} {
  if (size) _data = _mr.allocate(stream, size, alignment);
}
device_buffer::~device_buffer() noexcept {
  if (_data) _mr.deallocate(_stream, _data, _capacity, _alignment);
}

RMM_NAMESPACE_END
