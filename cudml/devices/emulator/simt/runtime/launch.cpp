// Launches: the workers, the distribution of blocks among them, and the blocks' shared storage.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "errors.h"
#include "observer.h"
#include "pause.h"
#include "pool.h"
#include "scheduler.h"
#include "state.h"

SIMT_THREAD_LOCAL uint3 threadIdx, blockIdx, blockDim, gridDim;
SIMT_THREAD_LOCAL void* simt_promoted;
SIMT_THREAD_LOCAL unsigned char* simt_shared;
SIMT_THREAD_LOCAL unsigned long long simt_shared_bytes;

namespace simt {

namespace {

constexpr unsigned kDefaultStackKib = 32;
constexpr unsigned char kGuardByte = 0xa5;
constexpr unsigned kMaxChunk = 64, kChunksPerWorker = 8;

// Waking the other workers costs about this much, so more work than that must be left.
constexpr std::chrono::microseconds kWakeCost{40};

// Workers keep their stacks and blocks from launch to launch. The first worker suffices if no launch is
// paused. Workers are on the heap, because a library that is loaded late gets little thread-local storage.
struct ThreadWorkers {
  std::vector<std::unique_ptr<Worker>> all;
  std::string error;  // of the last launch that failed
};

ThreadWorkers& workers_of_this_thread() {
  thread_local ThreadWorkers workers;
  return workers;
}

Worker& free_worker_of_this_thread() {
  std::vector<std::unique_ptr<Worker>>& workers = workers_of_this_thread().all;
  size_t i = 0;
  while (i < workers.size() && workers[i]->is_paused) i++;
  if (i == workers.size()) workers.push_back(std::make_unique<Worker>());
  current_worker = workers[i].get();
  return *workers[i];
}

Worker* paused_worker_of_this_thread(const SimtLaunch* spec) {
  for (const std::unique_ptr<Worker>& worker : workers_of_this_thread().all)
    if (worker->is_paused && (!spec || worker->launch->spec == spec)) return worker.get();
  return nullptr;
}

// Shared by all launches of the process.
struct Shared {
  std::mutex one_checked_launch_at_a_time;
  Watchdog watchdog;
  Pool pool;
};

// Never freed, because its threads use it until the process ends. A forked child has none of its parent's
// threads, and its locks are in an unknown state, so it starts with a new one.
Shared* shared_state = [] {
  pthread_atfork(nullptr, nullptr, [] { shared_state = new Shared; });
  return new Shared;
}();

// ---- One group of blocks: 1, a cluster, or a whole cooperative grid

void prepare_shared(const SimtLaunch& spec, Block& block) {
  const size_t needed = spec.shared_bytes + 2 * kGuardBytes + 256;
  if (block.shared_memory.size() < needed) block.shared_memory.resize(needed);
  const auto start = reinterpret_cast<uintptr_t>(block.shared_memory.data());
  block.shared = reinterpret_cast<unsigned char*>((start + 255) / 256 * 256) + kGuardBytes;
  if (spec.use_poison)
    for (unsigned i = 0; i < spec.shared_bytes; i += 4)
      std::memcpy(block.shared + i, &spec.poison, std::min(4u, spec.shared_bytes - i));
  if (spec.guard) {
    std::memset(block.shared - kGuardBytes, kGuardByte, kGuardBytes);
    std::memset(block.shared + spec.shared_bytes, kGuardByte, kGuardBytes);
  }
}

// Reports through the launch, not through a kernel thread, because the block has ended.
void check_guards(Worker& worker, const Block& block) {
  const SimtLaunch& spec = *worker.launch->spec;
  for (unsigned i = 0; i < kGuardBytes; i++) {
    const bool before = block.shared[-1 - static_cast<long>(i)] != kGuardByte;
    if (!before && block.shared[spec.shared_bytes + i] == kGuardByte) continue;
    const uint3 position = block_position(*worker.launch, block.index);
    const std::string text = format(
        "shared storage of block (%u,%u,%u): a byte at offset %ld was overwritten, outside its %u "
        "bytes",
        position.x, position.y, position.z,
        before ? -1 - static_cast<long>(i) : static_cast<long>(spec.shared_bytes + i),
        spec.shared_bytes);
    record_error(*worker.launch, text);
    return;
  }
}

void begin_group(Worker& worker, unsigned group) {
  Launch& launch = *worker.launch;
  const unsigned first =
      (launch.group_order.empty() ? group : launch.group_order[group]) * launch.group_blocks;
  worker.has_group = true;
  worker.num_resident = launch.group_blocks;
  while (worker.blocks.size() < launch.group_blocks) worker.blocks.push_back(new Block);
  for (unsigned i = 0; i < launch.group_blocks; i++) {
    Block& block = *worker.blocks[i];
    block.index = first + i;
    block.num_threads = launch.num_threads;
    block.num_warps = (launch.num_threads + kWarpSize - 1) / kWarpSize;
    prepare_shared(*launch.spec, block);
  }
}

void end_group(Worker& worker) {
  Launch& launch = *worker.launch;
  worker.has_group = false;
  for (unsigned i = 0; i < launch.group_blocks; i++) observe::block_ends(worker, i);
  if (launch.aborted.load(std::memory_order_relaxed)) return;
  if (launch.spec->guard)
    for (unsigned i = 0; i < launch.group_blocks; i++) check_guards(worker, *worker.blocks[i]);
  if (launch.spec->workers > 1) launch.finished_groups.fetch_add(1, std::memory_order_relaxed);
}

// ---- A worker's part of a launch

void begin(Worker& worker, Launch& launch) {
  const SimtLaunch& spec = *launch.spec;
  worker.launch = &launch;
  worker.idle_rounds = 0;
  worker.random.seed(spec.seed);
  worker.contexts.begin_launch((spec.stack_kib ? spec.stack_kib : kDefaultStackKib) * size_t{1024});
  blockDim = spec.block;
  gridDim = spec.grid;
  simt_shared_bytes = spec.shared_bytes;
  worker.watched.overdue = worker.watched.due = false;
  observe::launch_begins(worker);
  begin_watching(worker);
}

void end(Worker& worker) {
  Watchdog::launch_ends(worker.watched);
  observe::launch_ends(worker);
  if (worker.launch->aborted.load()) worker.contexts.give_back_all();
  worker.launch = nullptr;
}

// Returns whether there are groups left.
bool run_chunk(Worker& worker, unsigned chunk) {
  Launch& launch = *worker.launch;
  const unsigned first = launch.next_group.fetch_add(chunk, std::memory_order_relaxed);
  worker.next_group = first;
  worker.end_group = std::min(first + chunk, launch.num_groups);
  while (next_group(worker)) run_group(worker);
  return worker.end_group < launch.num_groups && !launch.aborted.load(std::memory_order_relaxed);
}

unsigned chunk_of(const Launch& launch) {
  return std::clamp(launch.num_groups / (kChunksPerWorker * launch.spec->workers), 1u, kMaxChunk);
}

// ---- A launch

std::vector<unsigned> order_of_groups(const SimtLaunch& spec, unsigned num_groups) {
  std::vector<unsigned> order;
  if (spec.order != kOrderReverse && spec.order != kOrderRandom) return order;
  for (unsigned i = 0; i < num_groups; i++) order.push_back(num_groups - 1 - i);
  if (spec.order == kOrderRandom) {
    Random random;
    random.seed(~spec.seed);
    for (unsigned i = num_groups; i > 1; i--) std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

std::string refuse(const SimtLaunch& spec) {
  const uint64_t blocks = uint64_t{spec.grid.x} * spec.grid.y * spec.grid.z;
  const uint64_t threads = uint64_t{spec.block.x} * spec.block.y * spec.block.z;
  if (blocks == 0 || blocks > 0x7fffffffu)
    return format("a grid of %ux%ux%u blocks: must have 1 to 2^31-1", spec.grid.x, spec.grid.y,
                  spec.grid.z);
  if (threads == 0 || threads > kMaxThreads)
    return format("a block of %ux%ux%u threads: must have 1 to %u", spec.block.x, spec.block.y,
                  spec.block.z, kMaxThreads);
  if (spec.cluster_blocks == 0 || spec.cluster_blocks > kMaxClusterBlocks ||
      spec.grid.x % spec.cluster_blocks)
    return format("clusters of %u blocks in a grid of %u: must be 1 to %u and divide the grid in x",
                  spec.cluster_blocks, spec.grid.x, kMaxClusterBlocks);
  if (spec.cooperative && spec.cluster_blocks > 1)
    return "a cooperative launch with clusters is not emulated";
  return "";
}

// Runs the part of a launch that one worker can do.
void help(Launch& launch) {
  Worker& worker = free_worker_of_this_thread();
  begin(worker, launch);
  while (run_chunk(worker, chunk_of(launch))) {
  }
  end(worker);
}

// Waits while the kernel runs on other workers. A child that was forked during a pause has no helpers.
void wait_for_helpers(Worker& worker, Shared& shared) {
  for (;;) {
    if (&shared != shared_state)
      return record_error(*worker.launch, "the process was forked in the middle of this launch");
    if (shared.pool.finish_within(kWatchInterval)) return;
    if (worker.may_pause && !worker.launch->aborted.load()) pause(worker);
  }
}

void run(Worker& worker, Launch& launch) {
  const unsigned helpers = std::min(launch.spec->workers, launch.num_groups) - 1;
  begin(worker, launch);
  bool more = true, has_help = false;
  Shared* const shared = shared_state;
  if (helpers > 0) {
    // The groups done so far show whether the rest is worth waking others for. If the others are busy with
    // another thread's launch, this worker continues alone.
    const auto start = std::chrono::steady_clock::now();
    more = run_chunk(worker, 1);
    for (unsigned done = 1; more; done += kMaxChunk) {
      const auto elapsed = std::chrono::steady_clock::now() - start;
      if (elapsed / done * (launch.num_groups - done) > kWakeCost) {
        has_help = shared->pool.start(launch, helpers, help);
        break;
      }
      more = run_chunk(worker, kMaxChunk);
    }
  }
  while (more) more = run_chunk(worker, has_help ? chunk_of(launch) : kMaxChunk);
  if (has_help) wait_for_helpers(worker, *shared);
  end(worker);
}

}  // namespace

SIMT_THREAD_LOCAL Worker* current_worker;

bool next_group(Worker& worker) {
  if (worker.has_group) end_group(worker);
  if (worker.next_group >= worker.end_group ||
      worker.launch->aborted.load(std::memory_order_relaxed))
    return false;
  begin_group(worker, worker.next_group++);
  return true;
}

void begin_watching(Worker& worker) {
  if (worker.watchdog != &shared_state->watchdog) {
    worker.watchdog = &shared_state->watchdog;
    worker.watchdog->add(worker);
    worker.may_pause = is_main_thread();
  }
  worker.watchdog->launch_begins(worker.watched);
}

bool run_request(Worker& worker) {
  const SimtLaunch* spec = worker.request.spec;
  Launch launch{};
  launch.spec = spec;
  launch.kernel = worker.request.kernel;
  launch.arguments = worker.request.arguments;
  // The checker serves one launch at a time.
  std::unique_lock lock(shared_state->one_checked_launch_at_a_time, std::defer_lock);
  std::string refused = refuse(*spec);
  if (spec->check && paused_worker_of_this_thread(nullptr))
    refused = "a signal handler cannot launch in check mode while a launch is checked";
  if (!refused.empty()) {
    workers_of_this_thread().error = refused;
    return false;
  }
  if (spec->check) lock.lock();
  launch.num_blocks = spec->grid.x * spec->grid.y * spec->grid.z;
  launch.num_threads = spec->block.x * spec->block.y * spec->block.z;
  launch.group_blocks = spec->cooperative ? launch.num_blocks : spec->cluster_blocks;
  launch.num_groups = launch.num_blocks / launch.group_blocks;
  launch.group_order = order_of_groups(*spec, launch.num_groups);
  run(worker, launch);
  if (!launch.aborted.load()) return true;
  workers_of_this_thread().error = std::move(launch.error);
  return false;
}

Worker::~Worker() {
  free_driver(*this);
  if (watchdog == &shared_state->watchdog) watchdog->remove(*this);
  for (Block* block : blocks) delete block;
}

}  // namespace simt

extern "C" int simt_launch(const SimtLaunch* spec, const SimtKernel* kernel, void** arguments) {
  using namespace simt;
  Worker& worker = free_worker_of_this_thread();
  if (!worker.driver.bottom) make_driver(worker);
  worker.request = {spec, kernel, arguments};
  return go_on(worker, worker.driver);
}

extern "C" int simt_resume(const SimtLaunch* spec) {
  using namespace simt;
  Worker* worker = paused_worker_of_this_thread(spec);
  if (worker) return go_on(*worker, worker->paused);
  workers_of_this_thread().error = "no such launch is paused on this thread";
  return kSimtFailed;
}

extern "C" void simt_abandon(const SimtLaunch* spec) {
  using namespace simt;
  Worker* worker = paused_worker_of_this_thread(spec);
  if (!worker) return;
  record_error(*worker->launch, "abandoned");
  shared_state->watchdog.hurry();  // makes the helpers stop at once
  go_on(*worker, worker->paused);
}

extern "C" const char* simt_error() { return simt::workers_of_this_thread().error.c_str(); }
