// The runtime's state while a launch runs: its threads, warps, blocks and workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "../interface.h"
#include "context.h"
#include "watchdog.h"

namespace simt {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxWarps = kMaxThreads / kWarpSize;
constexpr unsigned kMaxBarriers = 16;
constexpr unsigned kMaxClusterBlocks = 16;
constexpr unsigned kGuardBytes = 4096;

// Where in the kernel's source a thread called the runtime.
struct Place {
  const char* file = nullptr;
  int line = 0;
  bool operator==(const Place& other) const;
};

enum class Wait : uint8_t { kNothing, kBarrier, kWarp, kCluster, kPoll };

// Threads are numbered x + size_x * (y + size_y * z); warp = number / 32, lane = number % 32.
struct Thread {
  Context* context;  // null until the thread has been suspended for the first time
  Place place;       // of the call in which it waits
  uint32_t mask;     // of the warp collective it waits in
  Wait wait;
  uint8_t barrier;  // the number of the block barrier it waits in
};

// A warp collective that some lanes of its mask have reached.
struct Rendezvous {
  uint32_t mask, arrived;
  SimtWarpOp op;
  Place place;
};

struct Warp {
  // One bit per lane. A ready lane has been suspended and may continue; a polling one may continue when no
  // other thread can; a live one has not ended.
  uint32_t ready, polling, live;
  unsigned num_open;
  Rendezvous open[kWarpSize];
  // By lane; a lane takes part in at most one collective at a time.
  uint64_t value[kWarpSize], result[kWarpSize];
  uint8_t source[kWarpSize];
};

struct Barrier {
  unsigned arrived, expected;  // expected 0: every live thread
  unsigned true_predicates;
  SimtBarrierKind kind;
  Place place;                  // of the first arrival
  uint32_t waiting[kMaxWarps];  // lanes to wake
};

struct Block {
  unsigned index;  // in the grid, x fastest
  unsigned num_threads, num_warps;
  unsigned current;      // the running thread
  unsigned num_started;  // threads started, in the schedule's order
  unsigned alive;        // threads that have not ended
  bool started;          // the plain loop or a first thread has begun
  bool promoted;         // threads are run one by one, on stacks of their own
  bool done;
  unsigned char* shared;  // of `shared_bytes` bytes, with kGuardBytes before and after
  std::vector<unsigned char> shared_memory;
  std::vector<unsigned short> start_order;  // empty: ascending
  Barrier barriers[kMaxBarriers];
  Barrier cluster_barrier;
  Warp warps[kMaxWarps];
  Thread threads[kMaxThreads];

  Warp& current_warp() { return warps[current / kWarpSize]; }
  uint32_t current_bit() const { return 1u << (current % kWarpSize); }
};

// A small and fast generator, with the same sequence on every machine.
class Random {
 public:
  void seed(uint64_t seed) { state_ = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du; }
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 32);
  }
  uint32_t below(uint32_t bound) { return next() % bound; }

 private:
  uint64_t state_ = 1;
};

// Shared by the workers of one launch.
struct Launch {
  const SimtLaunch* spec;
  const SimtKernel* kernel;
  void** arguments;
  unsigned num_blocks, num_threads, num_groups;
  unsigned group_blocks;  // blocks that must be alive together: 1, a cluster, or the whole grid
  std::vector<unsigned> group_order;  // empty: ascending
  std::atomic<unsigned> next_group{0};
  std::atomic<unsigned> finished_groups{0};
  std::atomic<bool> aborted{false};
  std::atomic<int> claimed_error{0};
  std::string error;  // written by the worker that claimed it, read when all workers have ended
};

// The arguments of simt_launch.
struct Request {
  const SimtLaunch* spec;
  const SimtKernel* kernel;
  void** arguments;
};

// An operating-system thread that runs blocks. A thread of a kernel never changes its worker,
// because compilers keep thread-local addresses in registers across calls.
struct Worker {
  Launch* launch = nullptr;
  Context main;
  Context* running = nullptr;
  ContextPool contexts;
  std::vector<Block*> blocks;  // of the group that is alive, in order
  unsigned num_resident = 0;
  unsigned resident = 0;  // index of the current block
  Block* block = nullptr;
  Random random;
  uint64_t num_progress = 0;  // threads ended, collectives completed
  // Idle rounds: how many times in a row only polling threads could run.
  uint64_t idle_rounds = 0;
  unsigned idle_finished_groups = 0;
  double idle_since = 0;  // by the thread's CPU time

  unsigned next_group = 0, end_group = 0;  // the groups of its chunk that have not begun
  bool has_group = false;                  // a group has begun and not ended

  Watched watched;
  Watchdog* watchdog = nullptr;  // the one it was added to
  // The kernel's own code runs: no lock is held, and the stack may be abandoned.
  volatile bool in_kernel = false;

  // For a worker whose thread calls simt_launch; see pause.h.
  Request request{};
  Context driver, outside, paused;
  bool may_pause = false, is_paused = false, has_failed = false;

  ~Worker();
};

extern SIMT_THREAD_LOCAL Worker* current_worker;
inline Worker& this_worker() { return *current_worker; }

inline bool is_fast(const Launch& launch) { return launch.spec->order == kOrderFast; }

// Block and thread as text, "block (0,0,0) thread (5,0,0)".
std::string thread_name(const Launch& launch, const Block& block, unsigned thread);

inline uint3 position(uint3 size, unsigned number) {
  if (number < size.x) return {number, 0, 0};
  const unsigned row = number / size.x;
  return {number % size.x, row % size.y, row / size.y};
}
inline uint3 thread_position(const Launch& launch, unsigned thread) {
  return position(launch.spec->block, thread);
}
inline uint3 block_position(const Launch& launch, unsigned block) {
  return position(launch.spec->grid, block);
}

}  // namespace simt
