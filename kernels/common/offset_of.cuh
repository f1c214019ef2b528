// Byte offset of a member as a constant. The CPU emulator has a file of the same name.
#pragma once

#include "common/types.cuh"

// NVRTC has no <cstddef>, and only its later releases know __builtin_offsetof; this operator of its
// front end is in all of them.
#define OFFSET_OF(Type, member) \
  static_cast<UInt64>(__INTADDR__(&static_cast<Type*>(nullptr)->member))
