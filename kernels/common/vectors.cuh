// Floats that a thread computes with at once: one on a GPU, where each lane is a thread. The emulator's file
// of the same name has a vector register of the CPU, with the same functions. Both types support the
// operators of C++, including `condition ? a : b`, and constants.
#pragma once

#include "common/types.cuh"

constexpr int kVectorFloats = 1;
// Registers for accumulating products.
constexpr int kVectorRegisters = 32;

using Floats = float;
using Ints = Int32;

__device__ __forceinline__ Floats load_floats(const float* address) { return *address; }
__device__ __forceinline__ void store_floats(float* address, Floats v) { *address = v; }
__device__ __forceinline__ Floats broadcast(float value) { return value; }

// a * b + c, rounded once.
__device__ __forceinline__ Floats fused(Floats a, Floats b, Floats c) { return fmaf(a, b, c); }

__device__ __forceinline__ Ints as_ints(Floats v) { return __float_as_int(v); }
__device__ __forceinline__ Floats as_floats(Ints v) { return __int_as_float(v); }

// Keeps a vector that is used several times in a register; a compiler might load it each time instead.
__device__ __forceinline__ Floats in_register(Floats v) { return v; }

constexpr int kLoadedColumns = 1;

// The next kLoadedColumns columns of kVectorFloats rows that are `stride` floats apart. Every kLoadedColumns
// neighbouring lanes, a quad, are of one row; `transpose_quads` puts rows in order.
__device__ __forceinline__ void load_quads(Floats (&quads)[kLoadedColumns], const float* rows,
                                           Int64 stride) {
  quads[0] = *rows;
}

// The same kLoadedColumns floats in every quad.
__device__ __forceinline__ Floats broadcast_quad(const float* address) { return *address; }

// From the order of `load_quads` to a vector for each column; lane i is row i.
__device__ __forceinline__ void transpose_quads(Floats (&quads)[kLoadedColumns]) {}

// Prefetches a line of memory that may be read soon; the address need not be valid.
__device__ __forceinline__ void prefetch(const void*) {}
