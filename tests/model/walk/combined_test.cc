// Which walks a definition combines, and which it cannot.

#include "model/walk/program.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

namespace rigel::walk {
namespace {

using ::testing::HasSubstr;

Definition definition(std::vector<CombinedWalks> combined) {
  const Node reads{.name = "LLM", .inputs = {"text"}, .outputs = {}};
  const Node other{.name = "other", .inputs = {"text"}, .outputs = {}};
  return {.walks = {{"prefill", reads}, {"look", reads}, {"decode", reads}, {"else", other}},
          .combined = std::move(combined)};
}

std::string error_of_combined(std::vector<CombinedWalks> combined) {
  try {
    static_cast<void>(compile(definition(std::move(combined)), {}));
  } catch (const DefinitionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CombinedWalks, StandInOneSetAndTheOthersAlone) {
  const Program program =
      compile(definition({{.node = "LLM", .label = "mixed", .walks = {"prefill", "decode"}}}), {});
  const auto walk = [&](const char* name) { return *program.names.walks.find(name); };
  ASSERT_EQ(program.step_walks.size(), 3U);
  EXPECT_EQ(program.step_walks[0].label, walk("mixed"));
  EXPECT_EQ(program.step_walks[0].walks, (std::vector{walk("prefill"), walk("decode")}));
  EXPECT_EQ(program.step_walks[1].label, walk("look"));
  EXPECT_EQ(program.step_walks[2].walks, std::vector{walk("else")});
  EXPECT_TRUE(program.walk(walk("mixed")).nodes.empty());
  EXPECT_EQ(compile(definition({}), {}).step_walks.size(), 4U) << "without a set, no step has two";
}

TEST(CombinedWalks, NameWhatDoesNotFit) {
  const CombinedWalks good{.node = "LLM", .label = "mixed", .walks = {"prefill", "decode"}};
  CombinedWalks wrong = good;
  wrong.node = "LLN";
  EXPECT_THAT(error_of_combined({wrong}),
              HasSubstr("'mixed' of node 'LLN': there is no such node"));
  wrong = good;
  wrong.label = "look";
  EXPECT_THAT(error_of_combined({wrong}), HasSubstr("the label must be a name of its own"));
  wrong = good;
  wrong.walks = {"prefill"};
  EXPECT_THAT(error_of_combined({wrong}), HasSubstr("walks has 1 names; it must have 2 to 4"));
  wrong.walks = {"prefill", "else"};
  EXPECT_THAT(error_of_combined({wrong}), HasSubstr("walk 'else' does not have the node"));
  wrong.walks = {"prefill", "nothing"};
  EXPECT_THAT(error_of_combined({wrong}), HasSubstr("walk 'nothing' does not have the node"));
  wrong = {.node = "LLM", .label = "other", .walks = {"decode", "look"}};
  EXPECT_THAT(error_of_combined({good, wrong}), HasSubstr("walk 'decode' is combined twice"));
  EXPECT_EQ(error_of_combined({good}), "no error");
}

}  // namespace
}  // namespace rigel::walk
