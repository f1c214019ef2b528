// Integers, bits and predicates. The source of each is the PTX instruction that is compiled to it.
#include "state.h"

// A term of a sum with a carry: its value, and 1 more where it is negated, so that the carry is right.
static U64 term(const Step& step, int n) {
  const Operand& operand = step.operand(n);
  const U32 value = step.raw(n);
  if (operand.flags & kInverted) return wide(~value);
  if (!(operand.flags & kNegated)) return wide(value);
  // In an extended sum the 1 of the two's complement was added in the lower word.
  return step.has(mX) ? wide(~value) : wide(~value) + 1;
}
static U64 carry(const Step& step, int n) { return wide(bits_of(step.predicate(n)) & 1u); }

INSTRUCTION(IADD3, "UIADD3", kAlu, "X", "PTX add, sub, add.cc, addc, subc") {
  int n = 1;
  while (step.is_predicate(n)) ++n;
  const int num_carries = n - 1;
  U64 sum = term(step, n) + term(step, n + 1) + term(step, n + 2);
  for (int k = n + 3; k < step.count(); ++k) sum += carry(step, k);
  step.set(0, low(sum));
  for (int k = 0; k < num_carries; ++k)
    step.set_predicate(1 + k, mask_of((sum >> 32) > (uint64_t)k));
}

INSTRUCTION(VIADD, "", kAlu, "", "PTX add.s32") { step.set(0, step.u32(1) + step.u32(2)); }
INSTRUCTION(IABS, "", kAlu, "", "PTX abs.s32") {
  const S32 value = (S32)step.u32(1);
  step.set(0, (U32)(value < 0 ? -value : value));
}

INSTRUCTION(IMAD, "UIMAD", kHeavy, "X WIDE U32 S32 HI MOV SHL IADD",
            "PTX mad.lo, mad.hi, mad.wide, mad.cc, madc") {
  if (step.has(mMOV)) {
    step.set_partly(0, step.undefined(3), step.defined(3));
    return;
  }
  const bool has_carry = step.is_predicate(1);
  const int n = has_carry ? 2 : 1;
  const bool is_wide = step.has(mWIDE), is_high = step.has(mHI);
  if (!is_wide && !is_high) {
    if (has_carry) step.unknown();
    // In an extended sum a negated addend is an inverted one, as in `term`.
    U32 sum = step.u32(n) * step.u32(n + 1) + low(term(step, n + 2));
    if (step.has(mX)) sum += low(carry(step, n + 3));
    step.set(0, sum);
    return;
  }
  const bool is_unsigned = step.has(mU32);
  const U32 a = step.u32(n), b = step.u32(n + 1);
  const U64 product = is_unsigned ? wide(a) * wide(b) : wide_signed(a) * wide_signed(b);
  const U64 addend = step.u64(n + 2);
  U64 sum = product + addend;
  U64 carries = (U64)(sum < addend) & 1;
  if (step.has(mX)) {
    const U64 more = sum + carry(step, n + 3);
    carries |= (U64)(more < sum) & 1;
    sum = more;
  }
  if (is_wide)
    step.set64(0, sum);
  else
    step.set(0, high(sum));
  if (has_carry) step.set_predicate(1, mask_of(carries));
}

INSTRUCTION(LEA, "ULEA", kAlu, "HI X SX32", "PTX shl, add.cc, addc") {
  const bool has_carry = step.is_predicate(1);
  const int n = has_carry ? 2 : 1;
  U64 sum;
  if (!step.has(mHI)) {
    const U32 shifted = step.raw(n) << step.raw(n + 2);
    const bool is_negated = step.operand(n).flags & kNegated;
    if (step.operand(n).flags & ~kNegated) step.unknown();
    sum = wide(is_negated ? ~shifted : shifted) + (is_negated ? 1 : 0) + wide(step.u32(n + 1));
  } else {
    const bool extends = step.has(mSX32);
    const int shift = extends ? n + 2 : n + 3;
    const U64 value = extends ? wide_signed(step.u32(n)) : pair(step.u32(n), step.u32(n + 2));
    sum = wide(high(value << wide(step.raw(shift)))) + term(step, n + 1);
    if (step.has(mX)) sum += carry(step, shift + 1);
  }
  step.set(0, low(sum));
  if (has_carry) step.set_predicate(1, mask_of(sum >> 32));
}

INSTRUCTION(SHF, "USHF", kAlu, "L R W U32 S32 U64 S64 HI", "PTX shf.l, shf.r, shl, shr") {
  const U64 value = pair(step.u32(1), step.u32(3));
  const bool is_wide = step.has(mU64) || step.has(mS64);
  const bool is_signed = step.has(mS32) || step.has(mS64);
  const uint32_t width = is_wide ? 64 : 32;
  U32 amount = step.u32(2);
  amount = step.has(mW) ? amount & (width - 1) : (amount > width ? splat(width) : amount);
  U64 shifted = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t k = amount[lane];
    if (step.has(mL)) {
      shifted[lane] = k == 64 ? 0 : value[lane] << k;
    } else if (is_signed && (is_wide || step.has(mHI))) {
      shifted[lane] = (uint64_t)((int64_t)value[lane] >> (k > 63 ? 63 : k));
    } else {
      shifted[lane] = k == 64 ? 0 : value[lane] >> k;
    }
  }
  step.set(0, step.has(mHI) ? high(shifted) : low(shifted));
}

INSTRUCTION(LOP3, "ULOP3", kAlu, "LUT PAND POR", "PTX lop3.b32") {
  const bool has_predicate = step.is_predicate(0);
  const int n = has_predicate ? 1 : 0;
  const U32 values[] = {step.undefined(n + 1), step.undefined(n + 2), step.undefined(n + 3)};
  const U32 defined[] = {step.defined(n + 1), step.defined(n + 2), step.defined(n + 3)};
  const uint64_t table = step.operand(n + 4).value;
  // A bit of the result is defined if it is the same whatever the undefined bits are.
  U32 found = {}, may_be_0 = {}, may_be_1 = {};
  for (int row = 0; row < 8; ++row) {
    U32 is_row = splat(kAll), may_be_row = splat(kAll);
    for (int k = 0; k < 3; ++k) {
      const U32 is_bit = row >> (2 - k) & 1 ? values[k] : ~values[k];
      is_row &= is_bit;
      may_be_row &= is_bit | ~defined[k];
    }
    (table >> row & 1 ? may_be_1 : may_be_0) |= may_be_row;
    if (table >> row & 1) found |= is_row;
  }
  const U32 known = ~(may_be_0 & may_be_1);
  step.set_partly(n, found, known);
  if (!has_predicate) return;
  const Mask given = step.predicate(n + 5), is_set = mask_of(found);
  step.set_predicate(0, step.has(mPAND) ? is_set & given : is_set | given, mask_of(known == kAll));
}

INSTRUCTION(PLOP3, "", kAlu, "LUT", "PTX and.pred, or.pred, xor.pred, not.pred") {
  const Mask a = step.predicate(2), b = step.predicate(3), c = step.predicate(4);
  for (int result = 0; result < 2; ++result) {
    Mask found = 0;
    for (int row = 0; row < 8; ++row)
      if (step.operand(5 + result).value >> row & 1)
        found |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    step.set_predicate(result, found);
  }
}

template <typename Vector>
static Mask compared(const Step& step, Vector a, Vector b) {
  if (step.has(mEQ)) return mask_of(a == b);
  if (step.has(mNE)) return mask_of(a != b);
  if (step.has(mLT)) return mask_of(a < b);
  if (step.has(mLE)) return mask_of(a <= b);
  if (step.has(mGT)) return mask_of(a > b);
  if (step.has(mGE)) return mask_of(a >= b);
  step.unknown();
}
static Mask combined(const Step& step, Mask a, Mask b) {
  if (step.has(mAND)) return a & b;
  if (step.has(mOR)) return a | b;
  if (step.has(mXOR)) return a ^ b;
  step.unknown();
}

INSTRUCTION(ISETP, "UISETP", kAlu, "EQ NE LT LE GT GE U32 AND OR XOR EX", "PTX setp") {
  const U32 a = step.undefined(2), b = step.undefined(3);
  const Mask known = mask_of((step.defined(2) & step.defined(3)) == kAll);
  Mask found = step.has(mU32) ? compared(step, a, b) : compared(step, (S32)a, (S32)b);
  if (step.has(mEX)) {
    // The upper words of 64-bit numbers: where they are equal the comparison of the lower ones decides.
    const Mask lower = step.predicate(5), are_equal = mask_of(a == b);
    found = step.has(mNE) ? found | lower : (found & ~are_equal) | (are_equal & lower);
  }
  const Mask given = step.predicate(4);
  // Where the given predicate decides alone, it does not matter what is compared.
  const Mask decided = step.has(mAND) ? ~given : step.has(mOR) ? given : 0;
  step.set_predicate(0, combined(step, found, given), known | decided);
  step.set_predicate(1, combined(step, ~found, given), known | decided);
}

// Bits that nobody wrote are passed on: what they are matters only where they are used.
INSTRUCTION(SEL, "USEL", kAlu, "", "PTX selp") {
  const Mask chosen = step.predicate(3);
  step.set_partly(0, choose(chosen, step.undefined(1), step.undefined(2)),
                  choose(chosen, step.defined(1), step.defined(2)));
}

INSTRUCTION(MOV, "UMOV", kAlu, "", "PTX mov") {
  step.set_partly(0, step.undefined(1), step.defined(1));
}

INSTRUCTION(PRMT, "", kAlu, "", "PTX prmt") {
  const U32 selector = step.u32(2);
  const auto permuted = [&](U64 bytes) {
    U32 found = {};
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int byte = 0; byte < 4; ++byte) {
        const uint32_t choice = selector[lane] >> 4 * byte & 15;
        const int8_t chosen = (int8_t)(bytes[lane] >> 8 * (choice & 7));
        found[lane] |= (uint32_t)(uint8_t)(choice & 8 ? chosen >> 7 : chosen) << 8 * byte;
      }
    }
    return found;
  };
  step.set_partly(0, permuted(pair(step.undefined(1), step.undefined(3))),
                  permuted(pair(step.defined(1), step.defined(3))));
}

template <typename Vector>
static U32 least_or_most(Vector a, Vector b, Mask least) {
  return choose(least, (U32)(a < b ? a : b), (U32)(a > b ? a : b));
}
INSTRUCTION(VIMNMX, "", kAlu, "U32", "PTX min, max") {
  const U32 a = step.u32(1), b = step.u32(2);
  const Mask least = step.predicate(3);
  step.set(0, step.has(mU32) ? least_or_most(a, b, least) : least_or_most((S32)a, (S32)b, least));
}
INSTRUCTION(VIADDMNMX, "", kAlu, "U32", "PTX add, then min or max") {
  const U32 a = step.u32(1) + step.u32(2), b = step.u32(3);
  const Mask least = step.predicate(4);
  step.set(0, step.has(mU32) ? least_or_most(a, b, least) : least_or_most((S32)a, (S32)b, least));
}

INSTRUCTION(POPC, "", kSpecial, "", "PTX popc") {
  step.set(0, each<U32>(step.u32(1), [](uint32_t x) { return (uint32_t)__builtin_popcount(x); }));
}
INSTRUCTION(BREV, "", kSpecial, "", "PTX brev") {
  step.set(0, each<U32>(step.u32(1), [](uint32_t x) {
             uint32_t found = 0;
             for (int bit = 0; bit < 32; ++bit) found |= (x >> bit & 1) << (31 - bit);
             return found;
           }));
}
INSTRUCTION(FLO, "UFLO", kSpecial, "U32 SH", "PTX bfind, bfind.shiftamt") {
  if (!step.has(mU32)) step.unknown();
  const bool is_shift = step.has(mSH);
  step.set(
      0, each<U32>(step.u32(1), [is_shift](uint32_t x) {
        return !x ? 0xffffffffu : is_shift ? (uint32_t)__builtin_clz(x) : 31u - __builtin_clz(x);
      }));
}

INSTRUCTION(P2R, "", kAlu, "", "PTX mov of several predicates") {
  const U32 chosen = step.u32(3);
  U32 found = {};
  for (int n = 0; n < 7; ++n) {
    const U32 bit = chosen & (1u << n);
    if (!mask_of(bit & bits_of(step.mask))) continue;
    found |= bits_of(step.warp.predicate(n, false, step.mask)) & bit;
  }
  step.set(0, (step.u32(2) & ~chosen) | found);
}
static U32 special(const Step& step, Special which) {
  const Warp& warp = step.warp;
  const Block& block = *warp.block;
  U32 lane;
  for (int n = 0; n < kLanes; ++n) lane[n] = n;
  const U32 thread = lane + (uint32_t)(kLanes * warp.number);
  const uint32_t* sizes = block.launch->block;
  switch (which) {
    case Special::kZero:
      return U32{};
    case Special::kTidX:
      return thread % sizes[0];
    case Special::kTidY:
      return thread / sizes[0] % sizes[1];
    case Special::kTidZ:
      return thread / (sizes[0] * sizes[1]);
    case Special::kCtaidX:
      return splat(block.index[0]);
    case Special::kCtaidY:
      return splat(block.index[1]);
    case Special::kCtaidZ:
      return splat(block.index[2]);
    case Special::kNctaidX:
      return splat(block.launch->grid[0]);
    case Special::kLaneId:
      return lane;
    case Special::kWarpId:
      return splat(warp.number);
    case Special::kCgaCtaId:
      return splat(block.rank);
    case Special::kSharedWindow:
      return splat(kSharedWindow);
    case Special::kClockLow:
      return splat((uint32_t)block.clock);
    case Special::kClockHigh:
      return splat((uint32_t)(block.clock >> 32));
    // A clock of 1.98 GHz in nanoseconds.
    case Special::kTimerLow:
      return splat((uint32_t)(block.clock * 50 / 99));
    case Special::kTimerHigh:
      return splat((uint32_t)(block.clock * 50 / 99 >> 32));
    case Special::kLaneMaskEqual:
      return splat(1) << lane;
    case Special::kLaneMaskLess:
      return (splat(1) << lane) - 1;
    case Special::kLaneMaskLessEqual:
      return ((splat(1) << lane) - 1) | splat(1) << lane;
    case Special::kLaneMaskGreaterEqual:
      return ~((splat(1) << lane) - 1);
    case Special::kLaneMaskGreater:
      return ~(((splat(1) << lane) - 1) | splat(1) << lane);
    case Special::kVirtualSm:
      return splat(block.multiprocessor);
  }
  step.unknown();
}
INSTRUCTION(S2R, "S2UR", kMemory, "", "PTX mov of a special register") {
  if (step.operand(1).kind != Kind::kSpecial) step.unknown();
  step.set(0, special(step, (Special)step.operand(1).value));
}
INSTRUCTION(CS2R, "", kAlu, "32", "PTX mov of a special register, of 64 bits as a rule") {
  if (step.operand(1).kind != Kind::kSpecial) step.unknown();
  const Special which = (Special)step.operand(1).value;
  step.set(0, special(step, which));
  if (step.has(m32)) return;
  const bool has_upper = which == Special::kClockLow || which == Special::kTimerLow;
  step.set(0, has_upper ? special(step, (Special)((int)which + 1)) : U32{}, 1);
}
INSTRUCTION(R2UR, "", kAlu, "", "PTX mov to a register that all lanes share") {
  step.set(0, step.u32(1));
}
