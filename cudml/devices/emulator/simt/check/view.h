// A thread's knowledge of other threads' work: the order that synchronisation has established.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace simt::check {

enum class Kind : uint8_t { kNone, kPlain, kAtomic, kSplit };

// One access to memory: by which thread, and when in that thread's and its block's own time.
struct Stamp {
  uint32_t block;
  uint32_t epoch;  // of the block: the number of block barriers it had passed
  uint32_t clock;  // of the thread: the number of times it had released its knowledge
  uint32_t place;  // in the module's code
  uint16_t thread;
  Kind kind;
};

// There are two kinds of knowledge: everything a block did before an epoch, and everything a thread did up to
// a clock. Knowledge only grows; a join takes the later of each.
class View {
 public:
  bool covers(const Stamp& stamp) const;
  void learn_block(uint32_t block, uint32_t epoch);
  void learn_thread(uint32_t block, uint32_t thread, uint32_t clock);
  void join(const View& other);

 private:
  std::unordered_map<uint32_t, uint32_t> epochs_;  // of a block
  std::unordered_map<uint64_t, uint32_t> clocks_;  // of a block and thread
};

// A view that is copied only when one of its holders changes it; otherwise, a location that every block of a
// large grid uses would be copied once per block.
class SharedView {
 public:
  bool empty() const { return !view_; }
  void clear() { view_.reset(); }
  bool covers(const Stamp& stamp) const { return view_ && view_->covers(stamp); }
  void join(const SharedView& other);
  // The view itself, for changes.
  View& own();

 private:
  std::shared_ptr<View> view_;
};

}  // namespace simt::check
