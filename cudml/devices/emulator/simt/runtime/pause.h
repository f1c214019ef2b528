// Launches that return to their caller while they run, so that it can look after its signals.
//
// A caller such as Python runs the handler of a signal only when it is back in its own code. So a launch
// of the process's main thread, which is the one that runs such handlers, is paused whenever the watchdog
// interrupts it. For that the launch runs on a stack of its own beside the caller's: to pause is to
// switch to the caller's stack, to go on is to switch back to where the launch was left. Other launches of
// the thread may begin and end in the meantime, on other workers.
#pragma once

#include "state.h"

namespace simt {

// Whether this thread is the one whose launches pause.
bool is_main_thread();

// Gives the worker the stack that its launches run on.
void make_driver(Worker& worker);
void free_driver(Worker& worker);

// Runs the worker's launch from `from` on until it is paused or has ended.
SimtStatus go_on(Worker& worker, Context& from);

// Returns to the caller of the worker's launch, until that resumes or abandons it.
void pause(Worker& worker);

// Of launch.cpp: runs the worker's request, and returns whether it went well.
bool run_request(Worker& worker);

// Of launch.cpp: has the watchdog interrupt the worker from now on.
void begin_watching(Worker& worker);

}  // namespace simt
