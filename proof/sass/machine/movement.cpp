// Loads, stores and atomic accesses; what lanes of a warp tell each other.
#include "state.h"

static int size_of(const Step& step) {
  if (step.has(m128)) return 16;
  if (step.has(m64, mU64, mS64)) return 8;
  return step.has(mU16, mS16) ? 2 : step.has(mU8, mS8) ? 1 : 4;
}

// The lanes whose generic address means shared storage.
static Mask in_shared(const U64& addresses) { return mask_of(addresses >> 32 == kSharedWindow); }

static uint8_t* place(const Step& step, uint64_t address, int size, bool is_shared, Use use) {
  if (address % size) step.fail(told(use, size, address) + " is not aligned");
  Block& block = step.warp.block;
  if (!is_shared) return global_place(block.launch, block.last_range, address, size, use);
  const uint32_t rank = (uint32_t)address >> kSharedRankShift;
  const uint64_t offset = address & ((1u << kSharedRankShift) - 1);
  if (rank >= block.cluster->size())
    step.fail("shared storage of block " + std::to_string(rank) + " of a cluster of " +
              std::to_string(block.cluster->size()));
  step.warp.access.is_remote |= rank != block.rank;
  std::vector<uint8_t>& shared = (*block.cluster)[rank]->shared;
  if (offset < kReservedSharedBytes || offset + size > shared.size())
    step.fail(told(use, size, offset) + " is outside of shared storage, which ends at " +
              hex(shared.size()));
  return shared.data() + offset;
}

// Counts an access of some lanes, of which `shared` go to shared storage, and calls a function with each lane and
// its place.
template <typename Function>
static void access(const Step& step, const U64& addresses, Mask shared, int size, Use use,
                   Function function) {
  Access& access = step.warp.access;
  access.is_store = use != Use::kLoad;
  access.is_strong = step.has(mSTRONG);
  access.is_atomic = use == Use::kAtomic;
  // POPC counts the lanes of an address before it adds, so they take one turn.
  const bool takes_turns = use == Use::kAtomic && !step.has(mPOPC);
  access.wavefronts += wavefronts_of(addresses, step.mask & shared, size, takes_turns);
  const Mask global = step.mask & ~shared;
  access.num_sectors = sectors_of(addresses, global, access.sectors);
  const int num_dense = (__builtin_popcount(global) * size + kLineBytes - 1) / kLineBytes;
  access.num_lines_more = std::max(0, lines_of(access.sectors, access.num_sectors) - num_dense);
  if (access.is_atomic) access.updates = most_of_one(addresses, global);
  // Most accesses go to the block's own shared storage, where no buffer has to be found.
  std::vector<uint8_t>& own = step.warp.block.shared;
  const uint64_t rank = (uint64_t)step.warp.block.rank << kSharedRankShift;
  each_lane(step.mask, [&](int lane) {
    const uint64_t address = addresses[lane], offset = (uint32_t)address - rank;
    const bool is_own = shared >> lane & 1 && offset >= kReservedSharedBytes &&
                        offset + size <= own.size() && address % size == 0;
    function(lane,
             is_own ? own.data() + offset : place(step, address, size, shared >> lane & 1, use));
  });
}

// Sets the words that `access` brings from the place of each lane.
template <typename Access>
static void load_words(const Step& step, Access access) {
  const int size = size_of(step), num_words = std::max(1, size / 4);
  U32 words[4] = {};
  access([&](int lane, const uint8_t* from) {
    uint32_t value[4] = {};
    memcpy(value, from, size);
    if (step.has(mS8)) value[0] = (uint32_t)(int8_t)value[0];
    if (step.has(mS16)) value[0] = (uint32_t)(int16_t)value[0];
    for (int word = 0; word < num_words; ++word) words[word][lane] = value[word];
  });
  for (int word = 0; word < num_words; ++word) step.set(0, words[word], word);
}
template <typename Access>
static void store_words(const Step& step, Access access) {
  const int size = size_of(step);
  const Bits first = step.bits(1);
  if (!step.allows_undefined() &&
      mask_of(~first.defined & (size < 4 ? (1u << 8 * size) - 1 : kAll)) & step.mask)
    step.fail("stores a register that nobody wrote");
  U32 words[4] = {first.value};
  for (int word = 1; word < size / 4; ++word) words[word] = step.word(1, word);
  access([&](int lane, uint8_t* to) {
    const uint32_t value[] = {words[0][lane], words[1][lane], words[2][lane], words[3][lane]};
    memcpy(to, value, size);
  });
}
static void load(const Step& step, const U64& addresses, Mask shared) {
  load_words(step,
             [&](auto take) { access(step, addresses, shared, size_of(step), Use::kLoad, take); });
}
static void store(const Step& step, const U64& addresses, Mask shared) {
  store_words(step,
              [&](auto put) { access(step, addresses, shared, size_of(step), Use::kStore, put); });
}

#define SIZES "U8 S8 U16 S16 64 128 "
// Hints for caches, which here keep the last sectors whatever they are told.
#define SCOPES "E STRONG CTA GPU SYS EF LU NA LTC128B "
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
// Local memory: the words of a place lie next to each other for the lanes of a warp, as on a GPU.
static uint8_t* local_place(const Step& step, uint64_t address, int size, int lane, Use use) {
  const uint32_t bytes = step.warp.block.launch.local_bytes;
  std::vector<uint8_t>& memory = step.warp.local;
  if (memory.empty()) memory.assign(kLanes * bytes, 0xa5);
  if (address % size) step.fail(told(use, size, address) + " is not aligned");
  if (address + size > bytes)
    step.fail(told(use, size, address) + " is outside of local memory, which ends at " +
              hex(bytes));
  return memory.data() + lane * bytes + address;
}
template <typename Function>
static void local(const Step& step, const U64& addresses, Use use, Function function) {
  const int size = size_of(step);
  U64 places = {};
  each_lane(step.mask, [&](int lane) {
    const uint64_t address = (uint32_t)addresses[lane];
    function(lane, local_place(step, address, size, lane, use));
    places[lane] = (uint64_t)step.warp.local.data() + address / 4 * 4 * kLanes + 4 * lane;
  });
  Access& access = step.warp.access;
  access.is_store = use == Use::kStore;
  access.is_strong = false;
  access.num_sectors = sectors_of(places, step.mask, access.sectors);
}
INSTRUCTION(LDL, "", kMemory, SIZES "LU", "PTX ld.local") {
  load_words(step, [&](auto take) { local(step, step.address(1), Use::kLoad, take); });
}
INSTRUCTION(STL, "", kMemory, SIZES, "PTX st.local") {
  store_words(step, [&](auto put) { local(step, step.address(0), Use::kStore, put); });
}
// Copies 4, 8 or 16 bytes from global memory to shared storage; here at once.
INSTRUCTION(LDGSTS, "", kMemory, "E 64 128 BYPASS LTC128B", "PTX cp.async") {
  const U64 to = step.address(0);
  const int size = size_of(step);
  step.warp.access.is_copy = true;
  step.warp.access.wavefronts += wavefronts_of(to, step.mask, size, false);
  access(step, step.address(1), 0, size, Use::kLoad, [&](int lane, const uint8_t* from) {
    memcpy(place(step, to[lane], size, true, Use::kStore), from, size);
  });
}
INSTRUCTION(LDC, "ULDC", kUniform, "U8 S8 U16 S16 64", "PTX ld.param, ld.const") {
  if (step.has(m64)) return step.set(0, step.words(1));
  // The bits above a part are zero, or its sign.
  const int above = 32 - 8 * std::min(size_of(step), 4);
  U32 words = step.word(1);
  each_lane(kAll, [&](int lane) {
    const uint32_t high = words[lane] << above;
    words[lane] = step.has(mS8, mS16) ? (uint32_t)((int32_t)high >> above) : high >> above;
  });
  step.set(0, words);
}

// An atomic access; `to` is the operand of the former value, -1 for none.
static void atomic(const Step& step, Mask shared, int to, int address) {
  const int size = size_of(step);
  const bool compares = step.has(mCAS, mCAST);
  const auto operand = [&](int n) {
    if (n >= step.count()) return U64{};
    return size == 8 ? step.words(n) : wide(step.word(n));
  };
  const U64 first = operand(address + 1), second = compares ? operand(address + 2) : U64{};
  U64 old = {};
  access(step, step.address(address), shared, size, Use::kAtomic, [&](int lane, uint8_t* at) {
    uint64_t value = 0;
    memcpy(&value, at, size);
    const bool is_equal = value == first[lane];
    const uint64_t next =
        compares ? (is_equal ? second[lane] : value) : combined(step, value, first[lane], size);
    memcpy(at, &next, size);
    old[lane] = step.has(mCAST) ? is_equal : value;  // CAST tells whether it stored
  });
  if (to >= 0) size == 8 ? step.set(to, old) : step.set(to, low(old));
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

// Votes, shuffles, matches and reductions: the lanes that are here take part. Callers of `__shfl_sync` and
// its like promise that these are the lanes of the mask.
INSTRUCTION(VOTE, "VOTEU", kAlu, "ANY ALL EQ", "PTX vote.sync") {
  const int n = step.is_predicate(0) ? 0 : 1;
  const Mask found = step.predicate(step.count() - 1) & step.mask;
  if (n) step.set(0, splat(found));
  if (step.count() == n + 1) return;
  if (!step.has(mANY, mALL, mEQ)) step.unknown();
  const bool all = found == step.mask;
  const bool result = step.has(mANY) ? found : step.has(mALL) ? all : all || !found;
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
  const bool is_and = !step.has(mMAX, mMIN, mSUM, mOR, mXOR);  // AND has no suffix
  uint32_t found = value[__builtin_ctz(step.mask)];
  each_lane(step.mask & (step.mask - 1), [&](int lane) {
    found = is_and ? found & value[lane] : (uint32_t)combined(step, found, value[lane], 4);
  });
  step.set(0, splat(found));
}
