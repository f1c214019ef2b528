// The first error of a launch: its text, and the way out of the kernel.
#pragma once

#include <string>

#include "state.h"

namespace simt {

// Makes `text` the error of the launch unless it has one already, and makes its workers stop.
void record_error(Launch& launch, const std::string& text);

// Adds the check mode's reports to the error text, after the error that stopped the launch, if any.
void add_reports(Launch& launch, const std::string& reports);

// Records the error unless there is one already, and leaves the kernel for good. The stacks of all threads
// are abandoned without running destructors, so kernels must not own heap memory.
[[noreturn]] void fail(Place place, const std::string& text);

// Leaves the kernel for good and returns to the scheduler's caller.
[[noreturn]] void leave_kernel(Worker& worker);

[[noreturn]] void fail_deadlock(Worker& worker);
[[noreturn]] void fail_polling(Worker& worker);

// The error of a thread that has run for the time limit without progress.
std::string overdue_text(const Launch& launch);

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
std::string place_name(Place place);

}  // namespace simt
