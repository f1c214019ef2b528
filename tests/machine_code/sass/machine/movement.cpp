// Loads, stores and atomic accesses; what lanes of a warp tell each other.
#include "state.h"

static int size_of(const Step& step) {
  if (step.has(m128)) return 16;
  if (step.has(m64)) return 8;
  if (step.has(mU16) || step.has(mS16)) return 2;
  if (step.has(mU8) || step.has(mS8)) return 1;
  return 4;
}

// The lanes whose generic address means shared storage.
static Mask in_shared(const U64& addresses) { return mask_of(addresses >> 32 == kSharedWindow); }

static uint8_t* place(const Step& step, uint64_t address, int size, bool is_shared, Use use) {
  if (address % size) step.fail(told(use, size, address) + " is not aligned");
  const Block& block = *step.warp.block;
  if (!is_shared) return block.memory.at(address, size, use);
  const uint32_t rank = (uint32_t)address >> kSharedRankShift;
  if (rank >= block.cluster->size())
    step.fail("shared storage of block " + std::to_string(rank) + " of a cluster of " +
              std::to_string(block.cluster->size()));
  const uint64_t offset = address & ((1u << kSharedRankShift) - 1);
  return (*block.cluster)[rank]->shared.at(offset, size, use);
}

static void count(const Step& step, const U64& addresses, int size, Mask shared, bool is_store,
                  bool is_atomic) {
  Access& access = step.warp.access;
  access.is_store = is_store;
  access.is_strong = step.has(mSTRONG);
  access.bytes += size * __builtin_popcount(step.mask);
  access.wavefronts += wavefronts_of(addresses, step.mask & shared, size, is_atomic);
  access.num_sectors = sectors_of(addresses, step.mask & ~shared, access.sectors);
}

// `shared` are the lanes whose addresses are of shared storage.
static void load(const Step& step, const U64& addresses, Mask shared) {
  const int size = size_of(step);
  count(step, addresses, size, shared, false, false);
  U32 words[4] = {};
  each_lane(step.mask, [&](int lane) {
    uint32_t value[4] = {};
    memcpy(value, place(step, addresses[lane], size, shared >> lane & 1, Use::kLoad), size);
    if (step.has(mS8)) value[0] = (uint32_t)(int8_t)value[0];
    if (step.has(mS16)) value[0] = (uint32_t)(int16_t)value[0];
    for (int word = 0; word < 4; ++word) words[word][lane] = value[word];
  });
  for (int word = 0; word < std::max(1, size / 4); ++word) step.set(0, words[word], word);
}
static void store(const Step& step, const U64& addresses, Mask shared) {
  const int size = size_of(step);
  count(step, addresses, size, shared, true, false);
  const uint32_t stored = size >= 4 ? kAll : (1u << 8 * size) - 1;
  const Bits first = step.bits(1);
  if (mask_of(~first.defined & stored) & step.mask)
    step.fail("stores a register that nobody wrote");
  U32 words[4] = {first.value};
  for (int word = 1; word < size / 4; ++word) words[word] = step.word(1, word);
  each_lane(step.mask, [&](int lane) {
    const uint32_t value[] = {words[0][lane], words[1][lane], words[2][lane], words[3][lane]};
    memcpy(place(step, addresses[lane], size, shared >> lane & 1, Use::kStore), value, size);
  });
}

#define SIZES "U8 S8 U16 S16 64 128 "
#define SCOPES "E STRONG CTA GPU SYS "
INSTRUCTION(LDG, "", kMemory, SIZES SCOPES "CONSTANT", "PTX ld.global") {
  load(step, step.address(1), 0);
}
INSTRUCTION(LDS, "", kShared, SIZES, "PTX ld.shared") { load(step, step.address(1), kAll); }
INSTRUCTION(LD, "", kMemory, SIZES SCOPES, "PTX ld") {
  load(step, step.address(1), in_shared(step.address(1)));
}
INSTRUCTION(STG, "", kMemory, SIZES SCOPES, "PTX st.global") { store(step, step.address(0), 0); }
INSTRUCTION(STS, "", kShared, SIZES, "PTX st.shared") { store(step, step.address(0), kAll); }
INSTRUCTION(ST, "", kMemory, SIZES SCOPES, "PTX st") {
  store(step, step.address(0), in_shared(step.address(0)));
}
// Copies 4, 8 or 16 bytes from global memory to shared storage; here at once.
INSTRUCTION(LDGSTS, "", kMemory, "E 64 128 BYPASS", "PTX cp.async") {
  const U64 to = step.address(0), from = step.address(1);
  const int size = size_of(step);
  count(step, from, size, 0, false, false);
  step.warp.access.wavefronts += wavefronts_of(to, step.mask, size, false);
  each_lane(step.mask, [&](int lane) {
    memcpy(place(step, to[lane], size, true, Use::kStore),
           place(step, from[lane], size, false, Use::kLoad), size);
  });
}
INSTRUCTION(LDC, "ULDC", kUniform, "64", "PTX ld.param, ld.const") {
  step.set(0, step.word(1));
  if (step.has(m64)) step.set(0, step.word(1, 1), 1);
}

// Atomic accesses: the operation, and whether the lanes' former value is wanted.
static uint64_t combined(const Step& step, uint64_t old, uint64_t value, int size) {
  const bool is_signed = step.has(mS32) || step.has(mS64);
  const int64_t a = size == 4 ? (int32_t)old : (int64_t)old,
                b = size == 4 ? (int32_t)value : (int64_t)value;
  if (step.has(mADD)) return old + value;
  if (step.has(mOR)) return old | value;
  if (step.has(mAND)) return old & value;
  if (step.has(mXOR)) return old ^ value;
  if (step.has(mEXCH)) return value;
  if (step.has(mMAX)) return is_signed ? (a > b ? old : value) : (old > value ? old : value);
  if (step.has(mMIN)) return is_signed ? (a < b ? old : value) : (old < value ? old : value);
  if (step.has(mINC)) return step.has(mPOPC) ? old + 1 : old >= value ? 0 : old + 1;
  step.unknown();
}
// `to` is the operand of the former value, -1 for none.
static void atomic(const Step& step, Mask shared, int to, int address) {
  const U64 addresses = step.address(address);
  const int size = step.has(m64) || step.has(mU64) || step.has(mS64) ? 8 : 4;
  const bool compares = step.has(mCAS) || step.has(mCAST);
  const bool has_value = step.count() > address + 1;
  // POPC counts the lanes of an address before it adds, so they take one turn.
  count(step, addresses, size, shared, true, !step.has(mPOPC));
  const auto operand = [&](int n) { return size == 8 ? step.words(n) : wide(step.word(n)); };
  const U64 first = has_value ? operand(address + 1) : U64{};
  const U64 second = compares ? operand(address + 2) : U64{};
  U64 old = {};
  each_lane(step.mask, [&](int lane) {
    uint8_t* at = place(step, addresses[lane], size, shared >> lane & 1, Use::kAtomic);
    uint64_t value = 0;
    memcpy(&value, at, size);
    const bool is_equal = value == first[lane];
    const uint64_t next =
        compares ? (is_equal ? second[lane] : value) : combined(step, value, first[lane], size);
    memcpy(at, &next, size);
    old[lane] = step.has(mCAST) ? is_equal : value;  // CAST tells whether it stored
  });
  if (to < 0) return;
  step.set(to, low(old));
  if (size == 8) step.set(to, high(old), 1);
}
#define OPERATIONS "ADD OR AND XOR EXCH MAX MIN INC CAS 64 U64 S32 S64 "
INSTRUCTION(ATOMS, "", kShared, OPERATIONS "POPC CAST SPIN 32", "PTX atom.shared") {
  atomic(step, kAll, 0, 1);
}
INSTRUCTION(ATOMG, "ATOM", kMemory, OPERATIONS SCOPES, "PTX atom, atom.global") {
  // The first operand is a predicate that no compiler asked for.
  if (!step.is_predicate(0) || step.operand(0).index != kTruePredicate) step.unknown();
  atomic(step, in_shared(step.address(2)), 1, 2);
}
INSTRUCTION(REDG, "", kMemory, OPERATIONS SCOPES, "PTX red, red.global") {
  atomic(step, in_shared(step.address(0)), -1, 0);
}

// Votes, shuffles, matches and reductions: the lanes that are here take part, which `__shfl_sync` and its like
// promise to be those of its mask.
INSTRUCTION(VOTE, "VOTEU", kAlu, "ANY ALL EQ", "PTX vote.sync") {
  const int n = step.is_predicate(0) ? 0 : 1;
  const Mask found = step.predicate(step.count() - 1) & step.mask;
  const bool any = found != 0, all = found == step.mask;
  if (n) step.set(0, splat(found));
  if (step.count() == n + 1) return;
  const bool result = step.has(mANY)   ? any
                      : step.has(mALL) ? all
                      : step.has(mEQ)  ? all || !any
                                       : (step.unknown(), false);
  step.set_predicate(n, result ? kAll : 0);
}
INSTRUCTION(SHFL, "", kShared, "IDX UP DOWN BFLY", "PTX shfl.sync") {
  const U32 distance = step.u32(3), clamp = step.u32(4);
  const Bits value = step.bits(2);
  Bits found = {};
  Mask in_range = 0;
  each_lane(step.mask, [&](int lane) {
    const int segment = clamp[lane] >> 8 & 31, bound = clamp[lane] & 31, by = distance[lane] & 31;
    const int least = lane & segment, most = least | (bound & ~segment);
    const int from = step.has(mIDX)    ? least | (by & ~segment)
                     : step.has(mUP)   ? lane - by
                     : step.has(mDOWN) ? lane + by
                                       : lane ^ by;
    const bool is_in = step.has(mUP) ? from >= most : from <= most;
    const int source = is_in ? from : lane;
    if (!(step.mask >> source & 1)) step.fail("takes the value of a lane that is not here");
    found.value[lane] = value.value[source];
    found.defined[lane] = value.defined[source];
    in_range |= (Mask)is_in << lane;
  });
  step.warp.access.wavefronts += 1;
  step.set(1, found);
  step.set_predicate(0, in_range);
}
INSTRUCTION(MATCH, "", kShared, "ANY ALL U64", "PTX match.sync") {
  const int n = step.count() - 1;
  const U64 value = step.has(mU64) ? step.words(n) : wide(step.word(n));
  U32 found = {};
  bool all = true;
  each_lane(step.mask, [&](int lane) {
    found[lane] = mask_of(value == value[lane]) & step.mask;
    all = all && found[lane] == step.mask;
  });
  if (step.has(mANY)) return step.set(0, found);
  step.set(n - 1, splat(all ? step.mask : 0));
  if (n == 2) step.set_predicate(0, all ? kAll : 0);
}
INSTRUCTION(REDUX, "", kReduction, "MAX MIN SUM OR XOR S32", "PTX redux.sync") {
  const U32 value = step.u32(1);
  const bool is_signed = step.has(mS32);
  uint32_t found = value[__builtin_ctz(step.mask)];
  each_lane(step.mask & (step.mask - 1), [&](int lane) {
    const uint32_t x = value[lane];
    const bool is_less = is_signed ? (int32_t)x < (int32_t)found : x < found;
    found = step.has(mMAX)   ? (is_less ? found : x)
            : step.has(mMIN) ? (is_less ? x : found)
            : step.has(mSUM) ? found + x
            : step.has(mOR)  ? found | x
            : step.has(mXOR) ? found ^ x
                             : found & x;  // AND is not spelled
  });
  step.set(0, splat(found));
}
