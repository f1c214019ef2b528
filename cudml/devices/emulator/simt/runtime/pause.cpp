#include "pause.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "scheduler.h"

namespace simt {

namespace {

// The runtime's own functions run on a driver's stack, with the functions for error texts, but no kernel.
constexpr size_t kDriverStackBytes = 256 << 10;

// The first function on a driver's stack.
void drive() {
  for (;;) {
    Worker& worker = this_worker();
    worker.has_failed = !run_request(worker);
    switch_context(worker.driver, worker.outside);
  }
}

// The state of the launch that runs on this thread.
struct ThreadState {
  uint3 thread = threadIdx, block = blockIdx, block_size = blockDim, grid = gridDim;
  void* promoted = simt_promoted;
  unsigned char* shared = simt_shared;
  unsigned long long shared_bytes = simt_shared_bytes;
  Worker* worker = current_worker;

  void restore() const {
    threadIdx = thread;
    blockIdx = block;
    blockDim = block_size;
    gridDim = grid;
    simt_promoted = promoted;
    simt_shared = shared;
    simt_shared_bytes = shared_bytes;
    current_worker = worker;
  }
};

}  // namespace

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

void make_driver(Worker& worker) {
  void* memory = mmap(nullptr, kDriverStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  worker.driver.bottom = static_cast<char*>(memory);
  worker.driver.top = worker.driver.bottom + kDriverStackBytes;
  prepare_context(worker.driver, drive);
}

void free_driver(Worker& worker) {
  if (worker.driver.bottom) munmap(worker.driver.bottom, kDriverStackBytes);
}

SimtStatus go_on(Worker& worker, Context& from) {
  switch_context(worker.outside, from);
  if (worker.is_paused) return kSimtPaused;
  return worker.has_failed ? kSimtFailed : kSimtDone;
}

void pause(Worker& worker) {
  const ThreadState state;
  const bool was_in_kernel = worker.in_kernel;
  worker.in_kernel = false;
  Watchdog::launch_ends(worker.watched);
  worker.is_paused = true;
  current_worker = nullptr;
  switch_context(worker.paused, worker.outside);
  state.restore();
  worker.is_paused = false;
  begin_watching(worker);
  // The launch does not start over: the time it has used still counts towards its time limit.
  worker.watched.seen_phase = worker.watched.phase.load(std::memory_order_relaxed);
  worker.in_kernel = was_in_kernel;
}

}  // namespace simt
