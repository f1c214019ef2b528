// Branches, convergence and barriers. Each lane has a place of its own; lanes at one place run together.
// `schedule.cpp` has moved the lanes that are here to the next place before an instruction runs.
#include "state.h"

static void wait_for(const Step& step, Wait what, U32 argument) {
  step.warp.move(step.mask, what);
  step.warp.waits_for = choose(step.mask, argument, step.warp.waits_for);
}
static uint32_t target(const Step& step) {
  const Operand& last = step.operand(step.count() - 1);
  if (last.kind != Kind::kTarget) step.unknown();
  return (uint32_t)last.value;
}
// The lanes for which all predicates hold, which are the operands besides the target and the barrier.
static Mask chosen(const Step& step) {
  Mask found = step.mask;
  for (int n = 0; n < step.count(); ++n) {
    const Kind kind = step.kind(n);
    if (kind != Kind::kTarget && kind != Kind::kBarrier) found &= step.predicate(n);
  }
  return found;
}
// The number of the convergence barrier; predicates may stand before it.
static int barrier(const Step& step) {
  for (int n = 0; n < step.count(); ++n)
    if (step.kind(n) == Kind::kBarrier) return step.operand(n).index;
  step.unknown();
}

INSTRUCTION(BRA, "CALL", kBranch, "DIV U ANY ALL REL NOINC", "PTX bra, call") {
  const uint32_t to = target(step);
  if (!step.has(mDIV)) return step.warp.go_to(chosen(step), to);
  // To the code for diverged warps, unless the lanes of the mask are all here.
  const Mask wanted = step.u32(0)[0] & step.warp.live();
  if (step.warp.running_at(step.pc + 1) != wanted) step.warp.go_to(step.mask, to);
}
INSTRUCTION(BRX, "", kBranch, "", "PTX brx.idx") {
  // A register of bytes, and the distance of the table's start from the next instruction.
  const U32 bytes = step.u32(0) + (uint32_t)step.operand(1).value + 16 * (step.pc + 1);
  each_lane(step.mask, [&](int lane) {
    if ((int32_t)bytes[lane] < 0 || bytes[lane] % 16) step.fail("jumps to " + hex(bytes[lane]));
  });
  step.warp.pc = choose(step.mask, bytes / 16, step.warp.pc);
}
INSTRUCTION(RET, "", kBranch, "REL NODEC", "PTX ret") {
  // The address is one of the kernel's section, from its start on.
  step.warp.pc = choose(step.mask, target(step) + step.word(0) / 16, step.warp.pc);
}
INSTRUCTION(EXIT, "", kBranch, "", "PTX exit") { step.warp.move(chosen(step), Wait::kExited); }

// BSSY notes the lanes that are to meet again, BSYNC waits for them, BREAK takes lanes out.
#define MEETING "Volta white paper, independent thread scheduling"
INSTRUCTION(BSSY, "", kBranch, "RECONVERGENT", MEETING) {
  target(step);  // where the lanes meet is where BSYNC is
  step.warp.convergence[barrier(step)] = chosen(step);
}
INSTRUCTION(BSYNC, "", kBranch, "RECONVERGENT", MEETING) {
  if (step.count() > 1) step.unknown();
  wait_for(step, Wait::kConvergence, splat(barrier(step)));
}
INSTRUCTION(BREAK, "", kBranch, "RECONVERGENT", MEETING) {
  step.warp.convergence[barrier(step)] &= ~chosen(step);
}
// A move between a convergence barrier and a register, which keeps it while a function uses the barrier.
INSTRUCTION(BMOV, "", kBranch, "32 CLEAR", MEETING) {
  if (step.count() != 2) step.unknown();
  if (step.kind(0) == Kind::kBarrier) {
    step.warp.convergence[barrier(step)] = step.u32(1)[__builtin_ctz(step.mask)];
    return;
  }
  Mask& lanes = step.warp.convergence[barrier(step)];
  step.set(0, splat(lanes));
  if (step.has(mCLEAR)) lanes = 0;
}
INSTRUCTION(WARPSYNC, "", kBranch, "ALL COLLECTIVE EXCLUSIVE", "PTX bar.warp.sync") {
  const U32 wanted = step.has(mALL) ? splat(kAll) : step.u32(0);
  if (step.has(mCOLLECTIVE)) target(step);  // behind the next ENDCOLLECTIVE, where the code goes on
  wait_for(step, step.has(mCOLLECTIVE) ? Wait::kCollective : Wait::kWarp, wanted);
}
INSTRUCTION(BAR, "", kBranch, "SYNC RED AND OR POPC DEFER_BLOCKING",
            "PTX barrier.sync, barrier.red") {
  const bool reduces = step.has(mRED);
  if (step.operand(0).kind != Kind::kImmediate || step.count() != (reduces ? 2 : 1) ||
      reduces == step.has(mSYNC))
    step.unknown();
  if (reduces) {
    const Mask brought = step.predicate(1) & step.mask;
    Block::Reduction& reduction = step.warp.block.brought;
    reduction.any = reduction.any || brought;
    reduction.all = reduction.all && brought == step.mask;
    reduction.count += __builtin_popcount(brought);
    reduction.wants_all = step.has(mAND);
  }
  wait_for(step, Wait::kBarrier, splat((uint32_t)step.operand(0).value));
}
INSTRUCTION(B2R, "", kShared, "RESULT", "PTX barrier.red") {
  const Block::Reduction& reduced = step.warp.block.reduced;
  step.set(0, splat(reduced.count));
  if (step.count() > 1)
    step.set_predicate(1, (reduced.wants_all ? reduced.all : reduced.any) ? kAll : 0);
}
// The barrier of a cluster, in two parts; the blocks of a cluster arrive with all their threads.
INSTRUCTION(UCGABAR_ARV, "", kBranch, "", "PTX barrier.cluster.arrive") {}
INSTRUCTION(UCGABAR_WAIT, "", kBranch, "", "PTX barrier.cluster.wait") {
  wait_for(step, Wait::kBarrier, splat(kClusterBarrier));
}

// An instruction that the table does not have: its text has the reason behind the instruction.
INSTRUCTION(UNKNOWN, "", kBranch, "", "no instruction") {
  step.fail("an instruction that is not known");
}

// Here every access is done before the next instruction, and nothing is held in a cache.
INSTRUCTION(NOP, "YIELD ENDCOLLECTIVE", kBranch, "", "no PTX instruction") {}
INSTRUCTION(MEMBAR, "", kMemory, "ALL SC CTA GPU SYS", "PTX fence") {
  step.warp.access.is_fence = !step.has(mCTA);
}
INSTRUCTION(ERRBAR, "CGAERRBAR CCTL", kMemory, "ALL IVALL", "PTX fence") {}
// LDGDEPBAR ends a group of copies; DEPBAR waits for all but the last groups, whose number is an operand.
INSTRUCTION(LDGDEPBAR, "", kMemory, "", "PTX cp.async.commit_group") {
  step.warp.access.ends_copies = true;
}
INSTRUCTION(DEPBAR, "", kMemory, "LE", "PTX cp.async.wait_group") {
  if (!step.has(mLE)) step.unknown();
  for (int n = 0; n < step.count(); ++n)
    if (step.operand(n).kind != Kind::kImmediate) step.unknown();
  step.warp.access.awaits_copies = true;
  step.warp.access.groups_left = step.u32(step.count() - 1)[0];
}
// It may take no time at all.
INSTRUCTION(NANOSLEEP, "", kBranch, "", "PTX nanosleep") { step.u32(0); }
