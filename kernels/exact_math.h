#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Scalar arithmetic that gives the same bits on every device: in device text under nvcc, in device text on the CPU, in native
// variants of both levels. Only operations that IEEE 754 rounds correctly (fused multiply-add, division, conversion) and
// integers. constexpr, so that nvcc accepts the functions in kernels; static, so that copies compiled for AVX512 stay in
// their file.

namespace rigel::kernels {

/// Constants of exp: x = n ln2 + r with |r| <= ln2 / 2 and n ln2 subtracted in two pieces; exp(r) by the minimax polynomial
/// of Cephes (expf.c, Moshier). Shared with the vector twin in native_math.h.
struct ExpConstants {
  static constexpr float kLog2e = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
  /// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  static constexpr float kRound = 12582912.0f;
  static constexpr float kMin = -87.3365447504f;  // below: 0, so that no denormal appears
  static constexpr float kMax = 88.3762626647f;   // above: saturates at exp(kMax) = 2.4e38
  static constexpr float kPoly[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
};

/// exp(x) within 1.1 ulp; 0 below -87.3 (also for -inf), 2.4e38 above 88.37, NaN for NaN.
static constexpr float exact_exp(float x) {
  using E = ExpConstants;
  const float floored = x < E::kMin ? E::kMin : x;
  const float clamped = floored > E::kMax ? E::kMax : floored;
  const float n = fmaf(clamped, E::kLog2e, E::kRound) - E::kRound;
  float r = fmaf(n, -E::kLn2High, clamped);
  r = fmaf(n, -E::kLn2Low, r);
  float p = E::kPoly[0];
  p = fmaf(p, r, E::kPoly[1]);
  p = fmaf(p, r, E::kPoly[2]);
  p = fmaf(p, r, E::kPoly[3]);
  p = fmaf(p, r, E::kPoly[4]);
  p = fmaf(p, r, E::kPoly[5]);
  p = fmaf(p, r * r, r) + 1.0f;
  if (x != x) {
    return x;
  }
  const std::uint32_t exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127);
  const float scaled = p * std::bit_cast<float>(exponent << 23);
  return x < E::kMin ? 0.0f : scaled;
}

/// Probability masses as integers: weights in [0, 1] in units of 2^-44. Integer sums do not depend on their order, so any
/// thread, block or vector layout finds the same total, and up to 2^19 weights cannot overflow 64 bits.
static constexpr int kMassBits = 44;
static constexpr int kMaxVocabulary = 1 << 19;

static constexpr std::uint64_t mass_of(float weight) {
  return static_cast<std::uint64_t>(weight * static_cast<float>(std::uint64_t{1} << kMassBits));
}

/// The bits of a float as an unsigned integer of the same order (-0 below +0); not for NaN.
static constexpr std::uint32_t ordered_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The upper 64 bits of a 128-bit product, from 32-bit pieces: scales a uniform 64-bit integer to [0, b).
static constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffu;
  const std::uint64_t a_high = a >> 32;
  const std::uint64_t b_low = b & 0xffffffffu;
  const std::uint64_t b_high = b >> 32;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  const std::uint64_t middle_low = (middle & 0xffffffffu) + a_low * b_high;
  return a_high * b_high + (middle >> 32) + (middle_low >> 32);
}

}  // namespace rigel::kernels
