// What CUDA C++ does not spell without headers, as functions: the only file with inline PTX.
// The CPU emulator has a file of the same name with the same functions in C++; it is found first there.
// A function added here is added there, with a test. No other kernel file looks at the device.
#pragma once

#include "common/types.cuh"

// A kernel's dynamic shared storage, seen as one struct; the launch passes sizeof(Type) bytes or more.
#define SHARED_STORAGE(Type, name)                                 \
  extern __shared__ __align__(16) unsigned char shared_storage_[]; \
  Type& name = *reinterpret_cast<Type*>(shared_storage_)

// ---- 16-byte accesses; the pointers are 16-byte aligned.

// Read-only for the whole launch. A guarded uint4 load would be split on sm_100 and sm_120.
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
  uint4 v;
  asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address));
  return v;
}

__device__ __forceinline__ void store_16_bytes(void* address, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- Communication between blocks. Acquire loads are also what a waiting loop polls with.

__device__ __forceinline__ UInt32 load_acquire(const UInt32* address) {
  UInt32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}

__device__ __forceinline__ void store_release(UInt32* address, UInt32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ UInt32 add_release(UInt32* address, UInt32 value) {
  UInt32 old;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

__device__ __forceinline__ UInt32 add_acquire_release(UInt32* address, UInt32 value) {
  UInt32 old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

// ---- Relaxed loads and stores of data that another block writes or polls during the launch.

__device__ __forceinline__ UInt32 load_relaxed(const UInt32* address) {
  UInt32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed(UInt32* address, UInt32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// ---- Half precision as bits, so that no kernel needs cuda_fp16.h.

__device__ __forceinline__ float float_from_half_bits(UInt16 bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}

// Rounds to nearest even.
__device__ __forceinline__ UInt16 half_bits_from_float(float value) {
  UInt16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
