// Happens-before. The scheduler knows exactly who has synchronised with whom, so a block needs no
// full vector clocks: a block barrier advances the block's epoch, and whatever has an earlier epoch
// is known to the whole block; __syncwarp exchanges clocks within the warp; and only what atomics
// carry across blocks needs views. Shuffles, votes and matches make lanes wait for each other and
// order no memory.
#pragma once

#include <unordered_map>
#include <vector>

#include "../runtime/state.h"
#include "view.h"

namespace simt::check {

struct ThreadOrder {
  uint32_t clock = 1;
  uint32_t warp_clock[kWarpSize] = {};  // what it knows of each lane of its warp
  SharedView extra;                     // what it knows beyond its block
  SharedView pending;   // what its relaxed loads saw released: known after its next fence
  SharedView released;  // what it knew at its last fence: its relaxed stores release that
  SharedView fenced;    // what was known at fences that it has heard of
};

struct BlockOrder {
  uint32_t index = 0;
  uint32_t epoch = 1;
  unsigned num_threads = 0;
  SharedView known;   // to every thread of the block, beyond the block itself
  SharedView fenced;  // what was known at fences that every thread of the block has heard of
  std::vector<ThreadOrder> threads;

  void begin(uint32_t block, unsigned num_threads);

  // Whether thread `t` knows of the access: it cannot race with what `t` does now.
  bool ordered(const Stamp& stamp, unsigned t) const;
  Stamp stamp(unsigned t, uint32_t place, Kind kind) const;

  void block_barrier();
  void named_barrier(const uint32_t* waiting);
  void warp_barrier(unsigned warp, uint32_t lanes);
  void fence(unsigned t);

  // All that thread `t` knows, for whoever acquires it. What it does afterwards is not part of it.
  SharedView snapshot(unsigned t);
};

// After a barrier of several blocks, each knows all that any of them knew.
void cluster_barrier(std::vector<BlockOrder*>& blocks);

// What was released through each atomic location.
class Releases {
 public:
  // `memory_order` is a compiler's __ATOMIC constant. `before_write` comes first where the
  // operation writes, `after_read` next where it reads.
  void before_write(BlockOrder& block, unsigned t, const void* address, bool also_reads,
                    int memory_order);
  void after_read(BlockOrder& block, unsigned t, const void* address, int memory_order);

 private:
  struct Location {
    uint32_t block, thread;  // the last that wrote
    SharedView released;     // for whoever acquires, or fences after reading
    SharedView fenced;       // for fences of whoever hears of the value
  };
  std::unordered_map<const void*, Location> locations_;
};

}  // namespace simt::check
