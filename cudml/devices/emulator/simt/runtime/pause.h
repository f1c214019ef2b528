// Launches that return to their caller while they run, so that it can handle signals.
//
// A caller such as Python runs signal handlers only when it is back in its own code. So a launch of the
// process's main thread, the one that runs such handlers, is paused whenever the watchdog interrupts it. For
// that, the launch runs on its own stack next to the caller's: a pause switches to the caller's stack, and a
// resumption switches back to where the launch was left. Meanwhile, other launches of the thread may begin
// and end, on other workers.
#pragma once

#include "state.h"

namespace simt {

// Whether this is the thread whose launches pause.
bool is_main_thread();

// Gives the worker the stack that its launches run on.
void make_driver(Worker& worker);
void free_driver(Worker& worker);

// Runs the worker's launch from `from` on until it is paused or has ended.
SimtStatus go_on(Worker& worker, Context& from);

// Returns to the caller of the worker's launch, until that resumes or abandons it.
void pause(Worker& worker);

// In launch.cpp: runs the worker's request, and returns whether it succeeded.
bool run_request(Worker& worker);

// In launch.cpp: makes the watchdog interrupt the worker from now on.
void begin_watching(Worker& worker);

}  // namespace simt
