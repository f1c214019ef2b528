// What an instruction finds and changes: the registers of a warp, its block, the launch.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "encoding.h"
#include "lanes.h"
#include "memory.h"

enum class Pipe : uint8_t {
  kAlu,
  kFma,
  kHeavy,
  kHalf,
  kDouble,
  kTensor,
  kSpecial,
  kMemory,
  kShared,
  kReduction,
  kUniform,
  kBranch
};
constexpr int kNumPipes = 12;

// The number of the barrier that all blocks of a cluster wait at.
constexpr uint32_t kClusterBarrier = 16;

struct Launch {
  uint32_t grid[3], block[3];
  uint32_t cluster_blocks, shared_bytes;
  const uint8_t* constants[8];  // bank 0 holds the launch's sizes and the arguments
  uint32_t constant_bytes[8];
};

struct Block;

// What an access of memory was, for the clock: filled by the instruction, read by the schedule.
struct Access {
  int num_sectors = 0;  // of global memory
  uint64_t sectors[4 * kLanes];
  int wavefronts = 0;  // of shared storage
  bool is_store = false, is_atomic = false, is_strong = false;
  int bytes = 0;  // of the lanes, together
};

enum class Wait : uint8_t { kNone, kConvergence, kWarp, kCollective, kBarrier, kExited };

struct Warp {
  Block* block = nullptr;
  int number = 0;
  U32 registers[256] = {};
  U32 defined[256] =
      {};  // the bits that were written, as machine code may keep several flags in a register
  uint32_t uniform[64] = {};
  bool uniform_defined[64] = {};
  Mask predicates[8] = {}, predicates_defined[8] = {};
  bool uniform_predicates[8] = {}, uniform_predicates_defined[8] = {};
  Mask convergence[16] = {};  // who meets at a BSYNC
  uint32_t pc[kLanes] = {};
  Wait wait[kLanes] = {};
  uint32_t waits_for[kLanes] = {};  // the barrier, or the mask of a WARPSYNC
  uint32_t current = 0;             // where the lanes that run now are
  uint32_t steps_in_group = 0;
  Access access;

  // The lanes of `mask` for which a predicate holds; throws where it was not written.
  Mask predicate(int index, bool is_uniform, Mask mask) const {
    if (index == kTruePredicate) return kAll;
    const bool is_known =
        is_uniform ? uniform_predicates_defined[index] : !(mask & ~predicates_defined[index]);
    if (!is_known)
      throw Failure((is_uniform ? "reads UP" : "reads P") + std::to_string(index) +
                    ", which nobody wrote");
    return is_uniform ? (uniform_predicates[index] ? kAll : 0) : predicates[index];
  }
  Mask waiting(Wait kind) const {
    Mask found = 0;
    for (int lane = 0; lane < kLanes; ++lane) found |= (Mask)(wait[lane] == kind) << lane;
    return found;
  }
  Mask live() const { return ~waiting(Wait::kExited); }
  Mask at(uint32_t place) const {
    Mask found = 0;
    for (int lane = 0; lane < kLanes; ++lane)
      found |= (Mask)(wait[lane] == Wait::kNone && pc[lane] == place) << lane;
    return found;
  }
};

struct Block {
  const Launch* launch = nullptr;
  GlobalMemory* memory = nullptr;
  uint32_t index[3] = {};
  uint32_t rank = 0;                                   // in its cluster
  std::vector<std::shared_ptr<SharedStorage>> shared;  // of the blocks of the cluster, by rank
  std::vector<std::unique_ptr<Warp>> warps;
  uint64_t clock = 0;
  // What threads bring to a barrier that reduces, and what came of the last one.
  struct Reduction {
    bool any = false, all = true, wants_all = false;
    uint32_t count = 0;
  } brought, reduced;
  uint32_t multiprocessor = 0;
};

// One instruction executed by the lanes `mask` of a warp: operands in, results out.
class Step {
 public:
  Step(Warp& warp, const Instruction& instruction, Mask mask, uint32_t pc)
      : warp(warp), instruction(instruction), mask(mask), pc(pc) {}

  Warp& warp;
  const Instruction& instruction;
  const Mask mask;  // the lanes that execute it: those that are here and whose guard holds
  const uint32_t pc;

  bool has(Suffix suffix) const { return instruction.suffixes[suffix / 64] >> suffix % 64 & 1; }
  int count() const { return instruction.num_operands; }
  const Operand& operand(int n) const { return instruction.operands[n]; }
  bool is_predicate(int n) const {
    return n < count() &&
           (operand(n).kind == Kind::kPredicate || operand(n).kind == Kind::kUniformPredicate);
  }

  U32 u32(int n) const { return read(operand(n), 0, true); }
  // As bits, without a sign: the caller applies flags, or there are none.
  U32 raw(int n) const { return read(operand(n), 0, false); }
  U32 word(int n, int which) const { return read(operand(n), which, false); }
  U64 u64(int n) const;
  F32 f32(int n, bool flush) const;
  Mask predicate(int n) const;

  void set(int n, U32 value, int which = 0) const;
  void set64(int n, U64 value) const { set(n, low(value), 0), set(n, high(value), 1); }
  void set(int n, F32 value, bool flush) const;
  void set_predicate(int n, Mask value, Mask defined = kAll) const;
  // For what only passes bits on: `raw` of bits that may be undefined, which of them are defined, and a result
  // with those that are.
  U32 undefined(int n) const;
  U32 defined(int n) const;
  void set_partly(int n, U32 value, U32 defined) const;

  U64 address(int n) const;

  [[noreturn]] void fail(const std::string& what) const { throw Failure(what); }
  [[noreturn]] void unknown() const { fail("an instruction that is not known in this form"); }

 private:
  U32 read(const Operand& operand, int which, bool flags) const;
  void set_word(const Operand& to, U32 value, int which, U32 defined) const;
  U32 constant(const Operand& operand, int which) const;
  void require(bool is_defined, const Operand& operand, int which) const;
};

using Function = void (*)(const Step&);

// A row of the table of instructions. `also` are opcodes of the same meaning, such as those of the uniform
// datapath. `form` has the suffixes that it knows.
struct Entry {
  const char* name;
  const char* also;
  Pipe pipe;
  const char* form;
  const char* source;
  Function function;
};
std::vector<Entry>& entries();

struct Registration {
  explicit Registration(const Entry& entry) { entries().push_back(entry); }
};

// INSTRUCTION(name, also, pipe, suffixes, source) { what it does to `step` }
#define INSTRUCTION(name, also, pipe, form, source)         \
  static void run_##name(const Step&);                      \
  static const Registration registration_##name(            \
      {#name, also, Pipe::pipe, form, source, run_##name}); \
  static void run_##name(const Step& step)
