// The interface between a compiled kernel module and the runtime: the launch, thread-local state, entry
// points. Both include this file, so it uses no C++ library headers and must not depend on flags.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

// The meter's counters for one buffer, or for shared storage.
struct SimtTraffic {
  unsigned long long bytes_read, bytes_written;
  unsigned long long requests_read, requests_written;  // of warps
  unsigned long long sectors_read,
      sectors_written;                // of 32 bytes, summed over requests; not shared
  unsigned long long atomics;         // by threads; not included in the bytes
  unsigned long long bank_conflicts;  // additional passes of requests; shared storage only
};

// A buffer that kernels may access in check mode.
struct SimtRegion {
  unsigned char* start;
  unsigned long long bytes;
  const char* name;
  unsigned char* initialised;  // one mark per byte, or null if all bytes are
  unsigned long long writable;
  SimtTraffic traffic;
};

// The input of check mode, and its counts.
struct SimtCheck {
  SimtRegion* regions;
  unsigned long long num_regions;
  unsigned long long use_meter;
  SimtTraffic shared;
  unsigned long long block_barriers, warp_collectives;
};

// One launch, filled in by Python (structures.py has the same members in the same order).
struct SimtLaunch {
  uint3 grid, block;
  unsigned cluster_blocks;  // along x; 1 without clusters
  unsigned shared_bytes;
  unsigned cooperative;  // all blocks are alive at once
  unsigned workers;      // operating-system threads that may run blocks
  unsigned order;        // SimtOrder
  unsigned strict;       // refuse code that is legal but usually a mistake
  unsigned guard;        // check the bytes around shared storage after every block
  unsigned use_poison;   // fill shared storage with `poison` before every block
  unsigned poison;
  unsigned stack_kib;  // of one thread; 0 is the default
  unsigned long long seed;
  double time_limit;  // CPU seconds without progress after which a launch is stopped
  SimtCheck* check;   // null except in check mode
};

// The kernel of a module.
struct SimtKernel {
  void (*entry)(void** arguments);
  const unsigned long long* argument_bytes;  // the size of each argument, followed by 0
  const void* elf_header;                    // of the module
};

// The status of a launch.
enum SimtStatus { kSimtDone, kSimtFailed, kSimtPaused };

enum SimtOrder { kOrderFast, kOrderForward, kOrderReverse, kOrderRandom };

// How the arrivals at a block barrier are combined.
enum SimtBarrierKind { kBarrierPlain, kBarrierOr, kBarrierAnd, kBarrierCount };

enum SimtWarpOp {
  kWarpSync,
  kWarpShuffle,
  kWarpBallot,
  kWarpAll,
  kWarpAny,
  kWarpMatchAny,
  kWarpMatchAll,
  kWarpAdd,
  kWarpMinSigned,
  kWarpMaxSigned,
  kWarpMinUnsigned,
  kWarpMaxUnsigned,
  kWarpAnd,
  kWarpOr,
  kWarpXor
};

// initial-exec makes an access one instruction instead of a call. Only these few variables use it, because
// there is little static thread-local storage for libraries that are loaded late.
#define SIMT_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec"), visibility("default")))

extern SIMT_THREAD_LOCAL uint3 threadIdx, blockIdx, blockDim, gridDim;
// Not null once a thread of the running block has been suspended; see entry.h.
extern SIMT_THREAD_LOCAL void* simt_promoted;
// The running block's shared storage and its size.
extern SIMT_THREAD_LOCAL unsigned char* simt_shared;
extern SIMT_THREAD_LOCAL unsigned long long simt_shared_bytes;

extern "C" {
// Runs the kernel for every block. Returns a SimtStatus. A launch of the process's main thread pauses when it
// has run for a while: the same thread then calls simt_resume or simt_abandon for it, and may launch others
// before that.
int simt_launch(const SimtLaunch* launch, const SimtKernel* kernel, void** arguments);
int simt_resume(const SimtLaunch* launch);

// Stops a paused launch: no part of it runs afterwards. Has no effect on any other launch.
void simt_abandon(const SimtLaunch* launch);

// The error text of the last failed launch of this thread: the first error, or all reports of check mode.
// Valid until the thread's next launch.
const char* simt_error();

// Called when a kernel function has returned on this stack; true if another thread is to start on it.
bool simt_next_fresh();

// Barrier `id` of the block; `num_threads` 0 means every live thread. Returns the combined
// predicate.
int simt_barrier(unsigned id, unsigned num_threads, int kind, int predicate, const char* file,
                 int line);
void simt_cluster_barrier(const char* file, int line);

// A warp collective among the lanes of `mask`: each lane gives 64 bits and receives 64 bits.
unsigned long long simt_warp(int op, unsigned mask, unsigned long long value, unsigned source_lane,
                             const char* file, int line);

// The address in block `rank` of this cluster that corresponds to `address` in this block's shared storage.
void* simt_map_shared(const void* address, unsigned rank, const char* file, int line);
unsigned simt_cluster_rank();

// Called by a thread that waits for another one, to let all others run first.
void simt_yield(const char* file, int line);

// The time of a monotonic clock.
unsigned long long simt_nanoseconds();

[[noreturn]] void simt_fail(const char* text, const char* file, int line);
}

// Default arguments with the caller's place, so that messages name the kernel's own line.
#define SIMT_PLACE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define SIMT_HERE file_, line_
