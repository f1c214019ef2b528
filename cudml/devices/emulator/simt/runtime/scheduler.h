// Which thread of which block runs next on a worker.
#pragma once

#include "state.h"

namespace simt {

// The first variable of every function that kernels call and that may take a lock or suspend. Interruptions
// do not affect the function; they are handled when it returns to the kernel.
class RuntimeCall {
 public:
  RuntimeCall() { this_worker().in_kernel = false; }
  ~RuntimeCall() { return_to_kernel(this_worker()); }
  RuntimeCall(const RuntimeCall&) = delete;
  RuntimeCall& operator=(const RuntimeCall&) = delete;

  // In this order, so that an interruption between the lines sees that the kernel may be left.
  static void return_to_kernel(Worker& worker) {
    worker.in_kernel = true;
    if (!__builtin_expect(worker.watched.due, 0)) return;
    worker.in_kernel = false;
    attend(worker);
    worker.in_kernel = true;
  }
};

// The first line of every function in which a thread may be suspended: promotes the block if necessary.
Block& enter();

// Sets up every thread of the block as not yet started.
void reset_threads(Worker& worker, Block& block);

// The current thread waits until it is made ready and chosen; meanwhile, others run.
void suspend(Block& block, Wait wait, Place place, uint32_t mask = 0, uint8_t barrier = 0);

// The current thread may continue, but all others that can run should run first.
void yield(Block& block, Place place);

// Something was completed, so polling threads may be able to continue.
void note_progress();

// Ends the worker's group, if it has one, and begins the next one of its chunk. Returns false if there is
// none, or if the launch was aborted.
bool next_group(Worker& worker);

// Runs the blocks of the worker's group until all are done or the launch is aborted.
void run_group(Worker& worker);

}  // namespace simt
