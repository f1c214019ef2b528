// Integers, bits and predicates. The source of each is the PTX instruction that is compiled to it.
#include "state.h"

// A term of a sum with a carry: its value, and 1 more where it is negated, so that the carry is right. In an
// extended sum the 1 of the two's complement was added in the lower word.
static U64 term(const Step& step, int n, U32 shift = splat(0)) {
  const uint8_t flags = step.operand(n).flags;
  const U32 word = step.raw_word(n) << shift;
  const U64 value = wide(flags & (kInverted | kNegated) ? ~word : word);
  return flags & kNegated && !step.has(mX) ? value + 1 : value;
}
static U64 carry(const Step& step, int n) { return wide(bits_of(step.predicate(n)) & 1u); }
// The predicates behind the result are those of carries out.
static int num_carries(const Step& step) {
  int count = 0;
  while (step.is_predicate(1 + count)) ++count;
  return count;
}

INSTRUCTION(IADD3, "UIADD3", kAlu, "X", "PTX add, sub, add.cc, addc, subc") {
  const int carries = num_carries(step), n = 1 + carries;
  U64 sum = term(step, n) + term(step, n + 1) + term(step, n + 2);
  for (int k = n + 3; k < step.count(); ++k) sum += carry(step, k);
  step.set(0, low(sum));
  for (int k = 0; k < carries; ++k) step.set_predicate(1 + k, mask_of((sum >> 32) > (uint64_t)k));
}

// The lowest `count` bits of a word, counted modulo 32 if `wraps`; otherwise, all bits for a count above 31.
static uint32_t low_bits(uint32_t count, bool wraps) {
  return count > 31 && !wraps ? kAll : (1u << (count & 31)) - 1;
}
VALUE(BMSK, "UBMSK", kAlu, "W", "PTX bmsk",
      each<U32>(
          [wraps = step.has(mW)](uint32_t from, uint32_t width) {
            if (from > 31 && !wraps) return 0u;
            return low_bits(width, wraps) << (from & 31);
          },
          step.u32(1), step.u32(2)))
VALUE(SGXT, "USGXT", kAlu, "W U32", "PTX szext",
      each<U32>(
          [wraps = step.has(mW), is_signed = !step.has(mU32)](uint32_t value, uint32_t width) {
            const uint32_t kept = low_bits(width, wraps), sign = kept & ~(kept >> 1);
            return (value & kept) | (is_signed && value & sign ? ~kept : 0);
          },
          step.u32(1), step.u32(2)))
VALUE(VIADD, "", kAlu, "", "PTX add.s32", step.u32(1) + step.u32(2))
VALUE(IABS, "", kAlu, "", "PTX abs.s32",
      each<U32>([](uint32_t x) { return (int32_t)x < 0 ? -x : x; }, step.u32(1)))

// Bits that nobody wrote are passed on: their values matter only where they are used.
static void move(const Step& step, int n) {
  step.are_whole(n, 1) ? step.set(0, step.u32(n)) : step.set(0, step.bits(n));
}

// The bits of a product that are defined. A bit depends on no higher bit of a factor, and the low zeros of a
// factor move the bits of the other factor up. So a compiler shifts out an unwritten half of a register.
static U32 defined_of_product(const Bits& a, const Bits& b) {
  const auto zeros = [](uint32_t value, uint32_t defined) {
    return __builtin_ctzll(1ull << 32 | value | ~defined);
  };
  const auto below_undefined = [&](uint32_t a, uint32_t a_is, uint32_t b, uint32_t b_is) {
    const uint64_t not_a = kAll ^ a_is, not_b = kAll ^ b_is;
    const uint64_t undefined = not_a << zeros(b, b_is) | not_b << zeros(a, a_is);
    return (uint32_t)((undefined & -undefined) - 1);
  };
  if (!mask_of(~(a.defined & b.defined))) return splat(kAll);
  return each<U32>(below_undefined, a.value, a.defined, b.value, b.defined);
}

INSTRUCTION(IMAD, "UIMAD", kHeavy, "X WIDE U32 S32 HI MOV SHL IADD",
            "PTX mad.lo, mad.hi, mad.wide, mad.cc, madc") {
  if (step.has(mMOV)) {
    step.require_zero(1), step.require_zero(2);
    return move(step, 3);
  }
  const int carries = num_carries(step), n = 1 + carries;
  const U64 carried = step.has(mX) ? carry(step, n + 3) : U64{};
  if (!step.has(mWIDE, mHI)) {
    if (carries) step.unknown();
    if (step.are_whole(n, 3)) {
      const U32 product = step.u32(n) * step.u32(n + 1);
      return step.set(0, product + low(term(step, n + 2) + carried));
    }
    const Bits a = step.bits(n), b = step.bits(n + 1);
    const bool is_plain = !step.has(mX) && !step.operand(n + 2).flags;
    const Bits c =
        is_plain ? step.bits(n + 2) : Bits{low(term(step, n + 2) + carried), splat(kAll)};
    const U32 undefined = ~(defined_of_product(a, b) & c.defined);
    // Nor does a bit of a sum depend on a higher one of a term.
    return step.set(0, Bits{a.value * b.value + c.value, (undefined & -undefined) - 1u});
  }
  const U32 a = step.u32(n), b = step.u32(n + 1);
  const U64 product = step.has(mU32) ? wide(a) * wide(b) : wide_signed(a) * wide_signed(b);
  const U64 addend = step.u64(n + 2), sum = product + addend, total = sum + carried;
  step.has(mWIDE) ? step.set(0, total) : step.set(0, high(total));
  if (carries) step.set_predicate(1, mask_of(sum < addend) | mask_of(total < sum));
}

INSTRUCTION(LEA, "ULEA", kAlu, "HI X SX32", "PTX shl, add.cc, addc") {
  const int carries = num_carries(step), n = 1 + carries;
  U64 sum;
  if (!step.has(mHI)) {
    sum = term(step, n, step.u32(n + 2)) + term(step, n + 1);
  } else {
    const bool extends = step.has(mSX32);
    const int shift = extends ? n + 2 : n + 3;
    const U64 value = extends ? wide_signed(step.u32(n)) : pair(step.u32(n), step.u32(n + 2));
    sum = wide(high(value << wide(step.word(shift)))) + term(step, n + 1);
    if (step.has(mX)) sum += carry(step, shift + 1);
  }
  step.set(0, low(sum));
  if (carries) step.set_predicate(1, mask_of(sum >> 32));
}

INSTRUCTION(SHF, "USHF", kAlu, "L R W U32 S32 U64 S64 HI", "PTX shf.l, shf.r, shl, shr") {
  const bool is_wide = step.has(mU64, mS64);
  const bool is_signed = (is_wide || step.has(mHI)) && step.has(mS32, mS64);
  const uint32_t width = is_wide ? 64 : 32;
  const auto shifted = [&](uint64_t value, uint32_t amount) -> uint64_t {
    amount = step.has(mW) ? amount & (width - 1) : std::min(amount, width);
    if (!step.has(mL) && is_signed) return (int64_t)value >> std::min(amount, 63u);
    return amount == 64 ? 0 : step.has(mL) ? value << amount : value >> amount;
  };
  const Bits less = step.bits(1), more = step.bits(3);
  const auto moved = [&](U32 low_word, U32 high_word) {
    const U64 found = each<U64>(shifted, pair(low_word, high_word), step.u32(2));
    return step.has(mHI) ? high(found) : low(found);
  };
  step.set(0, Bits{moved(less.value, more.value), ~moved(~less.defined, ~more.defined)});
}

// The bits of a table of 8, chosen by a bit of each operand.
template <typename Value>
static Known<Value> looked_up(uint64_t table, const Known<Value> (&operands)[3]) {
  // A bit of the result is defined if it is the same whatever the undefined bits are.
  Value found = {}, may_be[2] = {};
  for (int row = 0; row < 8; ++row) {
    Value is_row = ~Value{}, may_be_row = ~Value{};
    for (int k = 0; k < 3; ++k) {
      const Value is_bit = row >> (2 - k) & 1 ? operands[k].value : ~operands[k].value;
      is_row &= is_bit;
      may_be_row &= is_bit | ~operands[k].defined;
    }
    may_be[table >> row & 1] |= may_be_row;
    if (table >> row & 1) found |= is_row;
  }
  return {found, ~(may_be[0] & may_be[1])};
}
// The same for operands with all bits defined.
static U32 looked_up(uint64_t table, const U32& a, const U32& b, const U32& c) {
  const auto all_if = [&](int row) { return table >> row & 1 ? kAll : 0; };
  // By the bits of the first two operands.
  U32 of_pair[4];
  for (int n = 0; n < 4; ++n) of_pair[n] = (c & all_if(2 * n + 1)) | (~c & all_if(2 * n));
  return (a & ((b & of_pair[3]) | (~b & of_pair[2]))) |
         (~a & ((b & of_pair[1]) | (~b & of_pair[0])));
}
INSTRUCTION(LOP3, "ULOP3", kAlu, "LUT PAND POR", "PTX lop3.b32") {
  const int n = step.is_predicate(0);
  if (!n && step.are_whole(1, 3)) {
    if (step.count() > 5) step.require_constant(5, false);
    return step.set(0, looked_up(step.operand(4).value, step.u32(1), step.u32(2), step.u32(3)));
  }
  const Bits operands[] = {step.bits(n + 1), step.bits(n + 2), step.bits(n + 3)};
  const Bits found = looked_up(step.operand(n + 4).value, operands);
  step.set(n, found);
  if (!n) {
    if (step.count() > 5) step.require_constant(5, false);
    return;
  }
  const Mask given = step.predicate(n + 5), is_set = mask_of(found.value);
  step.set_predicate(0, step.has(mPAND) ? is_set & given : is_set | given,
                     mask_of(found.defined == kAll));
}
INSTRUCTION(PLOP3, "UPLOP3", kAlu, "LUT", "PTX and.pred, or.pred, xor.pred, not.pred") {
  Flags operands[3];
  for (int n = 0; n < 3; ++n) operands[n] = {step.predicate(2 + n), kAll};
  for (int n = 0; n < 2; ++n)
    step.set_predicate(n, looked_up(step.operand(5 + n).value, operands).value);
}

INSTRUCTION(ISETP, "UISETP", kAlu, "EQ NE LT LE GT GE U32 AND OR XOR EX", "PTX setp") {
  const bool are_known = step.are_whole(2, 2);
  const Bits a = step.bits(2), b = step.bits(3);
  Mask found = step.has(mU32) ? compared(step, a.value, b.value)
                              : compared(step, (S32)a.value, (S32)b.value);
  if (step.has(mEX)) {
    // The upper words of 64-bit numbers: where they are equal the comparison of the lower ones decides.
    const Mask lower = step.predicate(5), are_equal = mask_of(a.value == b.value);
    found = step.has(mNE) ? found | lower : (found & ~are_equal) | (are_equal & lower);
  }
  const Mask given = step.predicate(4);
  // Where the given predicate decides alone, the compared values do not matter.
  const Mask decided = step.has(mAND) ? ~given : step.has(mOR) ? given : 0;
  const Mask known = are_known ? kAll : mask_of((a.defined & b.defined) == kAll) | decided;
  step.set_predicate(0, combined(step, found, given), known);
  step.set_predicate(1, combined(step, ~found, given), known);
}

VALUE(SEL, "USEL", kAlu, "", "PTX selp", choose(step.predicate(3), step.bits(1), step.bits(2)))
INSTRUCTION(MOV, "UMOV", kAlu, "", "PTX mov") { move(step, 1); }
// Four bytes of two words, each chosen by four bits of a selector; the highest one asks only for its sign.
static U32 permuted(const U32& lower, const U32& upper, const U32& selector) {
  U32 found = {};
  for (int byte = 0; byte < 4; ++byte) {
    const U32 choice = selector >> 4 * byte;
    const U32 is_upper = -(choice >> 2 & 1u);
    const U32 word = (upper & is_upper) | (lower & ~is_upper);
    const U32 chosen = word >> 8 * (choice & 3u) & 0xffu;
    const U32 is_sign = -(choice >> 3 & 1u);
    found |= ((-(chosen >> 7) & is_sign & 0xffu) | (chosen & ~is_sign)) << 8 * byte;
  }
  return found;
}
INSTRUCTION(PRMT, "UPRMT", kAlu, "", "PTX prmt") {
  const U32 selector = step.u32(2);
  if (step.are_whole(1, 1) && step.are_whole(3, 1))
    return step.set(0, permuted(step.u32(1), step.u32(3), selector));
  const Bits a = step.bits(1), b = step.bits(3);
  step.set(0, Bits{permuted(a.value, b.value, selector), permuted(a.defined, b.defined, selector)});
}

static U32 extreme(const Step& step, U32 a, U32 b, Mask least) {
  const Mask is_less = step.has(mU32) ? mask_of(a < b) : mask_of((S32)a < (S32)b);
  return choose(~(is_less ^ least), a, b);
}
// A half is known if all its bits were written: compilers leave the upper half to chance.
static Bits extreme_halves(const Step& step, Bits a, Bits b, Mask least) {
  const auto extreme_of = [&](U32 x, U32 y) {
    const Mask is_less = step.has(mU16x2) ? mask_of(x < y) : mask_of((S32)x < (S32)y);
    return choose(~(is_less ^ least), x, y);
  };
  const U32 lower = splat(0xffff), upper = splat(0xffff0000), known = a.defined & b.defined;
  return {
      extreme_of(a.value << 16, b.value << 16) >> 16 | extreme_of(a.value & upper, b.value & upper),
      ((U32)((known & lower) == lower) & lower) | ((U32)((known & upper) == upper) & upper)};
}
INSTRUCTION(VIMNMX, "", kAlu, "U32 U16x2 S16x2", "PTX min, max") {
  const Mask least = step.predicate(3);
  if (step.has(mU16x2, mS16x2))
    step.set(0, extreme_halves(step, step.bits(1), step.bits(2), least));
  else
    step.set(0, extreme(step, step.u32(1), step.u32(2), least));
}
// No source states its rate; assumed to be that of two operands.
INSTRUCTION(VIMNMX3, "", kAlu, "U32", "PTX min, max of three") {
  const Mask least = step.predicate(4);
  step.set(0, extreme(step, extreme(step, step.u32(1), step.u32(2), least), step.u32(3), least));
}
// Halves are known only if all bits of both were written.
INSTRUCTION(VIADDMNMX, "", kAlu, "U32 U16x2", "PTX add, then min or max") {
  const Mask least = step.predicate(4);
  if (step.has(mU16x2)) {
    const U32 a = step.u32(1), b = step.u32(2), upper = splat(0xffff0000);
    const U32 sum = (a & upper) + (b & upper) + ((a + b) & ~upper);
    step.set(0, extreme_halves(step, {sum, splat(kAll)}, {step.u32(3), splat(kAll)}, least));
  } else {
    step.set(0, extreme(step, step.u32(1) + step.u32(2), step.u32(3), least));
  }
}
VALUE(POPC, "UPOPC", kSpecial, "", "PTX popc",
      each<U32>([](uint32_t x) { return __builtin_popcount(x); }, step.u32(1)))
INSTRUCTION(BREV, "", kSpecial, "", "PTX brev") {
  const U32 value = step.u32(1);
  U32 found = {};
  for (int bit = 0; bit < 32; ++bit) found |= (value >> bit & 1u) << (31 - bit);
  step.set(0, found);
}
INSTRUCTION(FLO, "UFLO", kSpecial, "U32 SH", "PTX bfind, bfind.shiftamt") {
  if (!step.has(mU32)) step.unknown();
  const auto highest = [&](uint32_t x) {
    return !x ? kAll : step.has(mSH) ? __builtin_clz(x) : 31 - __builtin_clz(x);
  };
  step.set(0, each<U32>(highest, step.u32(1)));
}

constexpr int kNumPredicates = 7;  // P0 to P6
INSTRUCTION(P2R, "", kAlu, "B1 B2 B3", "PTX mov of several predicates") {
  if (step.operand(1).kind != Kind::kPredicates) step.unknown();
  const int shift = step.has(mB1) ? 8 : step.has(mB2) ? 16 : step.has(mB3) ? 24 : 0;
  Bits found = step.bits(2);
  for (int n = 0; n < kNumPredicates; ++n) {
    const U32 bit = (step.u32(3) & (1u << n)) << shift;
    const Flags& flags = step.warp.predicates[n];
    found.value = (found.value & ~bit) | (bits_of(flags.value) & bit);
    found.defined = (found.defined & ~bit) | (bits_of(flags.defined) & bit);
  }
  step.set(0, found);
}
INSTRUCTION(R2P, "", kAlu, "", "the inverse of P2R") {
  if (step.operand(0).kind != Kind::kPredicates) step.unknown();
  const Bits bits = step.bits(1);
  for (int n = 0; n < kNumPredicates; ++n) {
    const uint32_t bit = 1u << n;
    Flags& old = step.warp.predicates[n];
    const Flags now = {mask_of(bits.value & bit), mask_of(bits.defined & bit)};
    old = choose(mask_of(step.u32(2) & bit) & step.mask, now, old);
  }
}

struct Special {
  const char* name;
  U32 (*value)(const Warp&, const Block&);
};
static const U32 kLane = [] {
  U32 lane = {};
  for (int n = 0; n < kLanes; ++n) lane[n] = n;
  return lane;
}();
static const U32 kBit = splat(1) << kLane;
static U32 thread(const Warp& warp) { return kLane + kLanes * warp.number; }
static uint64_t nanoseconds(const Block& block) { return block.clock * 50 / 99; }  // at 1.98 GHz

#define SPECIAL(name, value) \
  {name, []([[maybe_unused]] const Warp& w, [[maybe_unused]] const Block& b) { return value; }}
static const Special kSpecials[] = {
    SPECIAL("SRZ", U32{}),
    SPECIAL("SR_TID.X", thread(w) % b.launch.block[0]),
    SPECIAL("SR_TID.Y", thread(w) / b.launch.block[0] % b.launch.block[1]),
    SPECIAL("SR_TID.Z", thread(w) / (b.launch.block[0] * b.launch.block[1])),
    SPECIAL("SR_CTAID.X", splat(b.index[0])),
    SPECIAL("SR_CTAID.Y", splat(b.index[1])),
    SPECIAL("SR_CTAID.Z", splat(b.index[2])),
    SPECIAL("SR_NCTAID.X", splat(b.launch.grid[0])),
    SPECIAL("SR_LANEID", kLane),
    SPECIAL("SR_WARPID", splat(w.number)),
    SPECIAL("SR_CgaCtaId", splat(b.rank)),
    SPECIAL("SR_SWINHI", splat(kSharedWindow)),
    SPECIAL("SR_VIRTUALSMID", splat(b.multiprocessor)),
    // Of two words; the upper one comes behind the lower.
    SPECIAL("SR_CLOCKLO", splat((uint32_t)b.clock)),
    SPECIAL("SR_CLOCKHI", splat((uint32_t)(b.clock >> 32))),
    SPECIAL("SR_GLOBALTIMERLO", splat((uint32_t)nanoseconds(b))),
    SPECIAL("SR_GLOBALTIMERHI", splat((uint32_t)(nanoseconds(b) >> 32))),
    SPECIAL("SR_EQMASK", kBit),
    SPECIAL("SR_LTMASK", kBit - 1),
    SPECIAL("SR_LEMASK", (kBit - 1) | kBit),
    SPECIAL("SR_GTMASK", ~((kBit - 1) | kBit)),
    SPECIAL("SR_GEMASK", ~(kBit - 1)),
};
std::string special_names() {
  std::string names;
  for (const Special& special : kSpecials) names += std::string(special.name) + " ";
  return names;
}
static U32 special(const Step& step, int beyond = 0) {
  if (step.operand(1).kind != Kind::kSpecial) step.unknown();
  return kSpecials[step.operand(1).value + beyond].value(step.warp, step.warp.block);
}
VALUE(S2R, "S2UR", kMemory, "", "PTX mov of a special register", special(step))
INSTRUCTION(CS2R, "", kAlu, "32", "PTX mov of a special register, of 64 bits as a rule") {
  step.set(0, special(step));
  if (step.has(m32)) return;
  const std::string name = kSpecials[step.operand(1).value].name;
  const bool has_upper = name.size() > 2 && name.substr(name.size() - 2) == "LO";
  step.set(0, has_upper ? special(step, 1) : U32{}, 1);
}
// A predicate in front tells whether all lanes have the value of the first one.
INSTRUCTION(R2UR, "", kAlu, "", "PTX mov to a register that all lanes share") {
  const int n = step.is_predicate(0);
  const U32 value = step.u32(n + 1);
  if (n) {
    const Mask same = mask_of(value == value[__builtin_ctz(step.mask)]);
    step.set_predicate(0, step.mask & ~same ? 0 : kAll);
  }
  step.set(n, value);
}
