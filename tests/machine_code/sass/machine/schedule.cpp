// Runs the blocks of a launch: a multiprocessor has four partitions, each issues one instruction a clock of a
// warp that is ready, which is when the compiler's schedule and what it waits for allow it.
#include <algorithm>
#include <deque>
#include <queue>
#include <utility>

#include "clock.h"
#include "state.h"

namespace {

struct Slot {  // a warp on a multiprocessor
  Warp* warp;
  Block* block;
  double ready_at = 0;
  double scoreboards[kNumScoreboards] = {};
  uint32_t pc = 0;
  Mask mask = 0;  // the lanes that run next, 0 where none can
};

struct Multiprocessor {
  std::vector<Slot> slots[kNumPartitions];
  int last[kNumPartitions] = {};  // the slot that issued last
  Server pipes[kNumPartitions][kNumPipes];
  Server shared, lookup, l2, memory, barrier, dispatch;
  Cache cache{0};
  int num_blocks = 0;
  double next_event = HUGE_VAL;  // when it is to be looked at again
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<int> places;
};

}  // namespace

struct Request {
  const Instruction* code;
  const char* const* texts;
  uint32_t num_instructions;
  Launch launch;
  const Range* ranges;
  uint32_t num_ranges;
  const uint32_t* blocks;  // which to run, by number; whole clusters
  uint32_t num_blocks;
  uint32_t num_multiprocessors, resident_blocks;
  uint64_t max_instructions;
  const Rates* rates;
  uint64_t* executed;  // for each instruction, by how many warps
  uint64_t* lanes;     // and lanes
  Totals* totals;
  char* error;
  uint32_t error_bytes;
};

namespace {

class Run {
 public:
  explicit Run(const Request& request)
      : request_(request),
        rates_(*request.rates),
        totals_(*request.totals),
        memory_(request.ranges, request.num_ranges),
        l2_(request.rates->l2_sectors),
        multiprocessors_(request.num_multiprocessors) {
    for (Multiprocessor& m : multiprocessors_) m.cache = Cache(rates_.cache_sectors);
  }

  void run() {
    for (uint32_t n = 0; n < request_.num_blocks; ++n) waiting_.push_back(request_.blocks[n]);
    for (int n = 0; n < (int)multiprocessors_.size(); ++n) admit(n, 0);
    while (!queue_.empty()) {
      const auto [at, number] = queue_.top();
      queue_.pop();
      Multiprocessor& m = multiprocessors_[number];
      if (at != m.next_event) continue;  // an earlier one took its place
      m.next_event = HUGE_VAL;
      advance(number, at);
    }
    // A launch ends when its stores are in memory.
    for (const Multiprocessor& m : multiprocessors_)
      totals_.clocks = std::max(totals_.clocks, (uint64_t)m.memory.free_at);
    for (const auto& cluster : clusters_)
      for (const auto& block : cluster->blocks)
        for (const auto& warp : block->warps)
          if (warp->live()) stuck(*warp);
  }

  // The instruction that runs, for messages.
  std::string where() const {
    const auto [warp, pc] = place_;
    if (!warp) return "before the first instruction";
    const uint32_t* index = warp->block->index;
    return std::string(request_.texts[pc]) + " at " + hex(16 * pc) + ", block (" +
           std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
           std::to_string(index[2]) + "), warp " + std::to_string(warp->number);
  }

 private:
  void call(int number, double at) {
    Multiprocessor& m = multiprocessors_[number];
    if (at >= m.next_event) return;
    m.next_event = at;
    queue_.emplace(at, number);
  }

  // As many of the blocks that wait as fit.
  void admit(int number, double at) {
    bool is_new = false;
    while (!waiting_.empty() &&
           multiprocessors_[number].num_blocks < (int)request_.resident_blocks) {
      start_cluster(number, multiprocessors_[number].dispatch.begin(at, rates_.block_clocks));
      is_new = true;
    }
    if (is_new) call(number, at);
  }

  void start_cluster(int number, double at) {
    const Launch& launch = request_.launch;
    clusters_.push_back(std::make_unique<Cluster>());
    Cluster& cluster = *clusters_.back();
    std::vector<std::shared_ptr<SharedStorage>> shared;
    for (uint32_t rank = 0; rank < launch.cluster_blocks; ++rank)
      shared.push_back(std::make_shared<SharedStorage>(launch.shared_bytes));
    for (uint32_t rank = 0; rank < launch.cluster_blocks; ++rank) {
      if (waiting_.empty()) throw Failure("a cluster without some of its blocks");
      const uint32_t block_number = waiting_.front();
      waiting_.pop_front();
      auto block = std::make_unique<Block>();
      block->launch = &launch;
      block->memory = &memory_;
      block->index[0] = block_number % launch.grid[0];
      block->index[1] = block_number / launch.grid[0] % launch.grid[1];
      block->index[2] = block_number / launch.grid[0] / launch.grid[1];
      block->rank = rank;
      block->shared = shared;
      // The blocks of a cluster go to neighbours.
      const int place = (number + (int)rank) % (int)multiprocessors_.size();
      block->multiprocessor = place;
      start_block(*block, place, at);
      if (place != number) call(place, at);
      cluster.places.push_back(place);
      cluster.blocks.push_back(std::move(block));
    }
  }

  void start_block(Block& block, int place, double at) {
    Multiprocessor& m = multiprocessors_[place];
    ++m.num_blocks;
    const uint32_t* sizes = request_.launch.block;
    const uint32_t threads = sizes[0] * sizes[1] * sizes[2];
    for (uint32_t first = 0; first < threads; first += kLanes) {
      auto warp = std::make_unique<Warp>();
      warp->block = &block;
      warp->number = (int)(first / kLanes);
      for (int lane = 0; lane < kLanes; ++lane)
        if (first + lane >= threads) warp->wait[lane] = Wait::kExited;
      Slot slot{warp.get(), &block, at};
      prepare(slot);
      m.slots[warp->number % kNumPartitions].push_back(slot);
      block.warps.push_back(std::move(warp));
    }
  }

  // Which lanes of a warp run next: those at the current place, else those that are behind.
  void prepare(Slot& slot) {
    Warp& warp = *slot.warp;
    slot.mask = 0;
    const Mask running = warp.waiting(Wait::kNone);
    if (!running) return;
    const uint32_t turn = 1024;  // lanes that poll let others go on
    Mask here = warp.at(warp.current);
    if (!here || (here != running && ++warp.steps_in_group > turn)) {
      uint32_t least = ~0u, next = ~0u;
      for (int lane = 0; lane < kLanes; ++lane) {
        if (!(running >> lane & 1)) continue;
        least = std::min(least, warp.pc[lane]);
        if (warp.pc[lane] > warp.current) next = std::min(next, warp.pc[lane]);
      }
      warp.current = here && next != ~0u ? next : least;
      warp.steps_in_group = 0;
      here = warp.at(warp.current);
    }
    slot.pc = warp.current;
    slot.mask = here;
    if (slot.pc >= request_.num_instructions) throw Failure("runs past the end of the code");
    const Instruction& instruction = request_.code[slot.pc];
    for (int n = 0; n < kNumScoreboards; ++n)
      if (instruction.wait_mask >> n & 1)
        slot.ready_at = std::max(slot.ready_at, slot.scoreboards[n]);
  }

  void advance(int number, double at) {
    Multiprocessor& m = multiprocessors_[number];
    double next = HUGE_VAL;
    for (int partition = 0; partition < kNumPartitions; ++partition) {
      auto& slots = m.slots[partition];
      Slot* chosen = nullptr;
      const int count = (int)slots.size();
      for (int i = 0; i < count && !chosen; ++i) {
        // In turn, from the one after that which issued last.
        Slot& slot = slots[(m.last[partition] + 1 + i) % count];
        if (!slot.mask || slot.ready_at > at) continue;
        const Pipe pipe = entries()[request_.code[slot.pc].entry].pipe;
        const double free_at = m.pipes[partition][(int)pipe].free_at;
        if (free_at > at)
          slot.ready_at = free_at;
        else
          chosen = &slot, m.last[partition] = (int)(&slot - slots.data());
      }
      if (chosen) {
        issue(m, partition, *chosen, at);
        if (!chosen->mask) settle(m, *chosen, at);
      }
    }
    remove_finished(number, at);
    for (const auto& slots : m.slots)
      for (const Slot& slot : slots)
        if (slot.mask) next = std::min(next, std::max(slot.ready_at, at + 1));
    if (next < HUGE_VAL) call(number, next);
    totals_.clocks = std::max(totals_.clocks, (uint64_t)at + 1);
  }

  void issue(Multiprocessor& m, int partition, Slot& slot, double at) {
    Warp& warp = *slot.warp;
    const Instruction& instruction = request_.code[slot.pc];
    const Entry& entry = entries()[instruction.entry];
    place_ = {&warp, slot.pc};
    Mask guard = warp.predicate(instruction.guard, instruction.guard_uniform, slot.mask);
    if (instruction.guard_negated) guard = ~guard;
    const Mask mask = slot.mask & guard;
    for (int lane = 0; lane < kLanes; ++lane)
      if (slot.mask >> lane & 1) warp.pc[lane] = slot.pc + 1;
    warp.current = slot.pc + 1;
    warp.access.num_sectors = warp.access.wavefronts = warp.access.bytes = 0;
    slot.block->clock = (uint64_t)at;
    if (mask) entry.function(Step(warp, instruction, mask, slot.pc));
    ++request_.executed[slot.pc];
    request_.lanes[slot.pc] += __builtin_popcount(mask);
    ++totals_.instructions;
    totals_.lanes += __builtin_popcount(mask);
    ++totals_.pipe_instructions[(int)entry.pipe];
    if (totals_.instructions > request_.max_instructions) throw Failure("does not end");

    m.pipes[partition][(int)entry.pipe].begin(at, rates_.pipe_clocks[(int)entry.pipe]);
    slot.ready_at = at + std::max<int>(instruction.stall, 1);
    const double done = mask ? finish(m, warp.access, entry.pipe, at) : at;
    if (instruction.write_scoreboard < kNumScoreboards)
      slot.scoreboards[instruction.write_scoreboard] =
          std::max(slot.scoreboards[instruction.write_scoreboard], done);
    if (instruction.read_scoreboard < kNumScoreboards)
      slot.scoreboards[instruction.read_scoreboard] = std::max(
          slot.scoreboards[instruction.read_scoreboard], at + rates_.latency[(int)Pipe::kBranch]);
    if (entry.pipe == Pipe::kBranch) meet(warp);
    prepare(slot);
  }

  // When the result of an instruction is there.
  double finish(Multiprocessor& m, const Access& access, Pipe pipe, double at) {
    double done = at + rates_.latency[(int)pipe];
    if (access.wavefronts) {
      totals_.wavefronts += access.wavefronts;
      done = m.shared.begin(at, access.wavefronts) + access.wavefronts +
             rates_.latency[(int)Pipe::kShared];
    }
    if (!access.num_sectors) return done;
    (access.is_store ? totals_.bytes_stored : totals_.bytes_loaded) += access.bytes;
    (access.is_store ? totals_.sectors_stored : totals_.sectors_loaded) += access.num_sectors;
    const double start =
        m.lookup.begin(at, std::max(1.0, access.num_sectors / rates_.sectors_per_clock));
    for (int n = 0; n < access.num_sectors; ++n) {
      const uint64_t sector = access.sectors[n];
      const bool may_hit = !access.is_store && !access.is_strong;
      if (may_hit && m.cache.touch(sector)) {
        done = std::max(done, start + rates_.cache_latency);
        continue;
      }
      ++(access.is_store ? totals_.l2_sectors_stored : totals_.l2_sectors_loaded);
      const double at_l2 = m.l2.begin(start, rates_.l2_clocks_per_sector);
      if (l2_.touch(sector)) {
        done = std::max(done, at_l2 + rates_.l2_latency);
        continue;
      }
      ++(access.is_store ? totals_.memory_sectors_stored : totals_.memory_sectors_loaded);
      done = std::max(
          done, m.memory.begin(at_l2, rates_.memory_clocks_per_sector) + rates_.memory_latency);
    }
    return done;
  }

  // Lets lanes go on that have met those they wait for.
  void meet(Warp& warp) {
    const Mask live = warp.live();
    for (int lane = 0; lane < kLanes; ++lane) {
      const Wait wait = warp.wait[lane];
      if (wait != Wait::kConvergence && wait != Wait::kWarp && wait != Wait::kCollective) continue;
      Mask wanted = wait == Wait::kConvergence ? warp.convergence[warp.waits_for[lane]]
                                               : warp.waits_for[lane];
      wanted &= live;
      Mask there = 0;
      for (int other = 0; other < kLanes; ++other) {
        const bool is_same_place = wait != Wait::kCollective || warp.pc[other] == warp.pc[lane];
        if (warp.wait[other] == wait && warp.waits_for[other] == warp.waits_for[lane] &&
            is_same_place)
          there |= 1u << other;
      }
      if (wanted & ~there) continue;
      for (int other = 0; other < kLanes; ++other)
        if (there >> other & 1) warp.wait[other] = Wait::kNone;
    }
  }

  // A warp that has no lane to run: its block's barrier may be complete, or the block.
  void settle(Multiprocessor& m, Slot& slot, double at) {
    Block& block = *slot.block;
    const Warp& warp = *slot.warp;
    const Mask at_barrier = warp.waiting(Wait::kBarrier);
    // The unit for barriers takes one warp after another.
    if (at_barrier) m.barrier.begin(at, rates_.barrier_clocks_per_warp);
    release(block, at);
  }

  void release(Block& block, double at) {
    uint32_t barrier = ~0u;
    for (const auto& warp : block.warps) {
      for (int lane = 0; lane < kLanes; ++lane) {
        if (warp->wait[lane] == Wait::kExited) continue;
        if (warp->wait[lane] != Wait::kBarrier) return;
        if (barrier == ~0u) barrier = warp->waits_for[lane];
        if (barrier != warp->waits_for[lane])
          throw Failure("threads of a block wait at different barriers");
      }
    }
    if (barrier == ~0u) return;
    if (barrier == kClusterBarrier) {
      release_cluster(block, at);
      return;
    }
    ++totals_.barriers;
    const double open = std::max(at, multiprocessors_[block.multiprocessor].barrier.free_at) +
                        rates_.barrier_latency;
    wake(block, open);
  }

  void release_cluster(Block& block, double at) {
    Cluster& cluster =
        **std::find_if(clusters_.begin(), clusters_.end(), [&](const auto& candidate) {
          return std::any_of(candidate->blocks.begin(), candidate->blocks.end(),
                             [&](const auto& other) { return other.get() == &block; });
        });
    for (const auto& other : cluster.blocks)
      for (const auto& warp : other->warps)
        for (int lane = 0; lane < kLanes; ++lane)
          if (warp->wait[lane] != Wait::kExited &&
              !(warp->wait[lane] == Wait::kBarrier && warp->waits_for[lane] == kClusterBarrier))
            return;
    ++totals_.barriers;
    for (const auto& other : cluster.blocks) wake(*other, at + rates_.cluster_barrier_latency);
  }

  void wake(Block& block, double at) {
    block.reduced = std::exchange(block.brought, {});
    for (const auto& warp : block.warps)
      for (Wait& wait : warp->wait)
        if (wait == Wait::kBarrier) wait = Wait::kNone;
    for (auto& slots : multiprocessors_[block.multiprocessor].slots)
      for (Slot& slot : slots)
        if (slot.block == &block && slot.warp->live())
          slot.ready_at = std::max(slot.ready_at, at), prepare(slot);
    call(block.multiprocessor, at);
  }

  void remove_finished(int number, double at) {
    Multiprocessor& m = multiprocessors_[number];
    bool is_removed = false;
    for (auto& slots : m.slots) {
      for (size_t n = 0; n < slots.size();) {
        Slot& slot = slots[n];
        if (slot.mask || slot.warp->live()) {
          ++n;
          continue;
        }
        Block* block = slot.block;
        slots.erase(slots.begin() + (long)n);
        is_removed = true;
        if (--left(block) == 0) --m.num_blocks;
      }
    }
    if (is_removed) admit(number, at + 1);
  }

  int& left(Block* block) {
    const auto found = left_.find(block);
    if (found != left_.end()) return found->second;
    return left_[block] = (int)block->warps.size();
  }

  [[noreturn]] void stuck(const Warp& warp) {
    const int lane = __builtin_ctz(warp.live());
    place_ = {&warp, warp.pc[lane] ? warp.pc[lane] - 1 : 0};
    throw Failure("lane " + std::to_string(lane) + " waits for ever");
  }

  const Request& request_;
  const Rates& rates_;
  Totals& totals_;
  GlobalMemory memory_;
  Cache l2_;
  std::vector<Multiprocessor> multiprocessors_;
  std::deque<uint32_t> waiting_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::unordered_map<Block*, int> left_;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> queue_;
  std::pair<const Warp*, uint32_t> place_{nullptr, 0};
};

}  // namespace

extern "C" {

// The table: a line for each instruction, its columns apart by tabs.
const char* sass_table() {
  static std::string text;
  if (text.empty())
    for (const Entry& entry : entries())
      text += std::string(entry.name) + "\t" + entry.also + "\t" + std::to_string((int)entry.pipe) +
              "\t" + entry.form + "\t" + entry.source + "\n";
  return text.c_str();
}
const char* sass_suffixes() {
  return
#define S(name) #name " "
      SUFFIXES(S)
#undef S
          ;
}
// The bytes of each structure that Python has as well, to be compared.
void sass_sizes(uint32_t* sizes) {
  const uint32_t all[] = {sizeof(Operand), sizeof(Instruction), sizeof(Range),  sizeof(Launch),
                          sizeof(Rates),   sizeof(Totals),      sizeof(Request)};
  std::copy(std::begin(all), std::end(all), sizes);
}
// 0, or 1 with the reason in `error`.
int sass_run(const Request* request) {
  Run run(*request);
  try {
    run.run();
    return 0;
  } catch (const Failure& failure) {
    snprintf(request->error, request->error_bytes, "%s: %s", failure.what(), run.where().c_str());
    return 1;
  }
}
}
