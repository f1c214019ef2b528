// Counts the requests that the hardware's memory system would receive.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../interface.h"
#include "../runtime/state.h"

namespace simt::check {

// A request is one instruction executed by the lanes of a warp together. The emulator runs lanes one after
// the other, so requests are assembled afterwards: the n-th execution of an instruction since the last block
// barrier belongs to one request, for all lanes of a warp.
class Meter {
 public:
  void begin_block(unsigned num_threads);
  // `traffic` has the counters of the buffer; `offset` is the place in it, as if the buffer's start were
  // aligned like a device allocation.
  void record(SimtTraffic* traffic, unsigned thread, uint32_t place, uint64_t offset,
              unsigned bytes, bool is_write, bool is_shared);
  // At a block barrier and at the end of a block.
  void flush();

 private:
  struct Entry {
    SimtTraffic* traffic;
    uint64_t offset;
    uint32_t place, occurrence, bytes;
    uint16_t thread;
    bool is_write, is_shared;
  };

  void count_request(const Entry* begin, const Entry* end);

  std::vector<Entry> entries_;
  std::vector<std::unordered_map<uint32_t, uint32_t>> occurrences_;  // by thread, then place
  std::vector<uint64_t> scratch_;
};

}  // namespace simt::check
