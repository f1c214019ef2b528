// What is remembered of every piece of memory: who wrote it last and who read it since.
#pragma once

#include <cstddef>
#include <cstdint>

#include "order.h"

namespace simt::check {

// One granule: the last write and two reads after it, which is enough to see a race with most of
// them.
struct Cell {
  Stamp write, reads[2];
  uint32_t generation;
};

enum class Conflict { kNone, kWriteAfterWrite, kWriteAfterRead, kReadAfterWrite };

struct Access {
  unsigned thread;
  uint32_t place;
  Kind kind;
  bool is_write;
};

// The cells of one buffer. Memory is taken when a cell is first touched; a new generation makes all
// cells empty at once.
class Shadow {
 public:
  Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  ~Shadow();

  // `granule` is the smallest unit that different threads access: 1, 2 or 4 bytes.
  void reserve(size_t bytes, unsigned granule);
  void next_generation() { generation_++; }

  // Enters the access to the granules at [offset, offset + bytes). Returns the first conflict with
  // an access that is not known to the thread, and that access.
  Conflict touch(const BlockOrder& order, size_t offset, size_t bytes, const Access& access,
                 Stamp* other);

 private:
  Cell* cells_ = nullptr;
  size_t num_cells_ = 0;
  unsigned granule_ = 1;
  uint32_t generation_ = 1;
};

}  // namespace simt::check
