#include "engine/contract/submodule.h"

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

#include <random>

namespace rigel {
namespace {

using testing::Calls;
using ::testing::ElementsAre;
using testing::host_ids;
using ::testing::IsEmpty;
using testing::RecordingSubmodule;
using Names = testing::RecordingNames;

class SubmoduleTest : public testing::RecordingEngineTest {};

TEST_F(SubmoduleTest, T_NS_2_a_resource_that_the_node_lacks_is_missed_at_load) {
  try {
    Engine(*device, std::make_unique<RecordingSubmodule>(calls, *device), NodeResources(),
           EngineConfig{.staging_bytes = 1024});
    ADD_FAILURE() << "loaded without its resource";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'resource'"));
  }
  EXPECT_THAT(calls, IsEmpty()) << "nothing was bound";
}

TEST_F(SubmoduleTest, T_NS_6_outputs_by_row_alone_ask_for_nothing_else) {
  submodule->gives_outputs = false;
  run({0, 1});
  EXPECT_EQ(calls.back(), "commit 0,1");
  EXPECT_TRUE(engine->request_outputs().empty());
}

TEST_F(SubmoduleTest, B_47_packed_outputs_of_an_eager_step_are_cut_and_filtered_by_request) {
  submodule->packs = true;
  run({0, 1});
  EXPECT_THAT(output_of(0, Names::kHidden), ElementsAre(10));
  EXPECT_EQ(engine->request_outputs().find(infos[1].handle)->find(Names::kHidden), nullptr);
  EXPECT_THAT(output_of(1, Names::kText), ElementsAre(1)) << "postprocess renames for routing";
}

TEST_F(SubmoduleTest, T_NS_1_a_signal_that_stays_on_the_device_leaves_the_node_without_tensors) {
  submodule->loopback = {Names::kToken};
  run({0});
  const SignalMap& outputs = *engine->request_outputs().find(infos[0].handle);
  ASSERT_NE(outputs.find(Names::kToken), nullptr);
  EXPECT_TRUE(outputs.find(Names::kToken)->empty());
}

TEST_F(SubmoduleTest, T_NS_1_an_inlined_signal_is_read_out_of_the_rows_by_request) {
  submodule->gives_rows = true;
  submodule->inlined = {{Names::kToken, Names::kRowToken}};
  const HostRows rows = run({2, 0});
  EXPECT_TRUE(engine->request_outputs().find(infos[0].handle)->find(Names::kToken)->empty());
  std::vector<InlineValue> values;
  engine->append_inline_values(Names::kWalk, rows, infos[3].handle, /*lane=*/0, values);
  ASSERT_TRUE(values.empty()) << "a request without a row has no value";
  for (const std::size_t lane : {1, 0, 7}) {
    values.clear();
    engine->append_inline_values(Names::kWalk, rows, infos[0].handle, lane, values);
    ASSERT_EQ(values.size(), 1u) << "wherever it is said to be";
    EXPECT_EQ(values[0].signal, Names::kToken);
    EXPECT_THAT(values[0].value.span<const std::int32_t>(), ElementsAre(100));
  }
}

TEST_F(SubmoduleTest, T_NS_7_the_state_of_a_request_lives_from_admission_to_removal) {
  run({0, 1});
  run({0});
  EXPECT_THAT(output_of(0, Names::kToken), ElementsAre(2));
  EXPECT_EQ(submodule->request_state(infos[1].handle).get<std::int64_t>(Names::kNumSteps), 1);
  calls.clear();
  engine->remove_request(infos[0].handle);
  EXPECT_THAT(calls, ElementsAre("cleanup"));
  EXPECT_THROW(std::ignore = submodule->request_state(infos[0].handle), CheckError);
  ++infos[0].handle.generation;
  engine->add_request(infos[0]);
  run({0});
  EXPECT_THAT(output_of(0, Names::kToken), ElementsAre(1))
      << "nothing is left to the row's next owner";
}

TEST_F(SubmoduleTest, B_48_the_states_of_removed_requests_are_gone) {
  EXPECT_EQ(submodule->request_states().size(), 4u);
  for (const RequestInfo& info : infos) {
    engine->remove_request(info.handle);
    engine->remove_request(info.handle);
  }
  EXPECT_EQ(submodule->request_states().size(), 0u);
}

/// Says when it goes.
class Flag final : public Opaque {
 public:
  explicit Flag(bool& gone) : gone_(gone) {}
  ~Flag() override { gone_ = true; }

 private:
  bool& gone_;
};

TEST_F(SubmoduleTest, T_PS_7_what_a_removed_request_held_outlives_the_step_that_may_touch_it) {
  bool gone = false;
  submodule->request_state(infos[0].handle)
      .add(StateKey{7}, std::unique_ptr<Opaque>(std::make_unique<Flag>(gone)));
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok());
  engine->remove_request(infos[0].handle);
  EXPECT_FALSE(gone) << "the step in flight may still read what the state holds";
  std::ignore = engine->complete();
  EXPECT_TRUE(gone);
}

TEST_F(SubmoduleTest, T_NS_11_a_failing_postprocess_fails_its_request_only) {
  submodule->postprocess_fails_row = 0;
  run({0, 1});
  EXPECT_THAT(failures(), ElementsAre("0: no such voice"));
  EXPECT_EQ(engine->request_outputs().find(infos[0].handle), nullptr);
  EXPECT_THAT(output_of(1, Names::kText), ElementsAre(1));
}

TEST_F(SubmoduleTest, T_NS_12_both_stop_checks_agree_on_random_rows) {
  submodule->gives_rows = true;
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    submodule->stop_token = 100 + static_cast<std::int32_t>(random() % 5);
    const HostRows rows = round % 2 == 0 ? run({0, 2}) : run({3, 1, 0});
    const std::vector<RequestView> views = views_of({0, 1, 2, 3});
    const auto texts = [](std::span<const LoopStop> stops) {
      Calls rows_of_stops;
      for (const LoopStop& stop : stops) {
        rows_of_stops.push_back(std::to_string(stop.handle.row));
      }
      return rows_of_stops;
    };
    submodule->checks_batched = true;
    const Calls batched = texts(engine->check_stop(views, rows));
    submodule->checks_batched = false;
    EXPECT_EQ(batched, texts(engine->check_stop(views, rows)));
  }
}

TEST_F(SubmoduleTest, T_IM_2_a_hook_sees_the_counters_of_the_step) {
  LoopCounters& shared = infos[0].loop_counters;
  shared.set(Names::kLoop, 4);
  batch.clear();
  batch.add(infos[0].handle, infos[0], {shared, {{Names::kHidden, {8, 2, 6, true}}}}, LaneSource{});
  shared.increment(Names::kLoop);
  engine->prepare_inputs(batch);
  shared.increment(Names::kLoop);
  ASSERT_TRUE(engine->launch(batch).ok());
  std::ignore = engine->complete();
  EXPECT_THAT(submodule->loop_counts, ElementsAre(4, 4, 4)) << "prepare, forward, postprocess";
  EXPECT_THAT(submodule->chunk_sizes, ElementsAre(6, 6, 6));
  EXPECT_EQ(shared.count(Names::kLoop), 6);
}

TEST_F(SubmoduleTest, T_ME_3_an_eager_step_is_not_a_captured_one) {
  submodule->was_captured = true;
  run({0});
  EXPECT_FALSE(submodule->was_captured);
}

/// Only what the base class leaves open.
class PlainSubmodule final : public NodeSubmodule {
 public:
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return nullptr;
  }
  void forward(const ModelInputsFromEngine&, BatchedModelOutput&) override {}
  using NodeSubmodule::add_layer;
};

class PlainSubmoduleTest : public testing::DeviceTensorTest {};

TEST_F(PlainSubmoduleTest, T_NS_1_what_a_submodule_answers_unless_it_says_otherwise) {
  PlainSubmodule submodule;
  SubmoduleStep step;
  std::vector<LoopStop> stops;
  const RequestInfo info;
  const InputMetadata metadata;
  const RequestView request(info, metadata);
  SignalMap outputs;
  outputs.assign(Names::kToken, {host_ids({1})});
  EXPECT_TRUE(submodule.get_node_resources().empty());
  EXPECT_FALSE(submodule.can_batch({}));
  EXPECT_TRUE(submodule.can_use_cuda_graphs({}));
  EXPECT_EQ(submodule.cg_key_info({}), CgKey());
  EXPECT_FALSE(submodule.split_batches_by_capture_key(Names::kWalk));
  EXPECT_FALSE(submodule.declare_step({}, step));
  EXPECT_EQ(submodule.uniform_row_inputs(Names::kWalk), nullptr);
  EXPECT_TRUE(submodule.device_loopback_signals(Names::kWalk).empty());
  EXPECT_TRUE(submodule.inline_client_signals(Names::kWalk).empty());
  EXPECT_FALSE(submodule.max_batch_size(Names::kWalk).has_value());
  EXPECT_FALSE(submodule.compute_dtype().has_value());
  EXPECT_FALSE(submodule.disable_autocast());
  EXPECT_EQ(submodule.get_device(), nullptr);
  EXPECT_TRUE(submodule.get_cuda_graph_configs(*device, 1).empty());
  EXPECT_TRUE(submodule.get_piecewise_cuda_graph_configs(*device, Dtype::kF32, 1).empty());
  submodule.filter_batched_output(request, outputs);
  submodule.postprocess(request, outputs, NodeInputs());
  EXPECT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(submodule.check_stop(request, {}).empty());
  EXPECT_FALSE(submodule.check_stop_batched({}, {}, stops));
  EXPECT_THROW(std::ignore = submodule.split_inputs(request, NodeInputs(), 0, 1), CheckError);
}

TEST_F(PlainSubmoduleTest, T_NS_3_one_row_needs_no_preprocessing_and_two_are_the_models_business) {
  PlainSubmodule submodule;
  StepContext context(stream());
  const std::array<RequestHandle, 2> handles{{{0, 1}, {1, 1}}};
  const std::span<const RequestHandle> all(handles);
  EXPECT_NO_THROW(submodule.preprocess({Names::kWalk, all.first(1), {}, {}, {}}, context));
  EXPECT_THROW(submodule.preprocess({Names::kWalk, all, {}, {}, {}}, context), CheckError);
}

TEST_F(PlainSubmoduleTest, T_NS_2_every_layer_is_bound_once) {
  class Layer final : public ResourceUser {
   public:
    void bind_resources(const NodeResources&) override { ++times; }
    int times = 0;
  };
  Layer first;
  Layer second;
  PlainSubmodule submodule;
  submodule.add_layer(first);
  submodule.add_layer(second);
  submodule.bind_node_resources(NodeResources());
  EXPECT_EQ(first.times, 1);
  EXPECT_EQ(second.times, 1);
}

TEST_F(PlainSubmoduleTest, T_NS_1_the_compute_type_is_the_engines_unless_the_node_has_its_own) {
  class Typed final : public NodeSubmodule {
   public:
    Typed(std::optional<Dtype> dtype, bool opts_out) : dtype_(dtype), opts_out_(opts_out) {}
    std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
      return nullptr;
    }
    void forward(const ModelInputsFromEngine&, BatchedModelOutput&) override {}
    std::optional<Dtype> compute_dtype() const override { return dtype_; }
    bool disable_autocast() const override { return opts_out_; }

   private:
    std::optional<Dtype> dtype_;
    bool opts_out_;
  };
  const auto dtype_of_node = [this](std::optional<Dtype> dtype, bool opts_out) {
    return Engine(*device, std::make_unique<Typed>(dtype, opts_out), NodeResources(),
                  EngineConfig{.staging_bytes = 64, .dtype = Dtype::kBf16})
        .compute_dtype();
  };
  EXPECT_EQ(dtype_of_node(std::nullopt, false), Dtype::kBf16);
  EXPECT_EQ(dtype_of_node(Dtype::kF16, false), Dtype::kF16);
  EXPECT_EQ(dtype_of_node(Dtype::kF16, true), Dtype::kF32) << "opting out beats a type";
}

}  // namespace
}  // namespace rigel
