// The emulator's twin of kernels/common/offset_of.cuh.
#pragma once

#define OFFSET_OF(Type, member) __builtin_offsetof(Type, member)
