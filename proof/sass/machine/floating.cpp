// Floating point: single and half precision, conversions, functions, matrices.
#include <cfenv>

#include "state.h"

// Rounding as the suffixes say, for as long as it lives.
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

// a * b + c, rounded once.
static void set_sum(const Step& step, F32 a, F32 b, F32 c) {
  const Rounding rounding(step);
  F32 sum = each<F32>([](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);
  if (step.has(mSAT))
    sum = each<F32>([](float x) { return x > 0 ? std::fmin(x, 1.0f) : 0.0f; }, sum);
  step.set(0, sum);
}
INSTRUCTION(FADD, "", kFma, "FTZ SAT RZ RM RP", "PTX add.f32") {
  set_sum(step, step.f32(1), F32{} + 1, step.f32(2));
}
INSTRUCTION(FMUL, "", kFma, "FTZ SAT RZ RM RP", "PTX mul.f32") {
  const F32 a = step.f32(1), b = step.f32(2);
  // The zero has the sign of the product, so that the sum keeps it.
  set_sum(step, a, b, (F32)(((U32)a ^ (U32)b) & 0x80000000u));
}
INSTRUCTION(FFMA, "", kFma, "FTZ SAT RZ RM RP", "PTX fma.f32") {
  set_sum(step, step.f32(1), step.f32(2), step.f32(3));
}

#define COMPARISONS "EQ NE LT LE GT GE EQU NEU LTU LEU GTU GEU NUM NAN AND OR XOR "
INSTRUCTION(FSETP, "", kAlu, COMPARISONS "FTZ", "PTX setp.f32") {
  const Mask found = compared(step, step.f32(2), step.f32(3)), given = step.predicate(4);
  step.set_predicate(0, combined(step, found, given));
  step.set_predicate(1, combined(step, ~found, given));
}
VALUE(FSEL, "", kAlu, "FTZ", "PTX selp.f32",
      choose(step.predicate(3), (U32)step.f32(1), (U32)step.f32(2)))
INSTRUCTION(FMNMX, "", kAlu, "FTZ NAN", "PTX min.f32, max.f32, min.NaN.f32") {
  const auto chosen = [&](float x, float y, uint32_t is_least) {
    if (std::isnan(x) || std::isnan(y)) return step.has(mNAN) == std::isnan(x) ? x : y;
    if (x == y) return std::signbit(x) == (bool)is_least ? x : y;  // -0 is less than +0
    return (x < y) == (bool)is_least ? x : y;
  };
  step.set(0, each<F32>(chosen, step.f32(1), step.f32(2), bits_of(step.predicate(3))));
}
// Whether a division needs the path for subnormal and huge numbers. True here for more numbers than on a GPU:
// that path is right for all numbers.
INSTRUCTION(FCHK, "", kSpecial, "", "the expansion of PTX div.rn.f32") {
  const auto is_hard = [](float x, float y) {
    const int a = bits_as<uint32_t>(x) >> 23 & 255, b = bits_as<uint32_t>(y) >> 23 & 255;
    return a <= 24 || a >= 254 || b <= 2 || b >= 252 || a - b <= -124 || a - b >= 126;
  };
  step.set_predicate(0, where(is_hard, step.f32(1), step.f32(2)));
}

INSTRUCTION(MUFU, "", kSpecial, "RCP RSQ EX2 LG2 SQRT TANH",
            "PTX rcp, rsqrt, ex2, lg2, sqrt, tanh .approx") {
  // The nearest number: a GPU's may be one or two apart. Subnormal numbers are zeros.
  const auto function = [&](double v) {
    if (step.has(mRCP)) return 1 / v;
    if (step.has(mRSQ)) return 1 / std::sqrt(v);
    if (step.has(mEX2)) return std::exp2(v);
    if (step.has(mLG2)) return std::log2(v);
    if (step.has(mSQRT)) return std::sqrt(v);
    if (step.has(mTANH)) return std::tanh(v);
    step.unknown();
  };
  const auto rounded = [&](float x) { return flushed((float)function(flushed(x))); };
  step.set(0, each<F32>(rounded, step.f32(1)));
}

static double integral(const Step& step, double value) {
  if (step.has(mTRUNC)) return std::trunc(value);
  if (step.has(mFLOOR)) return std::floor(value);
  if (step.has(mCEIL)) return std::ceil(value);
  return std::nearbyint(value);
}
VALUE(FRND, "", kSpecial, "FTZ TRUNC FLOOR CEIL", "PTX cvt.rzi.f32.f32",
      each<F32>([&](float x) { return (float)integral(step, x); }, step.f32(1)))
INSTRUCTION(F2I, "", kSpecial, "FTZ U32 S32 U64 S64 TRUNC FLOOR CEIL NTZ", "PTX cvt.rzi.u32.f32") {
  const bool is_wide = step.has(mU64, mS64), is_signed = !step.has(mU32, mU64);
  const int bits = (is_wide ? 64 : 32) - is_signed;
  const double end = std::ldexp(1.0, bits);
  const auto converted = [&](float x) -> uint64_t {
    const double v = integral(step, x);
    if (std::isnan(v)) return step.has(mNTZ) ? 0 : 1ull << (is_wide ? 63 : 31);
    if (v >= end) return ~0ull >> (64 - bits);
    if (v < 0) return is_signed ? (uint64_t)(int64_t)std::fmax(v, -end) : 0;
    return (uint64_t)v;
  };
  const U64 found = each<U64>(converted, step.f32(1));
  is_wide ? step.set(0, found) : step.set(0, low(found));
}
INSTRUCTION(I2F, "I2FP", kSpecial, "F32 U32 S32 U64 S64 RP RM RZ",
            "PTX cvt.rn.f32.u32, cvt.rp.f32.u32") {
  const bool is_wide = step.has(mU64, mS64), is_signed = !step.has(mU32, mU64);
  const Rounding rounding(step);
  const auto converted = [&](uint64_t x) {
    volatile uint64_t value = x;  // converted under this rounding, not before
    return is_signed ? (float)(int64_t)value : (float)value;
  };
  step.set(0, each<F32>(converted, is_wide     ? step.u64(1)
                                   : is_signed ? wide_signed(step.u32(1))
                                               : wide(step.u32(1))));
}

// Half precision.
static float from_half(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023, sign = (bits & 0x8000u) << 16;
  if (exponent == 31) return bits_as<float>(sign | 0x7f800000u | fraction << 13);
  const float magnitude = exponent ? bits_as<float>((exponent + 112) << 23 | fraction << 13)
                                   : std::ldexp((float)fraction, -24);
  return bits_as<float>(bits_as<uint32_t>(magnitude) | sign);
}
static uint32_t to_half(double value) {
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0;
  const double x = std::fabs(value);
  if (std::isnan(value)) return 0x7fffu;
  if (x >= 65520) return sign | 0x7c00u;
  const int exponent = x == 0 ? -14 : std::max(std::ilogb(x), -14);
  // In units of the last place; a carry goes on into the exponent by itself.
  const uint32_t units = (uint32_t)std::nearbyint(std::ldexp(x, 10 - exponent));
  if (exponent == -14 && units < 1024) return sign | units;
  return sign | (((uint32_t)(exponent + 15) << 10) + (units - 1024));
}
// The upper half of a float.
static uint32_t to_brain(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  if (std::isnan(value)) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
static F32 half_operand(const Step& step, int n, bool upper) {
  const Part part = step.operand(n).part;
  const U32 bits = step.raw_word(n, 0, true);
  const bool takes_upper = part == Part::kHigh || (part != Part::kLow && upper);
  const F32 value = each<F32>(from_half, takes_upper ? bits >> 16 : bits & 0xffffu);
  return (F32)with_sign_bits((U32)value, step.operand(n).flags);
}
// The result from its lower and its upper half.
template <typename Function>
static void set_halves(const Step& step, Function function) {
  step.set(0, function(0) | function(1) << 16);
}
INSTRUCTION(F2F, "", kSpecial, "F16 BF16 F32 FTZ", "PTX cvt.rn.f16.f32, cvt.rn.bf16.f32") {
  if (step.has(mF16) == step.has(mBF16)) step.unknown();
  step.set(0, step.has(mBF16) ? each<U32>(to_brain, step.f32(1)) : each<U32>(to_half, step.f32(1)));
}
INSTRUCTION(F2FP, "", kAlu, "F16 BF16 F32 PACK_AB", "PTX cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32") {
  if (!step.has(mPACK_AB) || step.has(mF16) == step.has(mBF16)) step.unknown();
  set_halves(step, [&](int half) {
    const F32 value = step.f32(2 - half);
    return step.has(mBF16) ? each<U32>(to_brain, value) : each<U32>(to_half, value);
  });
}
INSTRUCTION(HADD2, "", kHalf, "F32", "PTX cvt.f32.f16, add.f16x2") {
  const auto sum = [&](int half) {
    return half_operand(step, 1, half) + half_operand(step, 2, half);
  };
  if (step.has(mF32)) return step.set(0, sum(0));  // one half, widened
  set_halves(step, [&](int half) { return each<U32>(to_half, sum(half)); });
}
INSTRUCTION(HSET2, "", kHalf, COMPARISONS "BF", "PTX set.f16x2.f16x2") {
  if (!step.has(mBF) || !step.has(mAND)) step.unknown();
  set_halves(step, [&](int half) {
    const Mask found = compared(step, half_operand(step, 1, half), half_operand(step, 2, half));
    return bits_of(found & step.predicate(3)) & 0x3c00u;  // 1 or 0
  });
}
INSTRUCTION(HFMA2, "", kHalf, "MMA", "PTX fma.f16x2") {
  // Exact in double precision.
  const auto sum = [](double a, double b, double c) { return to_half(a * b + c); };
  set_halves(step, [&](int half) {
    return each<U32>(sum, half_operand(step, 1, half), half_operand(step, 2, half),
                     half_operand(step, 3, half));
  });
}

// D = A * B + C of 16 x 8 x 16. Lane 4 r + c holds
//   of A: rows r and r + 8, columns 2 c, 2 c + 1, 2 c + 8 and 2 c + 9;
//   of B: rows 2 c, 2 c + 1, 2 c + 8 and 2 c + 9, column r;
//   of C and D: rows r and r + 8, columns 2 c and 2 c + 1.
// TF32 of depth 8 has a number in each word, without the 13 lower bits: columns of A and rows of B are c and
// c + 4.
INSTRUCTION(HMMA, "", kTensor, "16816 1688 F32 BF16 TF32",
            "PTX mma.sync.m16n8k16.f32.f16.f16.f32, figures of the fragments") {
  if (!step.has(mF32)) step.unknown();
  if (step.mask != kAll) step.fail("a matrix instruction without all lanes");
  const int depth = step.has(m16816) ? 16 : 8;
  const bool is_brain = step.has(mBF16), is_tf32 = step.has(mTF32);
  if (is_tf32 && (depth != 8 || is_brain)) step.unknown();
  float a[16][16], b[16][8];
  for (int word = 0; word < (is_tf32 ? 4 : depth / 4); ++word) {
    const U32 of_a = step.word(1, word), of_b = step.word(2, word / 2);
    const int per_word = is_tf32 ? 1 : 2, half_depth = 4 * per_word;
    for (int n = 0; n < per_word * kLanes; ++n) {
      const auto number_of = [&](U32 x) {
        if (is_tf32) return bits_as<float>(x[n] & 0xffffe000u);
        const uint32_t bits = x[n / 2] >> 16 * (n % 2) & 0xffffu;
        return is_brain ? bits_as<float>(bits << 16) : from_half(bits);
      };
      const int row = n / half_depth, column = n % half_depth;
      a[row + 8 * (word % 2)][column + half_depth * (word / 2)] = number_of(of_a);
      b[column + half_depth * (word / 2)][row] = number_of(of_b);
    }
  }
  U32 sums[4];  // stored last: D may be A, B or C
  for (int word = 0; word < 4; ++word) {
    sums[word] = step.word(3, word);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4 + 8 * (word / 2), column = lane % 4 * 2 + word % 2;
      double sum = bits_as<float>(sums[word][lane]);
      for (int k = 0; k < depth; ++k) sum += (double)a[row][k] * b[k][column];
      sums[word][lane] = bits_as<uint32_t>((float)sum);
    }
  }
  for (int word = 0; word < 4; ++word) step.set(0, sums[word], word);
}
