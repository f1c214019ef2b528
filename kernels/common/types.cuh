// Element and index types by name. NVRTC has no <cstdint>; these spell the same sizes on both devices.
#pragma once

using Int8 = signed char;
using Int16 = short;
using Int32 = int;
using Int64 = long long;
using UInt8 = unsigned char;
using UInt16 = unsigned short;
using UInt32 = unsigned int;
using UInt64 = unsigned long long;
using Float32 = float;
using Float64 = double;

// Half precision as bits, so that no kernel needs cuda_fp16.h.
struct Float16 {
  UInt16 bits;
};

// The upper half of a float32, as bits.
struct BFloat16 {
  UInt16 bits;
};

// Sixteen bytes moved as one; nothing is ever computed with them.
struct alignas(16) Bits128 {
  UInt32 words[4];
};

constexpr int kWarpSize = 32;
constexpr UInt32 kFullMask = 0xffffffffu;
constexpr int kMaxDimensions = 8;
