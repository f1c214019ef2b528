// An instruction as `decode.py` hands it over: what the disassembler prints, in numbers.
// The two layouts are compared when the library is loaded.
#pragma once
#include <cstdint>

constexpr int kMaxOperands = 8;
constexpr int kZeroRegister = 255;
constexpr int kZeroUniform = 63;
constexpr int kTruePredicate = 7;

enum class Kind : uint8_t {
  kNone,
  kRegister,
  kUniform,
  kPredicate,
  kUniformPredicate,
  kImmediate,
  kConstant,   // c[bank][register + uniform + value]
  kAddress,    // [register + uniform + value]
  kSpecial,    // SR_TID.X, ...: the number of a `Special`
  kBarrier,    // a convergence barrier, B0 to B15
  kTarget,     // the number of an instruction
  kPredicates  // PR: all of them
};

// Which part of a register an operand is, or how an address takes its register.
enum class Part : uint8_t {
  kWhole,
  kLow,
  kHigh,
  kByte0,
  kByte1,
  kByte2,
  kByte3,
  kWide,
  kUnsigned,
  kTimes4,
  kTimes8,
  kTimes16
};

constexpr uint8_t kNegated = 1, kInverted = 2, kAbsolute = 4;

enum class Special : uint8_t {
  kZero,
  kTidX,
  kTidY,
  kTidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kLaneId,
  kWarpId,
  kCgaCtaId,
  kSharedWindow,
  kClockLow,
  kClockHigh,
  kTimerLow,
  kTimerHigh,
  kLaneMaskLess,
  kLaneMaskEqual,
  kLaneMaskGreater,
  kVirtualSm,
  kLaneMaskLessEqual,
  kLaneMaskGreaterEqual
};

// What follows an opcode, `IMAD.WIDE.U32`. An entry of the table says which of them it knows.
// clang-format off
#define SUFFIXES(S) \
  S(E) S(X) S(U) S(U8) S(S8) S(U16) S(S16) S(U32) S(S32) S(U64) S(S64) S(F16) S(F32) S(F64)       \
  S(8) S(16) S(32) S(64) S(128) S(1688) S(16816)                                                  \
  S(HI) S(WIDE) S(MOV) S(SHL) S(IADD) S(L) S(R) S(W) S(LUT) S(SX32) S(EX) S(SH) S(PAND) S(POR)    \
  S(EQ) S(NE) S(LT) S(LE) S(GT) S(GE) S(EQU) S(NEU) S(LTU) S(LEU) S(GTU) S(GEU) S(NUM) S(NAN)     \
  S(AND) S(OR) S(XOR) S(FTZ) S(SAT) S(RZ) S(RM) S(RP) S(TRUNC) S(FLOOR) S(CEIL) S(NTZ)            \
  S(BF) S(MMA) S(PACK_AB) S(RCP) S(RSQ) S(EX2) S(LG2) S(SQRT) S(TANH)                                   \
  S(ANY) S(ALL) S(MAX) S(MIN) S(SUM) S(ADD) S(INC) S(EXCH) S(CAS) S(CAST) S(SPIN) S(POPC)         \
  S(IDX) S(UP) S(DOWN) S(BFLY) S(SYNC) S(DEFER_BLOCKING) S(RED) S(RESULT) S(DIV) S(REL) S(NOINC) S(NODEC)          \
  S(COLLECTIVE) S(EXCLUSIVE) S(RECONVERGENT) S(STRONG) S(CTA) S(GPU) S(SYS) S(SC)         \
  S(CONSTANT) S(IVALL) S(BYPASS)
// clang-format on
enum Suffix : uint8_t {
#define S(name) m##name,
  SUFFIXES(S)
#undef S
      kNumSuffixes
};
static_assert(kNumSuffixes <= 128, "an instruction has 128 bits of suffixes");

struct Operand {
  Kind kind;
  uint8_t flags;
  Part part;
  uint8_t bank;
  int16_t index;    // the register or predicate; in addresses -1 for none
  int16_t uniform;  // the uniform register of an address, -1 for none
  uint64_t value;   // an immediate, an offset, a target
};

struct Instruction {
  uint16_t entry;  // the number in the table of instructions
  uint8_t num_operands;
  uint8_t guard;  // the predicate, PT where there is none
  uint8_t guard_negated;
  uint8_t guard_uniform;
  // The compiler's schedule: clocks to the next instruction, the scoreboards that this one's result and its
  // reading of operands count down (7 for none), those it waits for.
  uint8_t stall;
  uint8_t write_scoreboard;
  uint8_t read_scoreboard;
  uint8_t wait_mask;
  uint8_t reserved[6];
  uint64_t suffixes[2];  // bit n is the n-th `Suffix`
  Operand operands[kMaxOperands];
};
