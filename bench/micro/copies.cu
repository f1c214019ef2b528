// Ways to copy an array within the GPU's memory, to find the one at the speed of cudaMemcpyAsync.
// Either threads load and store vectors of 16 bytes, or one thread a block drives the copy engine
// through shared storage. A block owns a tile at a time: kLoads vectors a thread, or one stage of
// the copy engine's ring. The host passes 16-byte aligned arrays and a size that the tiles divide.
// Used by copies.py.
#include "common/intrinsics.cuh"

namespace micro {

struct Cached {
  static __device__ __forceinline__ uint4 load(const uint4* address) {
    return load_16_bytes(address);
  }
  static __device__ __forceinline__ void store(uint4* address, uint4 v) {
    store_16_bytes(address, v);
  }
};

// Hints that nothing is used twice.
struct Streamed {
  static __device__ __forceinline__ uint4 load(const uint4* address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
  }
  static __device__ __forceinline__ void store(uint4* address, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
  }
};

__device__ __forceinline__ UInt32 shared_address(const void* pointer) {
  return (UInt32)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ void load_stage(UInt32 stage, const unsigned char* source, UInt32 size,
                                           UInt32 mbarrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(size)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(stage),
      "l"(source), "r"(size), "r"(mbarrier)
      : "memory");
}

__device__ __forceinline__ void store_stage(unsigned char* target, UInt32 stage, UInt32 size) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
               "r"(stage), "r"(size)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void wait_loaded(UInt32 mbarrier, UInt32 parity) {
  UInt32 over = 0;
  while (!over) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(over)
        : "r"(mbarrier), "r"(parity)
        : "memory");
  }
}

}  // namespace micro

template <typename Access, int kLoads>
__global__ void copy_by_threads(const uint4* source, uint4* target, Int64 count) {
  const Int64 tile = (Int64)blockDim.x * kLoads;
  for (Int64 start = blockIdx.x * tile; start < count; start += gridDim.x * tile) {
    const Int64 first = start + threadIdx.x;
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = Access::load(source + first + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) Access::store(target + first + i * blockDim.x, v[i]);
  }
}

template <int kStages>
__global__ void copy_by_engine(const unsigned char* source, unsigned char* target, Int64 num_tiles,
                               UInt32 tile_bytes) {
  struct Storage {
    UInt64 loaded[kStages];
  };
  SHARED_STORAGE(Storage, shared);
  if (threadIdx.x) return;
  const UInt32 ring = micro::shared_address(&shared) + 128;
  for (int stage = 0; stage < kStages; ++stage) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(micro::shared_address(shared.loaded + stage))
        : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");

  const Int64 own_tiles = (num_tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto offset_of = [&](Int64 n) { return (blockIdx.x + n * gridDim.x) * tile_bytes; };
  const auto load = [&](Int64 n) {
    const UInt32 stage = n % kStages;
    micro::load_stage(ring + stage * tile_bytes, source + offset_of(n), tile_bytes,
                      micro::shared_address(shared.loaded + stage));
  };
  for (Int64 n = 0; n < kStages - 1 && n < own_tiles; ++n) load(n);
  for (Int64 n = 0; n < own_tiles; ++n) {
    const UInt32 stage = n % kStages;
    micro::wait_loaded(micro::shared_address(shared.loaded + stage), n / kStages & 1);
    micro::store_stage(target + offset_of(n), ring + stage * tile_bytes, tile_bytes);
    if (n + kStages - 1 < own_tiles) {
      // All stores but the one just begun have read their stages, so that of tile n - 1 is free.
      asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      load(n + kStages - 1);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
