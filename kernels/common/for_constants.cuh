// Loops whose counter is a constant in each round.
#pragma once

template <int kNumber>
struct Constant {
  static constexpr int value = kNumber;
};

// Calls `visit` with 0 to kEnd - 1 as constants, because compilers keep an array in registers only if its
// indices are constant.
template <int kEnd, int kBegin = 0, class Visit>
__device__ __forceinline__ void for_constants(const Visit& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>());
    for_constants<kEnd, kBegin + 1>(visit);
  }
}
