// Shared by the kernels whose blocks exchange the states of many sequences, in rounds of a few sequences.
//
// A warp multiplies some columns of all states, and brings just these columns into shared storage. It waits
// until the shards that compute them have counted the round, and copies them. If the next round has been
// counted by then, its copies are under way while the warp multiplies this round: rounds have different
// sequences, so if there are several, a round has come long before it is multiplied. Warps take turns in
// finishing passes of rounds.
//
// Exchanges of a round count from 1, and two buffers take turns. A shard counts exchange e + 1 when all its
// warps have multiplied exchange e, and sends exchange e + 2, over e, when every shard has counted e + 1: a
// release and an acquire of each count put the reads of e before the writes over it.
#pragma once

#include "gru/grid_part.cuh"
#include "gru/grid_product.cuh"

// The values of an item that are kept from one half step to the next.
struct Carried {
  float update;
  float state;
};

// `Block` derives from this and has
//   Weights, kPassUnits: hidden units of a pass;
//   states: shared, two rounds of floats by sequence and column, rows row_stride() apart;
//   partials: shared, sums_per_pass() floats for each of two passes in turn;
//   biases: shared, GateBiases of each hidden unit of the block;
//   round_batch(): sequences of a round; the block has a thread for each unit of a pass in each of them;
//   load_weights(), before the first step;
//   multiply<kFirst, kLast>(pass, from, count, sums): each warp's part of the products of `count` states for
//     the gates kFirst to kLast - 1;
//   sum_place(warp, gate, row, unit): the place of an item's sum among those.
template <class Block, class Element, bool kStandard, bool kLinearBeforeReset>
struct RoundGrid {
  // Columns of a chunk that a warp multiplies.
  static constexpr int kWarpColumns = kLanesPerRow * kQuad;

  // An item of the thread in one exchange, and what it needs next to the products.
  struct Item {
    Int64 n;
    int row;  // of the round
    int unit;
    UInt32 step;
    UInt32 length;
    bool is_due;
    GateInputs inputs;
    Carried before;
  };

  Layer<Element> layer;
  GridPart part;
  UInt32* counts;   // of the group, by round and shard: warps that have sent
  float* exchange;  // two buffers of states, by direction, sequence and hidden unit
  Carried* carried;
  Patience patience;
  QuadCopies copies;

  __device__ __forceinline__ const Block& block() const { return static_cast<const Block&>(*this); }
  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  // Warps that finish a pass of a round; sets of this many warps take turns.
  __device__ __forceinline__ int warps_per_pass() const {
    return (block().round_batch() * Block::kPassUnits + kWarpSize - 1) / kWarpSize;
  }

  __device__ __forceinline__ int num_rounds() const {
    const int round_batch = block().round_batch();
    return static_cast<int>((part.num_sequences + round_batch - 1) / round_batch);
  }
  __device__ __forceinline__ Int64 first_of(int round) const {
    return part.first_sequence + static_cast<Int64>(round) * block().round_batch();
  }
  __device__ __forceinline__ int size_of(int round) const {
    const Int64 left = part.first_sequence + part.num_sequences - first_of(round);
    return static_cast<int>(min(left, static_cast<Int64>(block().round_batch())));
  }

  // Floats of a row of an exchange: whole quads. Floats past the hidden size are never sent and stay 0.
  __device__ __forceinline__ int exchange_stride() const {
    return (hidden() + kQuad - 1) / kQuad * kQuad;
  }
  __device__ __forceinline__ Int64 row_of(Int64 n) const {
    return layer.direction * layer.params.batch_size + n;
  }
  __device__ __forceinline__ float* exchanged(UInt32 number, Int64 n) const {
    const Int64 num_rows = layer.params.num_directions * layer.params.batch_size;
    return exchange + ((number & 1) * num_rows + row_of(n)) * exchange_stride();
  }
  __device__ __forceinline__ Carried* carried_of(Int64 n, int unit) const {
    return carried + row_of(n) * hidden() + unit;
  }

  // The count of the i-th of the shards that compute the warp's columns; null if the chunk has fewer.
  __device__ __forceinline__ const UInt32* count_of(int round, int i) const {
    constexpr int kShardsPerChunk = kWarpColumns / Block::kPassUnits;
    const int begin = i / kShardsPerChunk * Block::Weights::kChunkColumns + warp() * kWarpColumns;
    const int shard_units = layer.params.num_passes * Block::kPassUnits;
    const int shard = begin / shard_units + i % kShardsPerChunk;
    if (shard * shard_units >= min(begin + kWarpColumns, hidden())) return nullptr;
    return counts + round * layer.params.num_shards + shard;
  }
  __device__ __forceinline__ int num_counts() const {
    return block().weights.num_chunks() * (kWarpColumns / Block::kPassUnits);
  }
  __device__ __forceinline__ UInt32 count_after(UInt32 number) const {
    return number * static_cast<UInt32>(layer.params.num_passes * warps_per_pass());
  }
  __device__ __forceinline__ static bool has_reached(UInt32 count, UInt32 expected) {
    return static_cast<Int32>(count - expected) >= 0;
  }

  // Whether exchange `number` of a round has come, for the whole warp.
  __device__ __forceinline__ bool has_come(UInt32 number, int round) const {
    bool has_all = true;
    for (int i = lane(); number > 0 && i < num_counts(); i += kWarpSize) {
      const UInt32* count = count_of(round, i);
      if (count != nullptr && !has_reached(load_acquire(count), count_after(number))) {
        has_all = false;
      }
    }
    return __all_sync(kFullMask, has_all ? 1 : 0) != 0;
  }

  // If the thread has given up, the states are unspecified.
  __device__ __forceinline__ void wait_for(UInt32 number, int round) {
    for (int i = lane(); number > 0 && i < num_counts(); i += kWarpSize) {
      const UInt32* count = count_of(round, i);
      if (count == nullptr) continue;
      UInt32 seen = load_acquire(count);
      patience.wait(
          kWaitForStates, [&] { return has_reached(seen, count_after(number)); },
          [&] { seen = load_acquire(count); });
    }
    __syncwarp();  // each lane copies what other lanes have waited for
  }

  // The warp's columns of the lane's first row, in one of the two places for a round's states.
  __device__ __forceinline__ float* place_of(int place) const {
    const int row = place * block().round_batch() + lane() / kLanesPerRow;
    return block().states + row * block().row_stride() + Block::Weights::column(0);
  }

  __device__ __forceinline__ void copy_initial(int round, int place) const {
    float* to = place_of(place);
    for (int row = lane() / kLanesPerRow; row < size_of(round); row += kGroupsPerWarp) {
      for (int chunk = 0; chunk < block().weights.num_chunks(); ++chunk) {
        const int column = Block::Weights::column(chunk);
        for (int i = 0; i < kQuad && column + i < hidden(); ++i) {
          to[column - Block::Weights::column(0) + i] =
              layer.initial_state(first_of(round) + row, column + i);
        }
      }
      to += kGroupsPerWarp * block().row_stride();
    }
  }

  // Starts to bring the warp's columns of the states of a round to one of its two places.
  __device__ __forceinline__ void start_copies(UInt32 number, int round, int place) {
    if (number == 0) {
      copy_initial(round, place);
      return;
    }
    constexpr int kAhead = Block::Weights::kChunkColumns;
    const int first_row = lane() / kLanesPerRow;
    const int num_columns = hidden() - Block::Weights::column(0);
    const int to_stride = kGroupsPerWarp * block().row_stride();
    const int from_stride = kGroupsPerWarp * exchange_stride();
    float* to = place_of(place);
    const float* from = exchanged(number, first_of(round) + first_row) + Block::Weights::column(0);
    for (int left = size_of(round) - first_row; left > 0; left -= kGroupsPerWarp) {
#pragma unroll 4
      for (int ahead = 0; ahead < num_columns; ahead += kAhead) {
        copies.start(to + ahead, from + ahead);
      }
      to += to_stride;
      from += from_stride;
    }
  }

  // The thread's item in the i-th pass of an exchange, counted over all rounds. What it loads does not depend
  // on other threads.
  __device__ __forceinline__ Item item_of(UInt32 number, int i) const {
    const int num_passes = layer.params.num_passes;
    const int round = num_passes == 1 ? i : i / num_passes;
    const int thread = static_cast<int>(threadIdx.x) % (warps_per_pass() * kWarpSize);
    Item item = {};
    item.row = thread / Block::kPassUnits;
    item.unit =
        part.first_unit + (i - round * num_passes) * Block::kPassUnits + thread % Block::kPassUnits;
    item.n = first_of(round) + item.row;
    if (round >= num_rounds() || item.row >= size_of(round) || item.unit >= hidden()) return item;
    item.length = layer.length(item.n);
    item.step = kLinearBeforeReset ? number : number / 2;
    item.is_due = item.step < item.length;
    if (!item.is_due) return item;
    item.inputs = layer.load_inputs(layer.time(item.step, item.length), item.n, item.unit);
    if (!kLinearBeforeReset && number % 2 == 1) {
      item.before = *carried_of(item.n, item.unit);
    } else {
      // The thread itself has sent this state.
      item.before.state = number == 0 ? layer.initial_state(item.n, item.unit)
                                      : exchanged(number, item.n)[item.unit];
    }
    return item;
  }

  // The gates kFirst to kLast - 1 of an item, from the sums of all warps.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void finish(const Item& item, UInt32 number, const float* sums) const {
    float products[kLast - kFirst];
    add_up<kFirst>(block(), products, sums, item.row, item.unit % Block::kPassUnits);
    const GateBiases biases = block().biases[item.unit - part.first_unit];
    const Activations activations = layer.activations();
    float* const sent = exchanged(number + 1, item.n) + item.unit;
    float next;
    if constexpr (kLinearBeforeReset) {
      next = step_linear_before_reset<kStandard>(activations, item.inputs, biases, products,
                                                 item.before.state);
    } else if constexpr (kFirst == kUpdate) {
      const UpdateAndReset gates =
          step_gates<kStandard>(activations, item.inputs, biases, products);
      *sent = gates.reset * item.before.state;
      *carried_of(item.n, item.unit) = {gates.update, item.before.state};
      return;
    } else {
      next = step_candidate<kStandard>(activations, item.inputs, biases, products[0],
                                       item.before.update, item.before.state);
    }
    if (item.step + 1 < item.length) *sent = next;
    layer.store_state(item.step, item.length, item.n, item.unit, next);
  }

  // The state that a warp keeps from one round to the next.
  struct Progress {
    Item item;  // the thread's next one
    int set;    // of the warps that take turns
    int num_sets;
    int turns_until_item;
    int half = 0;               // of `partials` that the next pass writes
    int place = 0;              // of the round's states
    bool is_under_way = false;  // whether the copies of the next round have been started
  };

  // The round after another one, in the exchange it belongs to.
  struct NextRound {
    UInt32 number;
    int round;
    bool exists;
  };

  // Multiplies the states of a round, and finishes the passes of the thread's set of warps.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void process(UInt32 number, int round, NextRound next,
                                          Progress& progress) {
    const int num_passes = layer.params.num_passes;
    const float* const states =
        block().states + progress.place * block().round_batch() * block().row_stride();
    for (int pass = 0; pass < num_passes; ++pass) {
      float* const sums = block().partials + progress.half * block().sums_per_pass();
      block().template multiply<kFirst, kLast>(pass, states, size_of(round), sums);
      if (pass + 1 == num_passes) {
        progress.is_under_way = next.exists && has_come(next.number, next.round);
        // The warp multiplied that place's states before it started this round.
        if (progress.is_under_way) start_copies(next.number, next.round, progress.place ^ 1);
      }
      // All warps' sums of this pass are complete, and all warps have read the states. The next pass writes
      // the other half of `partials`; the one after that follows another barrier, when these are read.
      __syncthreads();
      progress.half ^= 1;
      if (progress.turns_until_item-- > 0) continue;
      if (progress.item.is_due) finish<kFirst, kLast>(progress.item, number, sums);
      __syncwarp();  // all lanes have sent before one of them counts that
      if (lane() == 0) {
        const int shard = static_cast<int>(blockIdx.x) % layer.params.num_shards;
        add_release(counts + round * layer.params.num_shards + shard, 1);
      }
      // The next turn of the set is in this exchange, or it is the set's first turn in the next exchange.
      const int turn = (num_passes == 1 ? round : round * num_passes + pass) + progress.num_sets;
      const int num_turns = num_rounds() * num_passes;
      const bool is_here = turn < num_turns;
      progress.item = is_here ? item_of(number, turn) : item_of(number + 1, progress.set);
      progress.turns_until_item =
          is_here ? progress.num_sets - 1 : num_turns - turn + progress.num_sets - 1 + progress.set;
    }
    progress.place ^= 1;
  }

  __device__ __forceinline__ void run_exchanges(UInt32 num_exchanges) {
    Progress progress;
    progress.set = warp() / warps_per_pass();
    progress.num_sets = kGridWarps / warps_per_pass();
    progress.item = item_of(0, progress.set);
    // A set that is left over, and one without a turn in an exchange, never has an item.
    const bool has_items =
        progress.set < min(progress.num_sets, num_rounds() * layer.params.num_passes);
    progress.turns_until_item = has_items ? progress.set : 0x7fffffff;
    for (UInt32 number = 0; number < num_exchanges; ++number) {
      for (int round = 0; round < num_rounds(); ++round) {
        if (!progress.is_under_way) {
          wait_for(number, round);
          start_copies(number, round, progress.place);
        }
        copies.wait();
        __syncwarp();  // all lanes' copies are complete before any lane reads them
        const bool is_last = round + 1 == num_rounds();
        const UInt32 next_number = number + (is_last ? 1 : 0);
        // A round cannot have come before this block has sent its part of it.
        const NextRound next = {next_number, is_last ? 0 : round + 1,
                                num_rounds() > 1 && next_number < num_exchanges};
        if constexpr (kLinearBeforeReset) {
          process<kUpdate, kNumGates>(number, round, next, progress);
        } else if (number % 2 == 0) {
          process<kUpdate, kCandidate>(number, round, next, progress);
        } else {
          process<kCandidate, kNumGates>(number, round, next, progress);
        }
      }
    }
  }

  __device__ __forceinline__ void run() {
    const int end_unit =
        min(part.first_unit + layer.params.num_passes * Block::kPassUnits, hidden());
    for (int unit = part.first_unit + threadIdx.x; unit < end_unit; unit += kGridThreads) {
      block().biases[unit - part.first_unit] = layer.load_biases(unit);
    }
    layer.store_padding(part.first_sequence, part.num_sequences, part.first_unit, end_unit,
                        threadIdx.x, kGridThreads);
    static_cast<Block&>(*this).load_weights();
    // Columns past the hidden size stay 0, so that no weight of 0 meets infinity. A warp clears just the
    // columns that it copies; wait_for() and the barrier of a pass are between these writes, or the biases,
    // and their use.
    static_assert(kWarpColumns == kWarpSize && Block::Weights::kChunkColumns == kGridThreads);
    for (int i = threadIdx.x; i < 2 * block().round_batch() * block().row_stride();
         i += kGridThreads) {
      block().states[i] = 0;
    }
    const UInt32 steps = layer.longest(part.first_sequence, part.num_sequences);
    run_exchanges(kLinearBeforeReset ? steps : 2 * steps);
  }
};
