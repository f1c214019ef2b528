// What Python hands to the machine. `encoding.py` reads the enumerations and structures of this file.
#pragma once
#include <cstdint>

constexpr int kMaxOperands = 8;
// One file has the registers R, then UR from kFirstUniform on, then zeros: RZ and URZ, and the registers
// behind them in a vector. Predicates are P, then UP from kFirstUniformPredicate on, then PT, which is UPT as
// well.
constexpr int kFirstUniform = 256;
constexpr int kZeroRegister = 320;
constexpr int kNumRegisters = 324;
constexpr int kFirstUniformPredicate = 8;
constexpr int kTruePredicate = 15;
constexpr int kNumPipes = 11;
constexpr int kNumBanks = 8;

// clang-format off
enum class Kind : uint8_t {
  kNone, kRegister, kPredicate, kImmediate,
  kConstant,    // c[bank][register + uniform + value]
  kAddress,     // [register + uniform + value]
  kSpecial,     // SR_TID.X, ...: its number in the table of special registers
  kBarrier,     // a convergence barrier, B0 to B15
  kTarget,      // the number of an instruction
  kPredicates,  // PR: all of them
};

// Which part of a register an operand is, or how an address takes its register.
enum class Part : uint8_t {
  kWhole, kLow, kHigh, kByte0, kByte1, kByte2, kByte3, kWide, kUnsigned, kTimes4, kTimes8, kTimes16,
};

enum class Pipe : uint8_t {
  kAlu, kFma, kHeavy, kHalf, kTensor, kSpecial, kMemory, kShared, kReduction, kUniform, kBranch,
};

// Suffixes of opcodes, as in `IMAD.WIDE.U32`. An entry of the table says which suffixes it knows.
#define SUFFIXES(S) \
  S(E) S(X) S(U) S(U8) S(S8) S(U16) S(S16) S(U32) S(S32) S(U64) S(S64) S(F16) S(F32) S(F64)       \
  S(8) S(16) S(32) S(64) S(128) S(1688) S(16816)                                                  \
  S(HI) S(WIDE) S(MOV) S(SHL) S(IADD) S(L) S(R) S(W) S(LUT) S(SX32) S(EX) S(SH) S(PAND) S(POR)    \
  S(EQ) S(NE) S(LT) S(LE) S(GT) S(GE) S(EQU) S(NEU) S(LTU) S(LEU) S(GTU) S(GEU) S(NUM) S(NAN)     \
  S(AND) S(OR) S(XOR) S(FTZ) S(SAT) S(RZ) S(RM) S(RP) S(TRUNC) S(FLOOR) S(CEIL) S(NTZ)            \
  S(B1) S(B2) S(B3) S(BF) S(MMA) S(PACK_AB) S(RCP) S(RSQ) S(EX2) S(LG2) S(SQRT) S(TANH)           \
  S(ANY) S(ALL) S(MAX) S(MIN) S(SUM) S(ADD) S(INC) S(EXCH) S(CAS) S(CAST) S(SPIN) S(POPC)         \
  S(IDX) S(UP) S(DOWN) S(BFLY) S(SYNC) S(DEFER_BLOCKING) S(RED) S(RESULT) S(DIV) S(REL) S(NOINC)  \
  S(NODEC) S(COLLECTIVE) S(EXCLUSIVE) S(RECONVERGENT) S(STRONG) S(CTA) S(GPU) S(SYS) S(SC)        \
  S(CONSTANT) S(IVALL) S(BYPASS) S(CLEAR) S(BF16) S(TF32) S(EF) S(LU) S(NA) S(LTC128B)       \
  S(U16x2) S(S16x2)
// clang-format on
enum Suffix : uint8_t {
#define S(name) m##name,
  SUFFIXES(S)
#undef S
      kNumSuffixes
};
static_assert(kNumSuffixes <= 128, "an instruction has 128 bits of suffixes");

constexpr uint8_t kNegated = 1, kInverted = 2, kAbsolute = 4;

struct Operand {
  Kind kind;
  uint8_t flags;
  Part part;
  uint8_t bank;
  int16_t index;    // the register or predicate
  int16_t uniform;  // the uniform register of an address
  uint64_t value;   // an immediate, an offset, a target
};

struct Instruction {
  uint16_t entry;  // the number in the table of instructions
  uint8_t num_operands;
  // The compiler's schedule: clocks to the next instruction, the scoreboards that its result and its reading
  // of operands count down (7 for none), and the scoreboards that it waits for.
  uint8_t stall, write_scoreboard, read_scoreboard, wait_mask;
  uint64_t suffixes[2];  // bit n is the n-th `Suffix`
  Operand guard;         // a predicate, PT where there is none
  Operand operands[kMaxOperands];
};

// Addresses of a kernel from `begin` on are memory of the host from `place` on. `written` counts the plain stores
// to each byte, up to 255; null where nothing may be stored. An earlier launch may have left a range in the
// second-level cache.
struct Range {
  uint64_t begin, bytes;
  uint8_t* place;
  uint8_t* written;
  uint32_t is_in_l2;
};

// All in clocks of a multiprocessor. `rates.py` says where each is from.
struct Rates {
  double pipe_clocks[kNumPipes];  // for which an instruction of a warp keeps its partition's pipe
  double latency[kNumPipes];      // of instructions whose result is waited for with a scoreboard
  double sectors_per_clock;       // that the first-level cache looks up
  // Clocks of the first-level cache and of a partition's pipe, for each line of an access beyond the lines
  // that the same bytes side by side would need.
  double clocks_per_line_more, pipe_clocks_per_line_more;
  double shared_queue;  // wavefronts that wait for shared storage while more are issued
  double cache_latency, l2_latency, memory_latency;
  double l2_clocks_per_sector, memory_clocks_per_sector;  // of one multiprocessor's share
  double l2_far_latency;  // added for sectors in the other half of the second-level cache
  // For which strong and atomic accesses, by which blocks communicate, keep a line of that cache. Each
  // multiprocessor that runs stands for several; these also update a word that several running ones update.
  double line_clocks_per_sector, line_clocks_per_store, word_clocks_per_update, stands_for;
  double fence_latency, remote_latency;  // a fence; added for shared storage of another block
  double barrier_clocks_per_warp, barrier_latency, cluster_barrier_latency;
  double block_clocks;  // from one block that starts on a multiprocessor to the next
  uint64_t cache_sectors, l2_sectors;
};

// What a run counted.
struct Totals {
  uint64_t clocks;        // until the last block had ended
  uint64_t instructions;  // of warps
  uint64_t pipe_instructions[kNumPipes];
  uint64_t sectors;         // asked of the first-level cache
  uint64_t l2_sectors;      // that went on to the second level
  uint64_t memory_sectors;  // and to memory
  uint64_t wavefronts, barriers;
};

// What an instruction of a warp waited for last: the start of its block; its turn after the previous
// instruction, as the compiler scheduled it; a result; a fence; a barrier; its pipe.
enum class Cause : uint8_t { kStart, kSchedule, kResult, kFence, kBarrier, kPipe };

// An instruction that a warp issued at a clock. But for other warps, it could have been issued from
// `ready_at` on; `cause` says why not before, and for a result, `cause_pc` says which instruction gave it.
struct Issue {
  double at, ready_at;
  uint32_t pc, cause_pc;
  uint32_t lanes;  // how many executed it
  Cause cause;
};

struct Request {
  const Instruction* code;
  const char* const* texts;
  uint32_t num_instructions;
  uint32_t grid[3], block[3];
  uint32_t cluster_blocks, shared_bytes;
  uint32_t local_bytes;                 // of a thread
  uint32_t allows_undefined;            // whether registers that nobody wrote may be read
  const uint8_t* constants[kNumBanks];  // bank 0 holds the launch's sizes and the arguments
  uint32_t constant_bytes[kNumBanks];
  const Range* ranges;
  uint32_t num_ranges;
  const uint32_t* blocks;  // which to run, by number; whole clusters
  uint32_t num_blocks;
  uint32_t num_multiprocessors, resident_blocks;
  uint64_t max_instructions;
  const Rates* rates;
  uint64_t* executed;  // for each instruction, how many warps executed it
  Totals* totals;
  // The instructions of the traced warp, as many as there is room for; null if no warp is traced.
  Issue* issues;
  uint64_t max_issues;
  uint64_t* num_issues;  // including those for which there was no room
  uint32_t traced_block, traced_warp;
  char* error;
  uint32_t error_bytes;
};
