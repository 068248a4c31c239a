#include "model/language_model_walks.h"

#include "model/language_model_loader.h"
#include "model/language_model_names.h"
#include "model/synthetic_model.h"
#include "tests/model/null_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace rigel {
namespace {

using Names = LanguageModelNames;

TEST(LanguageModelWalks, HaveTheIdsThatTheModelUses) {
  const walk::Program program = compile_language_model();
  EXPECT_EQ(program.names.walks.name(Names::kPrefill), "prefill");
  EXPECT_EQ(program.names.walks.name(Names::kDecode), "decode");
  EXPECT_EQ(program.names.signals.name(Names::kTextInputs), "text_inputs");
  EXPECT_EQ(program.names.signals.name(Names::kNewToken), "new_token");
  EXPECT_EQ(program.walk(Names::kPrefill).partition, Names::kPartition);
  EXPECT_EQ(program.innermost_loop(Names::kDecode, Names::kNode), Names::kDecodeLoop);
  EXPECT_EQ(program.innermost_loop(Names::kPrefill, Names::kNode), std::nullopt);
}

TEST(LanguageModelWalks, DecodingGoesOnFromItsOwnToken) {
  const walk::Program program = compile_language_model();
  const walk::CompiledWalk& decode = program.walk(Names::kDecode);
  ASSERT_EQ(decode.successors.size(), 1U);
  EXPECT_TRUE(decode.successors.front().is_new_iteration);
  ASSERT_EQ(decode.consumed.size(), 1U);
  EXPECT_EQ(decode.consumed.front().signal, Names::kNewToken);
  EXPECT_EQ(decode.consumed.front().input, Names::kTextInputs);
  EXPECT_TRUE(program.walk(Names::kPrefill).successors.empty()) << "a prompt is one step";
}

/// A language model of no size on the null device.
class LanguageModelHooks : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = testing::open_null_device();
    if (device_ == nullptr) {
      GTEST_SKIP() << "no device";
    }
    const ModelFiles files = synthetic_model_files(64);
    model_.emplace(load_language_model(
        *device_, files,
        {.max_length = 64, .max_lanes = 2, .max_tokens = 64, .kv_cache_bytes = 1 << 30}, nullptr));
  }
  [[nodiscard]] NodeSubmodule& submodule() { return model_->engine->submodule(); }

 private:
  std::unique_ptr<Device> device_;
  std::optional<LoadedLanguageModel> model_;
};

TEST_F(LanguageModelHooks, T_NS_10_the_row_that_all_decode_lanes_share_is_what_each_would_prepare) {
  const RequestInfo info{};
  const InputMetadata metadata;
  SignalMap signals;
  signals.assign(Names::kTextInputs, {});
  const auto prepared = submodule().prepare_inputs({.walk = Names::kDecode, .signals = &signals},
                                                   RequestView(info, metadata));
  const auto& own = dynamic_cast<const ArNodeInputs&>(*prepared);
  const auto& shared =
      dynamic_cast<const ArNodeInputs&>(*submodule().uniform_row_inputs(Names::kDecode));
  EXPECT_EQ(shared.walk, own.walk);
  EXPECT_EQ(shared.input_seq_len, own.input_seq_len);
  EXPECT_EQ(shared.chunk_total, own.chunk_total);
  EXPECT_FALSE(own.input_ids.defined() || own.input_embeds.defined());
  EXPECT_FALSE(shared.input_ids.defined() || shared.input_embeds.defined());
  EXPECT_TRUE(own.tensor_inputs.empty() && own.kwargs.empty());
  EXPECT_TRUE(shared.tensor_inputs.empty() && shared.kwargs.empty());
  EXPECT_EQ(submodule().uniform_row_inputs(Names::kPrefill), nullptr) << "prompts differ";
}

TEST_F(LanguageModelHooks, T_NS_12_both_stop_checks_agree_on_random_rows) {
  std::mt19937 random(3);
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::int32_t>(random() % limit);
  };
  int num_stops = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int32_t num_requests = 1 + below(6);
    std::vector<RequestInfo> infos(static_cast<std::size_t>(num_requests));
    std::vector<InputMetadata> metadata(infos.size());
    std::vector<RequestView> views;
    std::vector<RequestHandle> handles;
    std::vector<kernels::StepRecord> records;
    for (std::size_t i = 0; i < infos.size(); ++i) {
      RequestInfo& info = infos[i];
      info.handle = {static_cast<std::int32_t>(i), 1};
      info.num_prompt_tokens = 1 + below(5);
      info.max_tokens = 1 + below(5);
      info.max_length = 4 + below(6);
      info.sampling.min_tokens = below(3);
      info.sampling.stop_token_ids = {below(4), 4 + below(4)};
      metadata[i].loop_counters.set(Names::kDecodeLoop, below(4));
      views.emplace_back(info, metadata[i]);
      if (below(4) != 0) {  // the others did not run in this step
        handles.push_back(info.handle);
        constexpr std::array<std::uint32_t, 6> kFlags{
            0, kernels::kStopEos,      kernels::kStopToken, kernels::kStopMaxTokens,
            0, kernels::kHostMustCheck};
        records.push_back({.row = info.handle.row,
                           .generation = 1,
                           .token = below(8),
                           .flags = kFlags[static_cast<std::size_t>(below(6))],
                           .num_generated = 1,
                           .length = 2,
                           .step = 1});
      }
    }
    std::ranges::shuffle(views, random);
    const HostRows::Buffer buffer{
        Names::kStopRecord,
        ConstHostView(reinterpret_cast<const std::byte*>(records.data()), Dtype::kI64,
                      {std::ssize(records), std::int64_t{kernels::kStepRecordWords}})};
    const bool has_rows = below(8) != 0;
    const HostRows rows{.handles = handles,
                        .buffers = std::span(&buffer, has_rows ? std::size_t{1} : std::size_t{0})};

    std::vector<LoopStop> batched;
    ASSERT_TRUE(submodule().check_stop_batched(views, rows, batched));
    std::vector<std::int32_t> apart;
    for (const RequestView& view : views) {
      for (const LoopId loop : submodule().check_stop(view, rows)) {
        EXPECT_EQ(loop, Names::kDecodeLoop);
        apart.push_back(view.info().handle.row);
      }
    }
    std::vector<std::int32_t> together;
    for (const LoopStop& stop : batched) {
      EXPECT_EQ(stop.loop, Names::kDecodeLoop);
      together.push_back(stop.handle.row);
    }
    std::ranges::sort(apart);  // the batched check goes by the rows, which are in order
    EXPECT_EQ(together, apart);
    num_stops += static_cast<int>(apart.size());
  }
  EXPECT_GT(num_stops, 100);
}

}  // namespace
}  // namespace rigel
