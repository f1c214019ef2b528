// Operands: reading with signs and parts, writing the lanes that execute.
#include "state.h"

std::vector<Entry>& entries() {
  static std::vector<Entry> table;
  return table;
}

void Step::require(bool is_defined, const Operand& operand, int which) const {
  if (is_defined) return;
  const bool is_uniform = operand.kind == Kind::kUniform;
  fail(std::string("reads ") + (is_uniform ? "UR" : "R") + std::to_string(operand.index + which) +
       ", which nobody wrote");
}

U32 Step::constant(const Operand& operand, int which) const {
  const uint8_t* bank = warp.block->launch->constants[operand.bank];
  const uint32_t bytes = warp.block->launch->constant_bytes[operand.bank];
  U32 places = splat((uint32_t)operand.value + 4 * which);
  if (operand.index >= 0) {
    Operand index = {Kind::kRegister, 0, Part::kWhole, 0, operand.index, -1, 0};
    places += read(index, 0, false);
  }
  if (operand.uniform >= 0) places += splat(warp.uniform[operand.uniform]);
  U32 found = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    if (!bank || places[lane] + 4 > bytes)
      fail("constant bank " + std::to_string(operand.bank) + " has no word at " +
           hex(places[lane]));
    uint32_t word;
    memcpy(&word, bank + places[lane], 4);
    found[lane] = word;
  }
  return found;
}

U32 Step::read(const Operand& operand, int which, bool flags) const {
  U32 value = {};
  switch (operand.kind) {
    case Kind::kRegister:
      if (operand.index == kZeroRegister) break;
      value = warp.registers[operand.index + which];
      {
        const uint32_t used = operand.part == Part::kLow    ? 0xffffu
                              : operand.part == Part::kHigh ? ~0xffffu
                                                            : kAll;
        require(!(mask_of(~warp.defined[operand.index + which] & used) & mask), operand, which);
      }
      break;
    case Kind::kUniform:
      if (operand.index == kZeroUniform) break;
      require(warp.uniform_defined[operand.index + which], operand, which);
      value = splat(warp.uniform[operand.index + which]);
      break;
    case Kind::kImmediate:
      value = splat((uint32_t)(operand.value >> 32 * which));
      break;
    case Kind::kConstant:
      value = constant(operand, which);
      break;
    default:
      unknown();
  }
  switch (operand.part) {
    case Part::kByte0:
      value &= 0xffu;
      break;
    case Part::kByte1:
      value = value >> 8 & 0xffu;
      break;
    case Part::kByte2:
      value = value >> 16 & 0xffu;
      break;
    case Part::kByte3:
      value = value >> 24;
      break;
    default:
      break;
  }
  if (!flags) return value;
  if (operand.flags & kAbsolute) value = (U32)((S32)value < 0 ? -(S32)value : (S32)value);
  if (operand.flags & kInverted) value = ~value;
  if (operand.flags & kNegated) value = -value;
  return value;
}

U64 Step::u64(int n) const {
  const Operand& op = operand(n);
  U64 value = op.kind == Kind::kImmediate ? splat64(op.value)
                                          : pair(read(op, 0, false), read(op, 1, false));
  if (op.flags & kInverted) value = ~value;
  if (op.flags & kNegated) value = -value;
  return value;
}

F32 Step::f32(int n, bool flush) const {
  F32 value = (F32)read(operand(n), 0, false);
  if (flush) value = each<F32>(value, flushed);
  if (operand(n).flags & kAbsolute) value = (F32)((U32)value & 0x7fffffffu);
  if (operand(n).flags & kNegated) value = (F32)((U32)value ^ 0x80000000u);
  return value;
}

Mask Step::predicate(int n) const {
  if (!is_predicate(n)) unknown();
  const Operand& op = operand(n);
  const Mask value = warp.predicate(op.index, op.kind == Kind::kUniformPredicate, mask);
  return op.flags & kInverted ? ~value : value;
}

void Step::set(int n, U32 value, int which) const {
  set_word(operand(n), value, which, splat(kAll));
}
void Step::set_partly(int n, U32 value, U32 defined) const {
  set_word(operand(n), value, 0, defined);
}
void Step::set(int n, F32 value, bool flush) const {
  const U32 bits = (U32)(flush ? each<F32>(value, flushed) : value);
  set(n, choose(mask_of(value != value), splat(kNan), bits));
}

void Step::set_word(const Operand& to, U32 value, int which, U32 defined) const {
  if (to.kind == Kind::kUniform) {
    if (to.index == kZeroUniform) return;
    warp.uniform[to.index + which] = value[__builtin_ctz(mask)];
    warp.uniform_defined[to.index + which] = true;
    return;
  }
  if (to.kind != Kind::kRegister) unknown();
  if (to.index == kZeroRegister) return;
  const int number = to.index + which;
  warp.registers[number] = choose(mask, value, warp.registers[number]);
  warp.defined[number] = choose(mask, defined, warp.defined[number]);
}

U32 Step::defined(int n) const {
  const Operand& op = operand(n);
  return op.kind == Kind::kRegister && op.index != kZeroRegister ? warp.defined[op.index]
                                                                 : splat(kAll);
}

U32 Step::undefined(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kRegister || op.index == kZeroRegister) return u32(n);
  if (op.part != Part::kWhole || op.flags & ~kInverted) return u32(n);
  return op.flags & kInverted ? ~warp.registers[op.index] : warp.registers[op.index];
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
  warp.predicates[to.index] = (warp.predicates[to.index] & ~mask) | (value & mask);
  warp.predicates_defined[to.index] =
      (warp.predicates_defined[to.index] & ~mask) | (defined & mask);
}

U64 Step::address(int n) const {
  const Operand& op = operand(n);
  if (op.kind != Kind::kAddress) unknown();
  U64 found = splat64(op.value);
  Operand base = {Kind::kRegister, 0, Part::kWhole, 0, op.index, -1, 0};
  if (op.index >= 0 && op.index != kZeroRegister) {
    const U32 word = read(base, 0, false);
    switch (op.part) {
      case Part::kWide:
        found += pair(word, read(base, 1, false));
        break;
      case Part::kUnsigned:
        found += wide(word);
        break;
      case Part::kTimes4:
        found += wide(word) * 4;
        break;
      case Part::kTimes8:
        found += wide(word) * 8;
        break;
      case Part::kTimes16:
        found += wide(word) * 16;
        break;
      default:
        found += wide_signed(word);
        break;
    }
  }
  if (op.uniform >= 0 && op.uniform != kZeroUniform) {
    base = {Kind::kUniform, 0, Part::kWhole, 0, op.uniform, -1, 0};
    // With a register of 64 bits, or alone, the uniform one is of 64 bits as well.
    const bool is_wide = op.bank == 1;
    found +=
        is_wide ? pair(read(base, 0, false), read(base, 1, false)) : wide(read(base, 0, false));
  }
  return found;
}
