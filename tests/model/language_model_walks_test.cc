#include "model/language_model_walks.h"

#include "model/language_model_names.h"

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

}  // namespace
}  // namespace rigel
