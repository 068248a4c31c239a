#include "model/language_model_walks.h"

#include "model/language_model_loader.h"
#include "model/language_model_names.h"
#include "model/synthetic_model.h"

#include <gtest/gtest.h>

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

TEST(LanguageModelWalks, T_NS_10_the_row_that_all_decode_lanes_share_is_what_each_would_prepare) {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  options.memory_bytes = std::int64_t{1} << 40;
  options.fill_garbage = false;
  const auto device = Device::open(options);
  const ModelFiles files = synthetic_model_files(64);
  const LoadedLanguageModel model = load_language_model(
      *device, files,
      {.max_length = 64, .max_lanes = 2, .max_tokens = 64, .kv_cache_bytes = 1 << 30}, nullptr);
  NodeSubmodule& submodule = model.engine->submodule();
  const RequestInfo info{};
  const InputMetadata metadata;
  SignalMap signals;
  signals.assign(Names::kTextInputs, {});
  const auto prepared = submodule.prepare_inputs({.walk = Names::kDecode, .signals = &signals},
                                                 RequestView(info, metadata));
  const auto& own = dynamic_cast<const ArNodeInputs&>(*prepared);
  const auto& shared =
      dynamic_cast<const ArNodeInputs&>(*submodule.uniform_row_inputs(Names::kDecode));
  EXPECT_EQ(shared.walk, own.walk);
  EXPECT_EQ(shared.input_seq_len, own.input_seq_len);
  EXPECT_EQ(shared.chunk_total, own.chunk_total);
  EXPECT_FALSE(own.input_ids.defined() || own.input_embeds.defined());
  EXPECT_FALSE(shared.input_ids.defined() || shared.input_embeds.defined());
  EXPECT_TRUE(own.tensor_inputs.empty() && own.kwargs.empty());
  EXPECT_TRUE(shared.tensor_inputs.empty() && shared.kwargs.empty());
  EXPECT_EQ(submodule.uniform_row_inputs(Names::kPrefill), nullptr) << "prompts differ";
}

}  // namespace
}  // namespace rigel
