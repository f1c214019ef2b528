// Happens-before. The scheduler knows exactly which threads have synchronised, so a block needs no full
// vector clocks. A block barrier advances the block's epoch, and everything of an earlier epoch is known to
// the whole block. __syncwarp exchanges clocks within the warp. Only what atomics carry across blocks needs
// views. Shuffles, votes and matches make lanes wait for each other but order no memory.
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
  SharedView pending;   // released by what its relaxed loads saw: known after its next fence
  SharedView released;  // what it knew at its last fence, which its relaxed stores release
  SharedView fenced;    // what was known at fences that it has learned of
};

struct BlockOrder {
  uint32_t index = 0;
  uint32_t epoch = 1;
  unsigned num_threads = 0;
  SharedView known;   // to every thread of the block, about other blocks
  SharedView fenced;  // what was known at fences that every thread of the block has learned of
  std::vector<ThreadOrder> threads;

  void begin(uint32_t block, unsigned num_threads);

  // Whether thread `t` knows of the access, which then cannot race with what `t` does now.
  bool ordered(const Stamp& stamp, unsigned t) const;
  Stamp stamp(unsigned t, uint32_t place, Kind kind) const;

  void block_barrier();
  void named_barrier(const uint32_t* waiting);
  void warp_barrier(unsigned warp, uint32_t lanes);
  void fence(unsigned t);

  // Everything that thread `t` knows, for a thread that acquires it. What `t` does afterwards is not
  // included.
  SharedView snapshot(unsigned t);
};

// After a barrier of several blocks, each knows what any of them knew.
void cluster_barrier(std::vector<BlockOrder*>& blocks);

// What was released through each atomic location.
class Releases {
 public:
  // `memory_order` is a compiler's __ATOMIC constant. If the operation writes, `before_write` is called
  // first; if it reads, `after_read` is called next.
  void before_write(BlockOrder& block, unsigned t, const void* address, bool also_reads,
                    int memory_order);
  void after_read(BlockOrder& block, unsigned t, const void* address, int memory_order);

 private:
  struct Location {
    uint32_t block, thread;  // the last writer
    SharedView released;     // for threads that acquire, or fence after reading
    SharedView fenced;       // for fences of threads that read the value
  };
  std::unordered_map<const void*, Location> locations_;
};

}  // namespace simt::check
