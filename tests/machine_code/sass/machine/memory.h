// Memory as kernels see it: ranges of global memory, the shared storage of blocks, constant banks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "lanes.h"

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", (unsigned long long)value);
  return text;
}

// Addresses of a kernel from `begin` on are `bytes` of the host's memory at `data`. `written` counts the plain
// stores to each byte, up to 255; null where nothing may be stored. With `page_filled` (a byte for each page
// of 4096) the contents are made when they are first read: `any_byte` of the offset.
struct Range {
  uint64_t begin, bytes;
  uint8_t* data;
  uint8_t* written;
  uint8_t* page_filled;
};

constexpr uint64_t kPageBytes = 4096;

inline uint8_t any_byte(uint64_t offset) {
  uint64_t x = offset * 0x9e3779b97f4a7c15ull;
  x ^= x >> 29;
  return (uint8_t)(x >> 7);
}

class GlobalMemory {
 public:
  GlobalMemory(const Range* ranges, int count) : ranges_(ranges, ranges + count) {}

  void load(uint64_t address, int size, uint8_t* to) {
    const Range& range = find(address, size, "load");
    const uint64_t offset = address - range.begin;
    if (range.page_filled) fill(range, offset / kPageBytes);
    memcpy(to, range.data + offset, size);
  }

  void store(uint64_t address, int size, const uint8_t* from) {
    const Range& range = writable(address, size, "store");
    const uint64_t offset = address - range.begin;
    memcpy(range.data + offset, from, size);
    for (int i = 0; i < size; ++i) {
      uint8_t& count = range.written[offset + i];
      if (count < 255) ++count;
    }
  }

  // Where an atomic access reads and writes.
  uint8_t* atomic(uint64_t address, int size) {
    const Range& range = writable(address, size, "atomic access");
    return range.data + (address - range.begin);
  }

 private:
  const Range& find(uint64_t address, int size, const char* what) const {
    if (address % size)
      throw Failure(std::string(what) + " of " + std::to_string(size) + " bytes at " +
                    hex(address) + " is not aligned");
    for (const Range& range : ranges_)
      if (address - range.begin < range.bytes && address - range.begin + size <= range.bytes)
        return range;
    throw Failure(std::string(what) + " of " + std::to_string(size) + " bytes at " + hex(address) +
                  " is outside every buffer");
  }
  const Range& writable(uint64_t address, int size, const char* what) const {
    const Range& range = find(address, size, what);
    if (!range.written) throw Failure(std::string(what) + " to an input, at " + hex(address));
    return range;
  }
  static void fill(const Range& range, uint64_t page) {
    if (range.page_filled[page]) return;
    range.page_filled[page] = 1;
    const uint64_t end = std::min(range.bytes, (page + 1) * kPageBytes);
    for (uint64_t offset = page * kPageBytes; offset < end; ++offset)
      range.data[offset] = any_byte(offset);
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
// bank take turns; 8-byte accesses go by halves of a warp, 16-byte accesses by quarters. A warp of atomic
// accesses takes as many turns as one word has lanes. Source: CUDA C++ programming guide, shared memory of
// compute capability 5.x and later.
int wavefronts_of(const U64& addresses, Mask mask, int size, bool is_atomic);

// The sectors of 32 bytes that an access touches, each once.
int sectors_of(const U64& addresses, Mask mask, int size, uint64_t* sectors);
