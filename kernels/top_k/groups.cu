// Computes: the top k of long rows, in one pass over the input and a look at a small part of it.
// Idea: the k groups of neighbours with the largest keys have all of the first k elements.
// Ownership: blocks_per_row blocks share a row; the last to finish looks at its groups again.
// Requires: elements side by side; `num_done` is zero, and is left zero; room in `largest`.
// Chosen when: rows are few, and k is small for their length.
#include "common/for_constants.cuh"
#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/gather.cuh"
#include "top_k/last_block.cuh"
#include "top_k/list_rank.cuh"
#include "top_k/ranked.cuh"
#include "top_k/row_loads.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"
#include "top_k/threshold.cuh"

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
// Loads of a thread that are in flight at once.
constexpr UInt32 kAhead = 4;

// The tops: the largest keys that each warp finds, so that a small k needs no search.
constexpr int kTopsPerWarp = 4;
constexpr int kTops = kWarps * kTopsPerWarp;
constexpr UInt32 kFewResults = kTops * 7 / 8;

struct GroupParams : FineParams {
  Int32 log_lanes;         // log2 of the lanes that load a group, sixteen bytes each
  Int32 num_chunks;        // chunks of 32 loads that cover a row, however it is aligned
  Int32 chunks_per_block;  // at most
  Int32 max_groups;        // most groups that are read again
};

struct GroupStorage {
  SelectStorage<kThreads> select;
  KeyBounds bounds;  // of the keys of all groups, then of the list
  SharedArray<UInt32, kTops> tops;
  UInt32 num_done;
  UInt32 num_chosen;
  UInt32 kth_top;
};

// Writes the largest key of each group of a row's chunks [begin, end).
template <class Word>
__device__ __forceinline__ void write_largest(const RowLoads<Word>& row, UInt32 begin, UInt32 end,
                                              UInt32 log_lanes, Word* largest) {
  const UInt32 lane = threadIdx.x % kWarpSize;
  for (UInt32 chunk = begin + threadIdx.x / kWarpSize; chunk < end; chunk += kAhead * kWarps) {
    uint4 bytes[kAhead];
    load_chunks(row, chunk, kWarps, end, bytes);
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      const UInt32 own = chunk + a * kWarps;
      if (own >= end) break;  // the same for all lanes
      Wide<Word> key = row.largest_of(bytes[a]);
#pragma unroll 1
      for (UInt32 distance = 1; distance >> log_lanes == 0; distance *= 2) {
        const Wide<Word> other = __shfl_xor_sync(kFullMask, key, distance);
        key = other > key ? other : key;
      }
      const UInt32 place = own * kWarpSize + lane;
      if ((place & ((1u << log_lanes) - 1)) == 0) {
        largest[place >> log_lanes] = static_cast<Word>(key);
      }
    }
  }
}

// Calls visit(key, number) for this thread's share of some keys in shared storage. kAhead of them are read
// before the first is visited.
template <class Word, class Visit>
__device__ __forceinline__ void visit_keys(const Word* keys, UInt32 count, Visit visit) {
  for (UInt32 first = threadIdx.x; first < count; first += kAhead * kThreads) {
    Word batch[kAhead];
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) batch[a] = keys[min(first + a * kThreads, count - 1)];
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      if (first + a * kThreads < count) visit(batch[a], first + a * kThreads);
    }
  }
}

// Writes the kTopsPerWarp largest of the keys that the lanes of each warp have.
__device__ __forceinline__ void write_tops(UInt32 key, GroupStorage& shared) {
  const int lane = threadIdx.x % kWarpSize;
  UInt32 top = 0;
#pragma unroll
  for (int t = 0; t < kTopsPerWarp; ++t) {
    const UInt32 largest = warp_max(key);
    if (lane == t) top = largest;
    const int owner = __ffs(static_cast<int>(__ballot_sync(kFullMask, key == largest))) - 1;
    if (lane == owner) key = 0;
  }
  if (lane < kTopsPerWarp) shared.tops[threadIdx.x / kWarpSize * kTopsPerWarp + lane] = top;
}

// Finds the k-th of all `tops`, by counting. At least k groups reach it.
__device__ __forceinline__ void find_kth_top(UInt32 k, GroupStorage& shared) {
  constexpr int kLanes = kThreads / kTops;  // that count for one top
  const int own = threadIdx.x / kLanes;
  const UInt32 key = shared.tops[own];
  UInt32 rank = 0;
#pragma unroll 8
  for (int other = threadIdx.x % kLanes; other < kTops; other += kLanes) {
    const UInt32 other_key = shared.tops[other];
    rank += (other_key > key) | ((other_key == key) & (other < own)) ? 1 : 0;
  }
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    rank += __shfl_xor_sync(kFullMask, rank, lanes);
  }
  // Only one top has this rank.
  if (rank == k - 1 && threadIdx.x % kLanes == 0) shared.kth_top = key;
}

// Lists the row's first k groups, and perhaps some more, in `chosen`; returns their number. No result has a
// smaller key than `floor`.
template <class Word>
__device__ __forceinline__ UInt32 choose_groups(const Word* __restrict__ largest, UInt32 num_groups,
                                                UInt32 k, UInt32 most, Word* keys, UInt32* chosen,
                                                Word& floor, GroupStorage& shared) {
  Wide<Word> own_largest = 0;
  Wide<Word> own_complement = 0;
  for (UInt32 first = threadIdx.x; first < num_groups; first += kAhead * kThreads) {
    Word loaded[kAhead];
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      loaded[a] = largest[min(first + a * kThreads, num_groups - 1)];
    }
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      if (first + a * kThreads < num_groups) {
        keys[first + a * kThreads] = loaded[a];
        // Only from this thread's groups, because each group counts once among the tops.
        own_largest = max(own_largest, static_cast<Wide<Word>>(loaded[a]));
      }
      own_complement = max(own_complement, static_cast<Wide<Word>>(static_cast<Word>(~loaded[a])));
    }
  }
  constexpr bool kHasTops = sizeof(Word) <= 4;
  const bool has_few_results = kHasTops && k <= kFewResults;
  if constexpr (kHasTops) {
    if (has_few_results) write_tops(own_largest, shared);
  }
  shared.bounds.add<Word>(own_largest, own_complement);
  __syncthreads();  // all keys, their bounds and the tops are written before they are read
  // Lists the groups that pass, `most` of them at most; returns their number.
  const auto list_those = [&](auto passes) {
    for (UInt32 first = threadIdx.x; first < num_groups; first += kAhead * kThreads) {
      UInt32 passing = 0;
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 group = first + a * kThreads;
        const bool is_chosen = passes(keys[min(group, num_groups - 1)], group);
        if (is_chosen && group < num_groups) passing |= 1u << a;
      }
      if (passing == 0) continue;
      UInt32 place = atomicAdd(&shared.num_chosen, static_cast<UInt32>(__popc(passing)));
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        if ((passing >> a & 1) == 0) continue;
        if (place < most) chosen[place] = first + a * kThreads;
        ++place;
      }
    }
    __syncthreads();  // all that pass are listed before they are counted
    return shared.num_chosen;
  };
  // If there are fewer groups than results, any element can be a result.
  const auto floor_at = [&](Word key) { return num_groups < k ? Word{0} : key; };

  if (has_few_results) {
    find_kth_top(k, shared);
    __syncthreads();  // the k-th top is written before all threads read it
    const Word kth = static_cast<Word>(shared.kth_top);
    floor = floor_at(kth);
    const UInt32 count = list_those([&](Word key, UInt32) { return key >= kth; });
    if (count <= most) return count;
    // Rare: few warps have the largest keys, or many keys tie.
    __syncthreads();                              // all have read the number of groups
    if (threadIdx.x == 0) shared.num_chosen = 0;  // before the barriers of the search
  }
  // The least key is subtracted from all: few bits then tell them apart, whatever their range.
  const Wide<Word> least =
      static_cast<Word>(~static_cast<Word>(shared.bounds.complement_of<Word>()));
  const auto from_least = [&](Word key) { return static_cast<Word>(key - least); };
  const auto search = [&](auto& threshold, auto for_each) {
    search_digit(threshold, shared.select, for_each);
  };
  const auto cut = Cut<Word>::of(
      search_up_to<Word>(shared.bounds.largest_of<Word>() - least, num_groups, min(k, num_groups)),
      most, num_groups - 1,
      [&](auto visit) {
        visit_keys(keys, num_groups,
                   [&](Word key, UInt32 group) { visit(from_least(key), group); });
      },
      search);
  floor = floor_at(static_cast<Word>(cut.floor() + least));
  return list_those([&](Word key, UInt32 group) { return cut.passes(from_least(key), group); });
}

// Lists the elements of the chosen groups that can be among the row's first k, in any order. Fewer than k are
// listed only if the row has fewer, or the input has changed.
template <class Word>
__device__ __forceinline__ UInt32 list_elements(const RowLoads<Word>& row, const UInt32* chosen,
                                                UInt32 num_chosen, UInt32 log_lanes, UInt32 k,
                                                UInt32 most, Word floor, const List<Word>& list,
                                                GroupStorage& shared) {
  const UInt32 num_loads = num_chosen << log_lanes;
  constexpr UInt32 kPerLoad = RowLoads<Word>::kPerLoad;
  const auto key_of = [&](Wide<Word> word) { return row.key_of(fine_key<Word>(word, row.params)); };
  // Calls look(load, its bytes, bits of its elements that are at least the floor) for each load; instructions
  // of `at_once` loads are interleaved.
  const auto for_each_load = [&](auto at_once, auto look) {
    constexpr int kAtOnce = decltype(at_once)::value;
#pragma unroll 1
    for (UInt32 first = threadIdx.x; first < num_loads; first += kAhead * kThreads) {
      uint4 bytes[kAhead];
      UInt32 loads[kAhead];
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 number = min(first + a * kThreads, num_loads - 1);
        const UInt32 within = number & ((1u << log_lanes) - 1);
        loads[a] = (chosen[number >> log_lanes] << log_lanes) + within;
      }
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        bytes[a] = row.padding();
        const bool is_load = first + a * kThreads < num_loads;
        if (is_load && row.is_whole(loads[a])) bytes[a] = row.load_whole(loads[a]);
      }
      // The next load moves up in the registers, so that all loads may take the same instructions.
      const UInt32 end = min(num_loads, first + kAhead * kThreads);
#pragma unroll kAtOnce
      for (UInt32 number = first; number < end; number += kThreads) {
        const UInt32 load = loads[0];
        uint4 own = bytes[0];
#pragma unroll
        for (UInt32 a = 1; a < kAhead; ++a) {
          loads[a - 1] = loads[a];
          bytes[a - 1] = bytes[a];
        }
        if (!row.is_whole(load)) own = row.load_part(load);
        UInt32 passing = 0;
#pragma unroll
        for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
          const bool is_in_row = row.first_of(load) + i < row.length;
          if (key_of(upper_word<Word>(own, i)) >= floor && is_in_row) passing |= 1u << i;
        }
        if (passing != 0) look(load, own, passing);
      }
    }
  };
  // Calls visit(key, index) for each of a load's elements whose bit is set. Few bits are set: in a load of
  // many elements, a loop finds them sooner.
  const auto visit_passing = [&](UInt32 load, const uint4& bytes, UInt32 passing, auto visit) {
    if constexpr (kPerLoad > 4) {
#pragma unroll 1
      for (; passing != 0; passing &= passing - 1) {
        const UInt32 i = __ffs(static_cast<int>(passing)) - 1;
        const Wide<Word> word = any_word_of<Word>(bytes, i);
        visit(key_of(word << kSpareBits<Word>), row.first_of(load) + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < static_cast<int>(kPerLoad); ++i) {
        const Wide<Word> word = upper_word<Word>(bytes, i);
        if ((passing >> i & 1) != 0) visit(key_of(word), row.first_of(load) + i);
      }
    }
  };
  // Calls visit(key, index) for each element that is at least the floor.
  const auto for_each = [&](auto visit) {
    for_each_load(Constant<1>(), [&](UInt32 load, const uint4& bytes, UInt32 passing) {
      visit_passing(load, bytes, passing, visit);
    });
  };
  const auto put = [&](UInt32 place, Word key, UInt32 index) {
    if (place < most) list.put(place, key, index);
  };
  if (threadIdx.x == 0) shared.select.num_listed = 0;
  __syncthreads();  // the counter is clear before anyone appends
  constexpr int kAtOnce = kPerLoad > 4 ? 1 : kAhead;
  for_each_load(Constant<kAtOnce>(), [&](UInt32 load, const uint4& bytes, UInt32 passing) {
    UInt32 place = atomicAdd(&shared.select.num_listed, static_cast<UInt32>(__popc(passing)));
    visit_passing(load, bytes, passing, [&](Word key, UInt32 index) { put(place++, key, index); });
  });
  __syncthreads();  // all are listed before they are counted
  const UInt32 count = shared.select.num_listed;
  if (count <= most) return count;
  // Rare: many elements tie with the k-th, or the results are in few groups.
  const Wide<Word> span = shared.bounds.largest_of<Word>() - floor;
  const auto from_floor = [&](Word key) { return static_cast<Word>(key - floor); };
  const auto search = [&](auto& threshold, auto visit_each) {
    search_digit(threshold, shared.select, visit_each);
  };
  const auto cut = Cut<Word>::of(
      search_up_to<Word>(span, count, k), most, row.length - 1,
      [&](auto visit) { for_each([&](Word key, UInt32 index) { visit(from_floor(key), index); }); },
      search);
  if (threadIdx.x == 0) shared.select.num_listed = 0;
  __syncthreads();  // the counter is clear, and the first list has been counted
  for_each([&](Word key, UInt32 index) {
    if (!cut.passes(from_floor(key), index)) return;
    put(atomicAdd(&shared.select.num_listed, 1), key, index);
  });
  __syncthreads();  // all are listed before they are counted
  return min(shared.select.num_listed, most);
}

template <class Word, bool kIsRagged = false>
__global__ void __launch_bounds__(kThreads, 1)
    top_k_groups(const Word* __restrict__ input, Word* values, void* indices, const void* lengths,
                 UInt32* num_done, Word* largest, const __grid_constant__ GroupParams params) {
  SHARED_STORAGE(GroupStorage, shared);
  const UInt32 num_parts = static_cast<UInt32>(params.blocks_per_row);
  const UInt32 row_number = blockIdx.x / num_parts;
  const UInt32 part = blockIdx.x - row_number * num_parts;
  const UInt32 log_lanes = static_cast<UInt32>(params.log_lanes);
  const UInt32 num_chunks = static_cast<UInt32>(params.num_chunks);
  const UInt32 max_groups = num_chunks * kWarpSize >> log_lanes;
  const UInt32 k = static_cast<UInt32>(params.k);
  Word* row_largest = largest + static_cast<Int64>(row_number) * max_groups;

  const RowStart start = row_start(params, row_number);
  const Int64 length = block_row_length<kIsRagged>(lengths, params, start, shared.select);
  const RowLoads<Word> row(input + start.input, length, params);

  // ---- Find the largest key of each group. Groups beyond a ragged row's length have one as well.
  const UInt32 begin = part * static_cast<UInt32>(params.chunks_per_block);
  const UInt32 end = min(num_chunks, begin + static_cast<UInt32>(params.chunks_per_block));
  write_largest(row, begin, end, log_lanes, row_largest);

  // ---- Only the row's last block continues.
  if (threadIdx.x == 0) {
    shared.num_chosen = 0;
    shared.bounds = {0, 0};
  }
  __syncthreads();  // every thread has written before its block counts as done
  if (!is_last_block(&num_done[row_number], num_parts, shared.num_done)) return;
  if (threadIdx.x == 0) num_done[row_number] = 0;

  const Int64 capacity = params.list_capacity;
  const UInt32 most = static_cast<UInt32>(capacity) - kSpareRoom;
  UInt8* storage = reinterpret_cast<UInt8*>(&shared + 1);
  const List<Word> list = List<Word>::in(storage, capacity, 0);
  UInt32* chosen = list.indices + capacity;
  Word* keys = reinterpret_cast<Word*>(chosen + params.max_groups);

  // Groups with elements of the row, at least one. The length of a ragged row may be 0.
  const UInt32 num_loads = (row.length + row.skipped + row.kPerLoad - 1) / row.kPerLoad;
  const UInt32 num_groups = max(1u, (num_loads + (1u << log_lanes) - 1) >> log_lanes);
  Word floor;
  const UInt32 num_chosen =
      choose_groups(row_largest, num_groups, k, params.max_groups, keys, chosen, floor, shared);
  const UInt32 count =
      list_elements(row, chosen, num_chosen, log_lanes, k, most, floor, list, shared);
  const auto write = [&](UInt32 rank, Word, UInt32 index) {
    write_result<kIsRagged>(input, values, indices, params, start, row.length, rank,
                            index_in_row(params, index));
  };
  // Behind a row's elements, results are missing.
  const RowPart<Word> whole = {row.elements, 1, row.length, 0};
  put_missing<Word, kThreads>(whole, count, k, write);
  if (count <= kMaxCountedList) {
    rank_short_list<Word, kThreads>(list, count, list, count, k, write);
    return;
  }
  LongRanked<Word> pairs[kRankedPerThread];
  load_pairs<kThreads>(list, count, pairs);
  rank_by_buckets<Word, kThreads>(pairs, list, count, k, ZeroKey<Word>::of(row), shared.select,
                                  shared.bounds, write, [] {});
}
