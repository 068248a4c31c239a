#include "engine/contract/submodule.h"

#include "engine/engine.h"
#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::host_ids;
using testing::host_values;

constexpr ResourceKey kKey{0};
constexpr SignalId kToken{1};
constexpr SignalId kText{2};
constexpr SignalId kHidden{3};
constexpr StateKey kNumSteps{0};

using Calls = std::vector<std::string>;

/// Notes what is asked of it.
class RecordingResource final : public Resource {
 public:
  explicit RecordingResource(Calls& calls) : Resource(kKey), calls_(calls) {}
  AdmitOutcome admit(const SubmoduleStep&, const StepContext&) override {
    calls_.push_back("admit");
    return refuses ? AdmitOutcome{AdmitOutcome::Reason::kAllocationFailed, 1, {}} : AdmitOutcome{};
  }
  void plan(const SubmoduleStep&, StepContext&) override { calls_.push_back("plan"); }
  void commit(const SubmoduleStep&, const StepContext&) override { calls_.push_back("commit"); }
  bool refuses = false;

 private:
  Calls& calls_;
};

/// Notes which hook is called, and gives each request the number of its steps.
class RecordingSubmodule final : public NodeSubmodule {
 public:
  explicit RecordingSubmodule(Calls& calls) : calls_(calls) {}

  void bind_node_resources(const NodeResources& resources) override {
    calls_.push_back("bind");
    std::ignore = resources.get<RecordingResource>("resource");
  }
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return std::make_unique<NodeInputs>();
  }
  bool can_batch(const BatchColumns&) const override {
    calls_.push_back("can_batch");
    return batches;
  }
  std::optional<std::int32_t> max_batch_size(WalkId) const override { return 3; }
  bool declare_step(const BatchColumns&, SubmoduleStep& step) const override {
    calls_.push_back("declare_step");
    step.declare<AttentionStep>(kKey);
    return declares;
  }
  void preprocess(const BatchColumns&, StepContext&) override { calls_.push_back("preprocess"); }
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    calls_.push_back("forward");
    EXPECT_EQ(inputs.step != nullptr, declares);
    EXPECT_FALSE(inputs.captured);
    if (packs) {
      outputs.set_packed("__hidden__", host_ids({10, 11}));
    }
    if (!gives_outputs) {
      return;
    }
    for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
      PerRequestState& state = inputs.states.lane(lane);
      if (!state.contains(kNumSteps)) {
        state.add(kNumSteps, std::int64_t{0});
      }
      const auto count = ++state.get<std::int64_t>(kNumSteps);
      outputs.requests()[inputs.handles[lane]].assign(
          kToken, {host_ids({static_cast<std::int32_t>(count)})});
    }
  }
  void unpack_packed_outputs(const BatchedModelOutput::Packed& packed, const BatchColumns& batch,
                             RequestOutputs& outputs) override {
    calls_.push_back("unpack");
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      outputs[batch.handles[lane]].assign(
          kHidden, {packed.front().second.slice(0, static_cast<std::int64_t>(lane), 1)});
    }
  }
  void filter_batched_output(const RequestView& request, SignalMap& outputs) const override {
    calls_.push_back("filter " + std::to_string(request.info().handle.row));
    if (request.info().handle.row == 1) {
      outputs.erase(kHidden);
    }
  }
  std::span<const SignalId> device_loopback_signals(WalkId) const override { return loopback; }
  void postprocess(const RequestView& request, SignalMap& outputs, const NodeInputs&) override {
    calls_.push_back("postprocess " + std::to_string(request.info().handle.row));
    if (request.info().handle.row == fails_row) {
      throw std::runtime_error("no such voice");
    }
    outputs.assign(kText, *outputs.find(kToken));
  }
  void cleanup_request(RequestHandle) override { calls_.push_back("cleanup"); }

  bool batches = true;
  bool declares = true;
  bool packs = false;
  bool gives_outputs = true;
  int fails_row = -1;
  std::vector<SignalId> loopback;

 private:
  Calls& calls_;
};

class SubmoduleTest : public testing::DeviceTensorTest {
 protected:
  void SetUp() override {
    DeviceTensorTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    NodeResources resources;
    auto made = std::make_unique<RecordingResource>(calls);
    resource = made.get();
    resources.add("resource", std::move(made));
    auto model = std::make_unique<RecordingSubmodule>(calls);
    submodule = model.get();
    engine = std::make_unique<Engine>(*device, std::move(model), std::move(resources),
                                      EngineConfig{.staging_bytes = 1024});
    for (RequestInfo& info : infos) {
      info.handle = {static_cast<std::int32_t>(&info - infos.data()), 1};
      engine->add_request(info);
    }
    calls.clear();
  }
  const ExecutingBatch& batch_of(std::size_t num_lanes) {
    batch.clear();
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      batch.add(infos[lane].handle, infos[lane], {}, row);
    }
    return batch;
  }
  void run(std::size_t num_lanes) {
    ASSERT_TRUE(engine->launch(batch_of(num_lanes)).ok());
    std::ignore = engine->complete();
  }
  [[nodiscard]] std::vector<std::int32_t> output_of(std::size_t request, SignalId signal) const {
    return host_values(engine->request_outputs().find(infos[request].handle)->find(signal)->at(0));
  }

  Calls calls;
  RecordingResource* resource = nullptr;
  RecordingSubmodule* submodule = nullptr;
  std::unique_ptr<Engine> engine;
  std::array<RequestInfo, 4> infos;
  NodeInputs row;
  ExecutingBatch batch;
};

TEST_F(SubmoduleTest, T_EN_1_hooks_and_resources_are_called_in_the_order_of_the_contract) {
  submodule->packs = true;
  run(2);
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare_step", "admit", "plan", "preprocess",
                                 "forward", "commit", "unpack", "filter 0", "postprocess 0",
                                 "filter 1", "postprocess 1"));
}

TEST_F(SubmoduleTest, T_EN_1_a_single_lane_is_not_asked_whether_it_batches) {
  submodule->batches = false;
  run(1);
  EXPECT_THAT(calls, ElementsAre("declare_step", "admit", "plan", "preprocess", "forward", "commit",
                                 "filter 0", "postprocess 0"));
  EXPECT_THROW(std::ignore = engine->launch(batch_of(2)), CheckError);
  EXPECT_EQ(engine->num_in_flight(), 0u);
}

TEST_F(SubmoduleTest, T_EN_4_a_refused_step_is_neither_planned_nor_postprocessed) {
  resource->refuses = true;
  EXPECT_FALSE(engine->launch(batch_of(2)).ok());
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare_step", "admit"));
  EXPECT_EQ(engine->num_in_flight(), 0u);
}

TEST_F(SubmoduleTest, T_EN_11_an_empty_step_and_one_above_the_models_limit_are_refused) {
  EXPECT_THROW(std::ignore = engine->launch(batch_of(0)), CheckError);
  EXPECT_THROW(std::ignore = engine->launch(batch_of(4)), CheckError);
  EXPECT_TRUE(calls.empty());
  run(3);
}

TEST_F(SubmoduleTest, AStepWithoutDeclarationUsesNoResources) {
  submodule->declares = false;
  run(1);
  EXPECT_THAT(calls,
              ElementsAre("declare_step", "preprocess", "forward", "filter 0", "postprocess 0"));
}

TEST_F(SubmoduleTest, T_NS_2_a_resource_that_the_node_lacks_is_missed_at_load) {
  EXPECT_THROW(Engine(*device, std::make_unique<RecordingSubmodule>(calls), NodeResources(),
                      EngineConfig{.staging_bytes = 1024}),
               CheckError);
}

TEST_F(SubmoduleTest, T_NS_6_outputs_by_row_alone_ask_for_nothing_else) {
  submodule->gives_outputs = false;
  run(2);
  EXPECT_EQ(calls.back(), "commit");
  EXPECT_TRUE(engine->request_outputs().empty());
}

TEST_F(SubmoduleTest, PackedOutputsAreCutAndFilteredByRequest) {
  submodule->packs = true;
  run(2);
  EXPECT_THAT(output_of(0, kHidden), ElementsAre(10));
  EXPECT_EQ(engine->request_outputs().find(infos[1].handle)->find(kHidden), nullptr);
  EXPECT_THAT(output_of(1, kText), ElementsAre(1)) << "postprocess renames for routing";
}

TEST_F(SubmoduleTest, ALoopbackSignalLeavesTheNodeWithoutTensors) {
  submodule->loopback = {kToken};
  run(1);
  const SignalMap& outputs = *engine->request_outputs().find(infos[0].handle);
  ASSERT_NE(outputs.find(kToken), nullptr);
  EXPECT_TRUE(outputs.find(kToken)->empty());
}

TEST_F(SubmoduleTest, T_NS_7_the_state_of_a_request_lives_from_admission_to_removal) {
  run(2);
  run(1);
  EXPECT_THAT(output_of(0, kToken), ElementsAre(2));
  EXPECT_EQ(submodule->request_state(infos[1].handle).get<std::int64_t>(kNumSteps), 1);
  EXPECT_EQ(submodule->request_states().size(), 4u);
  calls.clear();
  engine->remove_request(infos[0].handle);
  EXPECT_THAT(calls, ElementsAre("cleanup"));
  EXPECT_THROW(std::ignore = submodule->request_state(infos[0].handle), CheckError);
  ++infos[0].handle.generation;
  engine->add_request(infos[0]);
  run(1);
  EXPECT_THAT(output_of(0, kToken), ElementsAre(1)) << "nothing is left to the row's next owner";
}

TEST_F(SubmoduleTest, T_NS_11_a_failing_postprocess_fails_its_request_only) {
  submodule->fails_row = 0;
  run(2);
  ASSERT_EQ(engine->failed_requests().size(), 1u);
  EXPECT_EQ(engine->failed_requests()[0].handle, infos[0].handle);
  EXPECT_EQ(engine->failed_requests()[0].message, "no such voice");
  EXPECT_EQ(engine->request_outputs().find(infos[0].handle), nullptr);
  EXPECT_THAT(output_of(1, kText), ElementsAre(1));
  submodule->fails_row = -1;
  run(2);
  EXPECT_TRUE(engine->failed_requests().empty());
}

/// Only what the base class leaves open.
class PlainSubmodule final : public ArNodeSubmodule {
 public:
  void bind_node_resources(const NodeResources&) override {}
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return nullptr;
  }
  void preprocess(const BatchColumns&, StepContext&) override {}
  void forward(const ModelInputsFromEngine&, BatchedModelOutput&) override {}
};

TEST(NodeSubmoduleTest, T_NS_1_what_a_submodule_answers_unless_it_says_otherwise) {
  PlainSubmodule submodule;
  SubmoduleStep step;
  std::vector<LoopStop> stops;
  const RequestInfo info;
  const InputMetadata metadata;
  const RequestView request(info, metadata);
  SignalMap outputs;
  outputs.assign(kToken, {host_ids({1})});
  EXPECT_FALSE(submodule.can_batch({}));
  EXPECT_FALSE(submodule.declare_step({}, step));
  EXPECT_EQ(submodule.uniform_row_inputs(WalkId{0}), nullptr);
  EXPECT_TRUE(submodule.device_loopback_signals(WalkId{0}).empty());
  EXPECT_FALSE(submodule.max_batch_size(WalkId{0}).has_value());
  submodule.filter_batched_output(request, outputs);
  submodule.postprocess(request, outputs, NodeInputs());
  EXPECT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(submodule.check_stop(request, {}).empty());
  EXPECT_FALSE(submodule.check_stop_batched({}, {}, stops));
  EXPECT_THROW(std::ignore = submodule.split_inputs(request, NodeInputs(), 0, 1), CheckError);
}

}  // namespace
}  // namespace rigel
