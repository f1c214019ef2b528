#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace simt::check {

namespace {

constexpr size_t kWordBytes = 4;

bool conflicts(const BlockOrder& order, const Stamp& earlier, const Access& access) {
  if (earlier.kind == Kind::kNone) return false;
  if (earlier.kind == Kind::kAtomic && access.kind == Kind::kAtomic) return false;
  return !order.ordered(earlier, access.thread);
}

Conflict touch_cell(const BlockOrder& order, Cell& cell, const Stamp& now, const Access& access,
                    Stamp* other) {
  Conflict found = Conflict::kNone;
  if (conflicts(order, cell.write, access)) {
    *other = cell.write;
    found = access.is_write ? Conflict::kWriteAfterWrite : Conflict::kReadAfterWrite;
  }
  if (access.is_write) {
    for (Stamp& read : cell.reads) {
      if (found == Conflict::kNone && conflicts(order, read, access)) {
        *other = read;
        found = Conflict::kWriteAfterRead;
      }
      read.kind = Kind::kNone;
    }
    cell.write = now;
  } else {
    // A read that this one supersedes is overwritten; otherwise both are kept.
    const Stamp& first = cell.reads[0];
    const bool keep = first.kind != Kind::kNone &&
                      !(first.block == now.block && first.thread == now.thread) &&
                      !order.ordered(first, access.thread);
    cell.reads[keep ? 1 : 0] = now;
  }
  return found;
}

}  // namespace

Shadow::~Shadow() {
  if (cells_) munmap(cells_, num_cells_ * sizeof(Cell));
}

void Shadow::reserve(size_t bytes) {
  next_generation();
  // One more word, because a buffer need not begin at a multiple of four.
  const size_t needed = bytes / kWordBytes + 2;
  if (needed <= num_cells_) return;
  if (cells_) munmap(cells_, num_cells_ * sizeof(Cell));
  num_cells_ = needed;
  void* memory = mmap(nullptr, num_cells_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  cells_ = static_cast<Cell*>(memory);
}

void Shadow::next_generation() {
  generation_++;
  split_.clear();
}

Cell* Shadow::split(Cell& cell) {
  if (cell.write.kind != Kind::kSplit) {
    split_.push_back({cell, cell, cell, cell});
    cell.write.kind = Kind::kSplit;
    cell.write.block = static_cast<uint32_t>(split_.size() - 1);
  }
  return split_[cell.write.block].data();
}

Conflict Shadow::touch(const BlockOrder& order, size_t offset, size_t bytes, const Access& access,
                       Stamp* other) {
  const Stamp now = order.stamp(access.thread, access.place, access.kind);
  Conflict found = Conflict::kNone;
  const auto touch_one = [&](Cell& cell) {
    Stamp one;
    const Conflict conflict = touch_cell(order, cell, now, access, &one);
    if (conflict != Conflict::kNone && found == Conflict::kNone) {
      found = conflict;
      *other = one;
    }
  };
  const size_t end = offset + bytes;
  for (size_t at = offset; at < end;) {
    Cell& cell = cells_[at / kWordBytes];
    if (cell.generation != generation_) {
      cell = Cell{};
      cell.generation = generation_;
    }
    const size_t word_end = std::min(end, (at / kWordBytes + 1) * kWordBytes);
    if (word_end - at == kWordBytes && cell.write.kind != Kind::kSplit) {
      touch_one(cell);
    } else {
      Cell* const of_byte = split(cell);
      for (size_t i = at; i < word_end; i++) touch_one(of_byte[i % kWordBytes]);
    }
    at = word_end;
  }
  return found;
}

}  // namespace simt::check
