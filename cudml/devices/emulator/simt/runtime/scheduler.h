// Which thread of which block runs next on a worker.
#pragma once

#include "state.h"

namespace simt {

// First line of everything in which a thread may be suspended: promotes the block if need be.
Block& enter();

// Sets up every thread of the block as not yet started.
void reset_threads(Worker& worker, Block& block);

// The current thread waits until it is made ready and chosen; others run meanwhile.
void suspend(Block& block, Wait wait, Place place, uint32_t mask = 0, uint8_t barrier = 0);

// The current thread may go on, but all that can run should run first.
void yield(Block& block, Place place);

// Something was completed: polling may now have a reason to go on.
void note_progress();

// Ends the worker's group, if it has one, and begins the next one of its chunk. False where there is
// none, or the launch was aborted.
bool next_group(Worker& worker);

// Runs the blocks of the worker's group until all are done or the launch is aborted.
void run_group(Worker& worker);

}  // namespace simt
