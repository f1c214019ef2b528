// Every atomic on shared and on global memory, and the functions of memory order.
// Threads of all blocks apply each operation to one of a few counters.
// Thread i owns value i; counter i % kCounters is shared by many.
// The host passes counters with their first values.
// No plan picks it: it tests the emulator.
#include "common/intrinsics.cuh"

constexpr int kCounters = 7;

struct Params {
  Int32 operation;
};

template <typename T>
struct Counters {
  T values[kCounters];
};

template <typename T>
__device__ void apply(int operation, T* counter, T v) {
  if (operation == 0) atomicAdd(counter, v);
  if (operation == 1) atomicMin(counter, v);
  if (operation == 2) atomicMax(counter, v);
  if (operation == 3) atomicAnd(counter, v);
  if (operation == 4) atomicOr(counter, v);
  if (operation == 5) atomicXor(counter, v);
  if (operation == 6) {
    T old = *counter;
    for (T seen; (seen = atomicCAS(counter, old, static_cast<T>(old + v))) != old;) old = seen;
  }
}

__device__ void apply(int operation, Int64* counter, Int64 v) {
  if (operation == 1) atomicMin(counter, v);
  if (operation == 2) atomicMax(counter, v);
}

__device__ void apply(int operation, Float32* counter, Float32 v) { atomicAdd(counter, v); }
__device__ void apply(int operation, Float64* counter, Float64 v) { atomicAdd(counter, v); }

template <typename T>
__global__ void on_global(const T* x, T* counters, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x;
  apply(params.operation, counters + i % kCounters, x[i]);
}

template <typename T>
__global__ void on_shared(const T* x, T* counters, Params params) {
  SHARED_STORAGE(Counters<T>, shared);
  const UInt32 t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < kCounters) shared.values[t] = counters[blockIdx.x * kCounters + t];
  __syncthreads();  // the counters have their first values
  apply(params.operation, shared.values + i % kCounters, x[i]);
  __syncthreads();  // all operations are done
  if (t < kCounters) counters[blockIdx.x * kCounters + t] = shared.values[t];
}

// The returned old values of one counter are all different: each operation is seen exactly once.
__global__ void tickets(UInt32* counters, UInt32* out, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  out[0 * n + i] = atomicAdd(counters + 0, 1u);
  out[1 * n + i] = atomicSub(counters + 1, 1u);
  out[2 * n + i] = atomicInc(counters + 2, 9u);
  out[3 * n + i] = atomicDec(counters + 3, 9u);
  out[4 * n + i] = atomicExch(counters + 4, i);
  out[5 * n + i] = add_release(counters + 5, 1u);
  out[6 * n + i] = add_acquire_release(counters + 6, 1u);
  out[7 * n + i] = static_cast<UInt32>(atomicSub(reinterpret_cast<Int32*>(counters + 7), 1));
  atomicExch(reinterpret_cast<Float32*>(counters + 8), 1.5f);
}

// Each thread waits for its predecessor, so any order of threads must let the others run.
__global__ void chain(UInt32* flag, UInt32* data, Params params) {
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (params.operation == 0) {
    while (load_acquire(flag) != i) {
    }
  } else {
    while (load_relaxed(flag) != i) __nanosleep(20);
    __threadfence();
  }
  store_relaxed(data + i + 1, load_relaxed(data + i) + i);
  __threadfence();
  __threadfence_block();
  store_release(flag, i + 1);
}

// Moves 16 bytes at a time, and checks the layout of the vector types.
__global__ void vectors(const uint4* x, uint4* out, Params params) {
  static_assert(sizeof(uint3) == 12 && alignof(uint3) == 4 && alignof(float2) == 8, "as CUDA's");
  static_assert(alignof(uint4) == 16 && alignof(double2) == 16 && alignof(uchar4) == 4,
                "as CUDA's");
  static_assert(alignof(short4) == 8 && sizeof(longlong4) == 32 && alignof(char2) == 2,
                "as CUDA's");
  const UInt32 i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 v = load_16_bytes(x + i);
  v = make_uint4(v.w, v.z, v.y, v.x);
  store_16_bytes(out + i, v);
  if (i == 0) {
    const dim3 grid(gridDim), one;
    __stcg(&out[i].x, grid.x + one.y);
    __stcs(&out[i].y, make_float2(1.0f, 2.0f).y > 1.0f ? 3u : 4u);
    __stwb(&out[i].z, static_cast<UInt32>(make_short3(1, 2, 3).z));
    __stwt(&out[i].w, static_cast<UInt32>(warpSize));
  }
}
