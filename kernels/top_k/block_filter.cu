// Computes: the top k of long rows, in one pass over the input.
// Idea: a floor, guessed from a sample, drops most elements as they are read; see filter.cuh.
// Ownership: blocks_per_row blocks share a row; the last block of each group, then of all, merges.
// Requires: list_capacity >= 2 * k + a tile; `states` is zero if rows are shared, and left zero.
// Chosen when: k is at most some thousands and rows are many, or too long to be read twice.
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/filter.cuh"
#include "top_k/gather.cuh"
#include "top_k/last_block.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/network_rank.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"

constexpr int kThreads = 256;

// A part keeps at least kMinEnough elements, whatever k is. Lists of up to kMaxCounted are ranked by
// counting.
constexpr UInt32 kMinEnough = 128;
constexpr UInt32 kMaxCounted = 128;

// Where the sample is taken from, numbered as in `cudml/operators/top_k/filter.py`.
constexpr Int32 kFirstOfPart = 0;  // the part's first tile, whose k-th key is a bound and no guess
constexpr Int32 kAcrossPart = 1;
constexpr Int32 kAcrossRow = 2;

// A guess samples 1 in kLoadsPerSampled loads of a part: at least kMinSampled loads, and at most a tile.
// Blocks that share a row sample the whole row, each with as many loads as from its own part.
constexpr UInt32 kLoadsPerSampled = 24;
constexpr UInt32 kMinSampled = 192;

// After this many cuts of a list since the last sample, another sample is taken, as when elements ascend.
// Elements in random order fill the list about ln(tiles) times in all.
constexpr UInt32 kCutsPerSample = 4;

// In units of 2^-32. Its multiples, modulo 1, are far from each other.
constexpr UInt32 kGoldenRatio = 0x9e3779b9;

// If the blocks of a row keep more elements than this together, they merge in two steps: groups first.
constexpr UInt32 kMaxMerged = 4096;

struct FilterStorage {
  SelectStorage<kThreads> select;
  UInt32 list_begin;
  UInt32 num_done;
};

// The state that the blocks of a merge share in global storage. Zero before the launch and after it.
struct MergeState {
  UInt32 num_listed;
  UInt32 num_done;
};

// How the lists of a row's blocks are merged: all at once, or first within groups. There are about as many
// groups as blocks in a group.
struct Merges {
  UInt32 group_size;   // in blocks
  UInt32 num_groups;   // 0 if all lists are merged at once
  UInt32 num_grouped;  // blocks in groups: all or none
  UInt32 num_lists;    // lists of the last merge

  static __device__ __forceinline__ Merges of(UInt32 num_parts, UInt32 enough) {
    if (num_parts * enough <= kMaxMerged) return {num_parts, 0, 0, num_parts};
    UInt32 size = 1;
    while (size * size < num_parts) ++size;
    const UInt32 num_groups = (num_parts + size - 1) / size;
    return {size, num_groups, num_parts, num_groups};
  }
};

// The aligned loads of sixteen bytes that cover a part, apart from a head before them and a tail behind them.
template <class Word>
struct Loads {
  const Word* first;
  UInt32 count;
  UInt32 head;  // elements before the first

  static __device__ __forceinline__ Loads of(const RowPart<Word>& part) {
    if (part.stride != 1) return {part.elements, 0, 0};
    const UInt32 head = part.num_before_vectors();
    return {part.elements + head, (part.length - head) / RowPart<Word>::kPerLoad, head};
  }
  __device__ __forceinline__ uint4 load(UInt32 number) const {
    return load_16_bytes(first + static_cast<UInt64>(number) * RowPart<Word>::kPerLoad);
  }
};

// A thread's loads of the tile that begins at load `first`, as far as the part goes.
template <class Word, UInt32 kAhead>
__device__ __forceinline__ void load_tile(const Loads<Word>& loads, UInt32 first,
                                          uint4 (&bytes)[kAhead]) {
  const UInt32 left = loads.count - min(loads.count, first);
  const Word* address =
      loads.first + static_cast<UInt64>(first + threadIdx.x) * RowPart<Word>::kPerLoad;
  // A branch around all loads would make the compiler move their results, and so wait for them.
#pragma unroll
  for (UInt32 a = 0; a < kAhead; ++a) {
    if (a * kThreads + threadIdx.x < left) {
      bytes[a] = load_16_bytes(address + a * kThreads * RowPart<Word>::kPerLoad);
    }
  }
}

// A thread's loads of a sample of `num_loads` loads. The sample is spread evenly: neighbouring loads would
// show only one end of a sorted row. Samples with different `salt` take different loads, if there are enough.
// No load is in a sample twice, which would make the sample's bound too high: offsets are less than the
// distance between two sampled loads.
template <class Word, UInt32 kAhead>
__device__ __forceinline__ void load_across(const Loads<Word>& loads, UInt32 num_loads, UInt32 salt,
                                            uint4 (&bytes)[kAhead]) {
  // Rounded up, so that distances of whole loads are exact. With fewer than 2^16 loads, none is beyond the
  // last.
  const UInt32 distance = kFullMask / num_loads + 1;
  const UInt32 offset = __umulhi(salt * kGoldenRatio, __umulhi(loads.count, distance));
#pragma unroll
  for (UInt32 a = 0; a < kAhead; ++a) {
    const UInt32 number = a * kThreads + threadIdx.x;
    const UInt32 load = __umulhi(loads.count, number * distance) + offset;
    if (number < num_loads) bytes[a] = loads.load(min(load, loads.count - 1));
  }
}

template <class Word, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 2)
    top_k_block_filter(const Word* __restrict__ input, Word* values, void* indices,
                       const void* lengths, UInt8* states, UInt8* kept,
                       const __grid_constant__ TopKParams params) {
  using RowFilter = Filter<Word, kThreads>;
  constexpr UInt32 kAhead = RowFilter::kLoadsAhead;
  constexpr UInt32 kPerLoad = RowFilter::kPerLoad;
  constexpr UInt32 kLoadsPerTile = kAhead * kThreads;
  SHARED_STORAGE(FilterStorage, shared);
  const Int64 capacity = params.list_capacity;
  const UInt32 k = static_cast<UInt32>(params.k);
  const UInt32 num_parts = static_cast<UInt32>(params.blocks_per_row);
  const Int64 stretch = (static_cast<UInt32>(params.row_length) / num_parts / 64 + 1) * Int64{64};
  // Besides k elements and as much slack, the list has room for the tiles between two checks of its length:
  // one or two.
  const bool skips_checks =
      RowFilter::kMaySkipChecks && static_cast<UInt32>(capacity) >= 2 * (RowFilter::kTile + k);
  const UInt32 room = static_cast<UInt32>(capacity) - (skips_checks ? 2 : 1) * RowFilter::kTile;
  UInt32 enough = kMinEnough;  // for the end
  while (enough < k) enough *= 2;
  const Merges merges = Merges::of(num_parts, enough);
  // If the first merge has few lists, a part may keep twice as many elements: merging longer lists then takes
  // less time than shortening each list.
  const UInt32 num_first = merges.num_groups > 0 ? merges.group_size : num_parts;
  const UInt32 most_kept = num_first * 2 * enough <= kMaxMerged ? 2 * enough : enough;

  for (Int64 number = blockIdx.x; number < params.num_rows * num_parts; number += gridDim.x) {
    // Rows that are shared are few.
    const Int64 row_number = num_parts == 1 ? number : static_cast<UInt32>(number) / num_parts;
    const UInt32 part_number = static_cast<UInt32>(number - row_number * num_parts);
    const RowStart row_begin = row_start(params, row_number);
    const Int64 length = block_row_length<kIsRagged>(lengths, params, row_begin, shared.select);
    const RowPart<Word> row = {input + row_begin.input, params.input_axis_stride,
                               static_cast<UInt32>(length), 0};
    // Parts do not depend on the row's own length: blocks that read different lengths, because the input
    // changes, still keep different elements.
    const Int64 begin = min(length, part_number * stretch);
    RowPart<Word> part =
        row.stretch(static_cast<UInt32>(begin), static_cast<UInt32>(min(length - begin, stretch)));
    Loads<Word> loads = Loads<Word>::of(part);
    // The row that a part belongs to. Finding it again takes no registers in the loop.
    const auto whole_row = [&](const RowPart<Word>& of) -> RowPart<Word> {
      return {of.elements - static_cast<Int64>(of.first_index) * of.stride, of.stride,
              static_cast<UInt32>(length), 0};
    };
    RowFilter filter = {List<Word>::in(reinterpret_cast<UInt8*>(&shared + 1), capacity, 0), room,
                        params, shared.select};
    __syncthreads();  // the last row's list has been read
    if (threadIdx.x == 0) shared.select.num_listed = 0;

    uint4 ahead[kAhead] = {};
    load_tile(loads, 0, ahead);
    UInt32 step = 0;
    UInt32 count = 0;
    UInt32 num_keys = 0;    // listed elements from here on are raw bits of a part, not keys yet
    UInt32 num_kept = 0;    // elements in the lists that are merged
    bool is_merge = false;  // a merge filters what blocks kept, not the part
    bool is_whole = num_parts == 1;  // the result is that of the whole row
    // Whether the floor may be above the k-th key.
    bool is_guessed = params.sample_scope != kFirstOfPart;
    UInt32 num_cuts = 0;
    List<Word> merged = {};
    MergeState* state = nullptr;
    for (;;) {
      // ---- Take a sample, which raises the floor. Only the first may be a guess.
      if (!is_merge) {
        const bool is_first = num_cuts == 0;
        const bool is_guess = is_first && is_guessed;
        const bool across_row = is_guess && params.sample_scope == kAcrossRow;
        const Loads<Word> source = across_row ? Loads<Word>::of(whole_row(part)) : loads;
        const UInt32 wanted = is_guess ? static_cast<UInt32>(params.sample_rank) : k;
        const UInt32 share = static_cast<UInt32>(stretch / kPerLoad) / kLoadsPerSampled;
        const UInt32 num_sampled =
            is_guess ? min(kLoadsPerTile, max(kMinSampled, share)) : kLoadsPerTile;
        if (source.count >= num_sampled && wanted < num_sampled * kPerLoad) {
          uint4 sample[kAhead];
#pragma unroll
          for (UInt32 a = 0; a < kAhead; ++a) sample[a] = ahead[a];
          if (is_guess || !is_first) load_across(source, num_sampled, num_cuts, sample);
          filter.list_sample(sample, num_sampled, count);
          // A bound may be rough: at least k elements of each part are listed anyway.
          const UInt32 most_wanted = wanted + (is_guess ? wanted / 4 : wanted / 2 + 8);
          const auto threshold = filter.search(count, num_sampled * kPerLoad, wanted, most_wanted);
          filter.raise_floor(threshold);
        }
      }
      __syncthreads();  // the sample has been read, and the counter is clear, before the list goes on

      // ---- Filter.
      Sieve<Word> sieve = Sieve<Word>::of(filter.floor, params);
      const UInt32 tail = loads.head + loads.count * kPerLoad;  // where the tail begins
      const UInt32 num_dense = is_merge ? 0 : (loads.count + kLoadsPerTile - 1) / kLoadsPerTile;
      const UInt32 num_sparse = is_merge ? num_kept : part.length - tail;
      const UInt32 num_steps =
          num_dense + (num_sparse + RowFilter::kSparseTile - 1) / RowFilter::kSparseTile;
      if (step == 0 && !is_merge && threadIdx.x < loads.head) {
        filter.append(part.elements[threadIdx.x], part.first_index + threadIdx.x);
      }
      // Ends with a step behind the last if no element can pass any more.
      for (step = filter.floor.is_shut() ? num_steps : step;; ++step) {
        if (step < num_dense) {
          const UInt32 first = step * kLoadsPerTile + threadIdx.x;
          const UInt32 left = loads.count - step * kLoadsPerTile;
          // Registers hold two tiles: the next one is loading while this one is compared.
          uint4 bytes[kAhead];
#pragma unroll
          for (UInt32 a = 0; a < kAhead; ++a) bytes[a] = ahead[a];
          load_tile(loads, (step + 1) * kLoadsPerTile, ahead);
          const UInt32 num_loads = (left - min(left, threadIdx.x) + kThreads - 1) / kThreads;
          filter.append_loads(sieve, bytes, num_loads,
                              part.first_index + loads.head + first * kPerLoad);
        } else if (step < num_steps) {
          const UInt32 first = (step - num_dense) * RowFilter::kSparseTile + threadIdx.x;
          Word keys[RowFilter::kPerSparseTile] = {};
          UInt32 indices[RowFilter::kPerSparseTile] = {};
#pragma unroll
          for (UInt32 j = 0; j < RowFilter::kPerSparseTile; ++j) {
            const UInt32 i = first + j * kThreads;
            if (i >= num_sparse) continue;
            keys[j] = is_merge ? merged.keys[i]
                               : part.elements[(static_cast<Int64>(tail) + i) * part.stride];
            indices[j] = is_merge ? merged.indices[i] : part.first_index + tail + i;
          }
#pragma unroll
          for (UInt32 j = 0; j < RowFilter::kPerSparseTile; ++j) {
            const Word key = is_merge ? keys[j] : ordering_key(keys[j], params);
            if (first + j * kThreads < num_sparse && filter.floor.passes(key)) {
              filter.append(keys[j], indices[j]);
            }
          }
        }
        const bool is_last = step + 1 >= num_steps;
        if (skips_checks && step % 2 == 0 && !is_last) continue;
        // Every thread has appended. If one of them found the list full, all cut it.
        if (__syncthreads_or(filter.is_full ? 1 : 0) == 0 && !is_last) continue;
        count = shared.select.num_listed;
        if (!is_merge) filter.make_keys(num_keys, count);
        const UInt32 most = !is_last               ? k + (room - k) / 4
                            : is_merge || is_whole ? enough
                                                   : most_kept;
        if (is_last && count <= most) {
          __syncthreads();  // all have the count before it changes, and all keys are made
          break;
        }
        const auto threshold = filter.search(0, count, k, most);
        filter.shorten(threshold, count, most);
        count = shared.select.num_listed;
        if (is_last) break;
        const Wide<Word> lowest = threshold.prefix << threshold.shift;
        // k elements are at or above `lowest`. A part is read in order of index, so that an equal element
        // further on ranks behind them.
        filter.floor = {static_cast<Word>(lowest - (is_merge ? 1 : 0)), is_merge && lowest == 0};
        sieve = Sieve<Word>::of(filter.floor, params);
        num_keys = count;
        __syncthreads();  // all have the number before it changes
        ++num_cuts;
        if (filter.floor.is_shut()) {
          step = num_steps - 1;
        } else if (!is_merge && num_cuts % kCutsPerSample == 0) {
          break;
        }
      }
      if (++step < num_steps) continue;
      // All threads have read the state, and passed a barrier since.
      if (is_merge && threadIdx.x == 0) *state = {0, 0};

      // ---- If the guess was too high, filter again without one.
      const bool counts = is_whole || (!is_merge && params.sample_scope != kAcrossRow);
      if (is_guessed && counts && count < min(k, is_merge ? row.length : part.length)) {
        if (is_merge) {
          part = whole_row(part);
          loads = Loads<Word>::of(part);
          is_merge = false;
        }
        is_guessed = false;
        num_cuts = 1;  // another sample than the first
        step = count = num_keys = 0;
        filter.floor = {0, true};
        filter.is_full = false;
        if (threadIdx.x == 0) shared.select.num_listed = 0;
        load_tile(loads, 0, ahead);
        continue;
      }

      if (is_whole) break;

      // ---- Keep the list for the last block of the group, or of the row, which continues.
      const bool in_group = !is_merge && merges.num_groups > 0;
      const UInt32 group = part_number / merges.group_size;
      const UInt32 first_of_group = group * merges.group_size;
      const UInt32 num_meeting =
          in_group ? min(merges.group_size, num_parts - first_of_group) : merges.num_lists;
      const UInt32 offset = (in_group ? first_of_group : merges.num_grouped) * most_kept;
      state = reinterpret_cast<MergeState*>(states) + row_number * (merges.num_groups + 1) +
              (in_group ? group : merges.num_groups);
      // The lists of groups, then the list of the row.
      const List<Word> lists = List<Word>::in(
          kept, static_cast<Int64>(merges.num_grouped + merges.num_lists) * most_kept,
          static_cast<int>(row_number));
      merged = {lists.keys + offset, lists.indices + offset};
      if (threadIdx.x == 0) shared.list_begin = atomicAdd(&state->num_listed, count);
      __syncthreads();  // the place in the list is known, and this one complete
      for (UInt32 i = threadIdx.x; i < count; i += kThreads) {
        merged.keys[shared.list_begin + i] = filter.list.keys[i];
        merged.indices[shared.list_begin + i] = filter.list.indices[i];
      }
      if (threadIdx.x == 0) shared.select.num_listed = 0;
      __syncthreads();  // every thread has written what it keeps before its block counts as done
      if (!is_last_block(&state->num_done, num_meeting, shared.num_done)) break;
      num_kept = load_relaxed(&state->num_listed);
      step = num_keys = 0;
      filter.floor = {0, true};
      is_merge = true;
      is_whole = !in_group;
    }
    if (!is_whole) continue;

    // The row has fewer elements, or another stream changed it while it was filtered again.
    if (count < k) {
      list_missing<Word, kThreads>(filter.list, row, count, k);
      count = k;
      __syncthreads();  // the list is complete before it is read
    }

    // ---- Rank and write.
    // Computed again here, so that it takes no registers in the loop.
    const RowStart start = row_start(params, row_number);
    const auto write = [&](UInt32 rank, Word, UInt32 index) {
      write_result<kIsRagged>(input, values, indices, params, start, row.length, rank,
                              index_in_row(params, index));
    };
    if (enough <= kMaxCounted) {
      rank_by_counting<Word, kThreads>(filter.list, count, enough, k, write);
    } else {
      // Behind its first `enough` elements, the larger of the list's two arrays has room for as many numbers
      // of four bytes.
      UInt32* numbers = sizeof(Word) == 8 ? reinterpret_cast<UInt32*>(filter.list.keys + enough)
                                          : filter.list.indices + enough;
      const UInt32 last_index = kIsRagged ? kFullMask : static_cast<UInt32>(params.row_length) - 1;
      rank_by_network(filter.list, count, k, last_index, numbers, shared.select, write);
    }
  }
}
