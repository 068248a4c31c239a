#include "kernels/sampling.h"

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/sampling_oracle.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace rigel::kernels {
namespace {

using testing::Each;

/// Decisions closer than this may fall either way: f32 weights against double ones.
constexpr double kMargin = 1e-5;

#if defined(__SANITIZE_THREAD__)
constexpr std::int64_t kVocabularies[] = {13, 1000};  // the detector makes the rest take minutes
constexpr float kTemperatures[] = {1.0F};
constexpr std::size_t kPlaces[] = {8};
constexpr std::int32_t kNumPositions = 2;
constexpr std::int32_t kBarredPositions = 8;
constexpr std::int64_t kCompanyVocabularies[] = {50, 1000};
constexpr float kQuanta[] = {0.5F};
#else
constexpr std::int64_t kVocabularies[] = {1, 2, 13, 64, 1000, 5003};
constexpr float kTemperatures[] = {0.3F, 1.0F, 2.0F};
constexpr std::size_t kPlaces[] = {0, 2, 8};
constexpr std::int32_t kNumPositions = 4;
constexpr std::int32_t kBarredPositions = 60;
constexpr std::int64_t kCompanyVocabularies[] = {50, 4096};
constexpr float kQuanta[] = {0.0F, 0.5F, 4.0F};
#endif

struct Sampled {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> flags;
  std::vector<std::int32_t> num_kept;
};

/// Logits about as peaked as a language model's: a few well above many. Quantised, so that many are equal.
std::vector<float> peaked_logits(std::int64_t vocabulary, std::uint64_t seed, float quantum) {
  std::vector<float> logits = random_floats(vocabulary, seed);
  for (float& logit : logits) {
    logit = 9.0F * logit * logit * logit;
    logit = quantum > 0 ? std::round(logit / quantum) * quantum : logit;
  }
  return logits;
}

class Sampling : public KernelTest {
 protected:
  /// Samples all lanes in one launch; lane i has row `num_lanes - 1 - i`, or is padding where `cases[i]` has no logits.
  Sampled run(const std::vector<SamplingCase>& cases, std::uint32_t sampler_id = 0) {
    const auto lanes = static_cast<std::int64_t>(cases.size());
    std::int64_t vocabulary = 1;
    for (const SamplingCase& lane : cases) {
      vocabulary = std::max(vocabulary, static_cast<std::int64_t>(lane.logits.size()));
    }
    std::vector<float> logits;
    std::vector<float> temperature(cases.size());
    std::vector<float> top_p(cases.size());
    std::vector<float> min_p(cases.size());
    std::vector<std::int32_t> top_k(cases.size());
    std::vector<std::int64_t> seeds(cases.size());
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> positions;
    for (std::size_t lane = 0; lane < cases.size(); ++lane) {
      const SamplingCase& one = cases[lane];
      const std::size_t row = cases.size() - 1 - lane;
      const bool padding = one.logits.empty();
      rows.push_back(padding ? -1 : static_cast<std::int32_t>(row));
      positions.push_back(one.position);
      temperature[row] = padding ? kNan : one.temperature;
      top_p[row] = one.top_p;
      min_p[row] = one.min_p;
      top_k[row] = one.top_k;
      seeds[row] = static_cast<std::int64_t>(one.seed);
      std::vector<float> padded = one.logits;
      padded.resize(static_cast<std::size_t>(vocabulary), padding ? kNan : -kInfinity);
      logits.insert(logits.end(), padded.begin(), padded.end());
    }
    const SampleOutputs outputs{output(Dtype::kI32, {lanes}), output(Dtype::kI32, {lanes}),
                                output(Dtype::kI32, {lanes})};
    const SamplingColumns columns{upload({lanes}, temperature), upload({lanes}, top_k),
                                  upload({lanes}, top_p), upload({lanes}, min_p),
                                  upload({lanes}, seeds)};
    sample(stream(), outputs, upload({lanes, vocabulary}, logits), upload({lanes}, rows),
           upload({lanes}, positions), columns, sampler_id);
    return {download<std::int32_t>(outputs.tokens), download<std::int32_t>(outputs.flags),
            download<std::int32_t>(outputs.num_kept)};
  }

  /// Checks survivors and drawn tokens of all lanes against the oracle, in every mode. Returns how many lanes were decided
  /// clearly enough to be compared.
  int expect_as_oracle(const std::vector<SamplingCase>& cases, std::uint32_t sampler_id = 0) {
    std::vector<SamplingOracle> oracles;
    int num_compared = 0;
    for (const SamplingCase& lane : cases) {
      oracles.push_back(sample_by_sorting(lane, sampler_id));
      num_compared += oracles.back().margin > kMargin ? 1 : 0;
    }
    in_every_mode([&] {
      const Sampled sampled = run(cases, sampler_id);
      EXPECT_THAT(sampled.flags, Each(kSampled));
      for (std::size_t lane = 0; lane < cases.size(); ++lane) {
        if (oracles[lane].margin > kMargin) {
          EXPECT_EQ(sampled.tokens[lane], oracles[lane].token) << "lane " << lane;
          EXPECT_EQ(sampled.num_kept[lane], static_cast<int>(oracles[lane].kept.size()))
              << "lane " << lane;
        }
      }
    });
    return num_compared;
  }
};

TEST_F(Sampling, B_89_GreedyAndTopK1TakeTheFirstOfEqualLogits) {
  for (const std::int64_t vocabulary : {1, 2, 7, 8, 9, 31, 33, 257, 1000, 4099}) {
    std::vector<SamplingCase> cases;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SamplingCase greedy{.logits = peaked_logits(vocabulary, seed, 1.0F), .temperature = 0.0F};
      SamplingCase top_1 = greedy;
      top_1.temperature = 1.7F;
      top_1.top_k = 1;
      cases.push_back(greedy);
      cases.push_back(top_1);
    }
    cases.push_back({.logits = std::vector<float>(static_cast<std::size_t>(vocabulary), -3.0F),
                     .temperature = 0.0F});
    EXPECT_EQ(expect_as_oracle(cases), 7);
  }
}

TEST_F(Sampling, ZeroAndMinusZeroAreATie) {
  in_every_mode([&] {
    const Sampled sampled =
        run({{.logits = {-1.0F, -0.0F, 0.0F, -0.0F}, .temperature = 0.0F},
             {.logits = {-1.0F, 0.0F, -0.0F, -0.0F}, .temperature = 1.0F, .top_k = 2}});
    EXPECT_EQ(sampled.tokens[0], 1);
    EXPECT_THAT(sampled.tokens[1], testing::AnyOf(1, 2));
  });
}

/// Every combination of filters, with logits that have ties and with logits that have none.
TEST_F(Sampling, FiltersKeepAndDrawWhatTheOracleDoes) {
  int num_compared = 0;
  int num_cases = 0;
  for (const std::int64_t vocabulary : kVocabularies) {
    std::vector<SamplingCase> cases;
    std::uint64_t seed = 100;
    for (const float temperature : kTemperatures) {
      for (const std::int32_t top_k : {0, 2, 50, 100'000}) {
        for (const float top_p : {0.0F, 0.5F, 0.95F, 1.0F}) {
          for (const float min_p : {0.0F, 0.04F}) {
            ++seed;
            cases.push_back({peaked_logits(vocabulary, seed, seed % 2 == 0 ? 0.5F : 0.0F),
                             temperature, top_k, top_p, min_p, seed * 0x123456789ABCDEFu,
                             static_cast<std::int32_t>(seed * 31)});
          }
        }
      }
    }
    num_compared += expect_as_oracle(cases, static_cast<std::uint32_t>(vocabulary));
    num_cases += static_cast<int>(cases.size());
  }
  EXPECT_GT(num_compared, num_cases * 9 / 10);
}

TEST_F(Sampling, FiltersAreExactOnRealVocabularies) {
  std::vector<SamplingCase> cases;
  for (const std::int32_t top_k : {0, 40, 1200, 3000}) {
    for (const float top_p : {0.9F, 1.0F}) {
      cases.push_back({.logits = peaked_logits(49'152, static_cast<std::uint64_t>(top_k), 0.0F),
                       .temperature = 0.8F,
                       .top_k = top_k,
                       .top_p = top_p,
                       .position = 17});
    }
  }
  EXPECT_GE(expect_as_oracle(cases), 7);
}

/// All logits equal: far more candidates than any short list holds, and only ids decide.
TEST_F(Sampling, FiltersAreExactOnFlatLogits) {
  const std::vector<float> flat(20'003, 1.25F);
  std::vector<SamplingCase> cases;
  for (const std::int32_t top_k : {0, 2, 5000}) {
    for (const float top_p : {0.3F, 1.0F}) {
      cases.push_back({.logits = flat, .top_k = top_k, .top_p = top_p, .position = 3});
    }
  }
  expect_as_oracle(cases);
  in_every_mode([&] {
    const Sampled sampled = run(cases);
    // 0.3F is a little more than 0.3: 0.3F * 20,003 = 6,000.9, and 0.3F * 5,000 = 1,500.00006 needs one token more.
    EXPECT_THAT(sampled.num_kept, testing::ElementsAre(6001, 20'003, 1, 2, 1501, 5000));
  });
}

/// Filters that leave thousands of tokens go another way in the native variant. Both texts are exact, so nothing is too close
/// to call; quantised logits end some filters among thousands of equals.
TEST_F(Sampling, WideFiltersGiveTheSameTokensEverywhere) {
  std::vector<SamplingCase> cases;
  std::uint64_t seed = 1;
  for (const float quantum : kQuanta) {
    for (const std::int32_t top_k : {0, 7000}) {
      for (const float top_p : {0.6F, 0.98F}) {
        cases.push_back({.logits = peaked_logits(20'003, ++seed, quantum),
                         .temperature = 4.0F,
                         .top_k = top_k,
                         .top_p = top_p,
                         .min_p = seed % 3 == 0 ? 0.02F : 0.0F,
                         .seed = seed,
                         .position = 5});
      }
    }
  }
  std::vector<Sampled> results;
  in_default_mode([&] { results.push_back(run(cases)); });
  run_in(kernel_modes().back(), [&] { results.push_back(run(cases)); });
  EXPECT_EQ(results[0].tokens, results[1].tokens);
  EXPECT_EQ(results[0].num_kept, results[1].num_kept);
  EXPECT_THAT(results[0].num_kept, Each(testing::Gt(2000)));
}

TEST_F(Sampling, T_SA_10_BarredTokensAreNeverDrawn) {
  std::vector<float> logits = peaked_logits(1000, 5, 0.0F);
  for (std::size_t token = 0; token < logits.size(); ++token) {
    logits[token] = token % 3 == 0 ? logits[token] : -kInfinity;
  }
  std::vector<SamplingCase> cases;
  for (std::int32_t position = 0; position < kBarredPositions; ++position) {
    cases.push_back({.logits = logits,
                     .temperature = position % 2 == 0 ? 50.0F : kInfinity,
                     .top_k = position % 4 == 0 ? 900 : 0,
                     .position = position});
  }
  in_every_mode([&] {
    for (const std::int32_t token : run(cases).tokens) {
      EXPECT_EQ(token % 3, 0);
      EXPECT_GE(token, 0);
    }
  });
}

TEST_F(Sampling, B_92_RowsThatAreNotFiniteAreFlaggedAndHurtNoOther) {
  for (const std::int64_t vocabulary : {8, 37, 600}) {
    const auto size = static_cast<std::size_t>(vocabulary);
    const std::vector<float> good = peaked_logits(vocabulary, 1, 0.0F);
    std::vector<float> with_nan = good;
    with_nan[size - 1] = kNan;
    std::vector<float> with_infinity = good;
    with_infinity[2] = kInfinity;
    for (const float temperature : {0.0F, 1.0F}) {
      const SamplingCase sound{.logits = good, .temperature = temperature, .position = 9};
      in_every_mode([&] {
        const Sampled sampled =
            run({sound,
                 {.logits = with_nan, .temperature = temperature},
                 sound,
                 {.logits = with_infinity, .temperature = temperature},
                 {.logits = std::vector<float>(size, -kInfinity), .temperature = temperature},
                 sound});
        const int token = sample_by_sorting(sound, 0).token;
        EXPECT_THAT(sampled.tokens, testing::ElementsAre(token, -1, token, -1, -1, token));
        EXPECT_THAT(sampled.flags, testing::ElementsAre(0, 1, 0, 1, 1, 0));
      });
    }
  }
}

TEST_F(Sampling, T_SA_5_PaddingLanesGiveMinusOneAndWriteNothingElse) {
  const SamplingCase sound{.logits = peaked_logits(300, 4, 0.0F), .position = 2};
  in_every_mode([&] {
    const Sampled sampled = run({{}, sound, {}, {}});
    EXPECT_THAT(sampled.tokens,
                testing::ElementsAre(-1, sample_by_sorting(sound, 0).token, -1, -1));
    // Outputs start as -1.
    EXPECT_THAT(sampled.flags, testing::ElementsAre(-1, 0, -1, -1));
    EXPECT_EQ(sampled.num_kept[0], -1);
  });
}

TEST_F(Sampling, B_90_T_SA_4_ALaneSamplesTheSameAloneAndAnywhereInABatch) {
  for (const std::int64_t vocabulary : kCompanyVocabularies) {
    for (std::int32_t position = 0; position < kNumPositions; ++position) {
      const SamplingCase one{.logits = peaked_logits(vocabulary, 7, 0.25F),
                             .temperature = 1.3F,
                             .top_k = position * 15,
                             .top_p = 0.97F,
                             .seed = 0xFEDCBA9876543210u,
                             .position = position};
      in_every_mode([&] {
        const std::int32_t alone = run({one}).tokens[0];
        for (const std::size_t place : kPlaces) {
          std::vector<SamplingCase> batch;
          for (std::uint64_t lane = 0; lane < 9; ++lane) {
            batch.push_back({.logits = peaked_logits(vocabulary, 50 + lane, 0.0F),
                             .temperature = 0.5F,
                             .seed = lane});
          }
          batch[place] = one;
          EXPECT_EQ(run(batch).tokens[place], alone) << "place " << place;
        }
      });
    }
  }
}

TEST_F(Sampling, SeedSamplerAndPositionEachChangeTheDraw) {
  const std::vector<float> flat(4096, 0.0F);
  in_default_mode([&] {
    std::set<std::int32_t> tokens;
    for (const std::uint64_t seed : {1ull, 2ull, 1ull << 32, 1ull << 63}) {
      for (const std::int32_t position : {0, 1, 70'000}) {
        for (const std::uint32_t sampler : {0u, 1u}) {
          tokens.insert(
              run({{.logits = flat, .seed = seed, .position = position}}, sampler).tokens[0]);
        }
      }
    }
    EXPECT_GE(tokens.size(), 22U);  // 24 draws of 4,096: at most two repeats
  });
}

/// Pearson's test against the exact probabilities; fixed seeds, so the outcome is fixed too.
TEST_F(Sampling, DrawsFollowTheProbabilities) {
  constexpr std::int32_t kDraws = 20'000;
  for (const float top_p : {1.0F, 0.8F}) {
    SamplingCase lane{.logits = random_floats(16, 11, 2.0F), .temperature = 0.9F, .top_p = top_p};
    std::vector<SamplingCase> cases;
    for (lane.position = 0; lane.position < kDraws; ++lane.position) {
      lane.seed = static_cast<std::uint64_t>(lane.position % 7);
      cases.push_back(lane);
    }
    const SamplingOracle oracle = sample_by_sorting(lane, 0);
    in_default_mode([&] {
      std::vector<int> drawn(16, 0);
      for (const std::int32_t token : run(cases).tokens) {
        ++drawn.at(static_cast<std::size_t>(token));
      }
      double chi_square = 0;
      for (std::size_t token = 0; token < 16; ++token) {
        const double expected = oracle.probabilities[token] * kDraws;
        if (expected == 0) {
          EXPECT_EQ(drawn[token], 0);
          continue;
        }
        const double difference = drawn[token] - expected;
        chi_square += difference * difference / expected;
      }
      EXPECT_LT(chi_square, 37.7);  // 15 degrees of freedom, one in a thousand
      EXPECT_GT(chi_square, 1.0);   // nor suspiciously exact
    });
  }
}

TEST_F(Sampling, ArgmaxTakesTheFirstLargest) {
  for (const std::int64_t vocabulary : {1, 5, 32, 47, 1024, 5003}) {
    std::vector<float> logits;
    std::vector<std::int32_t> expected;
    for (std::uint64_t lane = 0; lane < 5; ++lane) {
      const std::vector<float> row = peaked_logits(vocabulary, lane, 2.0F);
      expected.push_back(
          static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      logits.insert(logits.end(), row.begin(), row.end());
    }
    logits.back() = kNan;
    expected.back() = -1;
    in_every_mode([&] {
      const DeviceView tokens = output(Dtype::kI32, {5});
      argmax(stream(), tokens, upload({5, vocabulary}, logits));
      EXPECT_EQ(download<std::int32_t>(tokens), expected);
    });
  }
}

TEST_F(Sampling, T_SA_9_PublishWritesOnlyTokensThatCount) {
  const std::vector<std::int32_t> tokens{7, 8, -1, 9, 10};
  const std::vector<std::int32_t> rows{3, -1, 0, 1, 4};
  const std::vector<std::int32_t> publish{1, 1, 1, 0, 1};
  in_every_mode([&] {
    const DeviceView last = upload({6}, std::vector<std::int32_t>{50, 51, 52, 53, 54, 55});
    publish_tokens(stream(), last, upload({5}, tokens), upload({5}, rows), upload({5}, publish));
    EXPECT_EQ(download<std::int32_t>(last), (std::vector<std::int32_t>{50, 51, 52, 7, 10, 55}));
  });
}

TEST_F(Sampling, TakesNoLanes) {
  in_every_mode([&] {
    EXPECT_TRUE(run({}).tokens.empty());
    argmax(stream(), output(Dtype::kI32, {0}), output(Dtype::kF32, {0, 7}));
  });
}

}  // namespace
}  // namespace rigel::kernels
