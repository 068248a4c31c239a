#pragma once

#include <math.h>  // the global names, as CUDA has them

#include <bit>

inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
/// One more than the index of the lowest set bit; 0 when there is none.
inline int __ffs(int x) {
  return __builtin_ffs(x);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
inline long long min(long long a, long long b) {
  return a < b ? a : b;
}
inline long long max(long long a, long long b) {
  return a > b ? a : b;
}

namespace simt::detail {
inline float larger(float a, float b) {
  return fmaxf(a, b);
}
inline int larger(int a, int b) {
  return a > b ? a : b;
}
inline unsigned larger(unsigned a, unsigned b) {
  return a > b ? a : b;
}
}  // namespace simt::detail
