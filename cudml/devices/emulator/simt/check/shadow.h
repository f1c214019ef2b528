// The history of every piece of memory: who wrote it last, and who has read it since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "order.h"

namespace simt::check {

// One word of four bytes: the last write and two reads after it, which is enough to detect races with most
// reads. A word whose bytes are accessed separately is split: then `write.kind` is kSplit and `write.block`
// is the number of its four cells, one per byte.
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

// The cells of one buffer. Memory is allocated when a cell is first touched; a new generation empties all
// cells at once.
class Shadow {
 public:
  Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  ~Shadow();

  void reserve(size_t bytes);
  void next_generation();

  // Records the access to the bytes [offset, offset + bytes). Returns the first conflict with an access that
  // is not known to the thread, and that access.
  Conflict touch(const BlockOrder& order, size_t offset, size_t bytes, const Access& access,
                 Stamp* other);

 private:
  Cell* split(Cell& cell);

  Cell* cells_ = nullptr;
  size_t num_cells_ = 0;
  std::vector<std::array<Cell, 4>> split_;
  uint32_t generation_ = 1;
};

}  // namespace simt::check
