// Memory as kernels see it: ranges of global memory, the shared storage of blocks.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "encoding.h"
#include "lanes.h"

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", (unsigned long long)value);
  return text;
}

enum class Use { kLoad, kStore, kAtomic };

inline std::string name_of(Use use) {
  const char* const names[] = {"load", "store", "atomic access"};
  return names[(int)use];
}
inline std::string told(Use use, int size, uint64_t address) {
  return name_of(use) + " of " + std::to_string(size) + " bytes at " + hex(address);
}

// The place of an access in a range, null if it is not in it. Plain stores are counted.
inline uint8_t* place_in(const Range& range, uint64_t address, int size, Use use) {
  const uint64_t offset = address - range.begin;
  if (offset >= range.bytes || offset + size > range.bytes) return nullptr;
  if (use != Use::kLoad && !range.written)
    throw Failure(name_of(use) + " to an input, at " + hex(address));
  for (int i = 0; use == Use::kStore && i < size; ++i)
    range.written[offset + i] += range.written[offset + i] < 255;
  return range.place + offset;
}

// The place of an access of global memory, which is looked for first in the range of the `last` one.
inline uint8_t* global_place(const Request& launch, uint32_t& last, uint64_t address, int size,
                             Use use) {
  for (uint32_t i = 0, n = last; i < launch.num_ranges; ++i, n = (n + 1) % launch.num_ranges)
    if (uint8_t* const place = place_in(launch.ranges[n], address, size, use)) {
      last = n;
      return place;
    }
  throw Failure(told(use, size, address) + " is outside every buffer");
}

// Shared storage starts behind the bytes that the system reserves on sm_90. In the window of each block of a
// cluster, the shared storage of its blocks is 16 MiB apart.
constexpr uint32_t kReservedSharedBytes = 1024;
constexpr int kSharedRankShift = 24;
// The upper half of a generic address that means shared storage.
constexpr uint32_t kSharedWindow = 0x01000000;

// Whether each lane accesses the bytes that follow those of the lane before.
inline bool are_neighbours(const U64& addresses, Mask mask, int size) {
  if (!mask) return true;
  const int first = __builtin_ctz(mask);
  U64 expected;
  for (int lane = 0; lane < kLanes; ++lane)
    expected[lane] = addresses[first] + (int64_t)size * (lane - first);
  return !(mask_of(addresses != expected) & mask);
}

// How many turns the banks of shared storage need for an access of 32 lanes: lanes with different words in one
// bank take turns, and so do lanes with atomic accesses to one word; 8-byte accesses go by halves of a warp,
// 16-byte accesses by quarters. Source: CUDA C++ programming guide, shared memory of compute capability 5.x
// and later.
inline int wavefronts_of(const U64& addresses, Mask mask, int size, bool takes_turns) {
  const int group = size == 16 ? 8 : size == 8 ? 16 : 32, words = std::max(1, size / 4);
  const bool is_dense = !takes_turns && are_neighbours(addresses, mask, size);
  int turns = 0;
  for (int first = 0; first < kLanes; first += group) {
    const Mask lanes = mask & kAll >> (32 - group) << first;
    if (is_dense || !lanes) {
      turns += lanes != 0;
      continue;
    }
    uint64_t seen[32][kLanes];
    uint8_t in_bank[32];
    uint32_t banks = 0;  // that have a word, whose entry of `in_bank` is set
    int most = 0;
    each_lane(lanes, [&](int lane) {
      for (uint64_t word = addresses[lane] / 4, end = word + words; word < end; ++word) {
        const uint32_t bank = word % 32, is_new = ~banks >> bank & 1;
        uint64_t* known = seen[bank];
        const int count = is_new ? 0 : in_bank[bank];
        if (!takes_turns && std::find(known, known + count, word) != known + count) continue;
        banks |= 1u << bank;
        known[count] = word;
        in_bank[bank] = (uint8_t)(count + 1);
        most = std::max(most, count + 1);
      }
    });
    turns += most;
  }
  return turns;
}

// How many lanes have the most frequent address.
inline int most_of_one(const U64& addresses, Mask mask) {
  int most = 0;
  while (mask) {
    const Mask same = mask & mask_of(addresses == addresses[__builtin_ctz(mask)]);
    most = std::max(most, __builtin_popcount(same));
    mask &= ~same;
  }
  return most;
}

constexpr int kLineBytes = 128;

// Adds a number unless it is there. The search begins at the number added last, the likeliest match.
inline void add_distinct(uint64_t* numbers, int& count, uint64_t number) {
  int known = count;
  while (known && numbers[known - 1] != number) --known;
  if (!known) numbers[count++] = number;
}

// The sectors of 32 bytes that an access touches, each once. An aligned access of a lane lies in one.
inline int sectors_of(const U64& addresses, Mask mask, uint64_t* sectors) {
  int count = 0;
  each_lane(mask, [&](int lane) { add_distinct(sectors, count, addresses[lane] / 32); });
  return count;
}

// In how many lines of 128 bytes the sectors lie.
inline int lines_of(const uint64_t* sectors, int num_sectors) {
  uint64_t lines[kLanes];
  int count = 0;
  for (int n = 0; n < num_sectors; ++n) add_distinct(lines, count, sectors[n] / 4);
  return count;
}
