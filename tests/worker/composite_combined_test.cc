// Prompts and decode lanes of a composite's language model in one step, turn by turn.

#include "engine/output_collector.h"
#include "model/language_model_names.h"
#include "tests/worker/composite_turns.h"

#include <gmock/gmock.h>

#include <array>

namespace rigel {
namespace {

using testing::LlmPrompt;

class CompositeCombined : public testing::CompositeTurns {
 protected:
  struct Result {
    std::map<int, std::vector<std::int32_t>> tokens;
    NodeCounts counts;
  };
  /// Six requests, the next one coming in while the others are at it.
  Result run(const Sizes& sizes, bool one_step_ahead) {
    start(sizes);
    for (const auto& [num_prompt_tokens, max_tokens] :
         {std::pair(9, 30), {70, 12}, {40, 1}, {3, 25}, {55, 20}, {20, 30}}) {
      while (!table->has_free_row()) {
        run_turn(one_step_ahead);
      }
      open(num_prompt_tokens, max_tokens);
      for (int turn = 0; turn < 5; ++turn) {
        run_turn(one_step_ahead);
      }
    }
    run_until(0, one_step_ahead);
    finish_flying();
    Result result{.tokens = values, .counts = composite->counts()};
    EXPECT_EQ(result.counts.pages_in_use, 0);
    return result;
  }
};

TEST_F(CompositeCombined, T_WK_1_prompts_and_decode_lanes_share_steps_and_give_the_same_tokens) {
  const Result apart = run({.max_step_tokens = 16, .label = ""}, false);
  ASSERT_EQ(apart.tokens.size(), 6U);
  EXPECT_EQ(apart.tokens.at(2).size(), 12U);
  EXPECT_EQ(apart.counts.num_combined_steps, 0);
  for (const LlmPrompt way : {LlmPrompt::kEmbeddings, LlmPrompt::kBoth}) {
    for (const bool ahead : {false, true}) {
      const Result combined = run({.max_step_tokens = 16, .prompt = way}, ahead);
      EXPECT_EQ(combined.tokens, apart.tokens) << ahead;
      EXPECT_GT(combined.counts.num_combined_steps, 5);
      if (way == LlmPrompt::kEmbeddings && !ahead) {
        RecordProperty("steps_apart", std::to_string(apart.counts.num_steps));
        RecordProperty("steps_combined", std::to_string(combined.counts.num_steps));
        EXPECT_LT(combined.counts.num_steps * 10, apart.counts.num_steps * 9);
      }
    }
  }
}

TEST_F(CompositeCombined, T_WK_1_decode_lanes_go_on_ahead_when_a_prompt_joins) {
  start({.max_step_tokens = 16});
  open(4, 60);
  for (int turn = 0; turn < 6; ++turn) {
    run_turn(/*one_step_ahead=*/true);
  }
  open(60, 5);  // 60 tokens beside a decode lane, 15 at a time: four parts
  std::int64_t num_joined = 0;
  while (num_joined < 3) {
    const NodeCounts before = composite->counts();
    const bool follows =
        composite->last_node() == LanguageModelNames::kNode;  // no other node's step
    ASSERT_TRUE(composite->launch_step());
    const NodeCounts after = composite->counts();
    if (follows && after.num_combined_steps > before.num_combined_steps) {
      ++num_joined;
      for (const SpeculativeRow kind : {SpeculativeRow::kContinuing, SpeculativeRow::kFresh}) {
        const auto index = static_cast<std::size_t>(kind);
        EXPECT_EQ(after.speculative_rows[index] - before.speculative_rows[index], 1);
      }
    }
    if (composite->num_in_flight() == Composite::kMaxInFlight) {
      composite->complete_step();
    }
    ASSERT_LT(composite->last_launched(), 40U);
  }
  run_until(0, true);
  EXPECT_EQ(values[1].size(), 60U);
  EXPECT_EQ(values[2].size(), 5U);
  finish_flying();
}

TEST_F(CompositeCombined, T_WK_6_a_combined_step_that_is_refused_is_put_back_whole) {
  for (const LlmPrompt way : {LlmPrompt::kEmbeddings, LlmPrompt::kBoth}) {
    const Result expected = run({.label = "", .prompt = way}, false);
    for (const bool ahead : {false, true}) {
      const Result few = run({.num_pages = 7, .prompt = way}, ahead);
      EXPECT_EQ(few.tokens, expected.tokens) << ahead;
      EXPECT_GT(few.counts.num_preemptions, 0) << ahead;
      EXPECT_GT(few.counts.num_combined_steps, 0) << ahead;
    }
  }
}

TEST_F(CompositeCombined, T_WK_3_who_is_removed_from_a_combined_step_leaves_the_others_alone) {
  const Result expected = run({.label = ""}, false);
  start({.max_step_tokens = 16});
  const RequestHandle decodes = open(9, 30);
  for (int turn = 0; turn < 6; ++turn) {
    run_turn(true);
  }
  const RequestHandle reads = open(70, 12);
  const auto run_to_combined = [&](std::int64_t count) {
    while (composite->counts().num_combined_steps < count) {
      run_turn(true);
      ASSERT_LT(composite->last_launched(), 60U);
    }
    ASSERT_GT(composite->num_in_flight(), 0U);
  };
  run_to_combined(1);
  ASSERT_GT(composite->num_lanes_in_flight(decodes), 0);
  ASSERT_GT(composite->num_lanes_in_flight(reads), 0);
  end(decodes);
  run_until(0, true);
  finish_flying();
  EXPECT_EQ(values[2], expected.tokens.at(2));
  const std::vector<std::int32_t>& whole = expected.tokens.at(1);
  ASSERT_LT(values[1].size(), whole.size());
  EXPECT_TRUE(std::ranges::equal(values[1], std::span(whole).first(values[1].size())));
  EXPECT_EQ(composite->counts().pages_in_use, 0);
}

TEST_F(CompositeCombined, TheSubmoduleMustAgree) {
  try {
    start({.label = "together"});
    FAIL() << "loaded";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("node 'LLM' does not run walks together as 'together'"));
  }
}

/// Gives each request a token, which stays on the device in one walk and leaves the node in the other.
class Echo final : public NodeSubmodule {
 public:
  static constexpr WalkId kStays{0};
  static constexpr WalkId kLeaves{1};
  static constexpr WalkId kBoth{2};

  bool combines_walks(WalkId label) const override { return label == kBoth; }
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return std::make_unique<NodeInputs>();
  }
  void forward(const ModelInputsFromEngine&, BatchedModelOutput&) override {}
  std::span<const SignalId> device_loopback_signals(WalkId walk) const override {
    static constexpr std::array kSignals{SignalId{0}};
    return walk == kStays ? std::span<const SignalId>(kSignals) : std::span<const SignalId>();
  }
};

TEST(CombinedOutputs, GoWhereTheWalkOfTheirRowSendsThem) {
  Echo echo;
  const std::array handles{RequestHandle{0, 1}, RequestHandle{1, 1}};
  const std::array<RequestInfo, 2> infos{};
  const std::array info_of{&infos[0], &infos[1]};
  const std::array<InputMetadata, 2> metadata{};
  std::array<NodeInputs, 2> rows;
  rows[0].walk = Echo::kLeaves;
  rows[1].walk = Echo::kStays;
  const std::array<const NodeInputs*, 2> inputs{&rows[0], &rows[1]};
  const std::int32_t token = 7;
  BatchedModelOutput outputs;
  for (const RequestHandle handle : handles) {
    outputs.requests()[handle].assign(SignalId{0},
                                      {Tensor::copy_of(std::span<const std::int32_t>(&token, 1))});
  }
  RequestFailures failures;
  OutputCollector().collect(echo, {Echo::kBoth, handles, info_of, metadata, inputs}, outputs,
                            failures);
  EXPECT_EQ(outputs.requests()[handles[0]].find(SignalId{0})->size(), 1U);
  EXPECT_TRUE(outputs.requests()[handles[1]].find(SignalId{0})->empty());
}

}  // namespace
}  // namespace rigel
