// Branches, convergence and barriers. A lane has a place of its own; those at one place run together.
// `schedule.cpp` has moved the lanes that are here to the next place before an instruction runs.
#include "state.h"

static void go_to(const Step& step, Mask lanes, uint64_t place) {
  for (int lane = 0; lane < kLanes; ++lane)
    if (lanes >> lane & 1) step.warp.pc[lane] = (uint32_t)place;
}
static void wait_for(const Step& step, Wait what, uint32_t argument) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    step.warp.wait[lane] = what;
    step.warp.waits_for[lane] = argument;
  }
}
static uint64_t target(const Step& step) {
  const Operand& last = step.operand(step.count() - 1);
  if (last.kind != Kind::kTarget) step.unknown();
  return last.value;
}

INSTRUCTION(BRA, "", kBranch, "DIV U ANY ALL", "PTX bra") {
  if (step.has(mDIV)) {
    // To the way for diverged warps, unless the lanes of the mask are all here.
    const Mask wanted = step.u32(0)[0] & step.warp.live();
    const Mask here = step.warp.at(step.pc + 1);
    if (here != wanted) go_to(step, step.mask, target(step));
    return;
  }
  Mask taken = step.mask;
  for (int n = 0; n + 1 < step.count(); ++n) taken &= step.predicate(n);
  go_to(step, taken, target(step));
}
INSTRUCTION(BRX, "", kBranch, "", "PTX brx.idx") {
  // A register of bytes, and the distance of the table's start from the next instruction.
  const U32 bytes = step.u32(0) + (uint32_t)step.operand(1).value;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    const int32_t place = (int32_t)(step.pc + 1) * 16 + (int32_t)bytes[lane];
    if (place < 0 || place % 16) step.fail("jumps to " + hex((uint32_t)place));
    step.warp.pc[lane] = place / 16;
  }
}
INSTRUCTION(CALL, "", kBranch, "REL NOINC", "PTX call") { go_to(step, step.mask, target(step)); }
INSTRUCTION(RET, "", kBranch, "REL NODEC", "PTX ret") {
  // The address is one of the kernel's section, from its start on.
  const U32 bytes = step.word(0, 0);
  const uint64_t base = target(step);
  for (int lane = 0; lane < kLanes; ++lane)
    if (step.mask >> lane & 1) step.warp.pc[lane] = (uint32_t)(base + bytes[lane] / 16);
}
INSTRUCTION(EXIT, "", kBranch, "", "PTX exit") { wait_for(step, Wait::kExited, 0); }

// BSSY notes the lanes that are to meet again, BSYNC waits for them, BREAK takes lanes out.
INSTRUCTION(BSSY, "", kBranch, "RECONVERGENT", "Volta white paper, independent thread scheduling") {
  step.warp.convergence[step.operand(0).index] = step.mask;
}
INSTRUCTION(BSYNC, "", kBranch, "RECONVERGENT",
            "Volta white paper, independent thread scheduling") {
  wait_for(step, Wait::kConvergence, step.operand(0).index);
}
INSTRUCTION(BREAK, "", kBranch, "RECONVERGENT",
            "Volta white paper, independent thread scheduling") {
  const int barrier = step.operand(0).kind == Kind::kBarrier ? 0 : step.count() - 1;
  Mask leaving = step.mask;
  for (int n = 0; n < step.count(); ++n)
    if (n != barrier) leaving &= step.predicate(n);
  step.warp.convergence[step.operand(barrier).index] &= ~leaving;
}
INSTRUCTION(WARPSYNC, "", kBranch, "ALL COLLECTIVE EXCLUSIVE", "PTX bar.warp.sync") {
  const Mask wanted = step.has(mALL) ? kAll : step.u32(0)[__builtin_ctz(step.mask)];
  wait_for(step, step.has(mCOLLECTIVE) ? Wait::kCollective : Wait::kWarp, wanted);
}
INSTRUCTION(BAR, "", kBranch, "SYNC RED AND OR POPC DEFER_BLOCKING",
            "PTX barrier.sync, barrier.red") {
  if (step.operand(0).kind != Kind::kImmediate || step.count() != (step.has(mRED) ? 2 : 1))
    step.unknown();
  if (step.has(mRED)) {
    const Mask brought = step.predicate(1) & step.mask;
    Block::Reduction& reduction = step.warp.block->brought;
    reduction.any = reduction.any || brought;
    reduction.all = reduction.all && brought == step.mask;
    reduction.count += __builtin_popcount(brought);
    reduction.wants_all = step.has(mAND);
  } else if (!step.has(mSYNC)) {
    step.unknown();
  }
  wait_for(step, Wait::kBarrier, (uint32_t)step.operand(0).value);
}
INSTRUCTION(B2R, "", kShared, "RESULT", "PTX barrier.red") {
  const Block::Reduction& reduced = step.warp.block->reduced;
  step.set(0, splat(reduced.count));
  if (step.count() > 1)
    step.set_predicate(1, (reduced.wants_all ? reduced.all : reduced.any) ? kAll : 0);
}
// The barrier of a cluster, in two parts; the blocks of a cluster arrive with all their threads.
INSTRUCTION(UCGABAR_ARV, "", kBranch, "", "PTX barrier.cluster.arrive") { (void)step; }
INSTRUCTION(UCGABAR_WAIT, "", kBranch, "", "PTX barrier.cluster.wait") {
  wait_for(step, Wait::kBarrier, kClusterBarrier);
}

// Here every access is done before the next instruction, and nothing is held in a cache.
INSTRUCTION(NOP, "YIELD ENDCOLLECTIVE", kBranch, "", "no PTX instruction") { (void)step; }
INSTRUCTION(MEMBAR, "ERRBAR CGAERRBAR CCTL", kMemory, "ALL SC CTA GPU SYS IVALL", "PTX fence") {
  (void)step;
}
INSTRUCTION(LDGDEPBAR, "DEPBAR", kMemory, "LE", "PTX cp.async.commit_group, wait_group") {
  (void)step;
}
INSTRUCTION(NANOSLEEP, "", kBranch, "", "PTX nanosleep") { (void)step; }
