#include "engine/step_runner.h"

#include "tests/engine/engine_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;

/// Notes what is asked of it.
class RecordingResource final : public Resource {
 public:
  RecordingResource(ResourceKey key, std::string name, std::vector<ResourceKey> needs,
                    std::vector<std::string>& calls)
      : Resource(key), name_(std::move(name)), needs_(std::move(needs)), calls_(calls) {}

  std::span<const ResourceKey> depends_on() const override { return needs_; }
  AdmitOutcome admit(const SubmoduleStep&, const StepContext&) override {
    calls_.push_back("admit " + name_);
    return refuses ? AdmitOutcome{AdmitOutcome::Reason::kAllocationFailed, 1, {}} : AdmitOutcome{};
  }
  void plan(const SubmoduleStep&, StepContext&) override { calls_.push_back("plan " + name_); }
  void commit(const SubmoduleStep&, const StepContext&) override {
    calls_.push_back("commit " + name_);
  }

  bool refuses = false;

 private:
  std::string name_;
  std::vector<ResourceKey> needs_;
  std::vector<std::string>& calls_;
};

class StepRunnerTest : public rigel::testing::EngineTest {
 protected:
  RecordingResource& add(const std::string& name, std::vector<ResourceKey> needs) {
    auto resource =
        std::make_unique<RecordingResource>(resources.next_key(), name, std::move(needs), calls);
    RecordingResource& added = *resource;
    resources.add(name, std::move(resource));
    return added;
  }
  void declare(std::initializer_list<int> keys) {
    for (const int key : keys) {
      step.declare<AttentionStep>(ResourceKey(static_cast<std::uint16_t>(key)));
    }
  }

  std::vector<std::string> calls;
  NodeResources resources;
  SubmoduleStep step;
};

TEST_F(StepRunnerTest, T_RS_1_cycles_and_unknown_dependencies_are_refused) {
  add("a", {ResourceKey{1}});
  EXPECT_THROW(StepRunner{resources}, CheckError);
  add("b", {ResourceKey{0}});
  EXPECT_THROW(StepRunner{resources}, CheckError);
}

TEST_F(StepRunnerTest, T_RS_2_dependencies_come_first_and_names_decide_among_equals) {
  add("zebra", {});
  add("attention", {ResourceKey{2}});
  add("kv", {});
  declare({0, 1, 2});
  StepRunner(resources).plan(step, *context);
  EXPECT_THAT(calls, ElementsAre("plan kv", "plan attention", "plan zebra"));
}

TEST_F(StepRunnerTest, T_RS_4_a_refusal_stops_the_sweep) {
  add("a", {});
  add("b", {}).refuses = true;
  add("c", {});
  declare({0, 1, 2});
  EXPECT_FALSE(StepRunner(resources).admit(step, *context).ok());
  EXPECT_THAT(calls, ElementsAre("admit a", "admit b"));
}

TEST_F(StepRunnerTest, ResourcesThatAStepDoesNotDeclareAreLeftAlone) {
  add("a", {});
  add("b", {});
  declare({1});
  const StepRunner runner(resources);
  EXPECT_TRUE(runner.admit(step, *context).ok());
  runner.commit(step, *context);
  EXPECT_THAT(calls, ElementsAre("admit b", "commit b"));
}

TEST(NodeResourcesTest, AMissingResourceIsNamedTogetherWithWhatThereIs) {
  std::vector<std::string> calls;
  NodeResources resources;
  resources.add("kv", std::make_unique<RecordingResource>(ResourceKey{0}, "kv",
                                                          std::vector<ResourceKey>{}, calls));
  try {
    std::ignore = resources.get<RecordingResource>("sampler");
    FAIL() << "found a sampler";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'sampler'"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("kv"));
  }
}

}  // namespace
}  // namespace rigel
