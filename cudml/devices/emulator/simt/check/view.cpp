#include "view.h"

namespace simt::check {

namespace {

uint64_t thread_key(uint32_t block, uint32_t thread) { return uint64_t{block} << 32 | thread; }

template <class Map, class Key>
void raise_to(Map& map, Key key, uint32_t value) {
  uint32_t& known = map[key];
  if (known < value) known = value;
}

}  // namespace

bool View::covers(const Stamp& stamp) const {
  const auto epoch = epochs_.find(stamp.block);
  if (epoch != epochs_.end() && stamp.epoch < epoch->second) return true;
  const auto clock = clocks_.find(thread_key(stamp.block, stamp.thread));
  return clock != clocks_.end() && stamp.clock <= clock->second;
}

void View::learn_block(uint32_t block, uint32_t epoch) { raise_to(epochs_, block, epoch); }

void View::learn_thread(uint32_t block, uint32_t thread, uint32_t clock) {
  raise_to(clocks_, thread_key(block, thread), clock);
}

void View::join(const View& other) {
  for (const auto& [block, epoch] : other.epochs_) raise_to(epochs_, block, epoch);
  for (const auto& [thread, clock] : other.clocks_) raise_to(clocks_, thread, clock);
}

void SharedView::join(const SharedView& other) {
  if (!other.view_ || other.view_ == view_) return;
  if (!view_) {
    view_ = other.view_;
  } else {
    own().join(*other.view_);
  }
}

View& SharedView::own() {
  if (!view_) {
    view_ = std::make_shared<View>();
  } else if (view_.use_count() > 1) {
    view_ = std::make_shared<View>(*view_);
  }
  return *view_;
}

}  // namespace simt::check
