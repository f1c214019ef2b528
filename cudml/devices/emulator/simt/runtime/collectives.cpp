// A collective is completed by its last arrival, or by the end of a thread that it waited for. Both go
// through the same functions, so that observers see every completion.
#include "collectives.h"

#include <cstring>

#include "errors.h"
#include "observer.h"
#include "scheduler.h"

namespace simt {

namespace {

// The value that a shuffle returns for a lane that does not take part; undefined on the device.
constexpr uint64_t kAbsentLane = 0x7fc0dead7fc0deadu;

const char* barrier_kind_name(SimtBarrierKind kind) {
  static const char* const names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                      "__syncthreads_count"};
  return names[kind];
}

// ---- Block barriers

bool is_complete(const Block& block, const Barrier& barrier) {
  return barrier.arrived && barrier.arrived >= (barrier.expected ? barrier.expected : block.alive);
}

int combined(const Barrier& barrier) {
  switch (barrier.kind) {
    case kBarrierOr:
      return barrier.true_predicates != 0;
    case kBarrierAnd:
      return barrier.true_predicates == barrier.arrived;
    case kBarrierCount:
      return static_cast<int>(barrier.true_predicates);
    default:
      return 0;
  }
}

// Each waiter gets the result in its own slot, because other threads may use a named barrier again before
// this generation's waiters have run.
void complete_barrier(Block& block, Barrier& barrier) {
  if (barrier.expected)
    observe::named_barrier(this_worker(), block, barrier.waiting);
  else
    observe::block_barrier(this_worker(), block);
  const uint64_t result = static_cast<uint64_t>(combined(barrier));
  for (unsigned i = 0; i < block.num_warps; i++) {
    Warp& warp = block.warps[i];
    if (barrier.kind != kBarrierPlain)
      for (uint32_t lanes = barrier.waiting[i]; lanes; lanes &= lanes - 1)
        warp.result[__builtin_ctz(lanes)] = result;
    warp.ready |= barrier.waiting[i];
    barrier.waiting[i] = 0;
  }
  barrier.arrived = barrier.true_predicates = 0;
  note_progress();
}

// The order "fast" lets the last arrival continue; the other orders queue it, so that only the schedule
// decides which thread resumes first.
void continue_after_completion(const Launch& launch, Block& block, Wait wait, Place place,
                               uint32_t mask, uint8_t barrier) {
  if (is_fast(launch)) {
    block.current_warp().ready &= ~block.current_bit();
  } else {
    suspend(block, wait, place, mask, barrier);
  }
}

int arrive(unsigned id, unsigned num_threads, SimtBarrierKind kind, bool predicate, Place place) {
  Block& block = enter();
  const Launch& launch = *this_worker().launch;
  if (id >= kMaxBarriers)
    fail(place, format("barrier %u does not exist; there are %u", id, kMaxBarriers));
  if (num_threads % kWarpSize)
    fail(place, format("a barrier of %u threads: not a multiple of the warp size", num_threads));
  Barrier& barrier = block.barriers[id];
  if (barrier.arrived == 0) {
    barrier.expected = num_threads;
    barrier.kind = kind;
    barrier.place = place;
  } else if (barrier.kind != kind || barrier.expected != num_threads ||
             (launch.spec->strict && !(barrier.place == place))) {
    fail(place, format("divergent barrier: this thread is at %s while %u thread(s) of the block "
                       "wait in %s at %s",
                       barrier_kind_name(kind), barrier.arrived, barrier_kind_name(barrier.kind),
                       place_name(barrier.place).c_str()));
  }
  if (launch.spec->strict && num_threads == 0 && block.alive < block.num_threads)
    fail(place,
         format("divergent barrier: %u thread(s) of the block have ended before this barrier",
                block.num_threads - block.alive));
  barrier.arrived++;
  barrier.true_predicates += predicate;
  Warp& warp = block.current_warp();
  const unsigned lane = block.current % kWarpSize;
  barrier.waiting[block.current / kWarpSize] |= block.current_bit();
  if (is_complete(block, barrier)) {
    complete_barrier(block, barrier);
    continue_after_completion(launch, block, Wait::kBarrier, place, 0, static_cast<uint8_t>(id));
  } else {
    suspend(block, Wait::kBarrier, place, 0, static_cast<uint8_t>(id));
  }
  return kind == kBarrierPlain ? 0 : static_cast<int>(warp.result[lane]);
}

// ---- Cluster barriers

bool cluster_is_complete(const Worker& worker) {
  for (unsigned i = 0; i < worker.num_resident; i++)
    if (worker.blocks[i]->cluster_barrier.arrived < worker.blocks[i]->alive) return false;
  return true;
}

void complete_cluster(Worker& worker) {
  observe::cluster_barrier(worker);
  for (unsigned i = 0; i < worker.num_resident; i++) {
    Block& block = *worker.blocks[i];
    for (unsigned warp = 0; warp < block.num_warps; warp++) {
      block.warps[warp].ready |= block.cluster_barrier.waiting[warp];
      block.cluster_barrier.waiting[warp] = 0;
    }
    block.cluster_barrier.arrived = 0;
  }
  note_progress();
}

bool anyone_waits_for_cluster(const Worker& worker) {
  for (unsigned i = 0; i < worker.num_resident; i++)
    if (worker.blocks[i]->cluster_barrier.arrived) return true;
  return false;
}

// ---- Warp collectives

// Source lanes are taken modulo the warp.
void exchange(Warp& warp, const Rendezvous& open) {
  const uint32_t arrived = open.arrived;
  const unsigned first = static_cast<unsigned>(__builtin_ctz(arrived));
  uint64_t all = warp.value[first];
  uint32_t true_lanes = 0;
  bool all_equal = true;
  for (uint32_t lanes = arrived; lanes; lanes &= lanes - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
    const uint64_t v = warp.value[lane];
    const auto sv = static_cast<int64_t>(v), sall = static_cast<int64_t>(all);
    if (v) true_lanes |= 1u << lane;
    all_equal &= v == warp.value[first];
    if (lane == first) continue;
    switch (open.op) {
      case kWarpAdd:
        all += v;
        break;
      case kWarpMinSigned:
        all = sv < sall ? v : all;
        break;
      case kWarpMaxSigned:
        all = sv > sall ? v : all;
        break;
      case kWarpMinUnsigned:
        all = v < all ? v : all;
        break;
      case kWarpMaxUnsigned:
        all = v > all ? v : all;
        break;
      case kWarpAnd:
        all &= v;
        break;
      case kWarpOr:
        all |= v;
        break;
      case kWarpXor:
        all ^= v;
        break;
      default:
        break;
    }
  }
  if (open.op == kWarpBallot) all = true_lanes;
  if (open.op == kWarpAll) all = true_lanes == arrived;
  if (open.op == kWarpAny) all = true_lanes != 0;
  if (open.op == kWarpMatchAll) all = all_equal ? arrived : 0;

  // Only lanes that arrived, because others may not have read the result of their previous collective yet.
  for (uint32_t lanes = arrived; lanes; lanes &= lanes - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
    if (open.op == kWarpShuffle) {
      const unsigned source = warp.source[lane] % kWarpSize;
      warp.result[lane] = arrived >> source & 1 ? warp.value[source] : kAbsentLane;
    } else if (open.op == kWarpMatchAny) {
      uint32_t equal = 0;
      for (uint32_t others = arrived; others; others &= others - 1) {
        const unsigned other = static_cast<unsigned>(__builtin_ctz(others));
        if (warp.value[other] == warp.value[lane]) equal |= 1u << other;
      }
      warp.result[lane] = equal;
    } else {
      warp.result[lane] = all;
    }
  }
}

void complete_rendezvous(Block& block, unsigned number, Rendezvous& open) {
  Warp& warp = block.warps[number];
  // Every collective makes its lanes wait for each other; only __syncwarp orders memory.
  observe::warp_collective(this_worker(), block, number, open.arrived, open.op == kWarpSync);
  if (open.op != kWarpSync) exchange(warp, open);
  warp.ready |= open.arrived;
  open = warp.open[--warp.num_open];
  note_progress();
}

Rendezvous& find_or_open(Block& block, Warp& warp, SimtWarpOp op, uint32_t mask, Place place) {
  const uint32_t bit = block.current_bit();
  const bool strict = this_worker().launch->spec->strict;
  Rendezvous* found = nullptr;
  for (unsigned i = 0; i < warp.num_open; i++) {
    Rendezvous& open = warp.open[i];
    if (open.mask == mask) {
      found = &open;
    } else if ((open.mask & bit) && (open.arrived & mask)) {
      fail(place, format("warp collectives wait for each other: lane %u calls %s with mask 0x%08x "
                         "while lanes 0x%08x wait "
                         "for it in %s with mask 0x%08x at %s",
                         block.current % kWarpSize, warp_op_name(op), mask, open.arrived,
                         warp_op_name(open.op), open.mask, place_name(open.place).c_str()));
    }
  }
  if (!found) {
    warp.open[warp.num_open] = {mask, 0, op, place};
    return warp.open[warp.num_open++];
  }
  if (found->op != op || (strict && !(found->place == place)))
    fail(place,
         format("lane %u calls %s while lanes 0x%08x of the same mask 0x%08x wait in %s at %s",
                block.current % kWarpSize, warp_op_name(op), found->arrived, mask,
                warp_op_name(found->op), place_name(found->place).c_str()));
  return *found;
}

uint64_t collective(SimtWarpOp op, uint32_t mask, uint64_t value, unsigned source, Place place) {
  Block& block = enter();
  const Launch& launch = *this_worker().launch;
  Warp& warp = block.current_warp();
  const uint32_t bit = block.current_bit();
  const unsigned lane = block.current % kWarpSize;
  if (!(mask & bit))
    fail(place, format("lane %u calls %s with mask 0x%08x, which does not contain the calling lane",
                       lane, warp_op_name(op), mask));
  if (launch.spec->strict && warp_lanes(block, block.current / kWarpSize) & mask & ~warp.live)
    fail(place, format("lane %u calls %s with mask 0x%08x, but lanes 0x%08x of it have ended", lane,
                       warp_op_name(op), mask,
                       warp_lanes(block, block.current / kWarpSize) & mask & ~warp.live));
  Rendezvous& open = find_or_open(block, warp, op, mask, place);
  warp.value[lane] = value;
  warp.source[lane] = static_cast<uint8_t>(source);
  open.arrived |= bit;
  if (open.arrived == (mask & warp.live)) {
    complete_rendezvous(block, block.current / kWarpSize, open);
    continue_after_completion(launch, block, Wait::kWarp, place, mask, 0);
  } else {
    suspend(block, Wait::kWarp, place, mask);
  }
  return warp.result[lane];
}

}  // namespace

uint32_t warp_lanes(const Block& block, unsigned warp) {
  const unsigned lanes = block.num_threads - warp * kWarpSize;
  return lanes >= kWarpSize ? ~0u : (1u << lanes) - 1;
}

void refuse_exit(const Block& block, unsigned thread) {
  if (!this_worker().launch->spec->strict) return;
  const Barrier& barrier = block.barriers[0];
  if (barrier.arrived)
    fail(barrier.place,
         format("divergent barrier: this thread ended while %u thread(s) of the block wait at %s",
                barrier.arrived, place_name(barrier.place).c_str()));
  const Warp& warp = block.warps[thread / kWarpSize];
  for (unsigned i = 0; i < warp.num_open; i++)
    if (warp.open[i].mask >> (thread % kWarpSize) & 1)
      fail(warp.open[i].place,
           format("lane %u ended while lanes 0x%08x wait for it in %s with mask 0x%08x",
                  thread % kWarpSize, warp.open[i].arrived, warp_op_name(warp.open[i].op),
                  warp.open[i].mask));
}

void complete_after_exit(Block& block, unsigned thread) {
  // Named barriers count arrivals, not the threads that are left.
  if (is_complete(block, block.barriers[0])) complete_barrier(block, block.barriers[0]);
  Warp& warp = block.warps[thread / kWarpSize];
  for (unsigned i = warp.num_open; i-- > 0;)
    if (warp.open[i].arrived == (warp.open[i].mask & warp.live))
      complete_rendezvous(block, thread / kWarpSize, warp.open[i]);
  Worker& worker = this_worker();
  if (worker.launch->spec->cluster_blocks > 1 && anyone_waits_for_cluster(worker) &&
      cluster_is_complete(worker))
    complete_cluster(worker);
}

const char* warp_op_name(SimtWarpOp op) {
  static const char* const names[] = {
      "__syncwarp",        "__shfl_sync",       "__ballot_sync",     "__all_sync",
      "__any_sync",        "__match_any_sync",  "__match_all_sync",  "__reduce_add_sync",
      "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
  return names[op];
}

}  // namespace simt

extern "C" int simt_barrier(unsigned id, unsigned num_threads, int kind, int predicate,
                            const char* file, int line) {
  const simt::RuntimeCall call;
  return simt::arrive(id, num_threads, static_cast<SimtBarrierKind>(kind), predicate != 0,
                      {file, line});
}

extern "C" unsigned long long simt_warp(int op, unsigned mask, unsigned long long value,
                                        unsigned source_lane, const char* file, int line) {
  const simt::RuntimeCall call;
  return simt::collective(static_cast<SimtWarpOp>(op), mask, value, source_lane, {file, line});
}

extern "C" void simt_cluster_barrier(const char* file, int line) {
  using namespace simt;
  const RuntimeCall call;
  Block& block = enter();
  Worker& worker = this_worker();
  block.cluster_barrier.arrived++;
  block.cluster_barrier.waiting[block.current / kWarpSize] |= block.current_bit();
  if (cluster_is_complete(worker)) {
    complete_cluster(worker);
    continue_after_completion(*worker.launch, block, Wait::kCluster, {file, line}, 0, 0);
  } else {
    suspend(block, Wait::kCluster, {file, line});
  }
}

extern "C" unsigned simt_cluster_rank() {
  return simt::this_worker().resident % simt::this_worker().launch->spec->cluster_blocks;
}

extern "C" void* simt_map_shared(const void* address, unsigned rank, const char* file, int line) {
  using namespace simt;
  const RuntimeCall call;
  Worker& worker = this_worker();
  if (rank >= worker.launch->spec->cluster_blocks)
    fail({file, line}, format("block %u of a cluster of %u blocks does not exist", rank,
                              worker.launch->spec->cluster_blocks));
  const auto offset = static_cast<const unsigned char*>(address) - worker.block->shared;
  if (offset < 0 || static_cast<size_t>(offset) >= worker.launch->spec->shared_bytes)
    fail({file, line}, "the address to be mapped is not in the block's shared storage");
  return worker.blocks[rank]->shared + offset;
}
