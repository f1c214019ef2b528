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

class GlobalMemory {
 public:
  GlobalMemory(const Range* ranges, int count) : ranges_(ranges, ranges + count) {}

  void load(uint64_t address, int size, uint8_t* to) const {
    find(address, size, "load");
    memcpy(to, (const uint8_t*)address, size);
  }
  void store(uint64_t address, int size, const uint8_t* from) const {
    const Range& range = writable(address, size, "store");
    memcpy((uint8_t*)address, from, size);
    uint8_t* counts = range.written + (address - range.begin);
    for (int i = 0; i < size; ++i) counts[i] += counts[i] < 255;
  }
  // Where an atomic access reads and writes.
  uint8_t* atomic(uint64_t address, int size) const {
    writable(address, size, "atomic access");
    return (uint8_t*)address;
  }

 private:
  const Range& find(uint64_t address, int size, const char* what) const {
    const bool is_aligned = address % size == 0;
    for (const Range& range : ranges_)
      if (is_aligned && address - range.begin < range.bytes &&
          address - range.begin + size <= range.bytes)
        return range;
    throw Failure(std::string(what) + " of " + std::to_string(size) + " bytes at " + hex(address) +
                  (is_aligned ? " is outside every buffer" : " is not aligned"));
  }
  const Range& writable(uint64_t address, int size, const char* what) const {
    const Range& range = find(address, size, what);
    if (!range.written) throw Failure(std::string(what) + " to an input, at " + hex(address));
    return range;
  }

  std::vector<Range> ranges_;
};

// Shared storage starts behind what the system reserves on sm_90, and that of the blocks of a cluster is
// 16 MiB apart in the window of each.
constexpr uint32_t kReservedSharedBytes = 1024;
constexpr int kSharedRankShift = 24;
// The upper half of a generic address that means shared storage.
constexpr uint32_t kSharedWindow = 0x01000000;

class SharedStorage {
 public:
  explicit SharedStorage(uint32_t bytes) : bytes_(kReservedSharedBytes + bytes, 0xa5) {}
  uint8_t* at(uint64_t offset, int size, const char* what) {
    if (offset % size)
      throw Failure(std::string(what) + " of " + std::to_string(size) +
                    " bytes of shared storage at " + hex(offset) + " is not aligned");
    if (offset < kReservedSharedBytes || offset + size > bytes_.size())
      throw Failure(std::string(what) + " of " + std::to_string(size) + " bytes at " + hex(offset) +
                    " is outside of shared storage, which ends at " + hex(bytes_.size()));
    return bytes_.data() + offset;
  }

 private:
  std::vector<uint8_t> bytes_;
};

// How many turns the banks of shared storage need for an access of 32 lanes: lanes with different words in one
// bank take turns; 8-byte accesses go by halves of a warp, 16-byte accesses by quarters. Atomic accesses to one
// word take turns, too. Source: CUDA C++ programming guide, shared memory of compute capability 5.x and later.
inline int wavefronts_of(const U64& addresses, Mask mask, int size, bool is_atomic) {
  const int group = size == 16 ? 8 : size == 8 ? 16 : 32, words = std::max(1, size / 4);
  int turns = 0;
  for (int first = 0; first < kLanes; first += group) {
    uint64_t seen[32][kLanes];
    int in_bank[32] = {}, most = 0;
    each_lane(mask & kAll >> (32 - group) << first, [&](int lane) {
      for (uint64_t word = addresses[lane] / 4, end = word + words; word < end; ++word) {
        uint64_t* known = seen[word % 32];
        int& count = in_bank[word % 32];
        if (is_atomic || std::find(known, known + count, word) == known + count)
          known[count++] = word;
        most = std::max(most, count);
      }
    });
    turns += most;
  }
  return turns;
}

// The sectors of 32 bytes that an access touches, each once. An aligned access of a lane lies in one.
inline int sectors_of(const U64& addresses, Mask mask, uint64_t* sectors) {
  int count = 0;
  each_lane(mask, [&](int lane) {
    const uint64_t sector = addresses[lane] / 32;
    // The sector before is the likeliest.
    int known = count;
    while (known && sectors[known - 1] != sector) --known;
    if (!known) sectors[count++] = sector;
  });
  return count;
}
