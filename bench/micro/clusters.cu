// What clusters of blocks cost: their barrier, a load from another block's shared storage, a pushed
// exchange. In the exchange every block stores its slice into all blocks' shared storage
// asynchronously; the stores count bytes on the receiver's mbarrier, on which alone it waits. Two
// buffers and two mbarriers alternate. A block owns its shared storage, and pushes step t + 2 into
// a buffer only after it has received all of t + 1, which each block pushed after it had read all
// of t. The host passes a width that 4 * kBlocks divides. Used by clusters.py.
#include "common/intrinsics.cuh"

constexpr Int32 kMaxPolls = 1 << 22;

namespace micro {

__device__ __forceinline__ UInt64 nanoseconds() {
  UInt64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ UInt32 shared_address(const void* pointer) {
  return (UInt32)__cvta_generic_to_shared(pointer);
}

// The same place in the shared storage of another block of the cluster.
__device__ __forceinline__ UInt32 in_block(UInt32 address, UInt32 rank) {
  UInt32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

__device__ __forceinline__ void cluster_barrier_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::
                   : "memory");
}

__device__ __forceinline__ void push_16_bytes(UInt32 target, uint4 v, UInt32 mbarrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(target),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(mbarrier)
      : "memory");
}

__device__ __forceinline__ bool phase_is_over(UInt32 mbarrier, UInt32 parity) {
  UInt32 over;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(over)
      : "r"(mbarrier), "r"(parity)
      : "memory");
  return over;
}

}  // namespace micro

template <int kBlocks, bool kRelaxed>
__global__ void __cluster_dims__(kBlocks, 1, 1) barrier_rounds(Int32 num_rounds, Int64* clocks) {
  cluster_barrier();  // All blocks start together.
  const Int64 start = clock64();
  for (Int32 round = 0; round < num_rounds; ++round) {
    if constexpr (kRelaxed) {
      micro::cluster_barrier_relaxed();  // The barrier that is timed.
    } else {
      cluster_barrier();  // The barrier that is timed.
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) clocks[0] = clock64() - start;
}

// Word 0 of the other block is 0, so every load depends on the one before.
template <int kBlocks>
__global__ void __cluster_dims__(kBlocks, 1, 1)
    remote_load(UInt32 rank, Int32 num_rounds, Int64* clocks) {
  struct Storage {
    UInt32 zero;
  };
  SHARED_STORAGE(Storage, shared);
  if (threadIdx.x == 0) shared.zero = 0;
  cluster_barrier();  // Every block's word is written before any is read.
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    const UInt32 address = micro::in_block(micro::shared_address(&shared.zero), rank);
    UInt32 offset = 0;
    const Int64 start = clock64();
    for (Int32 round = 0; round < num_rounds; ++round) {
      UInt32 value;
      asm volatile("ld.shared::cluster.u32 %0, [%1];"
                   : "=r"(value)
                   : "r"(address + offset)
                   : "memory");
      offset += value;
    }
    clocks[0] = clock64() - start + offset;
  }
  cluster_barrier();  // No block ends while its storage may be read.
}

template <int kBlocks>
__global__ void __cluster_dims__(kBlocks, 1, 1)
    push_exchange(Int32 width, Int32 num_steps, Int64* result, UInt32* gave_up) {
  extern __shared__ __align__(16) unsigned char storage[];
  UInt64* mbarriers = reinterpret_cast<UInt64*>(storage);
  UInt32* buffers = reinterpret_cast<UInt32*>(storage + 16);
  const UInt32 rank = cluster_rank();
  const Int32 slice_vectors = width / 4 / kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(micro::shared_address(mbarriers + i))
          : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();  // Every block's mbarriers exist before any block pushes.

  UInt32 mixed = 0;
  const UInt64 start = micro::nanoseconds();
  for (Int32 step = 0; step < num_steps; ++step) {
    UInt32* buffer = buffers + (step & 1) * width;
    const UInt32 mbarrier = micro::shared_address(mbarriers + (step & 1));
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier),
                   "r"(width * 4)
                   : "memory");
    }
    for (Int32 i = threadIdx.x; i < slice_vectors * kBlocks; i += blockDim.x) {
      const UInt32 target = i / slice_vectors;
      const UInt32 place =
          micro::shared_address(buffer + (rank * slice_vectors + i % slice_vectors) * 4);
      micro::push_16_bytes(micro::in_block(place, target), make_uint4(step, i, rank, mixed),
                           micro::in_block(mbarrier, target));
    }
    bool late = true;
    for (Int32 poll = 0; poll < kMaxPolls && late; ++poll)
      late = !micro::phase_is_over(mbarrier, step >> 1 & 1);
    for (Int32 i = threadIdx.x; i < width / 4; i += blockDim.x) mixed += buffer[i * 4];
    // This block has read all of the step before any of its threads pushes the next one.
    if (__syncthreads_or(late)) {
      *gave_up = 1;
      break;
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) result[0] = micro::nanoseconds() - start;
  if (mixed == 0x9e3779b9u) result[1] = mixed;
  cluster_barrier();  // No block ends while others may push into it.
}
