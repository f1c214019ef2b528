// Launches: the workers, the distribution of blocks among them, and the blocks' shared storage.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "errors.h"
#include "observer.h"
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

// Waking the other workers costs about this much, so there must be more work left than that.
constexpr std::chrono::microseconds kWakeCost{40};

// Keeps its stacks and blocks from launch to launch. On the heap, because a library loaded late
// gets little thread-local storage.
Worker& worker_of_this_thread() {
  thread_local std::unique_ptr<Worker> worker;
  if (!worker) worker = std::make_unique<Worker>();
  current_worker = worker.get();
  return *worker;
}

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

// Reports through the launch, not through a kernel thread: the block has ended.
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

void run_one_group(Worker& worker, unsigned group) {
  Launch& launch = *worker.launch;
  const unsigned first =
      (launch.group_order.empty() ? group : launch.group_order[group]) * launch.group_blocks;
  worker.num_resident = launch.group_blocks;
  while (worker.blocks.size() < launch.group_blocks) worker.blocks.push_back(new Block);
  for (unsigned i = 0; i < launch.group_blocks; i++) {
    Block& block = *worker.blocks[i];
    block.index = first + i;
    block.num_threads = launch.num_threads;
    block.num_warps = (launch.num_threads + kWarpSize - 1) / kWarpSize;
    prepare_shared(*launch.spec, block);
  }
  run_group(worker);
  for (unsigned i = 0; i < launch.group_blocks; i++) observe::block_ends(worker, i);
  if (launch.aborted.load(std::memory_order_relaxed)) return;
  if (launch.spec->guard)
    for (unsigned i = 0; i < launch.group_blocks; i++) check_guards(worker, *worker.blocks[i]);
  launch.finished_groups.fetch_add(1, std::memory_order_relaxed);
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
  worker.overdue = false;
  worker.progress_time = std::chrono::steady_clock::now();
  observe::launch_begins(worker);
  worker.watchdog.start();
}

void end(Worker& worker) {
  worker.watchdog.stop();
  observe::launch_ends(worker);
  if (worker.launch->aborted.load()) worker.contexts.give_back_all();
  worker.launch = nullptr;
}

bool run_chunk(Worker& worker, unsigned chunk) {
  Launch& launch = *worker.launch;
  const unsigned first = launch.next_group.fetch_add(chunk, std::memory_order_relaxed);
  for (unsigned i = first; i < std::min(first + chunk, launch.num_groups); i++) {
    if (launch.aborted.load(std::memory_order_relaxed)) return false;
    run_one_group(worker, i);
  }
  return first + chunk < launch.num_groups;
}

unsigned chunk_of(const Launch& launch) {
  return std::clamp(launch.num_groups / (kChunksPerWorker * launch.spec->workers), 1u, kMaxChunk);
}

// ---- The pool of further workers

class Pool {
 public:
  // Lets up to `helpers` pool threads take part in the launch.
  void start(Launch& launch, unsigned helpers) {
    while (num_threads_ < helpers) add_thread();
    {
      std::lock_guard lock(mutex_);
      launch_ = &launch;
      wanted_ = helpers;
    }
    wake_.notify_all();
  }

  // Waits until no pool thread works on the launch, and lets none begin.
  void finish() {
    std::unique_lock lock(mutex_);
    launch_ = nullptr;
    wanted_ = 0;
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void add_thread() {
    const unsigned number = num_threads_++;
    std::thread thread([this] { serve(); });
    pin(thread.native_handle(), number);
    thread.detach();
  }

  // Left alone, the kernel tends to keep a short-lived pair of threads on one CPU.
  static void pin(pthread_t thread, unsigned number) {
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    const int own = sched_getcpu();
    std::vector<int> others;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
      if (CPU_ISSET(cpu, &allowed) && cpu != own) others.push_back(cpu);
    if (others.empty()) return;
    CPU_ZERO(&chosen);
    CPU_SET(others[number % others.size()], &chosen);
    pthread_setaffinity_np(thread, sizeof chosen, &chosen);
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return launch_ && wanted_ > 0; });
      Launch& launch = *launch_;
      wanted_--;
      busy_++;
      lock.unlock();
      Worker& worker = worker_of_this_thread();
      begin(worker, launch);
      while (run_chunk(worker, chunk_of(launch))) {
      }
      end(worker);
      lock.lock();
      if (--busy_ == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Launch* launch_ = nullptr;
  unsigned num_threads_ = 0, wanted_ = 0, busy_ = 0;
};

struct Shared {
  std::mutex one_launch_at_a_time;
  Pool pool;
};

// Never freed: pool threads use it until the process ends. A forked child has none of its parent's
// threads, and locks in an unknown state, so it starts with a new one.
Shared* shared_state = [] {
  pthread_atfork(nullptr, nullptr, [] { shared_state = new Shared; });
  return new Shared;
}();

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

void run(Launch& launch) {
  Worker& worker = worker_of_this_thread();
  begin(worker, launch);
  const unsigned helpers = std::min(launch.spec->workers - 1, launch.num_groups - 1);
  bool more;
  if (helpers == 0) {
    while (run_chunk(worker, kMaxChunk)) {
    }
  } else {
    // The first group shows whether the rest is worth waking anybody.
    const auto start = std::chrono::steady_clock::now();
    more = run_chunk(worker, 1);
    const auto first = std::chrono::steady_clock::now() - start;
    const bool wake = more && first * (launch.num_groups - 1) > kWakeCost;
    if (wake) shared_state->pool.start(launch, helpers);
    while (more) more = run_chunk(worker, chunk_of(launch));
    if (wake) shared_state->pool.finish();
  }
  end(worker);
}

}  // namespace

SIMT_THREAD_LOCAL Worker* current_worker;

Worker::~Worker() {
  for (Block* block : blocks) delete block;
}

}  // namespace simt

extern "C" int simt_launch(const SimtLaunch* spec, void (*entry)(void**), void** arguments,
                           const unsigned long long* argument_bytes) {
  using namespace simt;
  std::lock_guard lock(shared_state->one_launch_at_a_time);
  Launch launch{};
  launch.spec = spec;
  launch.entry = entry;
  launch.arguments = arguments;
  launch.argument_bytes = argument_bytes;
  const std::string refused = refuse(*spec);
  if (!refused.empty()) {
    record_error(launch, refused);
    return 1;
  }
  launch.num_blocks = spec->grid.x * spec->grid.y * spec->grid.z;
  launch.num_threads = spec->block.x * spec->block.y * spec->block.z;
  launch.group_blocks = spec->cooperative ? launch.num_blocks : spec->cluster_blocks;
  launch.num_groups = launch.num_blocks / launch.group_blocks;
  launch.group_order = order_of_groups(*spec, launch.num_groups);
  run(launch);
  return launch.aborted.load() ? 1 : 0;
}
