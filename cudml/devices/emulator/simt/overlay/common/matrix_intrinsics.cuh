// The emulator's twin of kernels/common/matrix_intrinsics.cuh: the same functions in C++. It comes first on
// the include path; a test compares the two lists of names.
#pragma once

#include "common/intrinsics.cuh"

// ---- Copies in stages, which happen as late as they may.

template <int kMost, int kStages>
struct StagedCopies {
  struct Copy {
    float* to;
    const float* from;
    int count;
  };
  Copy stages[kStages][kMost];
  int counts[kStages] = {};
  int first = 0;  // of the stages that are not complete; the last of them has not ended
  int num_stages = 1;

  __device__ __forceinline__ void start_quad(float* to, const float* from) { add({to, from, 4}); }
  __device__ __forceinline__ void start_one(float* to, const float* from) { add({to, from, 1}); }
  __device__ __forceinline__ void end_stage() {
    if (num_stages == kStages) complete();
    counts[(first + num_stages++) % kStages] = 0;
  }
  template <int kLater>
  __device__ __forceinline__ void wait() {
    while (num_stages - 1 > kLater) complete();
  }

 private:
  void add(Copy copy) {
    const int stage = (first + num_stages - 1) % kStages;
    stages[stage][counts[stage]++] = copy;
  }
  void complete() {
    for (int i = 0; i < counts[first]; ++i) {
      const Copy& copy = stages[first][i];
      for (int c = 0; c < copy.count; ++c) copy.to[c] = copy.from[c];
    }
    first = (first + 1) % kStages;
    --num_stages;
  }
};

// ---- Matrices of TF32.

// Cuts a number off below a bit.
inline double simt_cut(double number, double bit) { return trunc(number / bit) * bit; }

// The last of 24 bits of a number that is not 0, from the largest on.
inline double simt_last_of_24(double number) {
  return __longlong_as_double((__double_as_longlong(fabs(number)) >> 52) - 23 << 52);
}

// The sum of a number and eight products of words without their lowest 13 bits. As on a GPU at worst:
// each is cut off below the 24 bits of the largest, and so is their sum.
inline float simt_cut_sum(float sum, const UInt32 (&rows)[8], const UInt32 (&columns)[8]) {
  const auto number = [](UInt32 word) -> double { return __uint_as_float(word & 0xffffe000u); };
  double addends[9] = {sum};
  double whole = sum, largest = fabs(sum);
  for (int k = 0; k < 8; ++k) {
    addends[k + 1] = number(rows[k]) * number(columns[k]);
    whole += addends[k + 1];
    if (fabs(addends[k + 1]) > largest) largest = fabs(addends[k + 1]);
  }
  if (largest == 0 || !isfinite(whole)) return static_cast<float>(whole);
  const double last = simt_last_of_24(largest);
  whole = 0;
  for (double addend : addends) whole += simt_cut(addend, last);
  return static_cast<float>(whole == 0 ? 0 : simt_cut(whole, simt_last_of_24(whole)));
}

__device__ __forceinline__ MatrixSums multiply_add_tf32(MatrixRows rows, MatrixColumns columns,
                                                        MatrixSums sums, SIMT_PLACE) {
  const auto pair = [](UInt32 low, UInt32 high) { return static_cast<UInt64>(high) << 32 | low; };
  const auto from = [&](UInt64 value, unsigned lane) {
    return simt_warp(kWarpShuffle, kFullMask, value, lane, SIMT_HERE);
  };
  const unsigned lane = simt_lane(), g = lane / 4, t = lane % 4;
  UInt32 upper[8], lower[8], left[8], right[8];
  for (unsigned s = 0; s < 4; ++s) {
    const auto put = [&](UInt32(&words)[8], UInt64 found) {
      words[s] = static_cast<UInt32>(found);
      words[s + 4] = static_cast<UInt32>(found >> 32);
    };
    put(upper, from(pair(rows.words[0], rows.words[2]), 4 * g + s));
    put(lower, from(pair(rows.words[1], rows.words[3]), 4 * g + s));
    put(left, from(pair(columns.words[0], columns.words[1]), 4 * (2 * t) + s));
    put(right, from(pair(columns.words[0], columns.words[1]), 4 * (2 * t + 1) + s));
  }
  return {{simt_cut_sum(sums.values[0], upper, left), simt_cut_sum(sums.values[1], upper, right),
           simt_cut_sum(sums.values[2], lower, left), simt_cut_sum(sums.values[3], lower, right)}};
}
