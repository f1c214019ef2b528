// The check mode of one launch: finds the memory of an access, asks shadow and order, and reports.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../runtime/state.h"
#include "meter.h"
#include "order.h"
#include "shadow.h"

namespace simt::check {

// Separates the reports in the launch's error text.
constexpr char kReportSeparator = '\f';

class Checker {
 public:
  explicit Checker(Worker& worker);

  // ---- Called by the runtime (runtime/observer.h).
  void block_begins(unsigned resident);
  void block_ends(unsigned resident);
  void block_barrier(const Block& block);
  void named_barrier(const Block& block, const uint32_t* waiting);
  void cluster_barrier();
  void warp_collective(unsigned warp, uint32_t lanes, bool orders_memory);
  std::string take_reports();
  // The beginning of the error text of an interrupted thread.
  std::string interrupted_place(const void* pc) const;

  // ---- Called by the kernel's instrumented code; `pc` is its return address.
  void plain(const void* pc, const void* address, size_t bytes, bool is_write);
  // An atomic access: `before_atomic` before it happens, `after_atomic` afterwards. A failed compare-exchange
  // has not written.
  void before_atomic(const void* pc, const void* address, size_t bytes, bool reads, bool writes,
                     int memory_order);
  void after_atomic(const void* address, bool reads, int memory_order);
  void fence();
  void misaligned(const void* pc, const void* address, size_t alignment);
  void bad_index(const void* pc, long long index, long long size);
  // For these errors, the compiler passes the place.
  void misaligned_at(const std::string& place, const void* address, size_t alignment);
  void bad_index(const std::string& place, const std::string& what);

 private:
  struct Range {
    const unsigned char* start;
    size_t bytes;
    bool contains(const void* address, size_t size) const {
      const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(address) - start);
      return offset < bytes && size <= bytes - offset;
    }
  };

  // A piece of memory with a shadow: a buffer, or the shared storage of a resident block.
  struct Memory {
    Range range;
    std::string name;
    Shadow shadow;
    size_t skew = 0;  // of the start within a word
    unsigned char* initialised = nullptr;
    bool is_shared = false, writable = true;
    SimtTraffic* traffic = nullptr;
  };

  struct Where {
    Memory* memory;  // null: nothing to check
    size_t offset;
  };

  Where locate(const void* pc, const void* address, size_t bytes, bool is_write);
  void touch(const Where& where, const void* pc, size_t bytes, Kind kind, bool is_write);
  [[noreturn]] void out_of_bounds(const void* pc, const void* address, size_t bytes, bool is_write);
  void note(uint32_t place, const char* kind, const std::string& text);

  uint32_t place_of(const void* pc) const;
  std::string place_text(uint32_t place) const;
  std::string thread_text(uint32_t block, unsigned thread) const;
  std::string offset_text(const Memory& memory, size_t offset) const;
  BlockOrder& order() { return *orders_[worker_.resident]; }
  unsigned current_thread() const;

  Worker& worker_;
  const SimtLaunch& spec_;
  SimtCheck& data_;
  std::vector<std::unique_ptr<Memory>> buffers_;
  std::vector<std::unique_ptr<Memory>> shared_;  // by resident block
  std::vector<std::vector<unsigned char>> shared_initialised_;
  std::vector<std::unique_ptr<BlockOrder>> orders_;  // by resident block
  std::vector<std::unique_ptr<Meter>> meters_;       // by resident block
  Releases releases_;
  std::vector<Range>
      harmless_;  // arguments, the module's own data, the runtime's thread-local variables
  const unsigned char* module_ = nullptr;  // its base
  size_t last_buffer_ = 0;

  std::vector<std::string> reports_;
  std::set<std::pair<uint32_t, std::string>> reported_;
};

// The checker of the running launch, null between launches.
extern Checker* checker;

}  // namespace simt::check
