// Loads, stores and atomic accesses; what lanes of a warp tell each other.
#include "state.h"

static int size_of(const Step& step) {
  if (step.has(m128)) return 16;
  if (step.has(m64)) return 8;
  if (step.has(mU16) || step.has(mS16)) return 2;
  if (step.has(mU8) || step.has(mS8)) return 1;
  return 4;
}

// Whether a generic address is one of shared storage.
static bool is_shared(uint64_t address) { return address >> 32 == kSharedWindow; }

static SharedStorage& storage_of(const Step& step, uint64_t address) {
  const Block& block = *step.warp.block;
  const uint32_t rank = (uint32_t)address >> kSharedRankShift;
  if (rank >= block.shared.size())
    step.fail("shared storage of block " + std::to_string(rank) + " of a cluster of " +
              std::to_string(block.shared.size()));
  return *block.shared[rank];
}
static uint8_t* shared_at(const Step& step, uint64_t address, int size, const char* what) {
  const uint64_t offset = (uint32_t)address & ((1u << kSharedRankShift) - 1);
  return storage_of(step, address).at(offset, size, what);
}

static void count(const Step& step, const U64& addresses, int size, bool in_shared, bool is_store,
                  bool is_atomic) {
  Access& access = step.warp.access;
  access.is_store = is_store;
  access.is_atomic = is_atomic;
  access.is_strong = step.has(mSTRONG);
  access.bytes += size * __builtin_popcount(step.mask);
  if (in_shared)
    access.wavefronts += wavefronts_of(addresses, step.mask, size, is_atomic);
  else
    access.num_sectors = sectors_of(addresses, step.mask, size, access.sectors);
}
// Generic accesses of one warp all go to one place.
static bool all_shared(const Step& step, const U64& addresses) {
  return step.mask && is_shared(addresses[__builtin_ctz(step.mask)]);
}

static void load(const Step& step, bool in_shared, const U64& addresses) {
  const int size = size_of(step);
  count(step, addresses, size, in_shared, false, false);
  U32 words[4] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    uint32_t value[4] = {};
    if (in_shared)
      memcpy(value, shared_at(step, addresses[lane], size, "load"), size);
    else
      step.warp.block->memory->load(addresses[lane], size, (uint8_t*)value);
    if (step.has(mS8)) value[0] = (uint32_t)(int8_t)value[0];
    if (step.has(mS16)) value[0] = (uint32_t)(int16_t)value[0];
    for (int word = 0; word < 4; ++word) words[word][lane] = value[word];
  }
  for (int word = 0; word < std::max(1, size / 4); ++word) step.set(0, words[word], word);
}
static void store(const Step& step, bool in_shared, const U64& addresses) {
  const int size = size_of(step);
  count(step, addresses, size, in_shared, true, false);
  U32 words[4] = {};
  const uint32_t stored = size >= 4 ? kAll : (1u << 8 * size) - 1;
  if (mask_of(~step.defined(1) & stored) & step.mask)
    step.fail("stores a register that nobody wrote");
  words[0] = step.undefined(1);
  for (int word = 1; word < size / 4; ++word) words[word] = step.word(1, word);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    uint32_t value[4];
    for (int word = 0; word < 4; ++word) value[word] = words[word][lane];
    if (in_shared)
      memcpy(shared_at(step, addresses[lane], size, "store"), value, size);
    else
      step.warp.block->memory->store(addresses[lane], size, (const uint8_t*)value);
  }
}

INSTRUCTION(LDG, "", kMemory,
            "E U8 S8 U16 S16 64 128 CONSTANT STRONG WEAK CTA GPU SYS EF EL NA LTC128B LTC256B",
            "PTX ld.global") {
  load(step, false, step.address(1));
}
INSTRUCTION(LDS, "", kShared, "U8 S8 U16 S16 64 128 U", "PTX ld.shared") {
  load(step, true, step.address(1));
}
INSTRUCTION(LD, "", kMemory, "E U8 S8 U16 S16 64 128 STRONG GPU CTA SYS", "PTX ld") {
  const U64 addresses = step.address(1);
  load(step, all_shared(step, addresses), addresses);
}
INSTRUCTION(STG, "", kMemory, "E U8 U16 64 128 STRONG WEAK CTA GPU SYS EF EL NA", "PTX st.global") {
  store(step, false, step.address(0));
}
INSTRUCTION(STS, "", kShared, "U8 U16 64 128", "PTX st.shared") {
  store(step, true, step.address(0));
}
INSTRUCTION(ST, "", kMemory, "E U8 U16 64 128 STRONG GPU CTA SYS", "PTX st") {
  const U64 addresses = step.address(0);
  store(step, all_shared(step, addresses), addresses);
}
// Copies 4, 8 or 16 bytes from global memory to shared storage; here at once.
INSTRUCTION(LDGSTS, "", kMemory, "E 64 128 BYPASS LTC128B LTC256B ZFILL", "PTX cp.async") {
  const U64 to = step.address(0), from = step.address(1);
  const int size = size_of(step);
  count(step, from, size, false, false, false);
  step.warp.access.wavefronts += wavefronts_of(to, step.mask, size, false);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    uint8_t value[16];
    step.warp.block->memory->load(from[lane], size, value);
    memcpy(shared_at(step, to[lane], size, "store"), value, size);
  }
}
INSTRUCTION(LDC, "ULDC LDCU", kUniform, "64 U8 S8 U16 S16", "PTX ld.param, ld.const") {
  if (size_of(step) < 4) step.unknown();
  step.set(0, step.word(1, 0));
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
// `to` is the operand of the former value, -1 for none; `at` of the address.
static void atomic(const Step& step, bool in_shared, int to, int at) {
  const U64 addresses = step.address(at);
  const int size = step.has(m64) || step.has(mU64) || step.has(mS64) ? 8 : 4;
  const bool compares = step.has(mCAS) || step.has(mCAST);
  const bool has_value = step.count() > at + 1;
  count(step, addresses, size, in_shared, true, true);
  const auto operand = [&](int n) {
    return !has_value  ? U64{}
           : size == 8 ? pair(step.word(n, 0), step.word(n, 1))
                       : wide(step.raw(n));
  };
  const U64 first = operand(at + 1), second = compares ? operand(at + 2) : U64{};
  U64 old = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    uint8_t* place = in_shared ? shared_at(step, addresses[lane], size, "atomic access")
                               : step.warp.block->memory->atomic(addresses[lane], size);
    uint64_t value = 0;
    memcpy(&value, place, size);
    const bool is_equal = value == first[lane];
    const uint64_t next =
        compares ? (is_equal ? second[lane] : value) : combined(step, value, first[lane], size);
    memcpy(place, &next, size);
    old[lane] = step.has(mCAST) ? is_equal : value;  // CAST tells whether it stored
  }
  if (to < 0) return;
  step.set(to, low(old));
  if (size == 8) step.set(to, high(old), 1);
}
INSTRUCTION(ATOMS, "", kShared, "ADD OR AND XOR EXCH MAX MIN INC POPC CAS CAST SPIN 32 64 U64 S32",
            "PTX atom.shared") {
  atomic(step, true, 0, 1);
}
INSTRUCTION(ATOMG, "ATOM", kMemory,
            "E ADD OR AND XOR EXCH MAX MIN INC CAS 64 U64 S32 S64 STRONG CTA GPU SYS",
            "PTX atom.global") {
  // The first operand is a predicate that no compiler asked for.
  if (!step.is_predicate(0) || step.operand(0).index != kTruePredicate) step.unknown();
  const U64 addresses = step.address(2);
  atomic(step, all_shared(step, addresses), 1, 2);
}
INSTRUCTION(RED, "REDG", kMemory, "E ADD OR AND XOR MAX MIN INC 64 U64 S32 S64 STRONG CTA GPU SYS",
            "PTX red.global") {
  atomic(step, false, -1, 0);
}

// Votes, shuffles, matches and reductions: the lanes that are here take part, which `__shfl_sync` and its like
// promise to be those of its mask.
INSTRUCTION(VOTE, "VOTEU", kAlu, "ANY ALL EQ", "PTX vote.sync") {
  int n = 0;
  const bool has_ballot = !step.is_predicate(0);
  if (has_ballot) n = 1;
  const Mask found = step.predicate(step.count() - 1) & step.mask;
  const bool any = found != 0, all = found == step.mask;
  const bool result = step.has(mANY)   ? any
                      : step.has(mALL) ? all
                      : step.has(mEQ)  ? all || !any
                                       : (step.unknown(), false);
  if (has_ballot) step.set(0, splat(found));
  if (step.count() > n + 1) step.set_predicate(n, result ? kAll : 0);
}
INSTRUCTION(SHFL, "", kShared, "IDX UP DOWN BFLY", "PTX shfl.sync") {
  const U32 value = step.undefined(2), distance = step.u32(3), clamp = step.u32(4);
  const U32 defined = step.defined(2);
  U32 found = {}, known = {};
  Mask in_range = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    const int segment = clamp[lane] >> 8 & 31, bound = clamp[lane] & 31, by = distance[lane] & 31;
    const int least = lane & segment, most = least | (bound & ~segment);
    const int from = step.has(mIDX)    ? least | (by & ~segment)
                     : step.has(mUP)   ? lane - by
                     : step.has(mDOWN) ? lane + by
                                       : lane ^ by;
    const bool is_in = step.has(mUP) ? from >= most : from <= most;
    const int source = is_in ? from : lane;
    if (!(step.mask >> source & 1)) step.fail("takes the value of a lane that is not here");
    found[lane] = value[source];
    known[lane] = defined[source];
    in_range |= (Mask)is_in << lane;
  }
  step.warp.access.wavefronts += 1;
  step.set_partly(1, found, known);
  step.set_predicate(0, in_range);
}
INSTRUCTION(MATCH, "", kShared, "ANY ALL U64", "PTX match.sync") {
  const bool is_wide = step.has(mU64);
  const int n = step.count() - 1;
  const U64 value = is_wide ? pair(step.word(n, 0), step.word(n, 1)) : wide(step.raw(n));
  U32 found = {};
  bool all = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    for (int other = 0; other < kLanes; ++other)
      if ((step.mask >> other & 1) && value[other] == value[lane]) found[lane] |= 1u << other;
    all = all && found[lane] == step.mask;
  }
  if (step.has(mANY)) {
    step.set(0, found);
    return;
  }
  step.set(n - 1, splat(all ? step.mask : 0));
  if (n == 2) step.set_predicate(0, all ? kAll : 0);
}
INSTRUCTION(REDUX, "", kShared, "MAX MIN SUM OR XOR AND S32", "PTX redux.sync") {
  const U32 value = step.u32(1);
  uint32_t found = 0;
  bool is_first = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(step.mask >> lane & 1)) continue;
    const uint32_t x = value[lane];
    const bool less = step.has(mS32) ? (int32_t)x < (int32_t)found : x < found;
    if (is_first)
      found = x;
    else if (step.has(mMAX))
      found = less ? found : x;
    else if (step.has(mMIN))
      found = less ? x : found;
    else if (step.has(mSUM))
      found += x;
    else if (step.has(mOR))
      found |= x;
    else if (step.has(mXOR))
      found ^= x;
    else if (step.has(mAND))
      found &= x;
    else
      step.unknown();
    is_first = false;
  }
  step.set(0, splat(found));
}
