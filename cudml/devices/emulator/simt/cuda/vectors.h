// CUDA's vector types with CUDA's alignment: 2- and 4-vectors to their size, at most 16 bytes.
#pragma once

#define SIMT_VECTORS(Type, Name, Align2, Align4)                              \
  struct Name##1 { Type x; };                                                 \
  struct __attribute__((aligned(Align2))) Name##2 { Type x, y; };             \
  SIMT_VECTOR3(Type, Name)                                                    \
  struct __attribute__((aligned(Align4))) Name##4 { Type x, y, z, w; };       \
  inline Name##1 make_##Name##1(Type x) { return {x}; }                       \
  inline Name##2 make_##Name##2(Type x, Type y) { return {x, y}; }            \
  inline Name##3 make_##Name##3(Type x, Type y, Type z) { return {x, y, z}; } \
  inline Name##4 make_##Name##4(Type x, Type y, Type z, Type w) { return {x, y, z, w}; }

#define SIMT_VECTOR3(Type, Name) \
  struct Name##3 { Type x, y, z; };
SIMT_VECTORS(signed char, char, 2, 4)
SIMT_VECTORS(unsigned char, uchar, 2, 4)
SIMT_VECTORS(short, short, 4, 8)
SIMT_VECTORS(unsigned short, ushort, 4, 8)
SIMT_VECTORS(int, int, 8, 16)
SIMT_VECTORS(long, long, 16, 16)
SIMT_VECTORS(unsigned long, ulong, 16, 16)
SIMT_VECTORS(long long, longlong, 16, 16)
SIMT_VECTORS(unsigned long long, ulonglong, 16, 16)
SIMT_VECTORS(float, float, 8, 16)
SIMT_VECTORS(double, double, 16, 16)
#undef SIMT_VECTOR3
#define SIMT_VECTOR3(Type, Name)  // interface.h has uint3
SIMT_VECTORS(unsigned, uint, 8, 16)
#undef SIMT_VECTOR3
#undef SIMT_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
