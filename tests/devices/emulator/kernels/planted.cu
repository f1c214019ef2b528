// Small kernels, each with one real bug when kHasBug, and right otherwise: what the check mode must
// find. The comment "bug: name" marks every line that may be blamed for the bug of that name. Every
// thread owns the element of its index; the comments of the barriers say the rest. The host passes
// n elements, flags that are 0, and scratch that was never written. No plan picks it: it tests the
// emulator.
#include "common/intrinsics.cuh"

struct Params {
  Int32 n;
};

constexpr int kThreads = 96;

struct Exchange {
  Int32 values[kThreads];
  Int32 more[kThreads];
  UInt32 count;
};

#define KERNEL(name)      \
  template <bool kHasBug> \
  __global__ void name(const Int32* in, Int32* out, UInt32* flags, Int32* scratch, Params params)

__device__ __forceinline__ Int32 global_thread() {
  return static_cast<Int32>(blockIdx.x * blockDim.x + threadIdx.x);
}

// ---- Within a block

KERNEL(missing_barrier) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];                  // bug: missing_barrier
  if (!kHasBug) __syncthreads();             // all values are written
  out[t] = shared.values[kThreads - 1 - t];  // bug: missing_barrier
}

KERNEL(scan_without_second_barrier) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  __syncthreads();  // all values are written
  for (UInt32 step = 1; step < kThreads; step *= 2) {
    const Int32 before =
        t >= step ? shared.values[t - step] : 0;  // bug: scan_without_second_barrier
    if (!kHasBug) __syncthreads();                // all values are read
    shared.values[t] += before;                   // bug: scan_without_second_barrier
    __syncthreads();                              // all sums are written
  }
  out[t] = shared.values[t];
}

KERNEL(missing_syncwarp) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];       // bug: missing_syncwarp
  if (!kHasBug) __syncwarp();     // the warp's values are written
  out[t] = shared.values[t ^ 1];  // bug: missing_syncwarp
}

// In these collectives the lanes also wait for each other, but no memory is ordered.
template <bool HasBarrier, class Collective>
__device__ __forceinline__ void exchange_across(const Int32* in, Int32* out, Collective wait) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];  // bug: shuffle_alone vote_alone match_alone reduction_alone
  wait(t);
  if (HasBarrier) __syncwarp();   // the warp's values are written
  out[t] = shared.values[t ^ 1];  // bug: shuffle_alone vote_alone match_alone reduction_alone
}

KERNEL(shuffle_alone) {
  exchange_across<!kHasBug>(in, out, [](UInt32 t) { return __shfl_sync(kFullMask, t, 7); });
}
KERNEL(vote_alone) {
  exchange_across<!kHasBug>(in, out, [](UInt32 t) { return __ballot_sync(kFullMask, t % 2); });
}
KERNEL(match_alone) {
  exchange_across<!kHasBug>(in, out, [](UInt32 t) { return __match_any_sync(kFullMask, t % 2); });
}
KERNEL(reduction_alone) {
  exchange_across<!kHasBug>(in, out, [](UInt32 t) { return warp_max(t); });
}

// Two buffers in turn need one barrier a step; reading the one being written is a step too early.
KERNEL(stale_exchange) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  Int32 value = in[t];
  shared.values[t] = shared.more[t] = value;
  __syncthreads();  // both buffers have their first values
  for (int step = 0; step < 4; step++) {
    Int32* now = step % 2 ? shared.more : shared.values;
    Int32* next = step % 2 ? shared.values : shared.more;
    value += (kHasBug ? next : now)[(t + 1) % kThreads];  // bug: stale_exchange
    next[t] = value;                                      // bug: stale_exchange
    __syncthreads();                                      // the next step's values are written
  }
  out[t] = value;
}

KERNEL(named_barrier_of_others) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  if (t < 64) {
    shared.values[t] = in[t];  // bug: named_barrier_of_others
    named_barrier(1, 64);      // the first two warps have written, as far as they themselves go
  }
  if (!kHasBug) __syncthreads();          // all values are written
  out[t] = shared.values[(t + 32) % 64];  // bug: named_barrier_of_others
}

KERNEL(counter_never_cleared) {
  SHARED_STORAGE(Exchange, shared);
  if (!kHasBug && threadIdx.x == 0) shared.count = 0;
  __syncthreads();               // the counter is cleared
  atomicAdd(&shared.count, 1u);  // bug: counter_never_cleared
  __syncthreads();               // all have counted
  out[threadIdx.x] = static_cast<Int32>(shared.count);
}

KERNEL(tail_not_written) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  if (!kHasBug || t < kThreads - 1) shared.values[t] = in[t];
  __syncthreads();                           // all values are written
  out[t] = shared.values[kThreads - 1 - t];  // bug: tail_not_written
}

KERNEL(divergent_barrier) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  if (kHasBug && t < 40) {
    __syncthreads();  // bug: divergent_barrier
  } else {
    __syncthreads();  // bug: divergent_barrier
  }
  out[t] = shared.values[kThreads - 1 - t];
}

KERNEL(mask_of_lanes_that_left) {
  const UInt32 t = threadIdx.x;
  if (kHasBug && t % 32 >= 20) return;
  out[t] = __shfl_xor_sync(kFullMask, in[t], 1);  // bug: mask_of_lanes_that_left
}

KERNEL(shared_index_past_the_end) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  if (t == 0) shared.count = 1;
  __syncthreads();                                                 // all values are written
  out[t] = shared.more[t] = shared.values[t + (kHasBug ? 1 : 0)];  // bug: shared_index_past_the_end
}

struct Counters {
  SharedArray<UInt32, kThreads> first;
  SharedArray<UInt32, kThreads> second;
};

// An array of this type knows its size, by reference too.
KERNEL(shared_array_past_the_end) {
  SHARED_STORAGE(Counters, shared);
  const UInt32 t = threadIdx.x;
  SharedArray<UInt32, kThreads>& first = shared.first;
  first[t] = shared.second[t] = 0;
  const UInt32 place = kHasBug && t == kThreads - 1 ? kThreads : t;
  atomicAdd(&first[place], 1u);  // bug: shared_array_past_the_end
  out[t] = in[t];
}

// Through a pointer the array's size is not known; the end of the shared storage is.
KERNEL(shared_storage_past_the_end) {
  SHARED_STORAGE(Exchange, shared);
  UInt32* words = reinterpret_cast<UInt32*>(&shared);
  const int num_words = static_cast<int>(sizeof(Exchange) / sizeof(UInt32));
  words[static_cast<int>(threadIdx.x)] = 1;
  if (threadIdx.x == 5)
    words[num_words - (kHasBug ? 0 : 1)] = 2;  // bug: shared_storage_past_the_end
  out[threadIdx.x] = 0;
}

// ---- Buffers

KERNEL(read_past_the_end) {
  const Int32 i = global_thread();
  out[i] = in[kHasBug ? i + 1 : i];  // bug: read_past_the_end
}

KERNEL(write_before_the_start) {
  const Int32 i = global_thread();
  out[kHasBug ? i - 1 : i] = in[i];  // bug: write_before_the_start
}

KERNEL(accumulates_into_the_output) {
  const Int32 i = global_thread();
  if (!kHasBug) out[i] = 0;
  out[i] += in[i];  // bug: accumulates_into_the_output
}

KERNEL(scratch_not_written) {
  const Int32 i = global_thread();
  if (!kHasBug || i != 7) scratch[i] = in[i];
  out[i] = scratch[i];  // bug: scratch_not_written
}

KERNEL(writes_its_input) {
  const Int32 i = global_thread();
  out[i] = in[i];
  if (kHasBug) const_cast<Int32*>(in)[i] = 0;  // bug: writes_its_input
}

KERNEL(misaligned_helper) {
  const Int32 i = global_thread();
  const uint4 v = load_16_bytes(in + 4 * (i % 8) + (kHasBug ? 1 : 0));  // bug: misaligned_helper
  out[i] = static_cast<Int32>(v.x + v.w);
}

KERNEL(misaligned_vector) {
  const Int32 i = global_thread();
  const Int32* from = in + 2 * (i % 8) + (kHasBug ? 1 : 0);
  const int2 v = *reinterpret_cast<const int2*>(from);  // bug: misaligned_vector
  out[i] = v.x + v.y;
}

KERNEL(null_pointer) {
  const Int32 i = global_thread();
  const Int32* absent = kHasBug ? nullptr : in;
  out[i] = absent[i];  // bug: null_pointer
}

// ---- Between blocks

KERNEL(plain_sum_of_blocks) {
  const Int32 i = global_thread();
  if (kHasBug) {
    flags[3] += static_cast<UInt32>(in[i]);  // bug: plain_sum_of_blocks
  } else {
    atomicAdd(flags + 3, static_cast<UInt32>(in[i]));
  }
  out[i] = 0;
}

KERNEL(flag_without_release) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    scratch[i] = in[i];  // bug: flag_without_release
    __syncthreads();     // the whole block has written
    if (threadIdx.x == 0) {
      if (kHasBug) {
        store_relaxed(flags, 1);
      } else {
        store_release(flags, 1);
      }
    }
    out[i] = 0;
  } else {
    if (threadIdx.x == 0)
      while (load_acquire(flags) == 0) {
      }
    __syncthreads();                // block 0 has written, as far as thread 0 knows
    out[i] = scratch[threadIdx.x];  // bug: flag_without_release
  }
}

// The last block to arrive adds up what all have written. Without the barrier, thread 0 counts its
// block in before the other threads have written; without the fence, what they wrote may come after
// it.
template <bool HasBarrier, bool HasFence>
__device__ void sum_by_last_block(const Int32* in, Int32* out, UInt32* flags, Int32* scratch) {
  SHARED_STORAGE(Exchange, shared);
  const Int32 i = global_thread();
  scratch[i] = in[i];  // bug: last_block_without_barrier last_block_without_fence
  if (HasFence) __threadfence();
  if (HasBarrier) __syncthreads();  // the whole block has written
  if (threadIdx.x == 0) shared.count = atomicAdd(flags, 1u);
  __syncthreads();  // everybody sees the count
  out[i] = 0;
  if (shared.count == gridDim.x - 1) {
    __threadfence();
    Int32 sum = 0;
    for (UInt32 j = threadIdx.x; j < gridDim.x * blockDim.x; j += blockDim.x)
      sum += scratch[j];  // bug: last_block_without_barrier last_block_without_fence
    atomicAdd(flags + 1, static_cast<UInt32>(sum));
  }
}

KERNEL(last_block_without_barrier) { sum_by_last_block<!kHasBug, true>(in, out, flags, scratch); }
KERNEL(last_block_without_fence) { sum_by_last_block<true, !kHasBug>(in, out, flags, scratch); }

// A block does not inherit what the block before it on the same worker has acquired.
KERNEL(acquired_by_another_block) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      scratch[0] = in[0];  // bug: acquired_by_another_block
      store_release(flags, 1);
    }
  } else if (blockIdx.x == 1 || !kHasBug) {
    while (load_acquire(flags) == 0) {
    }
  } else {
    while (load_relaxed(flags) == 0) __nanosleep(10);
  }
  out[i] = blockIdx.x == 0 ? 0 : scratch[0];  // bug: acquired_by_another_block
}

// A fence orders what comes before it with what comes after it, not what lies between it and the store.
KERNEL(fence_before_the_write) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    if (threadIdx.x == 5) {
      if (kHasBug) __threadfence();
      scratch[0] = in[0];  // bug: fence_before_the_write
      if (!kHasBug) __threadfence();
      store_relaxed(flags, 1);
    }
  } else {
    while (load_acquire(flags) == 0) {
    }
  }
  out[i] = blockIdx.x == 0 ? 0 : scratch[0];  // bug: fence_before_the_write
}

// A thread that reads another thread's relaxed store over a released value has acquired nothing.
KERNEL(store_over_a_release) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      scratch[0] = in[0];  // bug: store_over_a_release
      store_release(flags, 1);
    }
  } else if (blockIdx.x == 1) {
    if (threadIdx.x == 0) {
      while (load_relaxed(flags) == 0) __nanosleep(10);
      if (kHasBug) {
        store_relaxed(flags, 2);
      } else {
        atomicAdd(flags, 1u);
      }
    }
  } else {
    while (load_acquire(flags) < 2) {
    }
  }
  out[i] = blockIdx.x < 2 ? 0 : scratch[0];  // bug: store_over_a_release
}

KERNEL(cluster_reads_too_late) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  cluster_barrier();  // both blocks have written
  out[global_thread()] =
      map_shared(shared.values, cluster_rank() ^ 1)[t];  // bug: cluster_reads_too_late
  if (!kHasBug) cluster_barrier();                       // both have read
  shared.values[t] = 0;                                  // bug: cluster_reads_too_late
}

KERNEL(cluster_reads_after_the_end) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  cluster_barrier();  // both blocks have written
  out[global_thread()] =
      map_shared(shared.values, cluster_rank() ^ 1)[t];  // bug: cluster_reads_after_the_end
  if (!kHasBug) cluster_barrier();                       // both have read before either ends
}

// ---- Correct code that is easily taken for wrong; none of it has a bug.

KERNEL(warp_then_release) {
  const Int32 i = global_thread();
  if (threadIdx.x < 32) {
    if (blockIdx.x == 0) {
      scratch[i] = in[i];
      __syncwarp();  // the warp has written
      if (threadIdx.x == 0) store_release(flags, 1);
      out[i] = 0;
    } else {
      if (threadIdx.x == 0)
        while (load_acquire(flags) == 0) {
        }
      __syncwarp();  // lane 0 has seen the flag
      out[i] = scratch[threadIdx.x];
    }
  }
}

KERNEL(relaxed_poll_then_fence) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    if (threadIdx.x == 5) {
      scratch[0] = in[0];
      __threadfence();
      store_relaxed(flags, 1);
    }
    out[i] = 0;
  } else {
    while (load_relaxed(flags) == 0) __nanosleep(10);
    __threadfence();
    out[i] = scratch[0];
  }
}

// A thread's relaxed store after its own release to the same address passes on that release.
KERNEL(store_after_its_own_release) {
  const Int32 i = global_thread();
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      scratch[0] = in[0];
      store_release(flags, 1);
      store_relaxed(flags, 2);
    }
  } else {
    while (load_acquire(flags) < 2) {
    }
  }
  out[i] = blockIdx.x == 0 ? 0 : scratch[0];
}

// One thread of a warp counts for all lanes, and tells them by a shuffle; the barrier orders the data.
KERNEL(place_by_shuffle) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  if (t == 0) shared.count = 0;
  __syncthreads();  // the counter is clear
  UInt32 first = 0;
  if (t % 32 == 0) first = atomicAdd(&shared.count, 32u);
  const UInt32 place = __shfl_sync(kFullMask, first, 0) + t % 32;
  shared.values[place] = 1;
  __syncthreads();  // every place is written
  out[global_thread()] = shared.values[t] + in[global_thread()];
}

// Threads that end while others wait: the first end completes the warp collective, the second the
// barrier.
KERNEL(completed_by_an_exit) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  shared.values[t] = in[t];
  out[t] = 0;
  if (t == 40 || t == 70) {
    for (int i = 0; i < (t == 40 ? 2 : 20); i++) __nanosleep(10);  // all others wait by now
    return;
  }
  Int32 neighbour = 0;
  if (t / 32 == 1) {
    __syncwarp();  // lanes 32 to 63 but for the one that ended
    neighbour = shared.values[t == 32 || t == 41 ? t : t - 1];
  }
  __syncthreads();  // all but those that ended
  out[t] = neighbour + shared.values[(t + 41) % 64 == 40 ? 0 : (t + 41) % 64];
}

__device__ const Int32 kTable[] = {3, 1, 4, 1, 5, 9, 2, 6};

KERNEL(reads_constants) {
  const Int32 i = global_thread();
  Int32 local[8];
  for (int j = 0; j < 8; j++) local[j] = kTable[(i + j) % 8] * in[i];
  out[i] = local[i % 8] + params.n;
}

// A compiler turns each loop into one call of the C library.
KERNEL(cleared_and_copied_in_one_go) {
  SHARED_STORAGE(Exchange, shared);
  const UInt32 t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < kThreads; i++) shared.values[i] = 0;
    for (int i = 0; i < kThreads; i++) shared.more[i] = in[i];
  }
  __syncthreads();  // everything is written
  out[t] = shared.values[t] + shared.more[kThreads - 1 - t];
}

KERNEL(many_blocks) { sum_by_last_block<true, true>(in, out, flags, scratch); }

KERNEL(computes_for_ever) {
  UInt32 value = threadIdx.x;
  if (kHasBug) {
    for (;;) asm volatile("" : "+r"(value));
  }
  out[global_thread()] = value;
}

KERNEL(runs_for_ever) {
  if (kHasBug) {
    volatile const UInt32* flag = flags;
    while (*flag == 0) {
    }
  }
  out[global_thread()] = 0;
}
