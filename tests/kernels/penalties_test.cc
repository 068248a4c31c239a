#include "kernels/penalties.h"

#include "tests/kernels/kernel_test.h"

#include <cmath>
#include <set>
#include <vector>

namespace rigel::kernels {
namespace {

using Ints = std::vector<std::int32_t>;

std::int64_t size_of(const Ints& values) {
  return static_cast<std::int64_t>(values.size());
}

/// What a request has seen, counted naively from its token lists.
struct History {
  Ints prompt;
  Ints generated;
  float repetition = 1.0F;
  float presence = 0.0F;
  float frequency = 0.0F;
};

std::vector<double> penalised(const std::vector<float>& logits, const History& history) {
  std::vector<double> result(logits.begin(), logits.end());
  std::set<std::int32_t> seen(history.prompt.begin(), history.prompt.end());
  seen.insert(history.generated.begin(), history.generated.end());
  const double repetition = static_cast<double>(history.repetition);
  for (const std::int32_t token : seen) {
    double& logit = result[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / repetition : logit * repetition;
  }
  for (const std::int32_t token : history.generated) {
    result[static_cast<std::size_t>(token)] -= static_cast<double>(history.frequency);
  }
  for (const std::int32_t token :
       std::set<std::int32_t>(history.generated.begin(), history.generated.end())) {
    result[static_cast<std::size_t>(token)] -= static_cast<double>(history.presence);
  }
  return result;
}

Ints random_tokens(std::size_t count, std::int32_t vocabulary, std::uint64_t seed) {
  Ints tokens;
  for (const float value : random_floats(static_cast<std::int64_t>(count), seed)) {
    tokens.push_back(static_cast<std::int32_t>(std::abs(value) * static_cast<float>(vocabulary)) %
                     vocabulary);
  }
  return tokens;
}

class Penalties : public KernelTest {
 protected:
  /// Counts the histories of rows 0, 1, ... in slots `slots` and applies them to one lane a row.
  std::vector<float> apply(const std::vector<History>& histories, const Ints& slots,
                           std::int32_t num_slots, const std::vector<float>& logits) {
    const auto num_rows = static_cast<std::int64_t>(histories.size());
    const auto vocabulary = static_cast<std::int64_t>(logits.size()) / num_rows;
    const DeviceView counts =
        upload({num_slots, vocabulary}, Ints(static_cast<std::size_t>(num_slots * vocabulary)));
    const DeviceView row_slots = upload({num_rows}, slots);
    std::vector<float> repetition;
    std::vector<float> presence;
    std::vector<float> frequency;
    Ints rows;
    std::size_t num_steps = 0;
    for (std::size_t row = 0; row < histories.size(); ++row) {
      const History& history = histories[row];
      repetition.push_back(history.repetition);
      presence.push_back(history.presence);
      frequency.push_back(history.frequency);
      rows.push_back(static_cast<std::int32_t>(row));
      num_steps = std::max(num_steps, history.generated.size());
      const std::int64_t length = size_of(history.prompt);
      count_prompt(stream(), counts, upload({length}, Ints(history.prompt.size(), slots[row])),
                   upload({length}, history.prompt));
    }
    const DeviceView lanes = upload({num_rows}, rows);
    for (std::size_t step = 0; step < num_steps; ++step) {
      Ints tokens;
      for (const History& history : histories) {
        tokens.push_back(step < history.generated.size() ? history.generated[step] : -1);
      }
      count_tokens(stream(), counts, row_slots, lanes, upload({num_rows}, tokens),
                   upload({num_rows}, Ints(tokens.size(), 1)));
    }
    const DeviceView out = upload({num_rows, vocabulary}, logits);
    apply_penalties(stream(), out, counts, lanes,
                    {row_slots, upload({num_rows}, repetition), upload({num_rows}, presence),
                     upload({num_rows}, frequency)});
    return download<float>(out);
  }
};

TEST_F(Penalties, EqualANaiveCountOfTheEmittedTokens) {
  for (const std::int32_t vocabulary : {7, 32, 100, 1003}) {
    std::vector<History> histories;
    for (std::uint64_t row = 0; row < 4; ++row) {
      histories.push_back({random_tokens(40, vocabulary, row + 1),
                           random_tokens(10 + row * 5, vocabulary, row + 20), 1.3F, 0.7F, 0.25F});
    }
    histories[1].repetition = 1.0F;
    histories[2].presence = 0.0F;
    histories[2].frequency = -0.5F;
    const std::vector<float> logits = random_floats(4 * vocabulary, 3, 8.0F);
    std::vector<double> expected;
    for (std::size_t row = 0; row < 4; ++row) {
      const auto start = logits.begin() + static_cast<std::ptrdiff_t>(row) * vocabulary;
      const std::vector<double> one = penalised({start, start + vocabulary}, histories[row]);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    in_every_mode([&] {
      expect_close(apply(histories, {2, 0, 4, 1}, 5, logits), expected,
                   {.relative = 1e-6, .absolute = 1e-6});
    });
  }
}

TEST_F(Penalties, T_SA_6_ANeutralPenaltyAndALaneWithoutASlotKeepTheirBits) {
  const std::int32_t vocabulary = 203;
  const Ints prompt = random_tokens(50, vocabulary, 1);
  const std::vector<float> logits = random_floats(2 * vocabulary, 3, 8.0F);
  in_every_mode([&] {
    // Row 0 has a slot but neutral penalties; row 1 has strong ones but no slot.
    const std::vector<History> histories{{prompt, prompt, 1.0F, 0.0F, 0.0F},
                                         {prompt, prompt, 5.0F, 5.0F, 5.0F}};
    EXPECT_EQ(apply(histories, {0, -1}, 1, logits), logits);
  });
}

/// Rows with and without penalties, mixed: each must come out as it does alone.
TEST_F(Penalties, B_03_ALaneIsPenalisedTheSameAloneAndInABatch) {
  const std::int32_t vocabulary = 101;
  const History history{random_tokens(20, vocabulary, 5), random_tokens(20, vocabulary, 6), 1.2F,
                        0.5F, 0.5F};
  const std::vector<float> row = random_floats(vocabulary, 3, 8.0F);
  in_every_mode([&] {
    const std::vector<float> alone = apply({history}, {0}, 1, row);
    std::vector<float> batch = random_floats(5 * vocabulary, 4, 8.0F);
    std::copy(row.begin(), row.end(), batch.begin() + 3 * vocabulary);
    const History plain{history.prompt, history.generated, 1.0F, 0.0F, 0.0F};
    const std::vector<float> out =
        apply({plain, history, plain, history, plain}, {-1, 2, -1, 0, 1}, 3, batch);
    EXPECT_EQ(std::vector<float>(out.begin() + 3 * vocabulary, out.begin() + 4 * vocabulary),
              alone);
  });
}

TEST_F(Penalties, PaddingLanesAreNotTouched) {
  in_every_mode([&] {
    const std::vector<float> logits = random_floats(2 * 40, 3);
    const DeviceView out = upload({2, 40}, logits);
    const DeviceView columns = upload({1}, std::vector<float>{2.0F});
    apply_penalties(stream(), out, upload({1, 40}, Ints(40, 3)), upload({2}, Ints{-1, -1}),
                    {upload({1}, Ints{0}), columns, columns, columns});
    EXPECT_EQ(download<float>(out), logits);
  });
}

TEST_F(Penalties, CountPromptMarksTokensOnceAndKeepsWhatWasGenerated) {
  const Ints slots{0, 0, 1, -1, 0, 1, 1};
  const Ints tokens{3, 3, 4, 0, 99, -1, 2};
  in_every_mode([&] {
    Ints before(10, 0);
    before[7] = 6;  // slot 1, token 2 was generated six times already
    const DeviceView counts = upload({2, 5}, before);
    count_prompt(stream(), counts, upload({7}, slots), upload({7}, tokens));
    Ints expected(10, 0);
    expected[3] = kSeenInPrompt;
    expected[9] = kSeenInPrompt;
    expected[7] = kSeenInPrompt + 6;
    EXPECT_EQ(download<std::int32_t>(counts), expected);
  });
}

TEST_F(Penalties, B_04_CountTokensEqualsAHistogramAndSkipsWhatDoesNotCount) {
  in_every_mode([&] {
    const DeviceView counts = upload({2, 4}, Ints(8, 0));
    const DeviceView slots = upload({4}, Ints{1, -1, 0, 0});
    // Lanes: row 0; padding; row 1 without slot; row 2 thrown away; row 3 with a failed sample.
    const DeviceView rows = upload({5}, Ints{0, -1, 1, 2, 3});
    const DeviceView publish = upload({5}, Ints{1, 1, 1, 0, 1});
    for (const std::int32_t token : {2, 3, 2, 2}) {
      count_tokens(stream(), counts, slots, rows, upload({5}, Ints{token, 1, 1, 1, -1}), publish);
    }
    EXPECT_EQ(download<std::int32_t>(counts), (Ints{0, 0, 0, 0, 0, 0, 3, 1}));
  });
}

TEST_F(Penalties, BiasAndBarsChangeTheirTokensOnly) {
  const std::vector<float> logits = random_floats(3 * 6, 3);
  in_every_mode([&] {
    const DeviceView out = upload({3, 6}, logits);
    apply_logit_bias(stream(), out, upload({4}, Ints{0, 2, -1, 2}), upload({4}, Ints{5, 0, 1, 1}),
                     upload({4}, std::vector<float>{1.5F, -100.0F, 7.0F, 0.25F}));
    bar_tokens(stream(), out, upload({3}, Ints{1, -1, 1}), upload({3}, Ints{4, 0, 2}));
    std::vector<float> expected = logits;
    expected[5] += 1.5F;
    expected[12] += -100.0F;
    expected[13] += 0.25F;
    expected[10] = -kInfinity;
    expected[8] = -kInfinity;
    EXPECT_EQ(download<float>(out), expected);
  });
}

TEST_F(Penalties, TakeNoEntries) {
  in_every_mode([&] {
    const DeviceView none = output(Dtype::kI32, {0});
    const DeviceView logits = upload({1, 3}, std::vector<float>{1, 2, 3});
    const DeviceView counts = upload({1, 3}, Ints{0, 0, 0});
    count_prompt(stream(), counts, none, none);
    count_tokens(stream(), counts, upload({1}, Ints{0}), none, none, none);
    apply_logit_bias(stream(), logits, none, none, output(Dtype::kF32, {0}));
    bar_tokens(stream(), logits, none, none);
    EXPECT_EQ(download<float>(logits), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(download<std::int32_t>(counts), (Ints{0, 0, 0}));
  });
}

}  // namespace
}  // namespace rigel::kernels
