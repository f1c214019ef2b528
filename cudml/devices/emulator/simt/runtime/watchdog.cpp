#include "watchdog.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>

#include "errors.h"
#include "state.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace simt {

namespace {

constexpr long kInterval = 100'000'000;  // nanoseconds

// Real-time signals have no meaning of their own.
int watchdog_signal() { return SIGRTMIN + 7; }

const void* interrupted_at(void* context) {
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#else
  return reinterpret_cast<const void*>(registers.pc);
#endif
}

bool in_same_module(const void* a, const void* b) {
  Dl_info of_a{}, of_b{};
  return dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
}

// Changes whenever a thread ends or polls, a collective completes, or the plain loop goes on to another thread.
uint64_t progress_of(const Worker& worker) {
  uint64_t mixed = worker.num_progress + worker.idle_rounds;
  for (const unsigned n :
       {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z})
    mixed = mixed * 0x9e3779b97f4a7c15u + n;
  return mixed;
}

void look_after_worker(void* context) {
  Worker* worker = current_worker;
  if (!worker || !worker->launch) return;
  const uint64_t progress = progress_of(*worker);
  const auto now = std::chrono::steady_clock::now();
  if (progress != worker->seen_progress) {
    worker->seen_progress = progress;
    worker->progress_time = now;
    return;
  }
  const double limit = worker->launch->spec->time_limit;
  if (std::chrono::duration<double>(now - worker->progress_time).count() < limit) return;
  // Only the kernel's own code may be left where it stands: the runtime or the C library could hold a
  // lock. The next interruption will find the kernel's, or the check mode look at `overdue`.
  worker->overdue = true;
  if (in_same_module(interrupted_at(context), reinterpret_cast<const void*>(worker->launch->entry)))
    fail(Place{}, overdue_text(*worker->launch));
}

// The signal carries the function to call, because each loaded runtime has its own workers, and there is
// one handler in the process.
void handle(int, siginfo_t* info, void* context) {
  if (info->si_code == SI_TIMER)
    reinterpret_cast<void (*)(void*)>(info->si_value.sival_ptr)(context);
}

void install_handler() {
  struct sigaction action{};
  action.sa_sigaction = handle;
  // Not blocked while it runs, because `fail` does not return from it.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(watchdog_signal(), &action, nullptr);
}

}  // namespace

Watchdog::~Watchdog() {
  if (has_timer_) timer_delete(timer_);
}

void Watchdog::start() {
  // Not std::call_once: it needs static thread-local storage of libstdc++, which is no longer to be
  // had where another library has loaded that one before.
  static const bool is_installed = (install_handler(), true);
  (void)is_installed;
  // A forked child has its parent's memory, but not its timers.
  if (has_timer_ && set(kInterval)) return;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = watchdog_signal();
  event.sigev_value.sival_ptr = reinterpret_cast<void*>(&look_after_worker);
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
  has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  if (has_timer_) set(kInterval);
}

void Watchdog::stop() {
  if (has_timer_) set(0);
}

bool Watchdog::set(long nanoseconds) {
  itimerspec times{};
  times.it_value.tv_nsec = times.it_interval.tv_nsec = nanoseconds;
  return timer_settime(timer_, 0, &times, nullptr) == 0;
}

}  // namespace simt
