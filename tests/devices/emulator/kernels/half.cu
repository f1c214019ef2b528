// Half-precision arithmetic of the stand-in for cuda_fp16.h.
// One row of the output per function, in the order in which the test lists them.
// Thread i owns column i.
// The host passes three bit patterns per thread.
// No plan picks it: it tests the emulator.
#include <cuda_fp16.h>

#include "common/intrinsics.cuh"

struct Params {
  Int64 n;
};

__global__ void halves(const UInt16* a_, const UInt16* b_, const UInt16* c_, UInt16* out,
                       Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  const __half a = __ushort_as_half(a_[i]), b = __ushort_as_half(b_[i]),
               c = __ushort_as_half(c_[i]);
  const __half2 pair = __hfma2(__halves2half2(a, b), __halves2half2(b, c), __halves2half2(c, a));
  const __half results[] = {__hadd(a, b),
                            __hsub(a, b),
                            __hmul(a, b),
                            __hdiv(a, b),
                            __hneg(a),
                            __habs(a),
                            __hfma(a, b, c),
                            __float2half(__half2float(a) * 3.0f),
                            __float2half_rn(1.0f / __half2float(a)),
                            __low2half(pair),
                            __high2half(pair),
                            __hadd2(__halves2half2(a, b), __halves2half2(b, c)).y,
                            __hmul2(__halves2half2(a, b), __halves2half2(b, c)).x,
                            __floats2half2_rn(1.0f, __high2float(pair)).y};
  int row = 0;
  for (const __half result : results) out[row++ * params.n + i] = __half_as_ushort(result);
  out[row++ * params.n + i] = __heq(a, b) | __hlt(a, b) << 1 | __hgt(a, b) << 2 | __hisnan(a) << 3;
}
