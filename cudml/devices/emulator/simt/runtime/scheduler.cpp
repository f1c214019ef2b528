// Chooses threads. A block is either in its plain loop (see entry.h), which the scheduler does not
// see, or promoted: then each thread is fresh (not started), running, ready, waiting, or ended.
#include "scheduler.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

#include "collectives.h"
#include "errors.h"
#include "observer.h"

namespace simt {

namespace {

constexpr int kNobody = -1;

// In the random order, one in this many choices may leave a block that could go on for another block of its
// group.
constexpr uint32_t kChoicesOfABlock = 16;

// Idle rounds between two looks at the clock, and the minimum before polling counts as endless.
constexpr uint64_t kRoundsPerClock = 256, kLeastIdleRounds = 4096;
constexpr uint64_t kRoundsBeforeSleep = 64;

bool has_fresh(const Block& block) { return block.num_started < block.num_threads; }

int start_fresh(Block& block) {
  const unsigned n = block.num_started++;
  return block.start_order.empty() ? static_cast<int>(n) : block.start_order[n];
}

int lowest_ready(Block& block, unsigned warp) {
  uint32_t& ready = block.warps[warp].ready;
  const int lane = __builtin_ctz(ready);
  ready &= ready - 1;
  return static_cast<int>(warp * kWarpSize) + lane;
}

// Prefers the running warp, so that its collectives complete soon; then fresh threads; then the other warps
// in turn.
int pick_ascending(Block& block) {
  const unsigned warp = block.current / kWarpSize;
  if (block.warps[warp].ready) return lowest_ready(block, warp);
  if (has_fresh(block)) return start_fresh(block);
  for (unsigned i = 1; i <= block.num_warps; i++) {
    const unsigned other = (warp + i) % block.num_warps;
    if (block.warps[other].ready) return lowest_ready(block, other);
  }
  return kNobody;
}

// The reverse order: fresh threads first, then the highest lane of the highest warp.
int pick_descending(Block& block) {
  if (has_fresh(block)) return start_fresh(block);
  for (unsigned warp = block.num_warps; warp-- > 0;) {
    uint32_t& ready = block.warps[warp].ready;
    if (!ready) continue;
    const int lane = 31 - __builtin_clz(ready);
    ready &= ~(1u << lane);
    return static_cast<int>(warp * kWarpSize) + lane;
  }
  return kNobody;
}

int pick_random(Block& block, Random& random) {
  unsigned warps[kMaxWarps], num_warps = 0;
  for (unsigned warp = 0; warp < block.num_warps; warp++)
    if (block.warps[warp].ready) warps[num_warps++] = warp;
  if (has_fresh(block) && (num_warps == 0 || random.next() & 1)) return start_fresh(block);
  if (num_warps == 0) return kNobody;
  const unsigned warp = warps[random.below(num_warps)];
  uint32_t lanes = block.warps[warp].ready;
  for (uint32_t skip = random.below(__builtin_popcount(lanes)); skip > 0; skip--)
    lanes &= lanes - 1;
  const int lane = __builtin_ctz(lanes);
  block.warps[warp].ready &= ~(1u << lane);
  return static_cast<int>(warp * kWarpSize) + lane;
}

int pick(Worker& worker, Block& block) {
  switch (worker.launch->spec->order) {
    case kOrderReverse:
      return pick_descending(block);
    case kOrderRandom:
      return pick_random(block, worker.random);
    default:
      return pick_ascending(block);
  }
}

bool can_run(const Block& block) {
  if (block.done) return false;
  if (has_fresh(block)) return true;
  for (unsigned warp = 0; warp < block.num_warps; warp++)
    if (block.warps[warp].ready) return true;
  return false;
}

void activate(Worker& worker, unsigned resident) {
  Block& block = *worker.blocks[resident];
  worker.resident = resident;
  worker.block = &block;
  blockIdx = block_position(*worker.launch, block.index);
  simt_shared = block.shared;
  simt_promoted = block.promoted ? &block : nullptr;
}

// Polling threads have the lowest priority. Returns whether there were any.
bool wake_polling(Worker& worker) {
  bool any = false;
  for (unsigned i = 0; i < worker.num_resident; i++) {
    Block& block = *worker.blocks[i];
    if (block.done) continue;
    for (unsigned warp = 0; warp < block.num_warps; warp++) {
      any |= block.warps[warp].polling != 0;
      block.warps[warp].ready |= block.warps[warp].polling;
      block.warps[warp].polling = 0;
    }
  }
  return any;
}

// Polling threads may wait for another worker. If that worker makes no progress for the time limit either,
// they wait forever.
void idle_round(Worker& worker) {
  const unsigned finished = worker.launch->finished_groups.load(std::memory_order_relaxed);
  if (worker.idle_rounds == 0 || finished != worker.idle_finished_groups) {
    worker.idle_rounds = 0;
    worker.idle_finished_groups = finished;
    worker.idle_since = thread_seconds();
  }
  worker.idle_rounds++;
  if (worker.launch->spec->workers > 1 && worker.idle_rounds > kRoundsBeforeSleep) sched_yield();
  if (worker.idle_rounds % kRoundsPerClock == 0 && worker.idle_rounds >= kLeastIdleRounds) {
    const double idle = thread_seconds() - worker.idle_since;
    if (idle > worker.launch->spec->time_limit) fail_polling(worker);
  }
}

// Makes the next thread of any block of the worker current and returns it; kNobody if all blocks are done or
// the launch was aborted elsewhere.
int pick_any(Worker& worker) {
  bool stays = worker.num_resident == 1 || worker.launch->spec->order != kOrderRandom ||
               worker.random.below(kChoicesOfABlock) != 0;
  for (;; stays = true) {
    if (stays && !worker.block->done) {
      const int thread = pick(worker, *worker.block);
      if (thread != kNobody) return thread;
    }
    const unsigned first = worker.launch->spec->order == kOrderRandom
                               ? worker.random.below(worker.num_resident)
                               : worker.resident + 1;
    bool all_done = true;
    for (unsigned i = 0; i < worker.num_resident; i++) {
      const unsigned candidate = (first + i) % worker.num_resident;
      all_done &= worker.blocks[candidate]->done;
      if (can_run(*worker.blocks[candidate])) {
        activate(worker, candidate);
        return pick(worker, *worker.block);
      }
    }
    if (all_done || worker.launch->aborted.load(std::memory_order_relaxed)) return kNobody;
    if (!wake_polling(worker)) fail_deadlock(worker);
    idle_round(worker);
  }
}

void set_current(Worker& worker, unsigned thread) {
  worker.block->current = thread;
  threadIdx = thread_position(*worker.launch, thread);
}

void trampoline();

// The context to resume for a thread that was picked; the worker's own for kNobody.
Context& context_of(Worker& worker, int thread) {
  if (thread == kNobody) return worker.main;
  Context* context = worker.block->threads[thread].context;
  if (!context) {
    context = worker.contexts.take();
    prepare_context(*context, trampoline);
    worker.block->threads[thread].context = context;
  }
  return *context;
}

void switch_to(Worker& worker, Context& to) {
  Context& from = *worker.running;
  if (&from == &to) return;
  worker.running = &to;
  switch_context(from, to);
}

// Leaves the running context for good.
[[noreturn]] void leave_for(Worker& worker, int thread) {
  if (thread != kNobody) set_current(worker, static_cast<unsigned>(thread));
  // Take the target first: if this stack were given back before, it could be the one taken.
  Context& to = context_of(worker, thread);
  worker.contexts.give_back(worker.running);
  switch_to(worker, to);
  __builtin_unreachable();
}

void check_stack(const Worker& worker) {
  if (ContextPool::overflowed(*worker.running))
    fail(Place{}, format("a thread overflowed its stack of %zu KiB; stack_kib raises it, smaller "
                         "local arrays avoid it",
                         worker.contexts.stack_bytes() / 1024));
}

// The plain loop ended, and no thread had to wait.
void finish_plain(Block& block) {
  block.done = true;
  block.num_started = block.num_threads;
  block.alive = 0;
}

// Sets up the worker's blocks. For a block that may remain a plain loop, it sets only the members that
// can_run, pick and context_of read; `enter` sets the rest if the block does not remain a plain loop.
void begin_blocks(Worker& worker) {
  for (unsigned i = 0; i < worker.num_resident; i++) {
    Block& block = *worker.blocks[i];
    observe::block_begins(worker, i);
    block.done = false;
    block.promoted = !is_fast(*worker.launch);
    if (block.promoted || worker.num_resident > 1) {
      reset_threads(worker, block);
    } else {
      block.current = 0;
      block.num_started = 0;
      block.alive = block.num_threads;
      block.start_order.clear();
      block.warps[0].ready = block.warps[0].polling = 0;
      block.threads[0].context = nullptr;
    }
  }
  activate(worker, 0);
}

// The first function on every new stack. Single blocks that remain plain loops follow each other on one
// stack.
void trampoline() {
  Worker& worker = this_worker();
  for (;;) {
    RuntimeCall::return_to_kernel(worker);
    worker.launch->kernel->entry(worker.launch->arguments);
    worker.in_kernel = false;
    if (simt_promoted) leave_for(worker, kNobody);
    check_stack(worker);
    finish_plain(*worker.block);
    note_progress();
    if (worker.num_resident > 1 || !next_group(worker)) leave_for(worker, pick_any(worker));
    begin_blocks(worker);
  }
}

void end_current_thread(Worker& worker, Block& block) {
  const unsigned thread = block.current;
  note_progress();
  check_stack(worker);
  refuse_exit(block, thread);
  block.alive--;
  block.current_warp().live &= ~block.current_bit();
  // The stack can be used by another thread now.
  block.threads[thread].context = nullptr;
  block.threads[thread].wait = Wait::kNothing;
  if (block.alive == 0) block.done = true;
  complete_after_exit(block, thread);
}

void fill_start_order(Worker& worker, Block& block) {
  block.start_order.clear();
  const unsigned order = worker.launch->spec->order;
  if (order != kOrderReverse && order != kOrderRandom) return;
  for (unsigned i = 0; i < block.num_threads; i++)
    block.start_order.push_back(static_cast<unsigned short>(block.num_threads - 1 - i));
  if (order == kOrderRandom)
    for (unsigned i = block.num_threads; i > 1; i--)
      std::swap(block.start_order[i - 1], block.start_order[worker.random.below(i)]);
}

}  // namespace

void reset_threads(Worker& worker, Block& block) {
  block.current = 0;
  block.num_started = 0;
  block.alive = block.num_threads;
  fill_start_order(worker, block);
  std::fill(std::begin(block.barriers), std::end(block.barriers), Barrier{});
  block.cluster_barrier = Barrier{};
  for (unsigned i = 0; i < block.num_warps; i++) {
    Warp& warp = block.warps[i];
    const unsigned lanes = std::min(kWarpSize, block.num_threads - i * kWarpSize);
    warp.ready = warp.polling = warp.num_open = 0;
    warp.live = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
  }
  std::fill_n(block.threads, block.num_threads, Thread{});
}

Block& enter() {
  Worker& worker = this_worker();
  Block& block = *worker.block;
  if (!block.promoted) {
    // The plain loop's current thread is the first to wait; those before it have ended.
    reset_threads(worker, block);
    const unsigned current = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    block.current = current;
    block.num_started = current + 1;
    block.alive = block.num_threads - current;
    for (unsigned i = 0; i < current / kWarpSize; i++) block.warps[i].live = 0;
    block.current_warp().live &= ~(block.current_bit() - 1);
    block.promoted = true;
    simt_promoted = &block;
  }
  return block;
}

void suspend(Block& block, Wait wait, Place place, uint32_t mask, uint8_t barrier) {
  Worker& worker = this_worker();
  Thread& thread = block.threads[block.current];
  thread.context = worker.running;
  thread.wait = wait;
  thread.place = place;
  thread.mask = mask;
  thread.barrier = barrier;
  const int next = pick_any(worker);
  if (next != kNobody) set_current(worker, static_cast<unsigned>(next));
  switch_to(worker, context_of(worker, next));
  thread.wait = Wait::kNothing;
}

void yield(Block& block, Place place) {
  block.current_warp().polling |= block.current_bit();
  suspend(block, Wait::kPoll, place);
}

void note_progress() {
  Worker& worker = this_worker();
  worker.idle_rounds = 0;
  worker.num_progress++;
}

void run_group(Worker& worker) {
  begin_blocks(worker);
  const int first = pick_any(worker);
  set_current(worker, static_cast<unsigned>(first));
  worker.running = &worker.main;
  switch_to(worker, context_of(worker, first));
}

}  // namespace simt

extern "C" bool simt_next_fresh() {
  using namespace simt;
  const RuntimeCall call;
  Worker& worker = this_worker();
  end_current_thread(worker, *worker.block);
  const int next = pick_any(worker);
  if (next == kNobody) return false;
  if (simt_promoted && !worker.block->threads[next].context) {
    // Runs here, without a switch and without its own stack.
    set_current(worker, static_cast<unsigned>(next));
    return true;
  }
  leave_for(worker, next);
}

extern "C" void simt_yield(const char* file, int line) {
  using namespace simt;
  const RuntimeCall call;
  yield(enter(), Place{file, line});
}

extern "C" unsigned long long simt_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}
