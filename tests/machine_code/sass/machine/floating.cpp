// Floating point: single, half and double precision, conversions, functions, matrices.
#include <cfenv>

#include "state.h"

// Rounding other than to nearest, for as long as it lives.
class Rounding {
 public:
  explicit Rounding(const Step& step) {
    fesetround(step.has(mRZ)   ? FE_TOWARDZERO
               : step.has(mRM) ? FE_DOWNWARD
               : step.has(mRP) ? FE_UPWARD
                               : FE_TONEAREST);
  }
  ~Rounding() { fesetround(FE_TONEAREST); }
};

static F32 saturated(const Step& step, F32 value) {
  if (!step.has(mSAT)) return value;
  return each<F32>(value, [](float x) { return x > 0 ? std::fmin(x, 1.0f) : 0.0f; });
}
static void set(const Step& step, int n, F32 value) {
  step.set(n, saturated(step, value), step.has(mFTZ));
}

INSTRUCTION(FADD, "", kFma, "FTZ SAT RZ RM RP", "PTX add.f32") {
  const F32 a = step.f32(1, step.has(mFTZ)), b = step.f32(2, step.has(mFTZ));
  const Rounding rounding(step);
  F32 sum;
  for (int lane = 0; lane < kLanes; ++lane) sum[lane] = std::fma(a[lane], 1.0f, b[lane]);
  set(step, 0, sum);
}
INSTRUCTION(FMUL, "", kFma, "FTZ SAT RZ RM RP", "PTX mul.f32") {
  const F32 a = step.f32(1, step.has(mFTZ)), b = step.f32(2, step.has(mFTZ));
  const Rounding rounding(step);
  F32 product;
  // The zero has the sign of the product, so that the sum keeps it.
  for (int lane = 0; lane < kLanes; ++lane)
    product[lane] =
        std::fma(a[lane], b[lane], std::signbit(a[lane]) != std::signbit(b[lane]) ? -0.0f : 0.0f);
  set(step, 0, product);
}
INSTRUCTION(FFMA, "", kFma, "FTZ SAT RZ RM RP", "PTX fma.f32") {
  const bool flush = step.has(mFTZ);
  const F32 a = step.f32(1, flush), b = step.f32(2, flush), c = step.f32(3, flush);
  const Rounding rounding(step);
  F32 sum;
  for (int lane = 0; lane < kLanes; ++lane) sum[lane] = std::fma(a[lane], b[lane], c[lane]);
  set(step, 0, sum);
}

template <typename Vector>
static Mask compared(const Step& step, Vector a, Vector b) {
  const Mask unordered = mask_of(a != a) | mask_of(b != b);
  if (step.has(mNAN)) return unordered;
  if (step.has(mNUM)) return ~unordered;
  if (step.has(mEQ)) return mask_of(a == b);
  if (step.has(mEQU)) return mask_of(a == b) | unordered;
  if (step.has(mNE)) return mask_of(a != b) & ~unordered;
  if (step.has(mNEU)) return mask_of(a != b);
  if (step.has(mLT)) return mask_of(a < b);
  if (step.has(mLTU)) return mask_of(a < b) | unordered;
  if (step.has(mLE)) return mask_of(a <= b);
  if (step.has(mLEU)) return mask_of(a <= b) | unordered;
  if (step.has(mGT)) return mask_of(a > b);
  if (step.has(mGTU)) return mask_of(a > b) | unordered;
  if (step.has(mGE)) return mask_of(a >= b);
  if (step.has(mGEU)) return mask_of(a >= b) | unordered;
  step.unknown();
}
static void set_comparison(const Step& step, Mask found) {
  const Mask given = step.predicate(4);
  for (int result = 0; result < 2; ++result, found = ~found)
    step.set_predicate(result, step.has(mAND)   ? found & given
                               : step.has(mOR)  ? found | given
                               : step.has(mXOR) ? found ^ given
                                                : (step.unknown(), 0));
}
INSTRUCTION(FSETP, "", kAlu, "EQ NE LT LE GT GE EQU NEU LTU LEU GTU GEU NUM NAN AND OR XOR FTZ",
            "PTX setp.f32") {
  const bool flush = step.has(mFTZ);
  set_comparison(step, compared(step, step.f32(2, flush), step.f32(3, flush)));
}
INSTRUCTION(FSEL, "", kAlu, "FTZ", "PTX selp.f32") {
  step.set(0, choose(step.predicate(3), (U32)step.f32(1, step.has(mFTZ)),
                     (U32)step.f32(2, step.has(mFTZ))));
}
INSTRUCTION(FMNMX, "", kAlu, "FTZ NAN", "PTX min.f32, max.f32, min.NaN.f32") {
  const bool flush = step.has(mFTZ), keeps_nan = step.has(mNAN);
  const F32 a = step.f32(1, flush), b = step.f32(2, flush);
  const Mask least = step.predicate(3);
  F32 found;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float x = a[lane], y = b[lane];
    const bool is_least = least >> lane & 1;
    if (std::isnan(x) || std::isnan(y)) {
      found[lane] = keeps_nan || (std::isnan(x) && std::isnan(y)) ? as_float(kNan)
                    : std::isnan(x)                               ? y
                                                                  : x;
    } else if (x == y) {  // -0 is less than +0
      found[lane] = (std::signbit(x) == is_least) ? x : y;
    } else {
      found[lane] = (x < y) == is_least ? x : y;
    }
  }
  step.set(0, found, flush);
}
// Whether a division needs the way around subnormal and huge numbers. Taken to be true for more numbers than
// on a GPU: that way is right for all of them.
INSTRUCTION(FCHK, "", kSpecial, "", "the expansion of PTX div.rn.f32") {
  const F32 a = step.f32(1, false), b = step.f32(2, false);
  Mask found = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int of_a = as_bits(a[lane]) >> 23 & 255, of_b = as_bits(b[lane]) >> 23 & 255;
    const bool is_easy = of_a > 24 && of_a < 254 && of_b > 2 && of_b < 252 && of_a - of_b > -124 &&
                         of_a - of_b < 126;
    found |= (Mask)!is_easy << lane;
  }
  step.set_predicate(0, found);
}

INSTRUCTION(MUFU, "", kSpecial, "RCP RSQ EX2 LG2 SQRT TANH",
            "PTX rcp, rsqrt, ex2, lg2, sqrt, tanh .approx") {
  // The nearest number: a GPU's may be one or two apart.
  const F32 x = step.f32(1, true);
  F32 found;
  for (int lane = 0; lane < kLanes; ++lane) {
    const double v = x[lane];
    found[lane] = (float)(step.has(mRCP)    ? 1 / v
                          : step.has(mRSQ)  ? 1 / std::sqrt(v)
                          : step.has(mEX2)  ? std::exp2(v)
                          : step.has(mLG2)  ? std::log2(v)
                          : step.has(mSQRT) ? std::sqrt(v)
                          : step.has(mTANH) ? std::tanh(v)
                                            : (step.unknown(), 0));
  }
  step.set(0, found, true);
}

static double integral(const Step& step, double value) {
  if (step.has(mTRUNC)) return std::trunc(value);
  if (step.has(mFLOOR)) return std::floor(value);
  if (step.has(mCEIL)) return std::ceil(value);
  return std::nearbyint(value);
}
INSTRUCTION(FRND, "", kSpecial, "FTZ TRUNC FLOOR CEIL", "PTX cvt.rzi.f32.f32") {
  step.set(
      0, each<F32>(step.f32(1, step.has(mFTZ)), [&](float x) { return (float)integral(step, x); }),
      false);
}
INSTRUCTION(F2I, "", kSpecial, "FTZ U32 S32 U64 S64 TRUNC FLOOR CEIL NTZ", "PTX cvt.rzi.u32.f32") {
  const F32 x = step.f32(1, step.has(mFTZ));
  const bool is_wide = step.has(mU64) || step.has(mS64);
  const bool is_signed = !step.has(mU32) && !step.has(mU64);
  const int bits = (is_wide ? 64 : 32) - is_signed;
  const double end = std::ldexp(1.0, bits);
  U64 found;
  for (int lane = 0; lane < kLanes; ++lane) {
    const double v = integral(step, x[lane]);
    if (std::isnan(v))
      found[lane] = step.has(mNTZ) ? 0 : 1ull << (is_wide ? 63 : 31);
    else if (v >= end)
      found[lane] = ~0ull >> (64 - bits);
    else if (v < 0)
      found[lane] = is_signed ? (uint64_t)(int64_t)std::fmax(v, -end) : 0;
    else
      found[lane] = (uint64_t)v;
  }
  step.set(0, low(found));
  if (is_wide) step.set(0, high(found), 1);
}
INSTRUCTION(I2F, "I2FP", kSpecial, "F32 U32 S32 U64 S64 RP RM RZ",
            "PTX cvt.rn.f32.u32, cvt.rp.f32.u32") {
  const bool is_wide = step.has(mU64) || step.has(mS64);
  const bool is_signed = !step.has(mU32) && !step.has(mU64);
  const U64 x = is_wide ? step.u64(1) : is_signed ? wide_signed(step.u32(1)) : wide(step.u32(1));
  const Rounding rounding(step);
  F32 found;
  for (int lane = 0; lane < kLanes; ++lane) {
    volatile uint64_t value = x[lane];  // converted under this rounding, not before
    found[lane] = is_signed ? (float)(int64_t)value : (float)value;
  }
  step.set(0, found, false);
}

// Half precision.
static float from_half(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023, sign = (bits & 0x8000u) << 16;
  if (exponent == 31) return as_float(sign | 0x7f800000u | fraction << 13);
  const float magnitude = exponent ? as_float((exponent + 112) << 23 | fraction << 13)
                                   : std::ldexp((float)fraction, -24);
  return as_float(as_bits(magnitude) | sign);
}
static uint32_t to_half(double value) {
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0;
  const double x = std::fabs(value);
  if (std::isnan(value)) return 0x7fffu;
  if (x >= 65520) return sign | 0x7c00u;
  const int exponent = x == 0 ? -24 : std::max(std::ilogb(x), -14);
  // In units of the last place; a carry goes on into the exponent by itself.
  const uint32_t units = (uint32_t)std::nearbyint(std::ldexp(x, 10 - std::max(exponent, -14)));
  if (exponent == -14 && units < 1024) return sign | units;
  return sign | (((uint32_t)(std::max(exponent, -14) + 15) << 10) + (units - 1024));
}
static F32 half_operand(const Step& step, int n, bool upper) {
  const Operand& operand = step.operand(n);
  const U32 bits = step.raw(n);
  const bool takes_upper = operand.part == Part::kHigh || (operand.part != Part::kLow && upper);
  F32 value = each<F32>(takes_upper ? bits >> 16 : bits & 0xffffu, from_half);
  if (operand.flags & kAbsolute) value = each<F32>(value, [](float x) { return std::fabs(x); });
  return operand.flags & kNegated ? -value : value;
}
INSTRUCTION(F2F, "", kSpecial, "F16 F32 FTZ", "PTX cvt.rn.f16.f32") {
  if (!step.has(mF16)) step.unknown();
  step.set(0, each<U32>(step.f32(1, step.has(mFTZ)), to_half));
}
INSTRUCTION(F2FP, "", kAlu, "F16 F32 PACK_AB", "PTX cvt.rn.f16x2.f32") {
  if (!step.has(mPACK_AB) || !step.has(mF16)) step.unknown();
  step.set(0,
           each<U32>(step.f32(1, false), to_half) << 16 | each<U32>(step.f32(2, false), to_half));
}
INSTRUCTION(HADD2, "", kHalf, "F32", "PTX cvt.f32.f16, add.f16x2") {
  if (step.has(mF32)) {  // one half, widened
    step.set(0, half_operand(step, 1, false) + half_operand(step, 2, false), false);
    return;
  }
  U32 found = {};
  for (int half = 0; half < 2; ++half)
    found |= each<U32>(half_operand(step, 1, half) + half_operand(step, 2, half), to_half)
             << 16 * half;
  step.set(0, found);
}
INSTRUCTION(HSET2, "", kHalf, "BF EQ NE LT LE GT GE EQU NEU LTU LEU GTU GEU NUM NAN AND",
            "PTX set.f16x2.f16x2") {
  if (!step.has(mBF) || !step.has(mAND)) step.unknown();
  U32 found = {};
  for (int half = 0; half < 2; ++half) {
    const Mask holds = compared(step, half_operand(step, 1, half), half_operand(step, 2, half)) &
                       step.predicate(3);
    found |= choose(holds, splat(0x3c00u << 16 * half), U32{});  // 1 or 0
  }
  step.set(0, found);
}
INSTRUCTION(HFMA2, "", kHalf, "MMA", "PTX fma.f16x2") {
  U32 found = {};
  for (int half = 0; half < 2; ++half) {
    const F32 a = half_operand(step, 1, half), b = half_operand(step, 2, half),
              c = half_operand(step, 3, half);
    for (int lane = 0; lane < kLanes; ++lane) {
      // Exact in double precision.
      found[lane] |= to_half((double)a[lane] * b[lane] + c[lane]) << 16 * half;
    }
  }
  step.set(0, found);
}

// D = A * B + C of 16 x 8 x 16. Lane 4 r + c holds of A the rows r and r + 8, columns 2 c, 2 c + 1 and 8 more; of
// B the rows 2 c, 2 c + 1 and 8 more in column r; of C and D rows r, r + 8 of columns 2 c, 2 c + 1.
INSTRUCTION(HMMA, "", kTensor, "16816 1688 F32",
            "PTX mma.sync.m16n8k16.f32.f16.f16.f32, figures of the fragments") {
  if (!step.has(mF32)) step.unknown();
  if (step.mask != kAll) step.fail("a matrix instruction without all lanes");
  const int depth = step.has(m16816) ? 16 : 8;
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, column = lane % 4 * 2;
    for (int word = 0; word < depth / 4; ++word) {
      const uint32_t bits = step.word(1, word)[lane];
      for (int half = 0; half < 2; ++half)
        a[row + 8 * (word & 1)][column + 8 * (word >> 1) + half] =
            from_half(bits >> 16 * half & 0xffffu);
    }
    for (int word = 0; word < depth / 8; ++word) {
      const uint32_t bits = step.word(2, word)[lane];
      for (int half = 0; half < 2; ++half)
        b[column + 8 * word + half][row] = from_half(bits >> 16 * half & 0xffffu);
    }
  }
  const bool has_addend = step.operand(3).index != kZeroRegister;
  F32 sums[4];
  for (int word = 0; word < 4; ++word) {
    const F32 addend = has_addend ? (F32)step.word(3, word) : F32{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (word >> 1), column = lane % 4 * 2 + (word & 1);
      double sum = addend[lane];
      for (int k = 0; k < depth; ++k) sum += (double)a[row][k] * b[k][column];
      sums[word][lane] = (float)sum;
    }
  }
  for (int word = 0; word < 4; ++word) step.set(0, (U32)sums[word], word);
}

// Double precision.
static F64 f64(const Step& step, int n) {
  const Operand& operand = step.operand(n);
  U64 bits = operand.kind == Kind::kImmediate ? splat64(operand.value << 32)
                                              : pair(step.word(n, 0), step.word(n, 1));
  if (operand.flags & kAbsolute) bits &= ~0ull >> 1;
  if (operand.flags & kNegated) bits ^= 1ull << 63;
  return (F64)bits;
}
INSTRUCTION(DADD, "", kDouble, "", "PTX add.f64") {
  step.set64(0, (U64)(f64(step, 1) + f64(step, 2)));
}
INSTRUCTION(DMUL, "", kDouble, "", "PTX mul.f64") {
  step.set64(0, (U64)(f64(step, 1) * f64(step, 2)));
}
INSTRUCTION(DFMA, "", kDouble, "", "PTX fma.f64") {
  const F64 a = f64(step, 1), b = f64(step, 2), c = f64(step, 3);
  F64 sum;
  for (int lane = 0; lane < kLanes; ++lane) sum[lane] = std::fma(a[lane], b[lane], c[lane]);
  step.set64(0, (U64)sum);
}
INSTRUCTION(DSETP, "", kDouble, "EQ NE LT LE GT GE EQU NEU LTU LEU GTU GEU NUM NAN AND OR XOR",
            "PTX setp.f64") {
  set_comparison(step, compared(step, f64(step, 2), f64(step, 3)));
}
