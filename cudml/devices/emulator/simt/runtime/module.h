// Where a loaded kernel module lies.
//
// Read from the module itself: the dynamic loader's own functions take a lock that a child forked
// meanwhile would find held for good, so that it could load no library any more.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>

#include "../interface.h"

namespace simt {

class Module {
 public:
  explicit Module(const SimtKernel& kernel)
      : file_(static_cast<const unsigned char*>(kernel.elf_header)) {
    for_each([this](const ElfW(Phdr) & segment) {
      if (segment.p_offset == 0) base_ = file_ - segment.p_vaddr;
    });
  }

  // The addresses in the file, such as those of debug information, are relative to this one.
  const unsigned char* base() const { return base_; }

  // Calls `visit(start, bytes)` for every part of the memory that the module occupies.
  template <class Visit>
  void for_each_part(Visit visit) const {
    for_each([&](const ElfW(Phdr) & segment) { visit(base_ + segment.p_vaddr, segment.p_memsz); });
  }

  bool contains(const void* address) const {
    bool found = false;
    for_each_part([&](const unsigned char* start, size_t bytes) {
      found |= static_cast<size_t>(static_cast<const unsigned char*>(address) - start) < bytes;
    });
    return found;
  }

 private:
  template <class Visit>
  void for_each(Visit visit) const {
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file_);
    const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(file_ + header.e_phoff);
    for (unsigned i = 0; i < header.e_phnum; i++)
      if (segments[i].p_type == PT_LOAD) visit(segments[i]);
  }

  const unsigned char* file_;
  const unsigned char* base_ = nullptr;
};

}  // namespace simt
