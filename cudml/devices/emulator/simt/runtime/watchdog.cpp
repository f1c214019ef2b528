#include "watchdog.h"

#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <thread>

#include "errors.h"
#include "module.h"
#include "observer.h"
#include "pause.h"
#include "state.h"

namespace simt {

namespace {

// After this many intervals without a launch, the watchdog sleeps until the next one.
constexpr unsigned kQuietIntervals = 10;

// Real-time signals have no predefined meaning.
int watchdog_signal() { return SIGRTMIN + 7; }

const void* interrupted_at(void* context) {
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#else
  return reinterpret_cast<const void*>(registers.pc);
#endif
}

bool is_in_launch(uint64_t phase) { return phase % 2 != 0; }

// Changes when a thread ends or polls, a collective completes, or the plain loop advances to another thread.
uint64_t progress_of(const Worker& worker) {
  uint64_t mixed = worker.num_progress + worker.idle_rounds;
  for (const unsigned n :
       {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z})
    mixed = mixed * 0x9e3779b97f4a7c15u + n;
  return mixed;
}

// A thread that is alone waits for no other, however long it takes. Check mode looks for mistakes, and counts
// an endless loop as one.
bool has_time_limit(const Launch& launch) {
  return launch.spec->check || launch.num_threads > 1 || launch.group_blocks > 1;
}

void look_at_progress(Worker& worker) {
  Watched& watched = worker.watched;
  const uint64_t phase = watched.phase.load(std::memory_order_relaxed);
  const uint64_t progress = progress_of(worker);
  if (phase != watched.seen_phase || progress != watched.seen_progress) {
    watched.seen_phase = phase;
    watched.seen_progress = progress;
    watched.progress_time = thread_seconds();
  } else if (has_time_limit(*worker.launch)) {
    watched.overdue = thread_seconds() - watched.progress_time >= worker.launch->spec->time_limit;
  }
}

// The runtime and the functions it calls may hold a lock. A kernel calls nothing else that could. The hooks
// that instrumented code calls do not mark themselves; they ask whether an interruption is due.
bool may_leave(const Worker& worker, void* context) {
  return worker.in_kernel && (!worker.launch->spec->check ||
                              Module(*worker.launch->kernel).contains(interrupted_at(context)));
}

// A signal handler starts with the system's floating-point modes, not with those of the thread.
void restore_floating_point(void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
  if (!registers.fpregs) return;
  asm volatile("fldcw %0\n\tldmxcsr %1"
               :
               : "m"(registers.fpregs->cwd), "m"(registers.fpregs->mxcsr));
#else
  (void)context;
#endif
}

// Interrupts the running thread's worker.
void look_after_worker(void* context) {
  Worker* worker = current_worker;
  // The signal may be late, after the end of the launch that it was meant for.
  if (!worker || !is_in_launch(worker->watched.phase.load(std::memory_order_relaxed))) return;
  look_at_progress(*worker);
  if (!may_leave(*worker, context)) {
    worker->watched.due = true;
    return;
  }
  const int error = errno;
  restore_floating_point(context);
  worker->in_kernel = false;
  attend(*worker, interrupted_at(context));
  worker->in_kernel = true;
  errno = error;
}

// The signal carries the function to call, because each loaded runtime has its own workers, and there is
// one handler in the process.
void handle(int, siginfo_t* info, void* context) {
  if (info->si_code == SI_QUEUE && info->si_pid == getpid())
    reinterpret_cast<void (*)(void*)>(info->si_value.sival_ptr)(context);
}

void install_handler() {
  struct sigaction action{};
  action.sa_sigaction = handle;
  // The signal is not blocked while the handler runs, because `fail` does not return from the handler.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(watchdog_signal(), &action, nullptr);
}

}  // namespace

double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void attend(Worker& worker, const void* interrupted) {
  worker.watched.due = false;
  const std::atomic<bool>& aborted = worker.launch->aborted;
  if (!aborted.load() && worker.watched.overdue)
    fail(Place{}, (interrupted ? observe::interrupted_place(interrupted) : std::string()) +
                      overdue_text(*worker.launch));
  if (!aborted.load() && worker.may_pause) pause(worker);
  if (aborted.load()) leave_kernel(worker);
}

void Watchdog::add(Worker& worker) {
  std::lock_guard lock(mutex_);
  worker.watched.thread = pthread_self();
  workers_.push_back(&worker);
  phases_.push_back(0);
  if (is_running_) return;
  is_running_ = true;
  install_handler();
  start_service_thread([](void* self) { static_cast<Watchdog*>(self)->watch(); }, this);
}

void Watchdog::remove(Worker& worker) {
  std::lock_guard lock(mutex_);
  const auto found = std::find(workers_.begin(), workers_.end(), &worker);
  phases_.erase(phases_.begin() + (found - workers_.begin()));
  workers_.erase(found);
}

// Returns whether there was a launch since the last time.
bool Watchdog::interrupt_all() {
  bool any = false;
  for (size_t i = 0; i < workers_.size(); i++) {
    const Watched& watched = workers_[i]->watched;
    const uint64_t phase = watched.phase.load();
    any |= is_in_launch(phase) || phase != phases_[i];
    phases_[i] = phase;
    if (!is_in_launch(phase)) continue;
    sigval function;
    function.sival_ptr = reinterpret_cast<void*>(&look_after_worker);
    pthread_sigqueue(watched.thread, watchdog_signal(), function);
  }
  return any;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  for (unsigned quiet = 0;;) {
    wake_.wait_for(lock, kWatchInterval);
    quiet = interrupt_all() ? 0 : quiet + 1;
    if (quiet < kQuietIntervals) continue;
    // A launch stores its phase, then checks whether to wake the watchdog. Here the order is reversed, so
    // that at least one of the two sees the other.
    asleep_.store(true);
    if (!interrupt_all()) wake_.wait(lock, [this] { return !asleep_.load(); });
    asleep_.store(false);
    quiet = 0;
  }
}

void Watchdog::hurry() {
  // Once the lock is free, the watchdog's thread is not just about to wait: it would then miss the
  // notification.
  {
    std::lock_guard lock(mutex_);
  }
  wake_.notify_one();
}

void Watchdog::wake() {
  {
    std::lock_guard lock(mutex_);
    asleep_.store(false);
  }
  wake_.notify_one();
}

pthread_t start_service_thread(void (*function)(void*), void* argument) {
  sigset_t others, before;
  sigfillset(&others);
  sigdelset(&others, watchdog_signal());
  pthread_sigmask(SIG_SETMASK, &others, &before);
  std::thread thread(function, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const pthread_t handle = thread.native_handle();
  thread.detach();
  return handle;
}

}  // namespace simt
