// What an instruction finds and changes: the registers of a warp, its block, the launch.
#pragma once
#include <deque>
#include <memory>
#include <utility>

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
  int num_lines_more = 0;  // of global memory, beyond the lines that neighbouring bytes would need
  int wavefronts = 0;      // of shared storage
  bool is_store = false, is_strong = false, is_atomic = false;
  int updates = 0;         // of the word that most lanes update
  bool is_remote = false;  // of shared storage of another block of the cluster
  bool is_fence = false;
  bool is_copy = false, ends_copies = false, awaits_copies = false;  // to shared storage
  uint32_t groups_left = 0;  // of copies, that need not be there
  void reset() {
    num_sectors = num_lines_more = wavefronts = 0;
    is_store = is_strong = is_atomic = is_remote = is_fence = false;
    is_copy = ends_copies = awaits_copies = false;
  }
};

// What lanes do: run, or wait for the lanes of a convergence barrier, a mask, a mask at one place, a block.
enum class Wait : uint8_t { kNone, kConvergence, kWarp, kCollective, kBarrier, kExited };

struct Block;
struct Warp;

// When a warp goes on, and where.
struct Turn {
  Warp* warp = nullptr;
  size_t slot = 0;       // among the warps of its partition
  Mask next = 0;         // the lanes that run next, 0 where none can
  uint32_t current = 0;  // where they are
  Pipe pipe = {};        // of the instruction there
  double ready_at = 0;
  Cause cause = Cause::kStart;  // of `ready_at`
  uint32_t cause_pc = 0;

  // Waits until a time, unless the warp waits longer already.
  void wait_until(double time, Cause why, uint32_t why_pc) {
    if (time <= ready_at) return;
    ready_at = time, cause = why, cause_pc = why_pc;
  }
};

struct Warp {
  Block& block;
  Turn& turn;
  const uint32_t number;
  Bits registers[kNumRegisters] = {};
  // Whether all bits of a register were written in every lane. Few instructions need the bits themselves.
  bool is_whole[kNumRegisters] = {};
  Flags predicates[kTruePredicate + 1] = {};
  Mask convergence[16] = {};  // the lanes that meet at a BSYNC
  U32 pc = {};
  U32 waits_for = {};           // the barrier, or the mask of a WARPSYNC
  Mask waiting[6] = {kAll};     // the lanes of each `Wait`
  uint32_t steps_in_group = 0;  // since the lanes that run were chosen among several
  double scoreboards[kNumScoreboards] = {};
  uint32_t scoreboard_pcs[kNumScoreboards] =
      {};  // the instructions that are the last to count them down
  // When its copies to shared storage are there, and the last of them: all, and those of each group that has
  // ended, together with the groups before it.
  struct Copied {
    double at = 0;
    uint32_t pc = 0;
  } copied;
  std::deque<Copied> groups;
  Access access;
  std::vector<uint8_t> local;  // memory of the lanes, one after another

  Warp(Block& block, Turn& turn, uint32_t number) : block(block), turn(turn), number(number) {
    turn.warp = this;
    for (int n = kZeroRegister; n < kNumRegisters; ++n)
      registers[n].defined = splat(kAll), is_whole[n] = true;
    predicates[kTruePredicate] = {kAll, kAll};
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
  explicit Block(const Request& launch)
      : launch(launch), shared(kReservedSharedBytes + launch.shared_bytes, 0xa5) {}

  const Request& launch;
  uint32_t number = 0, index[3] = {};
  std::vector<std::unique_ptr<Block>>* cluster = nullptr;  // its blocks by rank
  uint32_t rank = 0, multiprocessor = 0;
  std::vector<uint8_t> shared;
  std::vector<Turn> turns;  // of its warps
  std::vector<std::unique_ptr<Warp>> warps;
  uint32_t last_range = 0;  // of global memory that was accessed
  int num_live = 0;         // of its warps
  uint64_t clock = 0;
  // What threads bring to a barrier that reduces, and the result of the last such barrier.
  struct Reduction {
    bool any = false, all = true, wants_all = false;
    uint32_t count = 0;
  } brought, reduced;
};

// One instruction executed by the lanes `mask` of a warp: operands in, results out.
struct Step {
  Warp& warp;
  const Instruction& instruction;
  const uint32_t pc;
  Mask mask;  // the lanes that execute it: those that are here and whose guard holds
  mutable uint32_t touched = 0;  // bit n is set once operand n was read or written

  // Whether it has any of some suffixes.
  template <typename... Suffixes>
  bool has(Suffixes... suffixes) const {
    return ((instruction.suffixes[suffixes / 64] >> suffixes % 64 & 1) || ...);
  }
  int count() const { return instruction.num_operands; }
  bool allows_undefined() const;
  const Operand& operand(int n) const {
    touched |= 1u << n;
    return instruction.operands[n];
  }
  // The kind of an operand. To ask for it does not count as use.
  Kind kind(int n) const { return n < count() ? instruction.operands[n].kind : Kind::kNone; }
  bool is_predicate(int n) const { return kind(n) == Kind::kPredicate; }
  // An operand that has no meaning here may only be RZ, URZ, or a predicate that is always as given.
  void require_zero(int n) const;
  void require_constant(int n, bool value) const;
  // Every operand has a meaning: with an unused operand, the result is wrong.
  void require_all_used() const {
    if (touched != (1u << count()) - 1) unknown();
  }

  U32 u32(int n) const;
  U64 u64(int n) const;
  F32 f32(int n) const;  // flushed as .FTZ says
  // A word of an operand that is neither negated nor inverted.
  U32 word(int n, int which = 0) const;
  U64 words(int n) const { return pair(word(n, 0), word(n, 1)); }
  // A word as it is in the register: the caller applies flags, and takes its half of an operand with halves.
  U32 raw_word(int n, int which = 0, bool has_halves = false) const;
  Bits bits(int n) const;
  // Whether all bits of the operands from n on are known. Only unwritten bits are unknown.
  bool are_whole(int n, int count) const {
    for (; count; ++n, --count)
      if (kind(n) == Kind::kRegister && !warp.is_whole[instruction.operands[n].index]) return false;
    return true;
  }
  Mask predicate(int n) const { return predicate(operand(n)); }
  Mask predicate(const Operand& operand) const;
  U64 address(int n) const;

  void set(int n, const Bits& value, int which = 0) const;
  void set(int n, const U32& value, int which = 0) const;
  void set(int n, U64 value) const { set(n, low(value), 0), set(n, high(value), 1); }
  void set(int n, F32 value) const;  // flushed as .FTZ says, with the NaN of instructions
  void set_predicate(int n, Mask value, Mask defined = kAll) const;

  [[noreturn]] void fail(const std::string& what) const { throw Failure(what); }
  [[noreturn]] void unknown() const { fail("an instruction that is not known in this form"); }

 private:
  // Fails if bits of a register are used that nobody wrote.
  void require_written(int number, uint32_t used) const;
  // The word of a register; only these bits of it are used.
  U32 register_word(int number, uint32_t used = kAll) const {
    if (!warp.is_whole[number]) require_written(number, used);
    return warp.registers[number].value;
  }
  U32 constant(const Operand& operand, int which) const;
  // The register that an operand names as a result.
  int result(int n) const;
};

// A value with the signs that an operand asks for: integers here, then floating point, whose sign is a bit.
template <typename Vector>
Vector with_signs(Vector value, uint8_t flags) {
  const Vector sign = -(value >> (8 * sizeof value[0] - 1));  // all bits of those below zero
  if (flags & kAbsolute) value = (value ^ sign) - sign;
  if (flags & kInverted) value = ~value;
  return flags & kNegated ? -value : value;
}
inline U32 with_sign_bits(U32 bits, uint8_t flags) {
  if (flags & kAbsolute) bits &= 0x7fffffffu;
  return flags & kNegated ? bits ^ 0x80000000u : bits;
}

// The lanes where a comes before b, or whatever else the suffixes ask; integers are never unordered.
template <typename Vector>
Mask compared(const Step& step, const Vector& a, const Vector& b) {
  const auto equal = [&] { return where([](auto x, auto y) { return x == y; }, a, b); };
  const auto less = [&] { return where([](auto x, auto y) { return x < y; }, a, b); };
  const auto more = [&] { return where([](auto x, auto y) { return x > y; }, a, b); };
  const auto no_more = [&] { return where([](auto x, auto y) { return x <= y; }, a, b); };
  const auto no_less = [&] { return where([](auto x, auto y) { return x >= y; }, a, b); };
  const auto ordered = [&] { return where([](auto x, auto y) { return x == x && y == y; }, a, b); };
  if (step.has(mEQ)) return equal();
  if (step.has(mNE)) return less() | more();
  if (step.has(mLT)) return less();
  if (step.has(mLE)) return no_more();
  if (step.has(mGT)) return more();
  if (step.has(mGE)) return no_less();
  if (step.has(mEQU)) return ~(less() | more());
  if (step.has(mNEU)) return ~equal();
  if (step.has(mLTU)) return ~no_less();
  if (step.has(mLEU)) return ~more();
  if (step.has(mGTU)) return ~no_more();
  if (step.has(mGEU)) return ~less();
  if (step.has(mNUM)) return ordered();
  if (step.has(mNAN)) return ~ordered();
  step.unknown();
}
// Two values combined as the suffixes say: a comparison and another predicate, memory and a lane, two lanes.
uint64_t combined(const Step& step, uint64_t a, uint64_t b, int size = 4);

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
inline bool add(const Entry& entry) { return entries().push_back(entry), true; }

// INSTRUCTION(name, also, pipe, suffixes, source) { what it does to `step` }
#define INSTRUCTION(name, also, pipe, form, source)             \
  static void run_##name([[maybe_unused]] const Step&);         \
  [[maybe_unused]] static const bool is_added_##name =          \
      add({#name, also, Pipe::pipe, form, source, run_##name}); \
  static void run_##name([[maybe_unused]] const Step& step)

// An instruction whose result is the value of an expression.
#define VALUE(name, also, pipe, form, source, value) \
  INSTRUCTION(name, also, pipe, form, source) { step.set(0, value); }

// The special registers as the disassembler spells them, in the order of their numbers; in integer.cpp.
std::string special_names();
