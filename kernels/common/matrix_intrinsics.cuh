// Functions like those of intrinsics.cuh for kernels that multiply matrices of float32, with the same rules:
// inline PTX, and a twin in the emulator. They are apart so that no other kernel depends on them. Only sm_80
// and later have them.
#pragma once

#include "common/intrinsics.cuh"

#if __CUDA_ARCH__ >= 800

// ---- Copies from global to shared storage in stages of at most kMost copies, kStages of them at a time.
// After `wait<kLater>()`, all stages but the kLater that ended last are complete for this thread. Other
// threads need a barrier as well.
template <int kMost, int kStages>
struct StagedCopies {
  // Four floats, past the L1 cache; both addresses are multiples of 16 bytes.
  __device__ __forceinline__ void start_quad(float* to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<UInt32>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  __device__ __forceinline__ void start_one(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     static_cast<UInt32>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  __device__ __forceinline__ void end_stage() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <int kLater>
  __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
  }
};

// ---- Matrices of TF32: float32 words whose lowest 13 bits are ignored.
//
// With g = lane / 4 and t = lane % 4, rows have the words of (row g, column t), (g + 8, t), (g, t + 4) and
// (g + 8, t + 4) of 16 x 8; columns those of (row t, column g) and (t + 4, g) of 8 x 8; sums are as those of
// 16-bit matrices.

// rows * columns + sums. What is added may be cut off below the 24 bits of the largest number, and so may the
// sum.
__device__ __forceinline__ MatrixSums multiply_add_tf32(MatrixRows rows, MatrixColumns columns,
                                                        MatrixSums sums) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.values[0]), "+f"(sums.values[1]), "+f"(sums.values[2]), "+f"(sums.values[3])
      : "r"(rows.words[0]), "r"(rows.words[1]), "r"(rows.words[2]), "r"(rows.words[3]),
        "r"(columns.words[0]), "r"(columns.words[1]));
  return sums;
}

#endif
