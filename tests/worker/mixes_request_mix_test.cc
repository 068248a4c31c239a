// The mixes themselves, and that a difference between answers is seen.

#include "tests/worker/request_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace rigel::testing {
namespace {

using ::testing::HasSubstr;

MixedAnswer some_answer() {
  MixedAnswer answer;
  answer.ids = {5, 6, 7};
  answer.logprobs = {{5, -0.5f}, {6, -1.0f}, {7, -2.0f}};
  answer.scores.logprobs = {-3.0f};
  answer.text = "abc";
  answer.finish = FinishReason::kLength;
  return answer;
}

MixedRequest some_request() {
  MixedRequest request;
  request.request.sampling.seed = 1;
  return request;
}

TEST(RequestMix, OneSeedMakesOneMix) {
  const auto first = make_request_mix(7, 512);
  const auto again = make_request_mix(7, 512);
  ASSERT_EQ(first.size(), again.size());
  for (std::size_t index = 0; index < first.size(); ++index) {
    EXPECT_EQ(describe(first[index]), describe(again[index]));
    EXPECT_EQ(first[index].request.prompt, again[index].request.prompt);
  }
  EXPECT_GE(first.size(), 3U);
  EXPECT_LE(first.size(), 12U);
}

TEST(RequestMix, EveryFieldOfAnAnswerIsCompared) {
  const MixedAnswer whole = some_answer();
  const auto differs = [&whole](auto change) {
    MixedAnswer answer = whole;
    change(answer);
    return !find_difference(some_request(), answer, whole, Cancels::kObey).empty();
  };
  EXPECT_FALSE(differs([](MixedAnswer&) {}));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.ids[1] = 9; }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.ids.pop_back(); }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.text += '.'; }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.finish = FinishReason::kStop; }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.stop_string = "c"; }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.error = "broken"; }));
  EXPECT_TRUE(differs([](MixedAnswer& answer) { answer.logprobs.pop_back(); }));
  EXPECT_TRUE(differs(
      [](MixedAnswer& answer) { answer.logprobs[2].logprob = std::nextafter(-2.0f, 0.0f); }));
  EXPECT_TRUE(differs(
      [](MixedAnswer& answer) { answer.scores.logprobs[0] = std::nextafter(-3.0f, 0.0f); }));
}

TEST(RequestMix, ACancelledAnswerMustBeABeginning) {
  const MixedAnswer whole = some_answer();
  MixedRequest request = some_request();
  request.cancel_after = 1;
  MixedAnswer cut = whole;
  cut.ids.resize(2);
  cut.logprobs.resize(2);
  cut.text = "ab";
  cut.scores = {};
  cut.finish = FinishReason::kCancelled;
  EXPECT_EQ(find_difference(request, cut, whole, Cancels::kObey), "");
  EXPECT_THAT(find_difference(request, cut, whole, Cancels::kIgnore), HasSubstr("abort"));
  cut.ids[1] = 9;
  EXPECT_NE(find_difference(request, cut, whole, Cancels::kObey), "");
}

}  // namespace
}  // namespace rigel::testing
