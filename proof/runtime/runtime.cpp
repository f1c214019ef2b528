// A stand-in for the CUDA runtime's library: the device's memory is the host's, every call is done when it
// returns, and a launch goes to a function of Python's. A program that needs more of the runtime does not load.
#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>
#include <vector>

namespace {

struct Kernel {
  const void* host;  // the address by which the program names it
  const char* name;
  const void* image;  // the fat binary that it is in
};
struct Facts {
  int resident_blocks, registers, shared_bytes, local_bytes, max_threads;
};
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// Python's functions; each returns 0, or 1 for an error that Python keeps.
struct Host {
  int (*launch)(const char* name, const void* image, const unsigned* shape, size_t shared_bytes,
                unsigned cluster_blocks, int is_cooperative, void** arguments);
  int (*allocate)(void** place, size_t bytes);
  int (*release)(void* place);
  // A copy within the device, or a fill if there is no source.
  int (*transfer)(const void* to, const void* from, size_t bytes);
  int (*describe)(const char* name, const void* image, int threads, size_t shared_bytes,
                  Facts* facts);
};
// Facts about the device, in the order of the fields of `_Device` in library.py.
struct Device {
  int capability, multiprocessors, threads_per_multiprocessor, blocks_per_multiprocessor;
  int shared_bytes_per_block, shared_bytes_per_multiprocessor, reserved_shared_bytes;
  int registers, l2_bytes, clock_khz;
};

Host host;
Device device;
std::vector<Kernel> kernels;
std::vector<const void*> images;
std::vector<Configuration> configurations;
cudaError_t last_error = cudaSuccess;

constexpr int kDefaultSharedBytes = 48 << 10;
constexpr size_t kMemoryBytes = 141ull * 1000 * 1000 * 1000;

cudaError_t done(int failed, cudaError_t error) {
  if (failed) last_error = error;
  return failed ? error : cudaSuccess;
}
const Kernel* kernel_of(const void* function) {
  for (const Kernel& kernel : kernels)
    if (kernel.host == function) return &kernel;
  return nullptr;
}
cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments,
                   size_t shared_bytes, unsigned cluster_blocks = 1, int is_cooperative = 0) {
  const Kernel* kernel = kernel_of(function);
  if (!kernel) return done(1, cudaErrorInvalidDeviceFunction);
  const unsigned shape[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
  return done(host.launch(kernel->name, kernel->image, shape, shared_bytes, cluster_blocks,
                          is_cooperative, arguments),
              cudaErrorLaunchFailure);
}
bool describe(const void* function, int threads, size_t shared_bytes, Facts* facts) {
  const Kernel* kernel = kernel_of(function);
  return kernel && !host.describe(kernel->name, kernel->image, threads, shared_bytes, facts);
}
// Anything that is an address, for streams and events, which have no state here.
void* token() {
  static char place;
  return &place;
}

}  // namespace

extern "C" {

void stand_in_connect(const Host* functions, const Device* limits) {
  host = *functions, device = *limits, last_error = cudaSuccess;
}

// What the compiler puts into a program: its fat binaries and kernels, and `kernel<<<grid, block>>>()`.
void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* data;
    void* file;
  };
  images.push_back(static_cast<Wrapper*>(wrapper)->data);
  return reinterpret_cast<void**>(images.size());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** image, const char* function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  kernels.push_back({function, name, images[reinterpret_cast<size_t>(image) - 1]});
}
// Variables of the device are not known to the host here: a program that asks for one's address does not load.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  const Configuration found = configurations.back();
  configurations.pop_back();
  *grid = found.grid, *block = found.block, *shared_bytes = found.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = found.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared_bytes);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t) {
  return launch(function, grid, block, arguments, shared_bytes);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes, cudaStream_t) {
  return launch(function, grid, block, arguments, shared_bytes, 1, 1);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  unsigned cluster_blocks = 1;
  int is_cooperative = 0;
  for (unsigned n = 0; n < config->numAttrs; ++n) {
    const cudaLaunchAttribute& attribute = config->attrs[n];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& size = attribute.val.clusterDim;
      cluster_blocks = size.x * size.y * size.z;
    } else if (attribute.id == cudaLaunchAttributeCooperative) {
      is_cooperative = attribute.val.cooperative;
    } else if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization) {
      return done(1, cudaErrorNotSupported);
    }
  }
  return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                cluster_blocks, is_cooperative);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void* function) {
  Facts facts;
  if (!describe(function, 32, 0, &facts)) return done(1, cudaErrorInvalidDeviceFunction);
  memset(found, 0, sizeof *found);
  found->ptxVersion = found->binaryVersion = device.capability;
  found->numRegs = facts.registers;
  found->sharedSizeBytes = facts.shared_bytes;
  found->localSizeBytes = facts.local_bytes;
  found->maxThreadsPerBlock = facts.max_threads;
  found->maxDynamicSharedSizeBytes = kDefaultSharedBytes - facts.shared_bytes;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned) {
  Facts facts;
  if (!describe(function, threads, shared_bytes, &facts))
    return done(1, cudaErrorInvalidDeviceFunction);
  *blocks = facts.resident_blocks;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}

cudaError_t cudaMalloc(void** place, size_t bytes) {
  return done(host.allocate(place, bytes), cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* place) { return done(host.release(place), cudaErrorInvalidValue); }
cudaError_t cudaMallocAsync(void** place, size_t bytes, cudaStream_t) {
  return cudaMalloc(place, bytes);
}
cudaError_t cudaFreeAsync(void* place, cudaStream_t) { return cudaFree(place); }
cudaError_t cudaMemsetAsync(void* place, int value, size_t bytes, cudaStream_t) {
  memset(place, value, bytes);
  return done(host.transfer(place, nullptr, bytes), cudaErrorInvalidValue);
}
cudaError_t cudaMemset(void* place, int value, size_t bytes) {
  return cudaMemsetAsync(place, value, bytes, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  memcpy(to, from, bytes);
  if (kind != cudaMemcpyDeviceToDevice) return cudaSuccess;
  return done(host.transfer(to, from, bytes), cudaErrorInvalidValue);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* number) { return *number = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const auto is = [=](int found) { return *value = found, cudaSuccess; };
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return is(device.capability / 10);
    case cudaDevAttrComputeCapabilityMinor:
      return is(device.capability % 10);
    case cudaDevAttrMultiProcessorCount:
      return is(device.multiprocessors);
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return is(device.threads_per_multiprocessor);
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return is(device.blocks_per_multiprocessor);
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return is(kDefaultSharedBytes);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return is(device.shared_bytes_per_block);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return is(device.shared_bytes_per_multiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return is(device.reserved_shared_bytes);
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return is(device.registers);
    case cudaDevAttrL2CacheSize:
      return is(device.l2_bytes);
    case cudaDevAttrClockRate:
      return is(device.clock_khz);
    case cudaDevAttrWarpSize:
      return is(32);
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return is(1024);
    case cudaDevAttrMaxBlockDimZ:
      return is(64);
    case cudaDevAttrMaxGridDimX:
      return is(0x7fffffff);
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return is(0xffff);
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
      return is(1);
    default:
      return done(1, cudaErrorNotSupported);
  }
}

// The properties that are attributes, too.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int number) {
  memset(found, 0, sizeof *found);
  const struct {
    int* place;
    cudaDeviceAttr attribute;
  } fields[] = {
      {&found->major, cudaDevAttrComputeCapabilityMajor},
      {&found->minor, cudaDevAttrComputeCapabilityMinor},
      {&found->multiProcessorCount, cudaDevAttrMultiProcessorCount},
      {&found->maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor},
      {&found->maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor},
      {&found->maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock},
      {&found->maxThreadsDim[0], cudaDevAttrMaxBlockDimX},
      {&found->maxThreadsDim[1], cudaDevAttrMaxBlockDimY},
      {&found->maxThreadsDim[2], cudaDevAttrMaxBlockDimZ},
      {&found->maxGridSize[0], cudaDevAttrMaxGridDimX},
      {&found->maxGridSize[1], cudaDevAttrMaxGridDimY},
      {&found->maxGridSize[2], cudaDevAttrMaxGridDimZ},
      {&found->regsPerBlock, cudaDevAttrMaxRegistersPerBlock},
      {&found->regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor},
      {&found->warpSize, cudaDevAttrWarpSize},
      {&found->l2CacheSize, cudaDevAttrL2CacheSize},
      {&found->cooperativeLaunch, cudaDevAttrCooperativeLaunch},
      {&found->unifiedAddressing, cudaDevAttrUnifiedAddressing},
      {&found->memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported},
  };
  for (const auto& field : fields) cudaDeviceGetAttribute(field.place, field.attribute, number);
  strcpy(found->name, "stand-in");
  found->totalGlobalMem = kMemoryBytes;
  found->sharedMemPerBlock = kDefaultSharedBytes;
  found->sharedMemPerBlockOptin = device.shared_bytes_per_block;
  found->sharedMemPerMultiprocessor = device.shared_bytes_per_multiprocessor;
  found->reservedSharedMemPerBlock = device.reserved_shared_bytes;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  return *unused = *total = kMemoryBytes, cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error ? "error of the stand-in" : "cudaSuccess";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = static_cast<cudaStream_t>(token()), cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = *greatest = 0, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = static_cast<cudaEvent_t>(token()), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

// A function of the driver: PyTorch asks whether the device is in use.
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  return *flags = 0, *is_active = 1, 0;
}
}
