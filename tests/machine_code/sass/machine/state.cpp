// Operands: reading with signs and parts, writing the lanes that execute.
#include "state.h"

std::vector<Entry>& entries() {
  static std::vector<Entry> table;
  return table;
}

static Operand register_of(Kind kind, int16_t index) {
  return {kind, 0, Part::kWhole, 0, index, -1, 0};
}

U32 Step::constant(const Operand& operand, int which) const {
  const uint8_t* bank = warp.block->launch.constants[operand.bank];
  const uint32_t bytes = warp.block->launch.constant_bytes[operand.bank];
  U32 places = splat((uint32_t)operand.value + 4 * which);
  if (operand.index >= 0) places += read(register_of(Kind::kRegister, operand.index), 0);
  if (operand.uniform >= 0) places += read(register_of(Kind::kUniform, operand.uniform), 0);
  U32 found = {};
  each_lane(mask, [&](int lane) {
    const uint32_t place = places[lane];
    if (!bank || place + 4 > bytes)
      fail("constant bank " + std::to_string(operand.bank) + " has no word at " + hex(place));
    uint32_t word;
    memcpy(&word, bank + place, 4);
    found[lane] = word;
  });
  return found;
}

U32 Step::read(const Operand& operand, int which) const {
  const int number = operand.index + which;
  U32 value = {};
  bool is_defined = true;
  if (operand.kind == Kind::kRegister) {
    if (operand.index == kZeroRegister) return value;
    const uint32_t used = operand.part == Part::kLow    ? 0xffffu
                          : operand.part == Part::kHigh ? ~0xffffu
                                                        : kAll;
    is_defined = !(mask & where([=](uint32_t bits) { return ~bits & used; }, warp.defined[number]));
    value = warp.registers[number];
  } else if (operand.kind == Kind::kUniform) {
    if (operand.index == kZeroUniform) return value;
    is_defined = warp.uniform_defined[number];
    value = splat(warp.uniform[number]);
  } else if (operand.kind == Kind::kImmediate) {
    value = splat((uint32_t)(operand.value >> 32 * which));
  } else if (operand.kind == Kind::kConstant) {
    value = constant(operand, which);
  } else {
    unknown();
  }
  if (!is_defined)
    fail((operand.kind == Kind::kUniform ? "reads UR" : "reads R") + std::to_string(number) +
         ", which nobody wrote");
  const int byte = (int)operand.part - (int)Part::kByte0;
  return byte >= 0 && byte < 4 ? value >> 8 * byte & 0xffu : value;
}

U32 Step::with_flags(int n, U32 value) const {
  const uint8_t flags = operand(n).flags;
  if (flags & kAbsolute) value = (U32)((S32)value < 0 ? -(S32)value : (S32)value);
  if (flags & kInverted) value = ~value;
  return flags & kNegated ? -value : value;
}

U64 Step::u64(int n) const {
  const Operand& op = operand(n);
  U64 value = words(n);
  if (op.flags & kInverted) value = ~value;
  return op.flags & kNegated ? -value : value;
}

F32 Step::f32(int n) const {
  F32 value = (F32)word(n);
  if (has(mFTZ)) value = each<F32>(flushed, value);
  if (operand(n).flags & kAbsolute) value = (F32)((U32)value & 0x7fffffffu);
  return operand(n).flags & kNegated ? (F32)((U32)value ^ 0x80000000u) : value;
}

Bits Step::bits(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kRegister || op.index == kZeroRegister) return {u32(n), splat(kAll)};
  const U32& defined = warp.defined[op.index];
  if (op.part != Part::kWhole || op.flags & ~kInverted) return {u32(n), defined};
  return {op.flags & kInverted ? ~warp.registers[op.index] : warp.registers[op.index], defined};
}

Mask Step::predicate(int n) const {
  if (!is_predicate(n)) unknown();
  const Operand& op = operand(n);
  const Mask value = warp.predicate(op.index, op.kind == Kind::kUniformPredicate, mask);
  return op.flags & kInverted ? ~value : value;
}

U64 Step::address(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kAddress) unknown();
  U64 found = splat64(op.value);
  if (op.index >= 0 && op.index != kZeroRegister) {
    const Operand base = register_of(Kind::kRegister, op.index);
    const U32 word = read(base, 0);
    const int shifts[] = {0, 2, 3, 4};  // of kUnsigned, kTimes4, kTimes8, kTimes16
    found += op.part == Part::kWide    ? pair(word, read(base, 1))
             : op.part == Part::kWhole ? wide_signed(word)
                                       : wide(word) << shifts[(int)op.part - (int)Part::kUnsigned];
  }
  if (op.uniform >= 0 && op.uniform != kZeroUniform) {
    const Operand base = register_of(Kind::kUniform, op.uniform);
    // With a register of 64 bits, or alone, the uniform one is of 64 bits as well.
    const bool is_wide = op.bank == 1;
    found += is_wide ? pair(read(base, 0), read(base, 1)) : wide(read(base, 0));
  }
  return found;
}

void Step::set(int n, Bits value, int which) const {
  const Operand& to = operand(n);
  const int number = to.index + which;
  if (to.kind == Kind::kUniform) {
    if (to.index == kZeroUniform) return;
    warp.uniform[number] = value.value[__builtin_ctz(mask)];
    warp.uniform_defined[number] = true;
    return;
  }
  if (to.kind != Kind::kRegister) unknown();
  if (to.index == kZeroRegister) return;
  warp.registers[number] = choose(mask, value.value, warp.registers[number]);
  warp.defined[number] = choose(mask, value.defined, warp.defined[number]);
}

void Step::set(int n, F32 value) const {
  const Mask nan = where([](float x) { return x != x; }, value);
  set(n, choose(nan, splat(kNan), (U32)(has(mFTZ) ? each<F32>(flushed, value) : value)));
}

void Step::set_predicate(int n, Mask value, Mask defined) const {
  const Operand& to = operand(n);
  if (to.index == kTruePredicate) return;
  if (to.kind == Kind::kUniformPredicate) {
    warp.uniform_predicates[to.index] = value >> __builtin_ctz(mask) & 1;
    warp.uniform_predicates_defined[to.index] = true;
    return;
  }
  if (to.kind != Kind::kPredicate) unknown();
  const auto update = [&](Mask& old, Mask now) { old = (old & ~mask) | (now & mask); };
  update(warp.predicates[to.index], value);
  update(warp.predicates_defined[to.index], defined);
}
