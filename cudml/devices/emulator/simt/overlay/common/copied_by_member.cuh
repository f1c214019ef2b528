// The emulator's twin of kernels/common/copied_by_member.cuh.
#pragma once

#define COPIED_BY_MEMBER(Type, first, second)                                      \
  Type() = default;                                                                \
  Type(decltype(first) one, decltype(second) other) : first(one), second(other) {} \
  Type(const Type& from) : first(from.first), second(from.second) {}               \
  Type& operator=(const Type& from) {                                              \
    first = from.first;                                                            \
    second = from.second;                                                          \
    return *this;                                                                  \
  }
