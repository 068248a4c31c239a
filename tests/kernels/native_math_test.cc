#include "kernels/exact_math.h"
#include "kernels/philox.h"
#include "tests/kernels/kernel_test.h"

#if !defined(RIGEL_DEVICE_CUDA)
#include "kernels/native_math.h"
#endif

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace rigel::kernels {
namespace {

/// The known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  const auto expect = [](PhiloxCounter counter, PhiloxKey key, PhiloxCounter answer) {
    const PhiloxCounter bits = philox4x32(counter, key);
    for (int word = 0; word < 4; ++word) {
      EXPECT_EQ(bits.word[word], answer.word[word]) << "word " << word;
    }
  };
  expect({{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, {{0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(ExactMath, ExpIsWithinALittleMoreThanOneUlp) {
  double worst = 0;
  for (float x = -87.3F; x < 88.3F; x += 0.00371F) {
    const double expected = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(expected) - 23);
    worst = std::fmax(worst, std::abs(static_cast<double>(exact_exp(x)) - expected) / ulp);
  }
  EXPECT_LT(worst, 1.1);
}

TEST(ExactMath, ExpHasItsEdges) {
  EXPECT_EQ(exact_exp(0.0F), 1.0F);
  EXPECT_EQ(exact_exp(-kInfinity), 0.0F);
  EXPECT_EQ(exact_exp(-88.0F), 0.0F);
  EXPECT_GT(exact_exp(kInfinity), 1e38F);
  EXPECT_TRUE(std::isfinite(exact_exp(kInfinity)));
  EXPECT_TRUE(std::isnan(exact_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(ExactMath, MassesAndKeysKeepTheOrder) {
  EXPECT_EQ(mass_of(1.0F), std::uint64_t{1} << kMassBits);
  EXPECT_EQ(mass_of(0x1p-44F), 1U);
  EXPECT_EQ(mass_of(0x1p-45F), 0U);
  const float ascending[] = {-std::numeric_limits<float>::infinity(),
                             -3e38F,
                             -1.0F,
                             -1e-40F,
                             -0.0F,
                             0.0F,
                             1e-40F,
                             0.5F,
                             3e38F,
                             std::numeric_limits<float>::infinity()};
  for (std::size_t i = 1; i < std::size(ascending); ++i) {
    EXPECT_LT(ordered_bits(ascending[i - 1]), ordered_bits(ascending[i]));
  }
}

TEST(ExactMath, MultiplyHighIsTheUpperHalfOfTheProduct) {
  const std::uint64_t numbers[] = {0, 1, 0xffffffff, 0x100000000, 0x123456789abcdef0, ~0ull};
  for (const std::uint64_t a : numbers) {
    for (const std::uint64_t b : numbers) {
      __extension__ using Wide = unsigned __int128;
      EXPECT_EQ(multiply_high(a, b), static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64));
    }
  }
}

#if !defined(RIGEL_DEVICE_CUDA)

TEST(NativeMath, VectorExpHasTheBitsOfTheScalarOne) {
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += 8 * 49'999) {
    float x[8];
    float result[8];
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      x[lane] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) + lane * 49'999);
    }
    store8(result, exp8(load8(x)));
    for (int lane = 0; lane < 8; ++lane) {
      const float expected = exact_exp(x[lane]);
      if (!std::isnan(expected) || !std::isnan(result[lane])) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(result[lane]),
                  std::bit_cast<std::uint32_t>(expected))
            << "exp(" << x[lane] << ")";
      }
    }
  }
}

TEST(NativeMath, Bfloat16RoundsAsTheTypeDoes) {
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += 8 * 65'537) {
    float x[8];
    simt::bf16 result[8];
    for (std::uint32_t lane = 0; lane < 8; ++lane) {
      x[lane] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) + lane * 65'537);
    }
    store8(result, load8(x));
    for (int lane = 0; lane < 8; ++lane) {
      ASSERT_EQ(result[lane].bits, simt::bf16(x[lane]).bits) << x[lane];
    }
  }
}

TEST(NativeMath, PartialVectorsTouchOnlyTheirElements) {
  for (int count = 0; count < 8; ++count) {
    float in[8];
    float out[8];
    for (int lane = 0; lane < 8; ++lane) {
      in[lane] = lane < count ? 1.0F : std::numeric_limits<float>::quiet_NaN();
      out[lane] = -7.0F;
    }
    const F8 part = load_part(in, count);
    EXPECT_EQ(sum8(part), static_cast<float>(count));
    store_part(out, part, count);
    for (int lane = 0; lane < 8; ++lane) {
      EXPECT_EQ(out[lane], lane < count ? 1.0F : -7.0F);
    }
  }
}

#endif

}  // namespace
}  // namespace rigel::kernels
