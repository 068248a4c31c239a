#include "server/commands/offline_batch.h"

#include "server/commands/throughput.h"
#include "tests/server/fake_service.h"

#include <gtest/gtest.h>

#include <thread>

namespace rigel::server {
namespace {

using namespace std::chrono_literals;

GenerationRequest request_of(std::int32_t token) {
  GenerationRequest request;
  request.prompt = {token};
  return request;
}

TEST(OfflineBatch, HandsOutAnswersByPlaceInAnyOrder) {
  FakeService service;
  OfflineBatch batch(service, 2);
  service.set_script({.pieces = {"slow"}, .pause = 1h});
  const std::size_t slow = batch.add(request_of(1));
  service.set_script({.pieces = {"q", "uick"}, .finish = FinishReason::kLength});
  const std::size_t quick = batch.add(request_of(2));  // does not wait for the first
  const FinishedRequest answer = batch.take(quick);
  EXPECT_EQ(answer.text, "quick");
  EXPECT_EQ(answer.tokens.size(), 2u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  service.cancel(RequestId{1});
  EXPECT_EQ(batch.take(slow).finish, FinishReason::kCancelled);
}

TEST(OfflineBatch, WaitsWhileTheQueueIsFull) {
  FakeService service;
  OfflineBatch batch(service, 1);
  service.refuse_with(RequestError{RequestError::Kind::kOverloaded, "full", ""});
  std::thread makes_room([&] {
    std::this_thread::sleep_for(30ms);
    service.refuse_with(std::nullopt);
  });
  const FinishedRequest answer = batch.take(batch.add(request_of(1)));
  makes_room.join();
  EXPECT_FALSE(answer.refusal.has_value());
  EXPECT_EQ(answer.text, "Hello, world");
}

TEST(OfflineBatch, KeepsARefusalInItsPlace) {
  FakeService service;
  OfflineBatch batch(service, 1);
  service.refuse_with(RequestError{RequestError::Kind::kInvalid, "too long", "prompt"});
  const FinishedRequest answer = batch.take(batch.add(request_of(1)));
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->message, "too long");
}

TEST(OfflineBatch, CancelsWhatNobodyWaitsFor) {
  FakeService service;
  service.set_script({.never_ends = true});
  { OfflineBatch(service, 1).add(request_of(1)); }
  EXPECT_TRUE(service.wait_for_cancelled(1, 1s));
}

// 20 tokens, 10 ms each: about 100 tokens a second a request, whatever else the machine does (it can only be slower).
TEST(Throughput, MeasuresDecodingWhileAllRequestsRun) {
  FakeService service;
  service.set_script({.pieces = std::vector<std::string>(20, "x"),
                      .pause = 10ms,
                      .finish = FinishReason::kLength});
  const Throughput rates =
      measure_throughput(service, {.concurrency = 4, .input_len = 16, .output_len = 20});
  EXPECT_EQ(rates.prompt_tokens, 64);
  EXPECT_EQ(rates.new_tokens, 80);
  EXPECT_GT(rates.decode_tokens_per_s, 20.0);
  EXPECT_LT(rates.decode_tokens_per_s, 4 * 110.0);
  EXPECT_LT(rates.total_tokens_per_s, (64 + 80) / 0.2 * 1.1);
  for (const GenerationRequest& request : service.submitted()) {
    EXPECT_TRUE(request.sampling.ignore_eos);
    EXPECT_EQ(request.prompt.size(), 16u);
  }
}

TEST(Throughput, FailsWhereARequestDoes) {
  FakeService service;
  service.set_script({.finish = FinishReason::kError, .error = "broken"});
  EXPECT_THROW(static_cast<void>(measure_throughput(service, {})), std::runtime_error);
}

}  // namespace
}  // namespace rigel::server
