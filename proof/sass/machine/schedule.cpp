// Runs the blocks of a launch. A multiprocessor has four partitions; each issues one instruction a clock, of
// a warp that is ready: the compiler's schedule lets it go on, and it waits for nothing.
#include <deque>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "state.h"

namespace {

constexpr int kNumPartitions = 4;
// Instructions that some lanes of a warp run before others get a turn: the former may poll for the latter.
constexpr uint32_t kTurn = 1024;

// A thing that serves one request after another.
struct Server {
  double free_at = 0;
  // When a request of some clocks that comes at a time begins to be served.
  double begin(double at, double clocks) {
    const double start = std::max(at, free_at);
    free_at = start + clocks;
    return start;
  }
};

// A sector in a cache: its turn among the sectors that came, and when its bytes are there.
struct Sector {
  uint64_t number;
  double arrives_at = 0;
};

// The last sectors that were touched, the oldest dropped first.
class Cache {
 public:
  explicit Cache(uint64_t capacity) : capacity_(capacity) {}
  // The sector, and whether the cache had it; it is in the cache afterwards.
  std::pair<Sector&, bool> touch(uint64_t sector) {
    const auto [place, is_new] = sectors_.try_emplace(sector, Sector{count_});
    Sector& found = place->second;
    if (!is_new && found.number + capacity_ > count_) return {found, true};
    found = {count_++};
    return {found, false};
  }

 private:
  uint64_t capacity_, count_ = 0;
  std::unordered_map<uint64_t, Sector> sectors_;
};

// A quarter of a multiprocessor. The times when warps go on lie together, because they are read each clock.
struct Partition {
  std::vector<Turn*> warps;
  std::vector<double> due;  // when each of them goes on, HUGE_VAL where it has no lane to run
  double first = HUGE_VAL;  // no warp goes on before; one does then, unless `has_gone`
  bool has_gone = false;
  size_t last = 0;  // the warp that issued last
  Server pipes[kNumPipes];

  void add(Turn& turn) {
    turn.slot = warps.size();
    warps.push_back(&turn);
    due.push_back(HUGE_VAL);
    update(turn);
  }
  void remove(const Turn& turn) {
    warps.erase(warps.begin() + turn.slot);
    due.erase(due.begin() + turn.slot);
    for (size_t n = turn.slot; n < warps.size(); ++n) warps[n]->slot = n;
  }
  // Takes note of a warp whose turn has changed.
  void update(const Turn& turn) {
    const double now = turn.next ? turn.ready_at : HUGE_VAL;
    const double before = std::exchange(due[turn.slot], now);
    has_gone |= before == first;
    first = std::min(first, now);
  }
  // When the first warp goes on, not before a time.
  double first_due(double earliest) {
    if (has_gone) {
      double found = HUGE_VAL;
      for (const double at : due) {
        if (at <= earliest) return earliest;
        if (at < found) found = at;
      }
      first = found, has_gone = false;
    }
    return std::max(first, earliest);
  }
};

struct Multiprocessor {
  explicit Multiprocessor(uint64_t cache_sectors) : cache(cache_sectors) {}
  Partition partitions[kNumPartitions];
  Server shared, lookup, l2, memory, barrier, dispatch;
  Cache cache;
  uint32_t num_blocks = 0;
};

// A line of the second-level cache, and which multiprocessor used it last.
struct Line : Server {
  const Multiprocessor* user = nullptr;
  bool is_shared = false;
};

using Cluster = std::vector<std::unique_ptr<Block>>;

class Run {
 public:
  explicit Run(const Request& request)
      : request_(request),
        rates_(*request.rates),
        totals_(*request.totals),
        l2_(request.rates->l2_sectors),
        multiprocessors_(request.num_multiprocessors, Multiprocessor(request.rates->cache_sectors)),
        next_(request.num_multiprocessors, HUGE_VAL),
        waiting_(request.blocks, request.blocks + request.num_blocks) {}

  void run() {
    for (size_t n = 0; n < multiprocessors_.size(); ++n) admit(n, 0);
    const auto first = [&] { return std::min_element(next_.begin(), next_.end()); };
    for (auto least = first(); *least < HUGE_VAL; least = first())
      advance(least - next_.begin(), std::exchange(*least, HUGE_VAL));
    // A launch ends when its stores are in memory.
    for (const Multiprocessor& m : multiprocessors_)
      totals_.clocks = std::max(totals_.clocks, (uint64_t)m.memory.free_at);
    for (const Cluster& cluster : clusters_)
      for (const auto& block : cluster)
        for (const auto& warp : block->warps)
          if (warp->live()) stuck(*warp);
  }

  // The instruction that runs, for messages.
  std::string where() const {
    const auto [warp, pc] = place_;
    if (!warp) return "before the first instruction";
    const uint32_t* index = warp->block.index;
    return std::string(request_.texts[pc]) + " at " + hex(16 * pc) + ", block (" +
           std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
           std::to_string(index[2]) + "), warp " + std::to_string(warp->number);
  }

 private:
  // Looks at a multiprocessor at a time, or before.
  void call(size_t number, double at) { next_[number] = std::min(next_[number], at); }

  // Starts as many of the waiting blocks as fit.
  void admit(size_t number, double at) {
    Multiprocessor& m = multiprocessors_[number];
    while (!waiting_.empty() && m.num_blocks < request_.resident_blocks) {
      start_cluster(number, m.dispatch.begin(at, rates_.block_clocks));
      call(number, at);
    }
  }

  void start_cluster(size_t number, double at) {
    const uint32_t threads = request_.block[0] * request_.block[1] * request_.block[2];
    Cluster& cluster = clusters_.emplace_back();
    for (uint32_t rank = 0; rank < request_.cluster_blocks; ++rank) {
      if (waiting_.empty()) throw Failure("a cluster without some of its blocks");
      const uint32_t block_number = waiting_.front();
      waiting_.pop_front();
      Block& block = *cluster.emplace_back(std::make_unique<Block>(request_));
      block.number = block_number;
      block.index[0] = block_number % request_.grid[0];
      block.index[1] = block_number / request_.grid[0] % request_.grid[1];
      block.index[2] = block_number / request_.grid[0] / request_.grid[1];
      block.cluster = &cluster;
      block.rank = rank;
      // The blocks of a cluster go to neighbours.
      block.multiprocessor = (uint32_t)((number + rank) % multiprocessors_.size());
      block.turns.resize((threads + kLanes - 1) / kLanes);
      Multiprocessor& m = multiprocessors_[block.multiprocessor];
      ++m.num_blocks;
      for (uint32_t first = 0; first < threads; first += kLanes) {
        Turn& turn = block.turns[first / kLanes];
        turn.ready_at = at;
        Warp& warp = *block.warps.emplace_back(std::make_unique<Warp>(block, turn, first / kLanes));
        if (threads - first < kLanes) warp.move(kAll << (threads - first), Wait::kExited);
        prepare(warp);
        m.partitions[warp.number % kNumPartitions].add(turn);
      }
      block.num_live = (int)block.warps.size();
      call(block.multiprocessor, at);
    }
  }

  // Chooses the lanes of a warp that run next: the lanes at the current place, else the lanes behind it.
  void prepare(Warp& warp) {
    const Mask running = warp.in(Wait::kNone);
    Turn& turn = warp.turn;
    turn.next = running ? warp.running_at(turn.current) : 0;
    if (!running) return;
    if (!turn.next || (turn.next != running && ++warp.steps_in_group > kTurn)) {
      uint32_t least = ~0u, beyond = ~0u;
      each_lane(running, [&](int lane) {
        least = std::min(least, warp.pc[lane]);
        if (warp.pc[lane] > turn.current) beyond = std::min(beyond, warp.pc[lane]);
      });
      turn.current = turn.next && beyond != ~0u ? beyond : least;
      warp.steps_in_group = 0;
      turn.next = warp.running_at(turn.current);
    }
    await_results(warp);
  }

  // Waits for the results that the next instruction needs.
  void await_results(Warp& warp) {
    Turn& turn = warp.turn;
    if (turn.current >= request_.num_instructions) throw Failure("runs past the end of the code");
    const Instruction& instruction = request_.code[turn.current];
    turn.pipe = table_[instruction.entry].pipe;
    for (uint32_t wanted = instruction.wait_mask; wanted; wanted &= wanted - 1) {
      const int n = __builtin_ctz(wanted);
      turn.wait_until(warp.scoreboards[n], Cause::kResult, warp.scoreboard_pcs[n]);
    }
  }

  void advance(size_t number, double at) {
    Multiprocessor& m = multiprocessors_[number];
    bool is_room = false;
    for (Partition& partition : m.partitions)
      if (Turn* turn = ready_warp(m, partition, at)) {
        Warp& warp = *turn->warp;
        issue(m, partition, warp, at);
        partition.update(*turn);
        if (!turn->next) is_room |= settle(m, partition, warp, at);
      }
    if (is_room) admit(number, at + 1);
    double next = HUGE_VAL;
    for (Partition& partition : m.partitions) next = std::min(next, partition.first_due(at + 1));
    if (next < HUGE_VAL) call(number, next);
    totals_.clocks = std::max(totals_.clocks, (uint64_t)at + 1);
  }

  // The first ready warp in turn, from the one after the warp that issued last.
  Turn* ready_warp(const Multiprocessor& m, Partition& partition, double at) {
    const size_t count = partition.warps.size();
    if (!count || partition.first > at) return nullptr;
    size_t n = partition.last % count;
    for (size_t i = 0; i < count; ++i) {
      n = n + 1 < count ? n + 1 : 0;
      if (partition.due[n] > at) continue;
      Turn& turn = *partition.warps[n];
      double free_at = partition.pipes[(int)turn.pipe].free_at;
      if (turn.pipe == Pipe::kShared)
        free_at = std::max(free_at, std::ceil(m.shared.free_at - rates_.shared_queue));
      if (free_at <= at) {
        partition.last = n;
        return &turn;
      }
      turn.wait_until(free_at, Cause::kPipe, turn.current);
      partition.update(turn);
    }
    return nullptr;
  }

  // Notes an instruction of the warp that is traced.
  void trace(const Warp& warp, Mask executing, double at) {
    if (!request_.issues || warp.number != request_.traced_warp ||
        warp.block.number != request_.traced_block)
      return;
    const uint64_t n = (*request_.num_issues)++;
    if (n < request_.max_issues)
      request_.issues[n] = {at,
                            warp.turn.ready_at,
                            warp.turn.current,
                            warp.turn.cause_pc,
                            (uint32_t)__builtin_popcount(executing),
                            warp.turn.cause};
  }

  void issue(Multiprocessor& m, Partition& partition, Warp& warp, double at) {
    Turn& turn = warp.turn;
    const uint32_t pc = turn.current;
    const Instruction& instruction = request_.code[pc];
    const Entry& entry = table_[instruction.entry];
    const int pipe = (int)entry.pipe;
    place_ = {&warp, pc};
    Step step{warp, instruction, pc, turn.next};
    step.mask &= step.predicate(instruction.guard);
    trace(warp, step.mask, at);
    warp.go_to(turn.next, pc + 1);
    turn.current = pc + 1;
    warp.access.reset();
    warp.block.clock = (uint64_t)at;
    if (step.mask) {
      entry.function(step);
      step.require_all_used();
    }
    ++request_.executed[pc];
    ++totals_.pipe_instructions[pipe];
    if (++totals_.instructions > request_.max_instructions) throw Failure("does not end");

    partition.pipes[pipe].begin(
        at, std::max(rates_.pipe_clocks[pipe],
                     warp.access.num_lines_more * rates_.pipe_clocks_per_line_more));
    turn.wait_until(at + std::max<int>(instruction.stall, 1), Cause::kSchedule, pc);
    const auto count_down = [&](int scoreboard, double done) {
      if (scoreboard >= kNumScoreboards || done < warp.scoreboards[scoreboard]) return;
      warp.scoreboards[scoreboard] = done;
      warp.scoreboard_pcs[scoreboard] = pc;
    };
    const double done = step.mask ? finish(m, warp.access, pipe, at) : at;
    count_down(instruction.write_scoreboard, done);
    if (warp.access.is_copy && done > warp.copied.at) warp.copied = {done, pc};
    if (warp.access.ends_copies) warp.groups.push_back(warp.copied);
    if (warp.access.awaits_copies) {
      for (; warp.groups.size() > warp.access.groups_left; warp.groups.pop_front())
        turn.wait_until(warp.groups.front().at, Cause::kResult, warp.groups.front().pc);
    }
    if (warp.access.is_fence) turn.wait_until(at + rates_.fence_latency, Cause::kFence, pc);
    count_down(instruction.read_scoreboard, at + rates_.latency[(int)Pipe::kBranch]);
    // Only branches, and instructions that wait for other lanes, take lanes apart or let them meet.
    if (entry.pipe == Pipe::kBranch) meet(warp);
    if (entry.pipe == Pipe::kBranch || turn.next != warp.in(Wait::kNone))
      prepare(warp);
    else
      await_results(warp);
  }

  // When the result of an instruction is there.
  double finish(Multiprocessor& m, const Access& access, int pipe, double at) {
    double done = at + rates_.latency[pipe];
    if (access.wavefronts) {
      totals_.wavefronts += access.wavefronts;
      done = m.shared.begin(at, access.wavefronts) + access.wavefronts +
             rates_.latency[(int)Pipe::kShared] + access.is_remote * rates_.remote_latency;
    }
    if (!access.num_sectors) return done;
    totals_.sectors += access.num_sectors;
    const double start =
        m.lookup.begin(at, std::max(1 + access.num_lines_more * rates_.clocks_per_line_more,
                                    access.num_sectors / rates_.sectors_per_clock));
    uint64_t line = ~0ull;
    for (int n = 0; n < access.num_sectors; ++n) {
      const bool is_first = std::exchange(line, access.sectors[n] / 4) != line;
      done = std::max(done, fetched(m, access, access.sectors[n], is_first, start));
    }
    return done;
  }

  // When a sector that was looked up at a time is there, or stored; it may be the first of its line. An
  // access that finds a sector on its way to the cache waits until it has arrived.
  double fetched(Multiprocessor& m, const Access& access, uint64_t sector, bool is_first,
                 double at) {
    if (access.is_store || access.is_strong) return from_l2(m, access, sector, is_first, at);
    const auto [cached, is_there] = m.cache.touch(sector);
    if (is_there) return std::max(at + rates_.cache_latency, cached.arrives_at);
    return cached.arrives_at = from_l2(m, access, sector, is_first, at);
  }

  // The same for an access that goes to the second level.
  double from_l2(Multiprocessor& m, const Access& access, uint64_t sector, bool is_first,
                 double at) {
    ++totals_.l2_sectors;
    double at_l2 = m.l2.begin(at, rates_.l2_clocks_per_sector);
    if (access.is_strong || access.is_atomic)
      at_l2 = turn(m, access, sector, is_first, at_l2 + far_latency(m, sector));
    const auto [cached, is_there] = l2_.touch(sector);
    if (is_there || is_left_in_l2(32 * sector))
      return std::max(at_l2 + rates_.l2_latency, cached.arrives_at);
    ++totals_.memory_sectors;
    const double done =
        m.memory.begin(at_l2, rates_.memory_clocks_per_sector) + rates_.memory_latency;
    // Other accesses find stored bytes before these are in memory.
    if (!access.is_store) cached.arrives_at = done;
    return done;
  }

  // Whether an earlier launch left an address in the second-level cache.
  bool is_left_in_l2(uint64_t address) const {
    return std::any_of(request_.ranges, request_.ranges + request_.num_ranges, [&](const Range& r) {
      return r.is_in_l2 && address + 31 >= r.begin && address < r.begin + r.bytes;
    });
  }

  // Multiprocessors and lines are in the halves of the chip by turns. Only those bits of a line's number
  // count that no buffer's address changes, so that all runs are alike.
  double far_latency(const Multiprocessor& m, uint64_t sector) const {
    const uint64_t line = sector / 4, number = &m - multiprocessors_.data();
    return ((line ^ line >> 1 ^ number) & 1) * rates_.l2_far_latency;
  }

  // When the line of a sector is free for an access that comes at a time and then keeps the line. A load
  // finds the values stored before it was issued, as if loads and stores took equally long to the cache; so
  // accesses that come later wait for a store's turn.
  double turn(const Multiprocessor& m, const Access& access, uint64_t sector, bool is_first,
              double at) {
    Line& line = lines_[sector / 4];
    const Multiprocessor* const before = std::exchange(line.user, &m);
    line.is_shared |= before && before != &m;
    const double updates = access.updates * (line.is_shared ? rates_.stands_for : 1);
    const double clocks = access.is_atomic  ? updates * rates_.word_clocks_per_update
                          : access.is_store ? is_first * rates_.line_clocks_per_store
                                            : rates_.line_clocks_per_sector;
    return line.begin(at, clocks);
  }

  // Lets lanes go on that have met the lanes they wait for.
  static void meet(Warp& warp) {
    for (const Wait wait : {Wait::kConvergence, Wait::kWarp, Wait::kCollective})
      each_lane(warp.in(wait), [&](int lane) {
        const uint32_t what = warp.waits_for[lane];
        const Mask wanted = wait == Wait::kConvergence ? warp.convergence[what] : what;
        Mask there = warp.in(wait) & mask_of(warp.waits_for == what);
        if (wait == Wait::kCollective) there &= mask_of(warp.pc == warp.pc[lane]);
        if (!(wanted & warp.live() & ~there)) warp.move(there, Wait::kNone);
      });
  }

  // A warp without a lane to run: it may have ended, or complete a barrier. Returns whether its block ended.
  bool settle(Multiprocessor& m, Partition& partition, Warp& warp, double at) {
    Block& block = warp.block;
    // The unit for barriers takes one warp after another.
    if (warp.in(Wait::kBarrier)) m.barrier.begin(at, rates_.barrier_clocks_per_warp);
    release(block, at);
    if (warp.live()) return false;
    partition.remove(warp.turn);
    const bool is_last = --block.num_live == 0;
    m.num_blocks -= is_last;
    return is_last;
  }

  // The barrier that all live threads of a block wait at, if they do.
  static std::optional<uint32_t> arrived(const Block& block) {
    for (const auto& warp : block.warps)
      if (warp->in(Wait::kBarrier) != warp->live()) return {};
    std::optional<uint32_t> barrier;
    for (const auto& warp : block.warps)
      each_lane(warp->live(), [&](int lane) {
        const uint32_t number = warp->waits_for[lane];
        if (barrier.value_or(number) != number)
          throw Failure("threads of a block wait at different barriers");
        barrier = number;
      });
    return barrier;
  }

  void release(Block& block, double at) {
    const std::optional<uint32_t> barrier = arrived(block);
    if (!barrier) return;
    const bool is_of_cluster = barrier == kClusterBarrier;
    for (const auto& other : *block.cluster)
      if (is_of_cluster && other->num_live && arrived(*other) != barrier) return;
    ++totals_.barriers;
    const double free_at = multiprocessors_[block.multiprocessor].barrier.free_at;
    const double end = is_of_cluster ? at + rates_.cluster_barrier_latency
                                     : std::max(at, free_at) + rates_.barrier_latency;
    for (const auto& other : *block.cluster)
      if (is_of_cluster || other.get() == &block) wake(*other, end);
  }

  void wake(Block& block, double at) {
    Multiprocessor& m = multiprocessors_[block.multiprocessor];
    block.reduced = std::exchange(block.brought, {});
    for (const auto& warp : block.warps) {
      if (!warp->live()) continue;
      warp->move(warp->in(Wait::kBarrier), Wait::kNone);
      warp->turn.wait_until(at, Cause::kBarrier, warp->turn.current - 1);
      prepare(*warp);
      m.partitions[warp->number % kNumPartitions].update(warp->turn);
    }
    call(block.multiprocessor, at);
  }

  [[noreturn]] void stuck(const Warp& warp) {
    const int lane = __builtin_ctz(warp.live());
    place_ = {&warp, std::max(warp.pc[lane], 1u) - 1};
    throw Failure("lane " + std::to_string(lane) + " waits for ever");
  }

  const Request& request_;
  const Rates& rates_;
  Totals& totals_;
  const std::vector<Entry>& table_ = entries();
  Cache l2_;
  std::unordered_map<uint64_t, Line> lines_;
  std::vector<Multiprocessor> multiprocessors_;
  std::vector<double> next_;  // when each is to be looked at again
  std::deque<uint32_t> waiting_;
  std::list<Cluster> clusters_;
  std::pair<const Warp*, uint32_t> place_{nullptr, 0};
};

}  // namespace

extern "C" {

// The table: a line for each instruction, with columns separated by tabs. Then a line each for the suffixes,
// the special registers, and the sizes in bytes of the structures that Python reads from `encoding.h`.
const char* sass_table() {
  static std::string text;
  if (!text.empty()) return text.c_str();
  for (const Entry& entry : entries())
    text += std::string(entry.name) + "\t" + entry.also + "\t" + entry.form + "\n";
#define S(name) #name " "
  text += SUFFIXES(S) "\n" + special_names() + "\n";
#undef S
  for (size_t size : {sizeof(Operand), sizeof(Instruction), sizeof(Range), sizeof(Rates),
                      sizeof(Totals), sizeof(Issue), sizeof(Request)})
    text += std::to_string(size) + " ";
  return text.c_str();
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
