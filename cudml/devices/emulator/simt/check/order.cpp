// Two rules are lenient, so that correct kernels are never reported: a location's releases are
// joined, not replaced by the next one; and a relaxed store after any earlier fence publishes all
// that the thread knows now, which covers "all write, all fence, barrier, one thread stores".
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
  fenced_later.clear();
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
    if (!thread.pending.empty()) {
      fenced_later.join(thread.pending);
      thread.pending.clear();
    }
  }
  epoch++;
}

void BlockOrder::named_barrier(const uint32_t* waiting) {
  SharedView all;
  for (unsigned t = 0; t < num_threads; t++)
    if (waiting[t / kWarpSize] >> (t % kWarpSize) & 1) all.join(snapshot(t));
  for (unsigned t = 0; t < num_threads; t++)
    if (waiting[t / kWarpSize] >> (t % kWarpSize) & 1) threads[t].extra.join(all);
}

void BlockOrder::warp_collective(unsigned warp, uint32_t lanes) {
  ThreadOrder* const first = threads.data() + warp * kWarpSize;
  uint32_t clocks[kWarpSize] = {};
  SharedView extra;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    ThreadOrder& thread = first[lane];
    thread.warp_clock[lane] = thread.clock;
    for (unsigned i = 0; i < kWarpSize; i++) clocks[i] = std::max(clocks[i], thread.warp_clock[i]);
    if (!thread.extra.empty()) extra.join(thread.extra);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    ThreadOrder& thread = first[__builtin_ctz(rest)];
    std::copy(std::begin(clocks), std::end(clocks), thread.warp_clock);
    if (!extra.empty()) thread.extra.join(extra);
    thread.clock++;
  }
}

void BlockOrder::fence(unsigned t) {
  ThreadOrder& thread = threads[t];
  thread.fenced = true;
  thread.extra.join(thread.pending);
  thread.extra.join(fenced_later);
  thread.pending.clear();
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
  SharedView all;
  for (BlockOrder* block : blocks) {
    block->block_barrier();
    all.join(block->known);
    all.own().learn_block(block->index, block->epoch);
  }
  for (BlockOrder* block : blocks) block->known.join(all);
}

void Releases::before_write(BlockOrder& block, unsigned t, const void* address, int memory_order) {
  if (releases(memory_order) || block.threads[t].fenced) views_[address].join(block.snapshot(t));
}

void Releases::after_read(BlockOrder& block, unsigned t, const void* address, int memory_order) {
  const auto released = views_.find(address);
  if (released == views_.end()) return;
  ThreadOrder& thread = block.threads[t];
  (acquires(memory_order) ? thread.extra : thread.pending).join(released->second);
}

}  // namespace simt::check
