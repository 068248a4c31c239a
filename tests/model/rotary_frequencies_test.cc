#include "model/rotary_frequencies.h"

#include "tensor/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

namespace rigel {
namespace {

// The lists below are what transformers 5.24 computes (modeling_rope_utils.py, in float32: about 4e-7 of rounding).
void expect_close(const RopeConfig& rope, const std::vector<double>& expected) {
  const std::vector<float> frequencies = rotary_inverse_frequencies(rope);
  ASSERT_EQ(frequencies.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(frequencies[i] / expected[i], 1.0, 1e-6) << "pair " << i;
  }
}

TEST(RotaryFrequencies, PlainOnesAreAGeometricSequence) {
  const RopeConfig rope{.theta = 10000.0, .rotary_dim = 8};
  expect_close(rope, {1.0, 0.1, 0.01, 0.001});
  EXPECT_EQ(rotary_attention_scale(rope), 1.0F);
}

TEST(RotaryFrequencies, LinearScalingDividesAll) {
  expect_close(
      {.scaling = RopeScaling::kLinear, .theta = 10000.0, .rotary_dim = 16, .factor = 2.5},
      {0.4000000059604645, 0.12649109959602356, 0.03999999910593033, 0.012649111449718475,
       0.003999999724328518, 0.0012649111449718475, 0.0004000000189989805, 0.0001264911115868017});
}

TEST(RotaryFrequencies, Llama3StretchesLongWavelengthsAndBlendsMediumOnes) {
  expect_close(
      {.scaling = RopeScaling::kLlama3,
       .theta = 500000.0,
       .rotary_dim = 16,
       .factor = 8.0,
       .original_max_position = 256,
       .low_freq_factor = 1.0,
       .high_freq_factor = 4.0},
      {1.0, 0.193922758102417, 0.010538231581449509, 0.0009115831344388425, 0.00017677668074611574,
       3.428102354519069e-05, 6.647869668086059e-06, 1.289173155782919e-06});
}

TEST(RotaryFrequencies, YarnInterpolatesByPartsAndScalesAttention) {
  const RopeConfig rope{.scaling = RopeScaling::kYarn,
                        .theta = 10000.0,
                        .rotary_dim = 32,
                        .factor = 4.0,
                        .original_max_position = 128};
  expect_close(rope, {1.0, 0.4920486509799957, 0.23717081546783447, 0.11114246398210526,
                      0.04999999701976776, 0.021087799221277237, 0.007905694656074047,
                      0.004445698577910662, 0.0024999999441206455, 0.0014058533124625683,
                      0.0007905694656074047, 0.00044456985779106617, 0.0002500000118743628,
                      0.00014058532542549074, 7.905694656074047e-05, 4.4456985051510856e-05});
  EXPECT_NEAR(rotary_attention_scale(rope), 1.138629436111989, 1e-7);
}

TEST(RotaryFrequencies, YarnTakesMscaleAndAnUntruncatedRange) {
  RopeConfig rope{.scaling = RopeScaling::kYarn,
                  .theta = 10000.0,
                  .rotary_dim = 32,
                  .factor = 40.0,
                  .original_max_position = 512,
                  .truncate = false,
                  .mscale = 0.707,
                  .mscale_all_dim = 1.0};
  expect_close(rope, {1.0, 0.5623413324356079, 0.29696008563041687, 0.1381947547197342,
                      0.06151822954416275, 0.02548746019601822, 0.009211533702909946,
                      0.0023002082016319036, 0.0002500000118743628, 0.00014058532542549074,
                      7.905694656074047e-05, 4.4456985051510856e-05, 2.499999936844688e-05,
                      1.4058532542549074e-05, 7.905694474175107e-06, 4.445698323252145e-06});
  EXPECT_NEAR(rotary_attention_scale(rope), 0.9210423553163399, 1e-7);
  rope.attention_factor = 1.5;
  EXPECT_EQ(rotary_attention_scale(rope), 1.5F);
}

TEST(RotaryFrequencies, DivisorsOfAGgufFileAreApplied) {
  RopeConfig rope{.theta = 10000.0, .rotary_dim = 8, .frequency_divisors = {1, 2, 4, 8}};
  expect_close(rope, {1.0, 0.05, 0.0025, 0.000125});
  rope.frequency_divisors.pop_back();
  EXPECT_THROW((void)rotary_inverse_frequencies(rope), CheckError);
}

}  // namespace
}  // namespace rigel
