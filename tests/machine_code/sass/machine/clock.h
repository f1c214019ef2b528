// What instructions cost: the pipes of a multiprocessor, its way to memory, the latencies that a warp waits for.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "state.h"

constexpr int kNumPartitions = 4;
constexpr int kNumScoreboards = 6;
constexpr uint64_t kNever = ~0ull;

// All in clocks of a multiprocessor. `rates.py` says where each is from.
struct Rates {
  double
      pipe_clocks[kNumPipes];  // for which an instruction of a warp keeps the pipe of its partition
  double latency[kNumPipes];   // of instructions whose result is waited for with a scoreboard
  double sectors_per_clock;    // that the first-level cache looks up
  double cache_latency, l2_latency, memory_latency;
  double l2_clocks_per_sector, memory_clocks_per_sector;  // of one multiprocessor's share
  double barrier_clocks_per_warp, barrier_latency, cluster_barrier_latency;
  double block_clocks;  // from one block that starts on a multiprocessor to the next
  uint64_t cache_sectors, l2_sectors;
};

struct Totals {
  uint64_t clocks;               // until the last block had ended
  uint64_t instructions, lanes;  // of warps, and of lanes that were not off
  uint64_t pipe_instructions[kNumPipes];
  uint64_t sectors_loaded, sectors_stored;        // asked of the first-level cache
  uint64_t l2_sectors_loaded, l2_sectors_stored;  // that went on to the second level
  uint64_t memory_sectors_loaded, memory_sectors_stored;
  uint64_t bytes_loaded, bytes_stored;  // that lanes asked for
  uint64_t wavefronts, barriers;
};

// The last sectors that were touched, the oldest dropped first.
class Cache {
 public:
  explicit Cache(uint64_t capacity) : capacity_(capacity) {}
  // Whether the sector was there; it is afterwards.
  bool touch(uint64_t sector) {
    const auto found = order_.find(sector);
    const bool hit = found != order_.end() && found->second + capacity_ > count_;
    if (!hit) order_[sector] = count_++;
    return hit;
  }

 private:
  uint64_t capacity_, count_ = 0;
  std::unordered_map<uint64_t, uint64_t> order_;
};

// A thing that serves one request after another.
struct Server {
  double free_at = 0;
  // When a request of some clocks that comes at a time begins to be served.
  double begin(double at, double clocks) {
    const double start = at > free_at ? at : free_at;
    free_at = start + clocks;
    return start;
  }
};
