#include "kernels/log_probs.h"

#include "tests/kernels/kernel_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rigel::kernels {
namespace {

struct Values {
  std::vector<float> chosen;
  std::vector<std::int32_t> top_tokens;
  std::vector<float> top_values;
};

/// Log-softmax in double precision; log1p keeps the value of a token that is nearly certain.
std::vector<double> log_softmax(const std::vector<float>& logits) {
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  const double maximum = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  double others = 0;
  for (std::ptrdiff_t token = 0; token < std::ssize(logits); ++token) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(token)]);
    others += token == best ? 0.0 : std::exp(logit - maximum);
  }
  std::vector<double> result;
  for (const float logit : logits) {
    result.push_back(static_cast<double>(logit) - maximum - std::log1p(others));
  }
  return result;
}

std::vector<std::int32_t> best_tokens(const std::vector<float>& logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return order;
}

class LogProbs : public KernelTest {
 protected:
  Values run(const std::vector<std::vector<float>>& logits, const std::vector<std::int32_t>& chosen,
             const std::vector<std::int32_t>& num_top, std::int64_t max_top) {
    const auto lanes = static_cast<std::int64_t>(logits.size());
    const auto vocabulary = static_cast<std::int64_t>(logits[0].size());
    std::vector<float> all;
    for (const std::vector<float>& lane : logits) {
      all.insert(all.end(), lane.begin(), lane.end());
    }
    const LogProbOutputs outputs{output(Dtype::kF32, {lanes}),
                                 output(Dtype::kI32, {lanes, max_top}),
                                 output(Dtype::kF32, {lanes, max_top})};
    log_probs(stream(), outputs, upload({lanes, vocabulary}, all), upload({lanes}, chosen),
              upload({lanes}, num_top));
    return {download<float>(outputs.chosen), download<std::int32_t>(outputs.top_tokens),
            download<float>(outputs.top_values)};
  }

  void expect_lane(const std::vector<float>& logits, std::int32_t chosen, std::int32_t num_top,
                   std::int64_t max_top) {
    const std::vector<double> oracle = log_softmax(logits);
    const std::vector<std::int32_t> order = best_tokens(logits);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(max_top), -1);
    std::vector<double> values(static_cast<std::size_t>(max_top), -double{kInfinity});
    const std::size_t count =
        std::min({order.size(), tokens.size(), static_cast<std::size_t>(num_top)});
    for (std::size_t entry = 0; entry < count; ++entry) {
      tokens[entry] = order[entry];
      values[entry] = oracle[static_cast<std::size_t>(order[entry])];
    }
    // Each weight is cut to 44 bits: what log_probs.h promises.
    const Tolerance tolerance{.relative = 1e-6,
                              .absolute = static_cast<double>(logits.size()) * 0x1p-44};
    in_every_mode([&] {
      const Values got = run({logits}, {chosen}, {num_top}, max_top);
      expect_close(got.chosen, {oracle[static_cast<std::size_t>(chosen)]}, tolerance);
      EXPECT_EQ(got.top_tokens, tokens);
      expect_close(got.top_values, values, tolerance);
    });
  }
};

TEST_F(LogProbs, MatchTheDoublePrecisionOracle) {
  for (const std::int64_t vocabulary : {1, 2, 8, 33, 64, 500, 4099}) {
    const std::vector<float> logits = random_floats(vocabulary, 3, 10.0F);
    const auto last = static_cast<std::int32_t>(vocabulary - 1);
    for (const std::int32_t num_top : {0, 1, 5, 20, 64}) {
      expect_lane(logits, last, num_top, 64);
    }
    expect_lane(logits, last / 2, 3, 3);
    expect_lane(logits, 0, 0, 0);
  }
}

TEST_F(LogProbs, AreExactOnRealVocabularies) {
  std::vector<float> logits = random_floats(49'152, 8, 3.0F);
  expect_lane(logits, 777, 20, 20);
  logits[40'000] = 25.0F;  // nearly certain: its logarithm is next to zero
  expect_lane(logits, 40'000, 5, 20);
}

TEST_F(LogProbs, OrderEqualLogitsByTheLowerId) {
  std::vector<float> logits = random_floats(3001, 4, 2.0F);
  for (float& logit : logits) {
    logit = std::round(logit * 2.0F) / 2.0F;
  }
  expect_lane(logits, 5, 64, 64);
  expect_lane(std::vector<float>(20'000, -2.5F), 19'999, 40, 40);
  expect_lane({-0.0F, 0.0F, 1.0F, 0.0F, -0.0F, 0.0F, -0.0F}, 0, 7, 7);
}

TEST_F(LogProbs, ListBarredTokensLast) {
  std::vector<float> logits(100, -kInfinity);
  logits[70] = 1.0F;
  logits[20] = 3.0F;
  logits[99] = -60.0F;
  expect_lane(logits, 20, 6, 8);
  expect_lane(logits, 1, 2, 8);
}

TEST_F(LogProbs, DifferPerLaneAndSkipLanesThatWantNothing) {
  const std::vector<float> a = random_floats(300, 1, 5.0F);
  const std::vector<float> b = random_floats(300, 2, 5.0F);
  std::vector<float> with_nan = a;
  with_nan[299] = kNan;
  const std::vector<float> barred(300, -kInfinity);
  in_every_mode([&] {
    const Values alone_a = run({a}, {7}, {2}, 3);
    const Values alone_b = run({b}, {-1}, {3}, 3);
    const Values got = run({with_nan, b, a, a, barred}, {7, -1, 9, 7, 0}, {3, 3, -1, 2, 1}, 3);
    const auto lane = [](const auto& values, std::ptrdiff_t index) {
      return std::vector(values.begin() + 3 * index, values.begin() + 3 * index + 3);
    };
    EXPECT_TRUE(std::isnan(got.chosen[0]));
    EXPECT_EQ(lane(got.top_tokens, 0), (std::vector<std::int32_t>{-1, -1, -1}));
    EXPECT_TRUE(std::isnan(got.chosen[1]));  // no token was chosen
    EXPECT_EQ(lane(got.top_tokens, 1), alone_b.top_tokens);
    EXPECT_EQ(lane(got.top_values, 1), alone_b.top_values);
    // Lane 2 is not written: NaN and -1, as the outputs were.
    EXPECT_TRUE(std::isnan(got.chosen[2]));
    EXPECT_TRUE(std::isnan(got.top_values[6]));
    EXPECT_EQ(got.chosen[3], alone_a.chosen[0]);
    EXPECT_EQ(lane(got.top_tokens, 3), alone_a.top_tokens);
    EXPECT_EQ(lane(got.top_values, 3), alone_a.top_values);
    EXPECT_TRUE(std::isnan(got.chosen[4]));
  });
}

TEST_F(LogProbs, TakeNoLanesAndRefuseTooManyAlternatives) {
  in_default_mode([&] {
    const DeviceView none = output(Dtype::kI32, {0});
    log_probs(stream(),
              {output(Dtype::kF32, {0}), output(Dtype::kI32, {0, 4}), output(Dtype::kF32, {0, 4})},
              output(Dtype::kF32, {0, 9}), none, none);
    EXPECT_THROW(run({{1.0F, 2.0F}}, {0}, {0}, 65), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
