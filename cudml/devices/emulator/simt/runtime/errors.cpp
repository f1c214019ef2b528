// Error texts: "file:line: what happened [block (x,y,z) thread (x,y,z)]".
#include "errors.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "collectives.h"

namespace simt {

namespace {

constexpr const char* kAboutTimeLimit =
    "The limit is the time_limit of cudml.devices.emulator.schedule or of CUDML_EMULATOR, in "
    "seconds "
    "of CPU time; inf is none";

constexpr unsigned kMaxBlocksListed = 4, kMaxGroupsListed = 12;

[[noreturn]] void stop_with(Worker& worker, const std::string& text) {
  record_error(*worker.launch, text);
  leave_kernel(worker);
}

// "[0-31,37-63]"
std::string ranges(const std::vector<unsigned>& ascending) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) last++;
    text += text.empty() ? "" : ",";
    text += std::to_string(ascending[i]);
    if (last > i) text += "-" + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

std::string wait_name(const Thread& thread) {
  const std::string place = " at " + place_name(thread.place);
  switch (thread.wait) {
    case Wait::kBarrier:
      return (thread.barrier ? "named barrier " + std::to_string(thread.barrier)
                             : std::string("block barrier")) +
             place;
    case Wait::kWarp:
      return "warp collective" + place + format(", mask 0x%08x", thread.mask);
    case Wait::kCluster:
      return "cluster barrier" + place;
    case Wait::kPoll:
      return "polling" + place;
    default:
      return "nothing";
  }
}

// Which threads wait where, grouped by what they wait in.
std::string waiting_threads(Worker& worker) {
  std::string text;
  unsigned listed = 0;
  for (unsigned i = 0; i < worker.num_resident && listed < kMaxBlocksListed; i++) {
    const Block& block = *worker.blocks[i];
    if (block.done) continue;
    listed++;
    const uint3 position = block_position(*worker.launch, block.index);
    text += format("\n  block (%u,%u,%u): %u of %u threads alive", position.x, position.y,
                   position.z, block.alive, block.num_threads);
    std::map<std::string, std::vector<unsigned>> groups;
    for (unsigned t = 0; t < block.num_threads; t++)
      if (block.threads[t].wait != Wait::kNothing) groups[wait_name(block.threads[t])].push_back(t);
    unsigned num_groups = 0;
    for (const auto& [wait, threads] : groups)
      if (num_groups++ < kMaxGroupsListed)
        text += format("\n    %zu threads [%s] wait in %s", threads.size(), ranges(threads).c_str(),
                       wait.c_str());
  }
  return text;
}

}  // namespace

bool Place::operator==(const Place& other) const {
  return line == other.line &&
         (file == other.file || (file && other.file && std::strcmp(file, other.file) == 0));
}

std::string format(const char* pattern, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

std::string place_name(Place place) {
  return place.file ? format("%s:%d", place.file, place.line) : std::string("unknown place");
}

std::string thread_name(const Launch& launch, const Block& block, unsigned thread) {
  const uint3 b = block_position(launch, block.index), t = thread_position(launch, thread);
  return format("block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, t.x, t.y, t.z);
}

void record_error(Launch& launch, const std::string& text) {
  // The first error wins; the others follow from it or will be seen in the next run.
  if (launch.claimed_error.exchange(1) == 0) launch.error = text;
  launch.aborted.store(true);
}

void add_reports(Launch& launch, const std::string& reports) {
  if (launch.claimed_error.load() == 0) {
    record_error(launch, reports);
    return;
  }
  launch.error += "\f" + reports;
}

void leave_kernel(Worker& worker) {
  Context abandoned;
  worker.in_kernel = false;
  worker.running = &worker.main;
  switch_context(abandoned, worker.main);
  __builtin_unreachable();
}

void fail(Place place, const std::string& text) {
  Worker& worker = this_worker();
  const Block& block = *worker.block;
  const unsigned thread = block.promoted
                              ? block.current
                              : threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  stop_with(worker, (place.file ? place_name(place) + ": " : "") + text + " [" +
                        thread_name(*worker.launch, block, thread) + "]");
}

std::string overdue_text(const Launch& launch) {
  return format(
      "a thread ran for %g s without ending or waiting for another one; a loop that waits must "
      "poll by load_acquire, or call __nanosleep. %s",
      launch.spec->time_limit, kAboutTimeLimit);
}

void fail_deadlock(Worker& worker) {
  stop_with(worker,
            "deadlock: no thread of the block(s) can make progress" + waiting_threads(worker));
}

void fail_polling(Worker& worker) {
  stop_with(worker, format("endless polling: for %g s nothing but waiting loops could run. %s",
                           worker.launch->spec->time_limit, kAboutTimeLimit) +
                        waiting_threads(worker));
}

}  // namespace simt

extern "C" void simt_fail(const char* text, const char* file, int line) {
  simt::fail({file, line}, text);
}
