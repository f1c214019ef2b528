// What clusters of blocks cost: their barrier, a load from another block's shared storage, an
// exchange. In the exchange every block pushes its slice of a vector into the shared storage of all
// blocks, which wait on an mbarrier of their own alone; two buffers and two mbarriers alternate. A
// block owns its shared storage, and pushes step t + 2 into a buffer only after it has received all
// of t + 1, which each block pushed after it had read all of t. The host passes a width that 4 *
// kBlocks divides. Used by clusters.py.
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

// kSuspends lets the hardware put the thread to sleep for a while.
template <bool kSuspends>
__device__ __forceinline__ bool phase_is_over(UInt32 mbarrier, UInt32 parity) {
  UInt32 over;
  if constexpr (kSuspends) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(over)
        : "r"(mbarrier), "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(over)
        : "r"(mbarrier), "r"(parity)
        : "memory");
  }
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

// Ways to give a slice to every block of the cluster, and to wait for all slices. A warp pushes to
// one block after the other, but for `kSpreads`: then each thread takes vectors of any block.
// `kArrivals` is what an mbarrier counts besides bytes.
struct AsyncStores {
  static constexpr bool kSpreads = false;
  static constexpr bool kStages = false;
  static constexpr bool kSuspends = true;
  static constexpr UInt32 kArrivals = 1;
  static __device__ __forceinline__ void push(UInt32 target, uint4 v, const uint4*, Int32 count,
                                              UInt32 mbarrier) {
    for (Int32 i = threadIdx.x % 32; i < count; i += 32) {
      micro::push_16_bytes(target + 16 * i, v, mbarrier);
    }
  }
};

struct AsyncStoresTested : AsyncStores {
  static constexpr bool kSuspends = false;
};

struct AsyncStoresOfAll : AsyncStores {
  static constexpr bool kSpreads = true;
};

// One copy by the copy engine out of this block's own shared storage.
struct BulkCopy {
  static constexpr bool kSpreads = false;
  static constexpr bool kStages = true;
  static constexpr bool kSuspends = true;
  static constexpr UInt32 kArrivals = 1;
  static __device__ __forceinline__ void push(UInt32 target, uint4, const uint4* staged,
                                              Int32 count, UInt32 mbarrier) {
    if (threadIdx.x % 32 == 0) {
      asm volatile(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(target),
          "r"(micro::shared_address(staged)), "r"(count * 16), "r"(mbarrier)
          : "memory");
    }
  }
};

// Ordinary stores, then one arrival that releases them.
struct StoresAndArrival {
  static constexpr bool kSpreads = false;
  static constexpr bool kStages = false;
  static constexpr bool kSuspends = true;
  static constexpr UInt32 kArrivals = 0;  // one from each block instead
  static __device__ __forceinline__ void push(UInt32 target, uint4 v, const uint4*, Int32 count,
                                              UInt32 mbarrier) {
    for (Int32 i = threadIdx.x % 32; i < count; i += 32) {
      asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(target + 16 * i),
                   "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                   : "memory");
    }
    __syncwarp();  // The arrival releases the stores of all lanes.
    if (threadIdx.x % 32 == 0) {
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mbarrier)
                   : "memory");
    }
  }
};

template <int kBlocks, typename Push>
__global__ void __cluster_dims__(kBlocks, 1, 1)
    push_exchange(Int32 width, Int32 num_steps, Int64* result, UInt32* gave_up) {
  extern __shared__ __align__(16) unsigned char storage[];
  UInt64* mbarriers = reinterpret_cast<UInt64*>(storage);
  uint4* buffers = reinterpret_cast<uint4*>(storage + 16);  // two vectors, then two staged slices
  const UInt32 rank = cluster_rank();
  const Int32 num_vectors = width / 4;
  const Int32 slice = num_vectors / kBlocks;
  const UInt32 num_arrivals = Push::kArrivals ? Push::kArrivals : kBlocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(micro::shared_address(mbarriers + i)),
          "r"(num_arrivals)
          : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();  // Every block's mbarriers exist before any block pushes.

  UInt32 mixed = 0;
  const UInt64 start = micro::nanoseconds();
  for (Int32 step = 0; step < num_steps; ++step) {
    uint4* buffer = buffers + (step & 1) * num_vectors;
    uint4* staged = buffers + 2 * num_vectors + (step & 1) * slice;
    const UInt32 mbarrier = micro::shared_address(mbarriers + (step & 1));
    const uint4 v = make_uint4(step, threadIdx.x, rank, mixed);
    if (Push::kArrivals && threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier),
                   "r"(width * 4)
                   : "memory");
    }
    if constexpr (Push::kStages) {
      for (Int32 i = threadIdx.x; i < slice; i += blockDim.x) staged[i] = v;
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();  // The slice is staged before the copy engine reads it.
    }
    const UInt32 place = micro::shared_address(buffer + rank * slice);
    if constexpr (Push::kSpreads) {
      for (Int32 i = threadIdx.x; i < slice * kBlocks; i += blockDim.x) {
        const UInt32 target = i / slice;
        micro::push_16_bytes(micro::in_block(place + 16 * (i % slice), target), v,
                             micro::in_block(mbarrier, target));
      }
    } else {
      for (UInt32 target = threadIdx.x / 32; target < kBlocks; target += blockDim.x / 32) {
        Push::push(micro::in_block(place, target), v, staged, slice,
                   micro::in_block(mbarrier, target));
      }
    }
    bool late = true;
    for (Int32 poll = 0; poll < kMaxPolls && late; ++poll) {
      late = !micro::phase_is_over<Push::kSuspends>(mbarrier, step >> 1 & 1);
    }
    for (Int32 i = threadIdx.x; i < num_vectors; i += blockDim.x) mixed += buffer[i].x;
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
