// Operands: reading with signs and parts, writing the lanes that execute.
#include "state.h"

std::vector<Entry>& entries() {
  static std::vector<Entry> table;
  return table;
}

static std::string name_of(const char* file, int number, int first_uniform) {
  const bool is_uniform = number >= first_uniform;
  return (is_uniform ? "U" : "") + (file + std::to_string(number - is_uniform * first_uniform));
}

bool Step::allows_undefined() const { return warp.block.launch.allows_undefined; }

void Step::require_written(int number, uint32_t used) const {
  if (!allows_undefined() && mask & mask_of(~warp.registers[number].defined & used))
    fail("reads " + name_of("R", number, kFirstUniform) + ", which nobody wrote");
}

U32 Step::constant(const Operand& operand, int which) const {
  const uint8_t* bank = warp.block.launch.constants[operand.bank];
  const uint32_t bytes = warp.block.launch.constant_bytes[operand.bank];
  const auto word_at = [&](uint32_t place) {
    if (!bank || place + 4 > bytes)
      fail("constant bank " + std::to_string(operand.bank) + " has no word at " + hex(place));
    uint32_t word;
    memcpy(&word, bank + place, 4);
    return word;
  };
  const uint32_t first = (uint32_t)operand.value + 4 * which;
  if (operand.index == kZeroRegister && operand.uniform == kZeroRegister)
    return splat(word_at(first));
  const U32 places = register_word(operand.index) + register_word(operand.uniform) + first;
  U32 found = {};
  each_lane(mask, [&](int lane) { found[lane] = word_at(places[lane]); });
  return found;
}

void Step::require_zero(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kRegister || op.index != kZeroRegister) unknown();
}
void Step::require_constant(int n, bool value) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kPredicate || op.index != kTruePredicate ||
      op.flags != (value ? 0 : kInverted))
    unknown();
}

U32 Step::word(int n, int which) const {
  const Operand& op = operand(n);
  if (op.flags) unknown();
  return raw_word(n, which);
}
U32 Step::raw_word(int n, int which, bool has_halves) const {
  const Operand& op = operand(n);
  if (op.kind == Kind::kImmediate) return splat((uint32_t)(op.value >> 32 * which));
  if (op.kind == Kind::kConstant) return constant(op, which);
  if (op.kind != Kind::kRegister) unknown();
  const bool is_low = op.part == Part::kLow, is_high = op.part == Part::kHigh;
  if ((is_low || is_high) && !has_halves) unknown();
  const U32 value = register_word(op.index + which, is_low ? 0xffffu : is_high ? ~0xffffu : kAll);
  const int byte = (int)op.part - (int)Part::kByte0;
  if (byte >= 4) unknown();  // a part that only an address has
  return byte >= 0 ? value >> 8 * byte & 0xffu : value;
}

U32 Step::u32(int n) const { return with_signs(raw_word(n), operand(n).flags); }
U64 Step::u64(int n) const {
  return with_signs(pair(raw_word(n, 0), raw_word(n, 1)), operand(n).flags);
}
F32 Step::f32(int n) const {
  F32 value = (F32)raw_word(n);
  if (has(mFTZ)) value = each<F32>(flushed, value);
  return (F32)with_sign_bits((U32)value, operand(n).flags);
}
Bits Step::bits(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kRegister || op.part != Part::kWhole || op.flags & ~(kInverted | kNegated))
    return {u32(n), splat(kAll)};
  Bits found = warp.registers[op.index];
  if (op.flags & kInverted) found.value = ~found.value;
  if (op.flags & kNegated) {  // a bit depends on no higher one
    const U32 undefined = ~found.defined;
    found = {-found.value, (undefined & -undefined) - 1u};
  }
  return found;
}

Mask Step::predicate(const Operand& op) const {
  if (op.kind != Kind::kPredicate) unknown();
  const Flags& found = warp.predicates[op.index];
  if (mask & ~found.defined && !allows_undefined())
    fail("reads " + name_of("P", op.index, kFirstUniformPredicate) + ", which nobody wrote");
  return op.flags & kInverted ? ~found.value : found.value;
}

U64 Step::address(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kAddress) unknown();
  const auto words_of = [&](int number) {
    return pair(register_word(number), register_word(number + 1));
  };
  const U32 word = register_word(op.index);
  const int shifts[] = {0, 2, 3, 4};  // of kUnsigned, kTimes4, kTimes8, kTimes16
  const U64 base = op.part == Part::kWide ? words_of(op.index)
                   : op.part == Part::kWhole
                       ? wide_signed(word)
                       : wide(word) << shifts[(int)op.part - (int)Part::kUnsigned];
  // In an address of 64 bits, the uniform register has 64 bits, too.
  return base + (op.bank ? words_of(op.uniform) : wide(register_word(op.uniform))) + op.value;
}

int Step::result(int n) const {
  const Operand& to = operand(n);
  if (to.kind != Kind::kRegister) unknown();
  return to.index;
}

void Step::set(int n, const Bits& value, int which) const {
  const int first = result(n), number = first + which;
  if (first == kZeroRegister) return;
  Bits& old = warp.registers[number];
  if (first >= kFirstUniform) {
    const int lane = __builtin_ctz(mask);
    old = {splat(value.value[lane]), splat(value.defined[lane])};
    warp.is_whole[number] = value.defined[lane] == kAll;
  } else {
    old = choose(mask, value, old);
    warp.is_whole[number] = !mask_of(~old.defined);
  }
}

void Step::set(int n, const U32& value, int which) const {
  const int first = result(n), number = first + which;
  if (first == kZeroRegister) return;
  Bits& old = warp.registers[number];
  const Mask written = first >= kFirstUniform ? kAll : mask;
  if (first >= kFirstUniform)
    old.value = splat(value[__builtin_ctz(mask)]);
  else
    old.value = written == kAll ? value : choose(written, value, old.value);
  if (warp.is_whole[number]) return;
  old.defined |= bits_of(written);
  warp.is_whole[number] = written == kAll || !mask_of(~old.defined);
}

void Step::set(int n, F32 value) const {
  const Mask nan = where([](float x) { return x != x; }, value);
  set(n, choose(nan, splat(kNan), (U32)(has(mFTZ) ? each<F32>(flushed, value) : value)));
}

void Step::set_predicate(int n, Mask value, Mask defined) const {
  const Operand& to = operand(n);
  if (to.kind != Kind::kPredicate) unknown();
  if (to.index == kTruePredicate) return;
  const bool is_uniform = to.index >= kFirstUniformPredicate;
  const auto of_all = [&](Mask flags) { return flags >> __builtin_ctz(mask) & 1 ? kAll : 0; };
  const Flags now = is_uniform ? Flags{of_all(value), of_all(defined)} : Flags{value, defined};
  Flags& old = warp.predicates[to.index];
  old = choose(is_uniform ? kAll : mask, now, old);
}

uint64_t combined(const Step& step, uint64_t a, uint64_t b, int size) {
  const bool is_signed = step.has(mS32, mS64);
  const bool is_less = !is_signed  ? a < b
                       : size == 4 ? (int32_t)a < (int32_t)b
                                   : (int64_t)a < (int64_t)b;
  if (step.has(mADD, mSUM)) return a + b;
  if (step.has(mOR)) return a | b;
  if (step.has(mAND)) return a & b;
  if (step.has(mXOR)) return a ^ b;
  if (step.has(mEXCH)) return b;
  if (step.has(mMAX)) return is_less ? b : a;
  if (step.has(mMIN)) return is_less ? a : b;
  if (step.has(mINC)) return !step.has(mPOPC) && a >= b ? 0 : a + 1;
  step.unknown();
}
