// What an instruction finds and changes: the registers of a warp, its block, the launch.
#pragma once
#include <memory>

#include "encoding.h"
#include "lanes.h"
#include "memory.h"

constexpr int kNumScoreboards = 6;
// The number of the barrier that all blocks of a cluster wait at.
constexpr uint32_t kClusterBarrier = 16;

// What an access of memory was, for the clock: filled by the instruction, read by the schedule.
struct Access {
  int num_sectors = 0;  // of global memory
  uint64_t sectors[kLanes];
  int wavefronts = 0;  // of shared storage
  int bytes = 0;       // of the lanes, together
  bool is_store = false, is_strong = false;
};

// What lanes do: run, or wait for those of a convergence barrier, a mask, a mask at one place, a block.
enum class Wait : uint8_t { kNone, kConvergence, kWarp, kCollective, kBarrier, kExited };

struct Block;

struct Warp {
  Block* block = nullptr;
  uint32_t number = 0;
  U32 registers[256] = {};
  U32 defined[256] = {};  // the bits that were written: machine code keeps several flags in one
  uint32_t uniform[64] = {};
  bool uniform_defined[64] = {};
  Mask predicates[8] = {}, predicates_defined[8] = {};
  bool uniform_predicates[8] = {}, uniform_predicates_defined[8] = {};
  Mask convergence[16] = {};  // who meets at a BSYNC
  U32 pc = {};
  U32 waits_for = {};           // the barrier, or the mask of a WARPSYNC
  Mask waiting[6] = {kAll};     // the lanes of each `Wait`
  uint32_t current = 0;         // where the lanes that run now are
  uint32_t steps_in_group = 0;  // since they were chosen among several
  Mask next = 0;                // the lanes that run next, 0 where none can
  double ready_at = 0;
  double scoreboards[kNumScoreboards] = {};
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
  Mask in(Wait wait) const { return waiting[(int)wait]; }
  Mask live() const { return ~in(Wait::kExited); }
  Mask running_at(uint32_t place) const {
    return in(Wait::kNone) & where([=](uint32_t at) { return at == place; }, pc);
  }
  void move(Mask lanes, Wait to) {
    for (Mask& mask : waiting) mask &= ~lanes;
    waiting[(int)to] |= lanes;
  }
  void go_to(Mask lanes, uint32_t place) { pc = choose(lanes, splat(place), pc); }
};

struct Block {
  Block(const Launch& launch, const GlobalMemory& memory)
      : launch(launch), memory(memory), shared(launch.shared_bytes) {}

  const Launch& launch;
  const GlobalMemory& memory;
  uint32_t index[3] = {};
  std::vector<std::unique_ptr<Block>>* cluster = nullptr;  // its blocks by rank
  uint32_t rank = 0, multiprocessor = 0;
  SharedStorage shared;
  std::vector<std::unique_ptr<Warp>> warps;
  int num_live = 0;  // of its warps
  uint64_t clock = 0;
  // What threads bring to a barrier that reduces, and what came of the last one.
  struct Reduction {
    bool any = false, all = true, wants_all = false;
    uint32_t count = 0;
  } brought, reduced;
};

// Bits, and which of them somebody wrote: for what only passes them on.
struct Bits {
  U32 value, defined;
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

  U32 u32(int n) const { return with_flags(n, word(n)); }
  U64 u64(int n) const;
  F32 f32(int n) const;  // flushed as .FTZ says
  // As it is, without a sign: the caller applies flags, or there are none.
  U32 word(int n, int which = 0) const { return read(operand(n), which); }
  U64 words(int n) const { return pair(word(n, 0), word(n, 1)); }
  Bits bits(int n) const;
  Mask predicate(int n) const;
  U64 address(int n) const;

  void set(int n, Bits value, int which = 0) const;
  void set(int n, U32 value, int which = 0) const { set(n, Bits{value, splat(kAll)}, which); }
  void set(int n, U64 value) const { set(n, low(value), 0), set(n, high(value), 1); }
  void set(int n, F32 value) const;  // flushed as .FTZ says, with the NaN of instructions
  void set_predicate(int n, Mask value, Mask defined = kAll) const;

  [[noreturn]] void fail(const std::string& what) const { throw Failure(what); }
  [[noreturn]] void unknown() const { fail("an instruction that is not known in this form"); }

 private:
  U32 read(const Operand& operand, int which) const;
  U32 constant(const Operand& operand, int which) const;
  U32 with_flags(int n, U32 value) const;
};

// The lanes where a comes before b, or whatever else the suffixes ask; integers are never unordered.
template <typename Vector>
Mask compared(const Step& step, Vector a, Vector b) {
  const Mask less = where([](auto x, auto y) { return x < y; }, a, b);
  const Mask equal = where([](auto x, auto y) { return x == y; }, a, b);
  const Mask unordered = where([](auto x, auto y) { return x != x || y != y; }, a, b);
  const Mask more = ~(less | equal | unordered);
  const struct {
    Suffix ordered, or_unordered;
    Mask found;
  } meanings[] = {{mEQ, mEQU, equal}, {mNE, mNEU, less | more},  {mLT, mLTU, less},
                  {mGT, mGTU, more},  {mLE, mLEU, less | equal}, {mGE, mGEU, more | equal}};
  for (const auto& meaning : meanings) {
    if (step.has(meaning.ordered)) return meaning.found;
    if (step.has(meaning.or_unordered)) return meaning.found | unordered;
  }
  if (step.has(mNUM)) return ~unordered;
  if (step.has(mNAN)) return unordered;
  step.unknown();
}
// With the predicate that a comparison is combined with.
inline Mask combined(const Step& step, Mask a, Mask b) {
  if (step.has(mAND)) return a & b;
  if (step.has(mOR)) return a | b;
  if (step.has(mXOR)) return a ^ b;
  step.unknown();
}

// A row of the table of instructions. `also` are opcodes of the same meaning, such as those of the uniform
// datapath. `form` has the suffixes that it knows.
struct Entry {
  const char* name;
  const char* also;
  Pipe pipe;
  const char* form;
  const char* source;
  void (*function)(const Step&);
};
std::vector<Entry>& entries();

struct Registration {
  explicit Registration(const Entry& entry) { entries().push_back(entry); }
};

// INSTRUCTION(name, also, pipe, suffixes, source) { what it does to `step` }
#define INSTRUCTION(name, also, pipe, form, source)         \
  static void run_##name([[maybe_unused]] const Step&);     \
  static const Registration registration_##name(            \
      {#name, also, Pipe::pipe, form, source, run_##name}); \
  static void run_##name([[maybe_unused]] const Step& step)

// The special registers as the disassembler spells them, in the order of their numbers; in integer.cpp.
std::string special_names();
