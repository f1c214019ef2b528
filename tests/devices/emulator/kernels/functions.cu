// Every thread-local intrinsic of the emulator applied to each thread's inputs.
// One row of the output per function, in the order in which the tests list them.
// Thread i owns column i.
// The host passes one input per thread.
// No plan picks it: it tests the emulator.
#include "common/intrinsics.cuh"

struct Params {
  Int64 n;
};

struct Row {
  void* out;
  Int64 n, i;
  int row = 0;

  template <typename T>
  void operator<<(T value) {
    static_cast<UInt64*>(out)[row++ * n + i] = 0;
    memcpy(static_cast<UInt64*>(out) + (row - 1) * n + i, &value, sizeof value);
  }
};

__global__ void integers(const UInt64* a_, const UInt64* b_, const UInt64* c_, UInt64* out,
                         Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  const UInt64 a = a_[i], b = b_[i];
  const UInt32 x = static_cast<UInt32>(a), y = static_cast<UInt32>(b),
               s = static_cast<UInt32>(c_[i]);
  Row row{out, params.n, i};
  row << __popc(x);
  row << __popcll(a);
  row << __clz(static_cast<int>(x));
  row << __clzll(static_cast<Int64>(a));
  row << __ffs(static_cast<int>(x));
  row << __ffsll(static_cast<Int64>(a));
  row << __brev(x);
  row << __brevll(a);
  row << __byte_perm(x, y, s);
  row << __funnelshift_l(x, y, s);
  row << __funnelshift_r(x, y, s);
  row << __funnelshift_lc(x, y, s);
  row << __funnelshift_rc(x, y, s);
  row << __mulhi(static_cast<int>(x), static_cast<int>(y));
  row << __umulhi(x, y);
  row << __mul64hi(static_cast<Int64>(a), static_cast<Int64>(b));
  row << __umul64hi(a, b);
  row << __float_as_uint(__uint_as_float(x));
  row << __float_as_int(__int_as_float(static_cast<int>(x)));
  row << __double_as_longlong(__longlong_as_double(static_cast<Int64>(a)));
  row << min(static_cast<int>(x), static_cast<int>(y));
  row << max(static_cast<int>(x), static_cast<int>(y));
  row << min(a, b);
  row << max(x, b);
  row << signs_of_halves(x);
  row << max_of_sum_of_halves(x, y, s);
  row << __ldg(a_ + i);
  row << __ldcg(a_ + i);
  row << __ldcs(a_ + i);
  row << __ldca(a_ + i);
  row << __ldcv(a_ + i);
  row << __ldlu(a_ + i);
}

__global__ void floats(const Float32* a_, const Float32* b_, const Float32* c_, UInt64* out,
                       Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  const Float32 a = a_[i], b = b_[i], c = c_[i];
  Row row{out, params.n, i};
  row << min(a, b);
  row << max(a, b);
  row << fmaf(a, b, c);
  row << __fmaf_rn(a, b, c);
  row << __fadd_rn(a, b);
  row << __fsub_rn(a, b);
  row << __fmul_rn(a, b);
  row << __fdiv_rn(a, b);
  row << __fdividef(a, b);
  row << __frcp_rn(a);
  row << __fsqrt_rn(fabsf(a));
  row << rsqrtf(fabsf(a));
  row << __saturatef(a);
  row << __float2int_rn(a);
  row << __float2int_rz(a);
  row << __float2int_rd(a);
  row << __float2int_ru(a);
  row << __float2uint_rn(a);
  row << __float2uint_rz(a);
  row << __float2uint_rd(a);
  row << __float2uint_ru(a);
  row << __int2float_rn(__float_as_int(a));
  row << __uint2float_rn(__float_as_uint(a));
  row << __ll2float_rn(static_cast<Int64>(__float_as_int(a)) * __float_as_int(b));
  row << __ull2float_rn(static_cast<UInt64>(__float_as_uint(a)) * __float_as_uint(b));
  row << __double2float_rn(static_cast<Float64>(a) * b);
  row << half_bits_from_float(a);
  row << bfloat_bits_from_float(a);
  row << float_from_half_bits(static_cast<UInt16>(__float_as_uint(a)));
}

__global__ void fast_floats(const Float32* a_, const Float32* b_, UInt64* out, Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  const Float32 a = a_[i], b = b_[i];
  Row row{out, params.n, i};
  row << __expf(a);
  row << __exp10f(a);
  row << __logf(b);
  row << __log2f(b);
  row << __log10f(b);
  row << __sinf(a);
  row << __cosf(a);
  row << __tanf(a);
  row << __powf(b, a);
  row << __tanhf(a);
  row << rsqrt(static_cast<Float64>(b));
  row << __frsqrt_rn(b);
  row << fast_exp2(a);
  row << fast_reciprocal(b);
}

// Functions that CUDA has for both types under one name: rows of one type, then of the other.
template <typename T>
__device__ void write_overloads(Row& row, T a, T b) {
  row << ceil(a);
  row << floor(a);
  row << trunc(a);
  row << round(a);
  row << fabs(a);
  row << abs(a);
  row << sqrt(b);
  row << exp(a);
  row << log(b);
  row << sin(a);
  row << tanh(a);
  row << pow(b, a);
  row << fmin(a, b);
  row << fmax(a, b);
  row << copysign(b, a);
  row << fma(a, b, a);
  row << ldexp(a, 3);
  row << (isnan(a) | isinf(a) << 1 | isfinite(a) << 2 | signbit(a) << 3);
}

__global__ void overloads(const Float32* a_, const Float32* b_, UInt64* out, Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  Row row{out, params.n, i};
  write_overloads(row, a_[i], b_[i]);
  write_overloads(row, static_cast<Float64>(a_[i]), static_cast<Float64>(b_[i]));
}

// Kernels read storage in other types than it was written in; here both pointers are to the same storage.
__global__ void read_as_another_type(const UInt32* bits, UInt32* words, const Float32* floats,
                                     Float32* out, Params params) {
  const Int64 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= params.n) return;
  const Float32 before = floats[i];
  words[i] = bits[i];
  out[i] = floats[i] - before;
}
