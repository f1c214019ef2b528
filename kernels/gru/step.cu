// Computes: one step of a GRU layer, from the input and the state, in one ordinary launch.
// Idea: one warp multiplies a hidden unit's rows of W with the input, another its rows of R with h.
// Ownership: a task has 4 hidden units of up to kBatch sequences; two warps multiply for each unit.
// Requires: one step; unless linear before reset: `counts` zero, `carried` for the tasks' results.
// Chosen when: a layer has one step and so few sequences that reading the weights decides.

#include "common/wait.cuh"
#include "gru/product.cuh"

// Hidden units of a task, with two warps each; the last warp finishes items, and meanwhile takes tickets and
// waits.
constexpr int kStepUnits = 4;
constexpr int kStepThreads = (2 * kStepUnits + 1) * kWarpSize;
constexpr int kQuadColumns = kWarpSize * kQuad;

// Number of the wait; `cudml/operators/gru/steps.py` has its name.
constexpr UInt32 kWaitForResets = 1;

// Vectors of several sequences, whose elements are `stride` apart; null is zeros.
template <class Value>
struct Vectors {
  const Value* first;
  Int64 stride;
  Int64 sequence_stride;
  int num_columns;

  // Whether every quad of every vector can be loaded as a whole.
  __device__ __forceinline__ bool are_aligned() const {
    return stride == 1 && num_columns % kQuad == 0 && sequence_stride % kQuad == 0 &&
           reinterpret_cast<UInt64>(first) % sizeof(WeightQuad<Value>) == 0;
  }
};

// Counts of a step in two halves: tickets that were taken, first halves that are done, and blocks that
// neither wait nor count any more. All are left zero.
struct StepCounts {
  UInt32 taken;
  UInt32 done;
  UInt32 left;
};

// Rows in memory between the halves of a step that is not linear before reset, by direction and sequence: a
// row has a float for each hidden unit.
struct CarriedRows {
  float* reset_states;
  float* updates;
  float* candidates;  // the input's part
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kBatch>
struct StepTask {
  struct Storage {
    // By side (input and state, or the parities of a row's quads), unit of the task, gate, sequence.
    SharedArray<float, 2 * kStepUnits * kNumGates * kBatch> sums;
    UInt32 ticket;
  };

  // Quads of a row that a lane loads before it multiplies the first one.
  static constexpr int kStepQuads = kBatch == 1 ? 4 : 2;

  Layer<Element> layer;
  const Element* input;
  const Element* weights;
  CarriedRows carried;
  Storage& shared;
  int first_unit;
  Int64 first_sequence;

  __device__ __forceinline__ int hidden() const { return layer.params.hidden_size; }
  __device__ __forceinline__ int num_sequences() const {
    return static_cast<int>(
        min(static_cast<Int64>(kBatch), layer.params.batch_size - first_sequence));
  }

  __device__ __forceinline__ void choose(int shard, Int64 group, int direction) {
    first_unit = shard * kStepUnits;
    first_sequence = group * kBatch;
    layer.direction = direction;
  }

  // Tasks are ordered by direction, group of sequences and units.
  __device__ __forceinline__ void choose(UInt32 task) {
    const UInt32 num_shards = layer.params.num_shards, num_groups = layer.params.num_groups;
    if (task < num_shards) return choose(task, 0, 0);  // saves the divisions
    const UInt32 row = task / num_shards;
    choose(task % num_shards, row % num_groups, row / num_groups);
  }

  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x / kWarpSize); }
  __device__ __forceinline__ static int side() { return warp() % 2; }
  __device__ __forceinline__ int unit_of_warp() const { return first_unit + warp() / 2; }
  __device__ __forceinline__ static int place(int side, int unit, int gate, int sequence) {
    return ((side * kStepUnits + unit) * kNumGates + gate) * kBatch + sequence;
  }

  __device__ __forceinline__ static bool finishes() { return warp() == 2 * kStepUnits; }
  __device__ __forceinline__ static bool is_first_finisher() {
    return threadIdx.x == 2 * kStepUnits * kWarpSize;
  }

  // The item that a lane of the last warp finishes: a hidden unit of a sequence.
  __device__ __forceinline__ static int row() {
    return static_cast<int>(threadIdx.x % kWarpSize / kStepUnits);
  }
  __device__ __forceinline__ static int unit_of_row() { return threadIdx.x % kStepUnits; }
  __device__ __forceinline__ Int64 sequence() const { return first_sequence + row(); }
  __device__ __forceinline__ int unit() const { return first_unit + unit_of_row(); }
  __device__ __forceinline__ bool is_mine() const {
    return finishes() && row() < num_sequences() && unit() < hidden();
  }
  __device__ __forceinline__ Int64 item() const {
    return (layer.direction * layer.params.batch_size + sequence()) * hidden() + unit();
  }
  __device__ __forceinline__ float sum(int side, int gate) const {
    return shared.sums[place(side, unit_of_row(), gate, row())];
  }

  // Four neighbouring elements of a row; zeros behind its end.
  template <bool kIsAligned, class Value>
  __device__ __forceinline__ static void load_quad(float (&quad)[kQuad], const Value* row,
                                                   Int64 stride, int column, int num_columns) {
    if constexpr (kIsAligned) {
      WeightQuad<Value> loaded = {};
      if (column < num_columns) loaded = *reinterpret_cast<const WeightQuad<Value>*>(row + column);
#pragma unroll
      for (int q = 0; q < kQuad; ++q) quad[q] = to_float(loaded.values[q]);
    } else {
#pragma unroll
      for (int q = 0; q < kQuad; ++q) {
        quad[q] = column + q < num_columns ? to_float(row[(column + q) * stride]) : 0.0f;
      }
    }
  }

  // A warp's rows of weights, `stride` apart. A lane has every 32nd quad, or if kIsHalved every 64th: those
  // of the warp's side.
  template <int kNumRows, bool kIsHalved>
  struct Rows {
    static constexpr int kAhead = (kIsHalved ? 2 : 1) * kQuadColumns;
    static constexpr int kColumnsAtOnce = kStepQuads * kAhead;

    const Element* first;
    Int64 stride;
    int num_columns;
    float quads[kStepQuads][kNumRows][kQuad];

    __device__ __forceinline__ static int column(int begin, int i) {
      return begin + i * kAhead + static_cast<int>(threadIdx.x % kWarpSize) * kQuad;
    }
    __device__ __forceinline__ bool are_aligned() const {
      return num_columns % kQuad == 0 &&
             reinterpret_cast<UInt64>(first) % sizeof(WeightQuad<Element>) == 0;
    }
    // Starts the loads of the columns from `begin` on, if the quads are aligned.
    __device__ __forceinline__ void load(int begin) {
      if (!are_aligned()) return;
#pragma unroll
      for (int i = 0; i < kStepQuads; ++i) {
#pragma unroll
        for (int r = 0; r < kNumRows; ++r) {
          load_quad<true>(quads[i][r], first + r * stride, 1, column(begin, i), num_columns);
        }
      }
    }
  };

  // Adds the products of a quad of every row with those of the vectors.
  template <bool kIsAligned, int kNumRows, class Value>
  __device__ __forceinline__ static void add_quad(float (&sums)[kNumRows][kBatch],
                                                  const float (&quads)[kNumRows][kQuad],
                                                  const Vectors<Value>& vectors, int num_there,
                                                  int column, int num_columns) {
    float x[kBatch][kQuad];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      load_quad<kIsAligned>(x[b], vectors.first + b * vectors.sequence_stride, vectors.stride,
                            column, b < num_there ? num_columns : 0);
    }
#pragma unroll
    for (int q = 0; q < kQuad; ++q) {
#pragma unroll
      for (int r = 0; r < kNumRows; ++r) {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) sums[r][b] = fmaf(quads[r][q], x[b][q], sums[r][b]);
      }
    }
  }

  // Multiplies rows, whose first columns are loaded, with the vectors.
  template <int kNumRows, bool kIsHalved, class Value>
  __device__ __forceinline__ void multiply(float (&sums)[kNumRows][kBatch],
                                           Rows<kNumRows, kIsHalved>& rows, int begin,
                                           const Vectors<Value>& vectors) const {
    const int num_there = vectors.first == nullptr ? 0 : num_sequences();
    const int num_columns = rows.num_columns;
    if (rows.are_aligned() && vectors.are_aligned()) {
#pragma unroll 1
      for (; begin < num_columns; begin += rows.kColumnsAtOnce, rows.load(begin)) {
#pragma unroll
        for (int i = 0; i < kStepQuads; ++i) {
          add_quad<true>(sums, rows.quads[i], vectors, num_there, rows.column(begin, i),
                         num_columns);
        }
      }
      return;
    }
#pragma unroll 1
    for (; begin < num_columns; begin += rows.kAhead) {
      const int column = rows.column(begin, 0);
      float quads[kNumRows][kQuad];
#pragma unroll
      for (int r = 0; r < kNumRows; ++r) {
        load_quad<false>(quads[r], rows.first + r * rows.stride, 1, column, num_columns);
      }
      add_quad<false>(sums, quads, vectors, num_there, column, num_columns);
    }
  }

  // The sums of the warp's unit for the gates from kFirst on, into shared storage.
  template <int kFirst, int kNumRows, bool kIsHalved, class Value>
  __device__ __forceinline__ void multiply_side(Rows<kNumRows, kIsHalved>& rows, int begin,
                                                const Vectors<Value>& vectors) const {
    float sums[kNumRows][kBatch];
#pragma unroll
    for (int r = 0; r < kNumRows; ++r) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) sums[r][b] = 0.0f;
    }
    multiply(sums, rows, begin, vectors);
#pragma unroll
    for (int r = 0; r < kNumRows; ++r) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
          sums[r][b] += __shfl_xor_sync(kFullMask, sums[r][b], lanes);
        }
        if (threadIdx.x % kWarpSize == 0) {
          shared.sums[place(side(), warp() / 2, kFirst + r, b)] = sums[r][b];
        }
      }
    }
  }

  // The number of columns of a warp's rows: 0 if there is no such unit.
  __device__ __forceinline__ int columns_of_warp(int num_columns) const {
    return unit_of_warp() < hidden() ? num_columns : 0;
  }

  // The products of the input with the rows of all gates, and of the state with the first kNumStateRows.
  template <int kNumStateRows>
  __device__ __forceinline__ void multiply_both() const {
    if (finishes()) return;
    const GruParams& params = layer.params;
    const Int64 num_inputs = params.input_size;
    if (side() == 0) {
      const Int64 row = static_cast<Int64>(layer.direction * kNumGates) * hidden() + unit_of_warp();
      Rows<kNumGates, false> rows = {weights + row * num_inputs, hidden() * num_inputs,
                                     columns_of_warp(params.input_size)};
      rows.load(0);
      multiply_side<kUpdate>(
          rows, 0,
          Vectors<Element>{input + first_sequence * num_inputs, 1, num_inputs, params.input_size});
    } else {
      const Int64* strides = params.initial_strides;
      const Element* initial = layer.initial;
      if (initial != nullptr) initial += layer.direction * strides[0] + first_sequence * strides[1];
      Rows<kNumStateRows, false> rows = {
          layer.recurrence + layer.weight_row(kUpdate, unit_of_warp()),
          static_cast<Int64>(hidden()) * hidden(), columns_of_warp(hidden())};
      rows.load(0);
      multiply_side<kUpdate>(rows, 0, Vectors<Element>{initial, strides[2], strides[1], hidden()});
    }
  }

  // A sequence of no steps has zeros in both outputs.
  __device__ __forceinline__ void store_result(UInt32 length, float next) const {
    const float stored = length == 0 ? 0.0f : next;
    layer.store_sequence(0, sequence(), unit(), stored);
    layer.store_single(sequence(), unit(), stored);
  }

  __device__ __forceinline__ void run_linear_before_reset() const {
    // The item's operands are on their way while the products are computed.
    GateBiases biases = {};
    float state = 0.0f;
    UInt32 length = 0;
    if (is_mine()) {
      biases = layer.load_biases(unit());
      state = layer.initial_state(sequence(), unit());
      length = layer.length(sequence());
    }
    multiply_both<kNumGates>();
    // All warps' sums are there before an item takes them.
    __syncthreads();
    if (!is_mine()) return;
    const GateInputs inputs = {sum(0, kUpdate), sum(0, kReset), sum(0, kCandidate)};
    const float products[kNumGates] = {sum(1, kUpdate), sum(1, kReset), sum(1, kCandidate)};
    store_result(length, step_linear_before_reset<kStandard>(layer.activations(), inputs, biases,
                                                             products, state));
  }

  // The gates that need no other unit's results.
  __device__ __forceinline__ void run_first_half(StepCounts* counts, UInt32 num_tasks,
                                                 UInt32 next) const {
    GateBiases biases = {};
    float state = 0.0f;
    if (is_mine()) {
      biases = layer.load_biases(unit());
      state = layer.initial_state(sequence(), unit());
    }
    multiply_both<2>();
    // All warps' sums are there before an item takes them.
    __syncthreads();
    if (!finishes()) return;
    if (is_mine()) {
      const GateInputs inputs = {sum(0, kUpdate), sum(0, kReset), sum(0, kCandidate)};
      const float products[2] = {sum(1, kUpdate), sum(1, kReset)};
      const UpdateAndReset gates =
          step_gates<kStandard>(layer.activations(), inputs, biases, products);
      carried.reset_states[item()] = gates.reset * state;
      carried.updates[item()] = gates.update;
      carried.candidates[item()] = inputs.candidate;
    }
    // The task's results are stored before it is counted.
    __syncwarp();
    if (!is_first_finisher()) return;
    add_release(&counts->done, 1);
    shared.ticket = next;
    if (next >= 2 * num_tasks) leave(counts);
  }

  __device__ __forceinline__ void run_second_half(StepCounts* counts, UInt32 num_tasks, UInt32 next,
                                                  Patience& patience) const {
    const Int64 first_row = layer.direction * layer.params.batch_size + first_sequence;
    const int begin = side() * kQuadColumns;
    Rows<1, true> rows = {layer.recurrence + layer.weight_row(kCandidate, unit_of_warp()), 0,
                          columns_of_warp(hidden())};
    GateBiases biases = {};
    GateInputs inputs = {};
    float state = 0.0f;
    float update = 0.0f;
    UInt32 length = 0;
    if (is_mine()) {
      biases = layer.load_biases(unit());
      state = layer.initial_state(sequence(), unit());
      length = layer.length(sequence());
    }
    if (is_first_finisher()) {
      // If the thread has given up, the results are unspecified.
      patience.wait(
          kWaitForResets, [&] { return load_acquire(&counts->done) == num_tasks; }, [] {});
    }
    // The weights are on their way while the block waits.
    if (!finishes()) rows.load(begin);
    // Every thread reads what was stored before the last first half was counted.
    __syncthreads();
    if (is_mine()) {
      update = carried.updates[item()];
      inputs.candidate = carried.candidates[item()];
    }
    if (is_first_finisher()) shared.ticket = next;
    if (!finishes()) {
      multiply_side<kCandidate>(
          rows, begin,
          Vectors<float>{carried.reset_states + first_row * hidden(), 1, hidden(), hidden()});
    }
    // All warps' sums are there before an item takes them.
    __syncthreads();
    if (threadIdx.x == 0 && shared.ticket >= 2 * num_tasks) leave(counts);
    if (!is_mine()) return;
    const float product = sum(0, kCandidate) + sum(1, kCandidate);
    store_result(length, step_candidate<kStandard>(layer.activations(), inputs, biases, product,
                                                   update, state));
  }

  // Takes tickets until all halves are done: first halves come first. A block that waits for first halves
  // waits for blocks that run, and no block that has a first half waits, so any number of blocks may run at
  // once.
  __device__ __forceinline__ void run_tasks(StepCounts* counts, UInt32 num_tasks,
                                            Patience& patience) {
    UInt32 next = 0;
    if (is_first_finisher()) shared.ticket = atomicAdd(&counts->taken, 1);
    // The ticket is there before it is read.
    __syncthreads();
    UInt32 ticket = shared.ticket;
    if (ticket >= 2 * num_tasks && is_first_finisher()) leave(counts);
    while (ticket < 2 * num_tasks) {
      // The next ticket is on its way meanwhile.
      if (is_first_finisher()) next = atomicAdd(&counts->taken, 1);
      if (ticket < num_tasks) {
        choose(ticket);
        run_first_half(counts, num_tasks, next);
      } else {
        choose(ticket - num_tasks);
        run_second_half(counts, num_tasks, next, patience);
      }
      // The ticket is there before it is read, and the sums are read before the next task writes its own.
      __syncthreads();
      ticket = shared.ticket;
    }
  }

  // The block neither waits nor counts any more. The last one leaves zeros.
  __device__ __forceinline__ static void leave(StepCounts* counts) {
    if (add_acquire_release(&counts->left, 1) != gridDim.x - 1) return;
    *counts = {0, 0, 0};
  }
};

template <class Element, bool kStandard, bool kLinearBeforeReset, int kBatch>
__global__ void __launch_bounds__(kStepThreads, 1)
    gru_step(const Element* input, const Element* weights, const Element* recurrence,
             const Element* bias, const Element* initial, const UInt32* lengths, Element* sequence,
             Element* single, float* carried, StepCounts* counts, WaitReport* report,
             GruParams params) {
  using Task = StepTask<Element, kStandard, kLinearBeforeReset, kBatch>;
  SHARED_STORAGE(typename Task::Storage, shared);
  const Int64 num_items = params.num_directions * params.batch_size * params.hidden_size;
  const Layer<Element> layer = {nullptr,  recurrence, bias,   initial, lengths,
                                sequence, single,     params, 0};
  Task task = {layer,  input, weights, {carried, carried + num_items, carried + 2 * num_items},
               shared, 0,     0};
  if constexpr (kLinearBeforeReset) {
    task.choose(blockIdx.x, blockIdx.y, blockIdx.z);
    task.run_linear_before_reset();
  } else {
    Patience patience = {report};
    const UInt32 num_tasks = params.num_directions * params.num_groups * params.num_shards;
    task.run_tasks(counts, num_tasks, patience);
  }
}
