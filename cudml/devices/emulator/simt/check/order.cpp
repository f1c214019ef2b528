// Fences are those of PTX, where __threadfence is fence.sc. A relaxed store after a fence of the same thread
// releases what was known at the fence; a relaxed load before a fence of the same thread acquires. In
// addition, all such fences have a single order. A fence therefore knows what was known at every fence that
// the thread has learned of, through barriers and atomics of any order: "all write, all fence, barrier, one
// thread counts" on one side and "one thread counts, barrier, all fence, all read" on the other.
#include "order.h"

#include <algorithm>

namespace simt::check {

namespace {

bool releases(int memory_order) {
  return memory_order == __ATOMIC_RELEASE || memory_order == __ATOMIC_ACQ_REL ||
         memory_order == __ATOMIC_SEQ_CST;
}

bool acquires(int memory_order) {
  return memory_order == __ATOMIC_ACQUIRE || memory_order == __ATOMIC_CONSUME ||
         memory_order == __ATOMIC_ACQ_REL || memory_order == __ATOMIC_SEQ_CST;
}

}  // namespace

void BlockOrder::begin(uint32_t block, unsigned count) {
  index = block;
  epoch = 1;
  num_threads = count;
  known.clear();
  fenced.clear();
  threads.assign(count, ThreadOrder{});
}

bool BlockOrder::ordered(const Stamp& s, unsigned t) const {
  if (s.block == index) {
    if (s.thread == t || s.epoch < epoch) return true;
    if (s.thread / kWarpSize == t / kWarpSize &&
        threads[t].warp_clock[s.thread % kWarpSize] >= s.clock)
      return true;
  }
  return threads[t].extra.covers(s) || known.covers(s);
}

Stamp BlockOrder::stamp(unsigned t, uint32_t place, Kind kind) const {
  return {index, epoch, threads[t].clock, place, static_cast<uint16_t>(t), kind};
}

void BlockOrder::block_barrier() {
  for (ThreadOrder& thread : threads) {
    if (!thread.extra.empty()) {
      known.join(thread.extra);
      thread.extra.clear();
    }
    if (!thread.fenced.empty()) {
      fenced.join(thread.fenced);
      thread.fenced.clear();
    }
  }
  epoch++;
}

void BlockOrder::named_barrier(const uint32_t* waiting) {
  SharedView all, all_fenced;
  const auto for_each_waiting = [&](auto visit) {
    for (unsigned t = 0; t < num_threads; t++)
      if (waiting[t / kWarpSize] >> (t % kWarpSize) & 1) visit(t);
  };
  for_each_waiting([&](unsigned t) {
    all.join(snapshot(t));
    all_fenced.join(threads[t].fenced);
  });
  for_each_waiting([&](unsigned t) {
    threads[t].extra.join(all);
    threads[t].fenced.join(all_fenced);
  });
}

void BlockOrder::warp_barrier(unsigned warp, uint32_t lanes) {
  ThreadOrder* const first = threads.data() + warp * kWarpSize;
  uint32_t clocks[kWarpSize] = {};
  SharedView extra, fences;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    ThreadOrder& thread = first[lane];
    thread.warp_clock[lane] = thread.clock;
    for (unsigned i = 0; i < kWarpSize; i++) clocks[i] = std::max(clocks[i], thread.warp_clock[i]);
    extra.join(thread.extra);
    fences.join(thread.fenced);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    ThreadOrder& thread = first[__builtin_ctz(rest)];
    std::copy(std::begin(clocks), std::end(clocks), thread.warp_clock);
    thread.extra.join(extra);
    thread.fenced.join(fences);
    thread.clock++;
  }
}

void BlockOrder::fence(unsigned t) {
  ThreadOrder& thread = threads[t];
  thread.extra.join(thread.pending);
  thread.pending.clear();
  thread.extra.join(thread.fenced);
  thread.extra.join(fenced);
  thread.released = snapshot(t);
  thread.fenced.join(thread.released);
}

SharedView BlockOrder::snapshot(unsigned t) {
  ThreadOrder& thread = threads[t];
  SharedView shared = known;
  shared.join(thread.extra);
  View& view = shared.own();
  view.learn_block(index, epoch);
  const unsigned first = t / kWarpSize * kWarpSize;
  for (unsigned lane = 0; lane < kWarpSize; lane++)
    if (thread.warp_clock[lane]) view.learn_thread(index, first + lane, thread.warp_clock[lane]);
  view.learn_thread(index, t, thread.clock);
  thread.clock++;
  return shared;
}

void cluster_barrier(std::vector<BlockOrder*>& blocks) {
  SharedView all, all_fenced;
  for (BlockOrder* block : blocks) {
    block->block_barrier();
    all.join(block->known);
    all.own().learn_block(block->index, block->epoch);
    all_fenced.join(block->fenced);
  }
  for (BlockOrder* block : blocks) {
    block->known.join(all);
    block->fenced.join(all_fenced);
  }
}

// An operation that reads the value it replaces passes on what was released before; a store passes on only
// the thread's own releases.
void Releases::before_write(BlockOrder& block, unsigned t, const void* address, bool also_reads,
                            int memory_order) {
  ThreadOrder& thread = block.threads[t];
  const bool is_release = releases(memory_order);
  const auto found = locations_.find(address);
  const bool has_news =
      is_release || !thread.released.empty() || !thread.fenced.empty() || !block.fenced.empty();
  if (found == locations_.end() && !has_news) return;
  Location& location = found == locations_.end() ? locations_[address] : found->second;
  if (!also_reads) {
    if (location.block != block.index || location.thread != t) location.released.clear();
    location.fenced.clear();
  }
  location.block = block.index;
  location.thread = t;
  location.released.join(is_release ? block.snapshot(t) : thread.released);
  location.fenced.join(thread.fenced);
  location.fenced.join(block.fenced);
}

void Releases::after_read(BlockOrder& block, unsigned t, const void* address, int memory_order) {
  const auto found = locations_.find(address);
  if (found == locations_.end()) return;
  ThreadOrder& thread = block.threads[t];
  (acquires(memory_order) ? thread.extra : thread.pending).join(found->second.released);
  thread.fenced.join(found->second.fenced);
}

}  // namespace simt::check
