// A composite without its worker: what it holds for requests, whatever becomes of them.

#include "worker/composite.h"

#include "tests/worker/composite_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace rigel {
namespace {

using testing::CompositeRequest;

#if defined(__SANITIZE_THREAD__)
constexpr int kManyTurns = 1000;
#else
constexpr int kManyTurns = 3000;
#endif

class CompositeTest : public ::testing::Test, protected CompositeListener {
 protected:
  void SetUp() override {
    if (!Device::available() || Device::open({})->is_cuda()) {
      GTEST_SKIP() << "its model runs on the virtual device";
    }
    device = Device::open({});
  }
  void make(testing::EncoderLoops encoder_loops) {
    loops = encoder_loops;
    CompositeListener& listener = *this;
    composite = std::make_unique<Composite>(testing::make_composite_model(*device, script, loops),
                                            table, listener, /*max_step_tokens=*/64);
  }
  void on_value(RequestHandle handle, OutputValue value) override {
    const RequestState* const request = table.find(handle);
    ASSERT_NE(request, nullptr);
    ++num_values;
    if (value.name == "embedding") {
      embeddings[request->id].push_back(value.tensor.host_view().span<const float>()[0]);
    }
  }
  void on_end(RequestHandle handle) override {
    ++num_ended;
    end(*table.find(handle));
  }
  void on_failure(RequestHandle handle, const std::string& error) override {
    ADD_FAILURE() << error;
    end(*table.find(handle));
  }
  void end(RequestState& request) {
    const Epoch last_touch = composite->remove(request.handle());
    table.release(request, last_touch);
  }
  RequestState& open(const CompositeRequest& request) {
    auto state = std::make_unique<RequestState>();
    state->id = RequestId{++num_opened};
    state->info.seed = request.seed;
    state->info.sampling.temperature = request.guidance;
    state->spec.inputs = {
        {"denoiser", "latents", {Tensor::copy_of(std::span<const float>(request.latents))}},
        {"denoiser",
         "condition",
         {Tensor::copy_of(std::span<const float>(&request.condition, 1))}}};
    if (loops == testing::EncoderLoops::kTwo) {
      state->spec.inputs.insert(state->spec.inputs.end(), 2, {"encoder", "carry", {}});
    }
    RequestState& accepted = table.accept(std::move(state));
    table.assign_row(accepted);
    composite->open(accepted);
    return accepted;
  }
  /// A turn of a worker; false where nothing was left to do.
  bool turn() {
    const bool launched = composite->launch_step();
    const bool completes = composite->num_in_flight() >= (launched ? Composite::kMaxInFlight : 1);
    if (completes) {
      composite->complete_step();
    }
    return launched || completes;
  }

  testing::EncoderLoops loops = testing::EncoderLoops::kOne;
  testing::CompositeScript script;
  std::unique_ptr<Device> device;
  RequestTable table{4};
  std::unique_ptr<Composite> composite;
  std::uint64_t num_opened = 0;
  int num_ended = 0;
  int num_values = 0;
  std::map<RequestId, std::vector<float>> embeddings;
};

TEST_F(CompositeTest, LanesThatRanAheadOfTheirLoopsEndAreCounted) {
  make(testing::EncoderLoops::kOne);
  std::int64_t num_needed = 0;
  for (const CompositeRequest& request : testing::requests_of_every_kind()) {
    open(request);
    while (turn()) {
    }
    num_needed += testing::expect(request).num_iterations;
  }
  const NodeCounts counts = composite->counts();
  EXPECT_EQ(counts.num_wasted_rows,
            static_cast<std::int64_t>(script.count("denoise")) - num_needed);
  EXPECT_GT(counts.num_wasted_rows, 0);
  EXPECT_GT(counts.speculative_rows[static_cast<std::size_t>(SpeculativeRow::kContinuing)], 0);
}

class CompositeRests : public CompositeTest,
                       public ::testing::WithParamInterface<testing::EncoderLoops> {};

TEST_P(CompositeRests, T_GR_13_nothing_is_held_for_requests_that_ended_or_left) {
  script.ends_encoding = [](std::int64_t start) { return start == 0; };
  make(GetParam());
  std::vector<CompositeRequest> requests = testing::requests_of_every_kind();
  if (GetParam() != testing::EncoderLoops::kOne) {
    // Of the second walk's chunks there must be some.
    std::erase_if(requests, [](const CompositeRequest& request) {
      return testing::CompositeMath::num_frames(request.latents.size()) < 4;
    });
  }
  std::mt19937 random(7);
  int num_left = 0;
  for (int turns = 0; turns < kManyTurns; ++turns) {
    if (table.has_free_row() && random() % 3 == 0) {
      open(requests[random() % requests.size()]);
    }
    turn();
    if (table.size() > 0 && random() % 40 == 0) {
      end(table.any());
      ++num_left;
    }
  }
  while (turn()) {
  }
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(composite->num_tensors(), 0U);
  EXPECT_EQ(num_ended + num_left, static_cast<int>(num_opened));
  EXPECT_GT(num_ended, kManyTurns / 60);
  EXPECT_GT(num_left, kManyTurns / 150);
}

/// A chunk of one item comes while steps ahead take one chunk of two after the other from a backlog.
TEST_F(CompositeTest, T_WK_9_a_chain_yields_to_a_chunk_of_another_capture_group) {
  script.keys_by_chunk = true;
  script.ends_encoding = [](std::int64_t start) { return start == 2; };
  make(testing::EncoderLoops::kTwo);
  open({.seed = 1, .latents = {1e9F, 2.0F, 3.0F, 4.0F, 5.0F}, .condition = 1.0F});
  for (int turns = 0; turns < 16; ++turns) {
    turn();
  }
  open({.seed = 2, .latents = {1.0F, -2.0F, 0.5F, 3.0F}, .condition = 0.5F});
  while (turn()) {
  }
  EXPECT_EQ(num_ended, 2);
  const std::vector<std::string> events = script.events();
  const auto single = std::ranges::find(events, "chunks of 1");
  ASSERT_NE(single, events.end());
  EXPECT_GE(std::count(single, events.end(), "chunks of 2"), 3)
      << "it waited until the backlog was gone";
}

/// One after the other comes to its second loop, while others are in their first: steps ahead take chunks in both.
TEST_F(CompositeTest, T_WK_4_two_loops_in_one_step_take_and_give_back_the_chunks_that_are_theirs) {
  script.combines_loops = true;
  script.ends_encoding = [](std::int64_t start) { return start == 4; };
  make(testing::EncoderLoops::kTwo);
  const CompositeRequest request{
      .seed = 1, .latents = {1e9F, 2.0F, 3.0F, 4.0F, 5.0F}, .condition = 1.0F};
  for (int count = 0; count < 6; ++count) {
    while (!table.has_free_row()) {
      turn();
    }
    open(request);
    for (int turns = 0; turns < 3; ++turns) {
      turn();
    }
  }
  while (turn()) {
  }
  EXPECT_EQ(num_ended, 6);
  ASSERT_EQ(embeddings.size(), 6U);
  const testing::CompositeExpectation on_the_host = testing::expect(request);
  std::vector<float> expected;
  for (const std::vector<float>& embedding : on_the_host.values.at("embedding")) {
    expected.insert(expected.end(), embedding.begin(), embedding.end());
  }
  for (const auto& [id, given] : embeddings) {
    EXPECT_EQ(given, expected);
  }
  EXPECT_GT(composite->counts().num_combined_steps, 0);
  EXPECT_EQ(composite->num_tensors(), 0U);
  const std::vector<std::string> events = script.events();
  EXPECT_GT(std::ranges::count(events, "both loops"), 0);
}

INSTANTIATE_TEST_SUITE_P(Loops, CompositeRests,
                         ::testing::Values(testing::EncoderLoops::kOne,
                                           testing::EncoderLoops::kTwo));

}  // namespace
}  // namespace rigel
