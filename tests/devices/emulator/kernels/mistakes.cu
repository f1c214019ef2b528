// One mistake each: what the runtime itself diagnoses, without observing memory accesses.
// The comment at the end of a line is how the tests find its number.
// Every thread runs the whole kernel.
// The host passes one buffer and a number.
// No plan picks it: it tests the emulator.
#include "common/intrinsics.cuh"

struct Params {
  Int32 n;
};

__global__ void divergent_barrier(Int32* out, Params params) {
  if (threadIdx.x < static_cast<UInt32>(params.n)) {
    __syncthreads();  // first side
  } else {
    __syncthreads();  // second side
  }
  out[threadIdx.x] = 1;
}

__global__ void mixed_barriers(Int32* out, Params params) {
  if (threadIdx.x < static_cast<UInt32>(params.n)) {
    __syncthreads();  // plain
  } else {
    out[0] = __syncthreads_or(1);  // voting
  }
}

__global__ void exit_before_barrier(Int32* out, Params params) {
  if (threadIdx.x >= static_cast<UInt32>(params.n)) return;
  __syncthreads();  // after the exit
  out[threadIdx.x] = 1;
}

__global__ void exit_while_others_wait(Int32* out, Params params) {
  if (threadIdx.x < static_cast<UInt32>(params.n)) __syncthreads();  // some wait
  out[threadIdx.x] = 1;
}

__global__ void wrong_mask(Int32* out, Params params) {
  out[threadIdx.x] = __shfl_sync(static_cast<UInt32>(params.n), 1, 0);  // not my mask
}

__global__ void mixed_collectives(Int32* out, Params params) {
  if (threadIdx.x < static_cast<UInt32>(params.n)) {
    out[threadIdx.x] = __shfl_sync(kFullMask, 1, 0);  // shuffle
  } else {
    __syncwarp();  // sync
  }
}

__global__ void cyclic_masks(Int32* out, Params params) {
  if (threadIdx.x == 0) __syncwarp(0x3);  // zero waits for one
  if (threadIdx.x == 1) __syncwarp(0x6);  // one waits for two
  if (threadIdx.x == 2) __syncwarp(0x5);  // two waits for zero
}

__global__ void mutual_masks(Int32* out, Params params) {
  if (threadIdx.x == 0) __syncwarp(0x3);  // first of a pair
  if (threadIdx.x == 1) __syncwarp(0x7);  // second of a pair
}

__global__ void deadlock(Int32* out, Params params) {
  if (threadIdx.x < 32) {
    named_barrier(1, 64);  // half of the block
  } else {
    named_barrier(2, 64);  // the other half
  }
}

__global__ void endless_polling(const UInt32* flag, Params params) {
  while (load_acquire(flag) == 0) {  // never set
  }
}

__global__ void failing_assertion(Int32* out, Params params) {
  assert(threadIdx.x < static_cast<UInt32>(params.n));  // too small
}

__global__ void trap(Int32* out, Params params) {
  if (threadIdx.x == 5) __trap();  // by hand
}

struct Storage {
  Int32 values[32];
};

__global__ void past_shared_storage(Int32* out, Params params) {
  SHARED_STORAGE(Storage, shared);  // storage of 128 bytes
  shared.values[params.n] = 1;
  out[threadIdx.x] = shared.values[threadIdx.x];
}

template <int NumBytes>
__global__ void large_local(Int32* out, Params params) {
  volatile char local[NumBytes];
  for (int i = 0; i < NumBytes; i++) local[i] = static_cast<char>(params.n);
  __syncthreads();  // so that every thread has a stack of its own
  out[threadIdx.x] = local[threadIdx.x];
}

__global__ void block_order(UInt32* counter, UInt32* order, Params params) {
  if (threadIdx.x == 0) order[atomicAdd(counter, 1u)] = blockIdx.x;
}

__global__ void thread_order(UInt32* counter, UInt32* order, Params params) {
  order[atomicAdd(counter, 1u)] = threadIdx.x;
  __syncthreads();  // nothing but a reason to suspend
}

// The loop never gives way, so nothing but an interruption ends it.
__global__ void spins(const UInt32* flag, Params params) {
  if (params.n == 2) __syncthreads();  // nothing but a reason to suspend
  const volatile UInt32* polled = flag;
  while (params.n > 0 && *polled == 0) {
  }
}

// No mistake where both pointers are the same: each element is written once.
__global__ void two_names(Int32* a, Int32* b, Params params) {
  (threadIdx.x % 2 ? a : b)[threadIdx.x] = static_cast<Int32>(threadIdx.x) + params.n;
}
