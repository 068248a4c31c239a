#include "worker/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

namespace rigel {
namespace {

using ::testing::ElementsAre;

/// A byte-level vocabulary: one token a letter, and a control token.
text::TokenizerSpec letters() {
  text::TokenizerSpec spec;
  spec.model = text::TokenizerModel::kByteLevelBpe;
  spec.pre = "gpt-2";
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    spec.tokens.emplace_back(1, letter);
    spec.types.push_back(text::TokenType::kNormal);
  }
  spec.tokens.emplace_back("<end>");
  spec.types.push_back(text::TokenType::kControl);
  return spec;
}

/// Collects an answer; `wait` until it is complete.
class TextCollector final : public OutputListener {
 public:
  void on_delta(const OutputDelta& delta) override {
    text += delta.text;
    for (const GeneratedToken& token : delta.tokens) {
      ids.push_back(token.id);
    }
    if (delta.finish) {
      finish = *delta.finish;
      stop_string = delta.stop_string;
      error = delta.error;
      ended_.set_value();
    }
  }
  void wait() { ended_.get_future().wait(); }

  std::string text;
  std::vector<std::int32_t> ids;
  FinishReason finish{};
  std::string stop_string;
  std::string error;

 private:
  std::promise<void> ended_;
};

class DispatcherTest : public ::testing::Test {
 protected:
  std::shared_ptr<TextCollector> open(RequestId id, std::vector<std::string> stop = {},
                                      std::int32_t min_tokens = 0) {
    auto collector = std::make_shared<TextCollector>();
    dispatcher.open({.id = id,
                     .listener = collector,
                     .stop = std::move(stop),
                     .include_stop = false,
                     .skip_special = true,
                     .num_prompt_tokens = 1,
                     .min_tokens = min_tokens});
    return collector;
  }
  /// One step in which one request gets a token.
  void step(RequestId id, std::int32_t token, std::optional<FinishReason> finish = std::nullopt,
            bool shows_token = true) {
    StepOutput& output = dispatcher.message().outputs.emplace_back();
    output.id = id;
    output.token = token;
    if (!shows_token) {
      dispatcher.message().details_of(output).shows_token = false;
    }
    if (finish) {
      end(output, *finish);
    }
    EXPECT_TRUE(dispatcher.post());
  }
  void end(StepOutput& output, FinishReason reason, std::string error = "") {
    std::vector<RequestEnding>& endings = dispatcher.message().endings;
    dispatcher.message().details_of(output).ending = static_cast<std::int32_t>(endings.size());
    endings.push_back({reason, std::move(error), nullptr});
  }
  void spell(RequestId id, const std::string& word) {
    for (const char letter : word) {
      step(id, letter - 'a');
    }
  }

  text::Tokenizer tokenizer{letters()};
  std::mutex mutex;
  std::vector<RequestId> stopped;
  std::int32_t tokens_at_stop = 0;
  Dispatcher dispatcher{&tokenizer, [this](RequestId id, std::int32_t num_tokens) {
                          const std::lock_guard lock(mutex);
                          stopped.push_back(id);
                          tokens_at_stop = num_tokens;
                        }};
};

TEST_F(DispatcherTest, TokensBecomeTextInOrder) {
  const auto answer = open(RequestId{1});
  spell(RequestId{1}, "hello");
  step(RequestId{1}, 26, FinishReason::kStop, /*shows_token=*/false);
  answer->wait();
  EXPECT_EQ(answer->text, "hello");
  EXPECT_THAT(answer->ids, ElementsAre(7, 4, 11, 11, 14, 26));
  EXPECT_EQ(answer->finish, FinishReason::kStop);
  EXPECT_TRUE(stopped.empty());
}

TEST_F(DispatcherTest, AStopStringAcrossTokensEndsTheTextBeforeItAndTellsTheWorker) {
  const auto answer = open(RequestId{2}, {"llo"});
  spell(RequestId{2}, "hellothere");
  answer->wait();
  EXPECT_EQ(answer->text, "he");
  EXPECT_EQ(answer->finish, FinishReason::kStop);
  EXPECT_EQ(answer->stop_string, "llo");
  const auto other = open(RequestId{3});
  step(RequestId{3}, 0, FinishReason::kLength);
  other->wait();
  const std::lock_guard lock(mutex);
  EXPECT_THAT(stopped, ElementsAre(RequestId{2}));
  EXPECT_EQ(tokens_at_stop, 5);
}

TEST_F(DispatcherTest, AStopStringDoesNotEndAnAnswerThatIsStillTooShort) {
  const auto answer = open(RequestId{7}, {"lo", "er"}, /*min_tokens=*/5);
  spell(RequestId{7}, "hello");  // complete in time, and counted no more when the next tokens come
  spell(RequestId{7}, "there");
  answer->wait();
  EXPECT_EQ(answer->text, "helloth");
  EXPECT_EQ(answer->stop_string, "er");
  EXPECT_EQ(answer->ids.size(), 9u);
}

TEST_F(DispatcherTest, AStopStringThatBeginsInTimeAndEndsLaterEndsTheAnswer) {
  const auto answer = open(RequestId{8}, {"loth"}, /*min_tokens=*/5);
  spell(RequestId{8}, "hellothere");
  answer->wait();
  EXPECT_EQ(answer->text, "hel");
  EXPECT_EQ(answer->ids.size(), 7u);
}

TEST_F(DispatcherTest, WhatIsHeldBackForAStopStringComesAtTheEnd) {
  const auto answer = open(RequestId{4}, {"lox"});
  spell(RequestId{4}, "hel");
  step(RequestId{4}, 'o' - 'a', FinishReason::kLength);
  answer->wait();
  EXPECT_EQ(answer->text, "helo");
  EXPECT_EQ(answer->finish, FinishReason::kLength);
}

TEST_F(DispatcherTest, AnErrorReachesTheListenerOfItsRequestAlone) {
  const auto failed = open(RequestId{5});
  const auto fine = open(RequestId{6});
  StepOutput& output = dispatcher.message().outputs.emplace_back();
  output.id = RequestId{5};
  end(output, FinishReason::kError, "broken");
  EXPECT_TRUE(dispatcher.post());
  step(RequestId{6}, 1, FinishReason::kLength);
  failed->wait();
  fine->wait();
  EXPECT_EQ(failed->error, "broken");
  EXPECT_EQ(fine->text, "b");
  EXPECT_EQ(fine->error, "");
}

}  // namespace
}  // namespace rigel
