// Steps that replay a capture: the gate, the lease, padding, and what happens when declarations disagree.

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = testing::RecordingNames;

/// Captures of two lanes of kWalk.
class FakeCaptures final : public CapturedSteps {
 public:
  explicit FakeCaptures(testing::Calls& calls) : calls_(calls) {}
  std::optional<SlotLease> lease(const BucketQuery& query) override {
    queries.push_back(query);
    if (query.num_lanes > 2) {
      return std::nullopt;
    }
    ++num_leased;
    return SlotLease{0, {Names::kWalk, 2, 2, query.key}};
  }
  const NodeInputs& padding_row(const SlotLease&) const override { return padding; }
  void replay(const SlotLease&, const ModelInputsFromEngine& inputs,
              BatchedModelOutput& outputs) override {
    calls_.push_back("replay " + testing::rows_of(inputs.handles));
    was_captured = inputs.captured;
    if (replay_throws) {
      throw std::runtime_error("no replay");
    }
    for (const RequestHandle handle : inputs.handles) {
      outputs.requests()[handle].assign(Names::kToken, {testing::host_ids({5})});
    }
  }
  void release(const SlotLease&) noexcept override { --num_leased; }

  std::vector<BucketQuery> queries;
  NodeInputs padding;
  int num_leased = 0;
  bool replay_throws = false;
  bool was_captured = false;

 private:
  testing::Calls& calls_;
};

class CapturedStepsTest : public testing::RecordingEngineTest {
 protected:
  void SetUp() override {
    RecordingEngineTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    make_engine([](testing::RecordingSubmodule& model) {
      BatchedGraphConfig config;
      config.capture_walk = Names::kWalk;
      config.replay_walks = {Names::kAlias};
      config.batch_sizes = {2};
      config.caps_eager_batch_size = false;
      config.row = std::make_shared<NodeInputs>();
      model.graph_configs = {config};
    });
    engine->set_captured_steps(&captures);
    row.input_seq_len = 1;
  }
  [[nodiscard]] std::vector<std::pair<GraphMissReason, std::uint64_t>> misses() const {
    std::vector<std::pair<GraphMissReason, std::uint64_t>> all;
    for (const GraphMiss& miss : engine->graph_misses().all()) {
      all.emplace_back(miss.reason, miss.count);
    }
    return all;
  }
  FakeCaptures captures{calls};
};

TEST_F(CapturedStepsTest, T_EN_1_a_leased_step_is_padded_and_replays) {
  run({1});
  EXPECT_THAT(calls,
              ElementsAre("declare 1,-1 leased", "admit 1,-1", "plan 1,-1", "preprocess 1,-1",
                          "replay 1,-1", "commit 1,-1", "filter 1", "postprocess 1"));
  EXPECT_THAT(output_of(1, Names::kText), ElementsAre(5));
  EXPECT_THAT(misses(), IsEmpty());
}

TEST_F(CapturedStepsTest, T_NS_9_a_step_is_declared_over_its_padding_too) {
  submodule->gives_outputs = false;
  run({0});
  EXPECT_EQ(calls.front(), "declare 0,-1 leased");
  calls.clear();
  run({0, 1});
  EXPECT_EQ(calls[1], "declare 0,1 leased") << "a full bucket needs none";
}

TEST_F(CapturedStepsTest, T_ME_3_a_replayed_step_is_a_captured_one) {
  run({0});
  EXPECT_TRUE(captures.was_captured);
}

TEST_F(CapturedStepsTest, T_NS_4_the_gate_admits_aliases_and_asks_for_the_batchs_own_walk) {
  for (const WalkId walk : {Names::kWalk, Names::kAlias, WalkId{9}}) {
    batch_of({0}).walk = walk;
    ASSERT_TRUE(engine->launch(batch).ok());
    std::ignore = engine->complete();
  }
  ASSERT_EQ(captures.queries.size(), 2u) << "a walk that nothing was captured for asks nobody";
  EXPECT_EQ(captures.queries[0].walk, Names::kWalk);
  EXPECT_EQ(captures.queries[1].walk, Names::kAlias);
  EXPECT_EQ(captures.queries[1].num_tokens, 1);
}

TEST_F(CapturedStepsTest, T_NS_4_a_batch_that_fits_no_capture_runs_eagerly_and_is_counted) {
  submodule->takes_graphs = false;
  run({0});
  submodule->takes_graphs = true;
  submodule->key = CgKey::no_bucket();
  run({0});
  submodule->key = CgKey();
  run({0, 1, 2});
  EXPECT_THAT(misses(), ElementsAre(std::pair(GraphMissReason::kDeclined, 1u),
                                    std::pair(GraphMissReason::kNoBucket, 1u),
                                    std::pair(GraphMissReason::kNotCaptured, 1u)));
  EXPECT_EQ(std::ranges::count(calls, "replay 0"), 0);
}

TEST_F(CapturedStepsTest, T_EN_5_a_declaration_with_another_key_drops_the_lease_and_runs_eagerly) {
  submodule->key = CgKey::interned(1);
  submodule->declared_key = CgKey::interned(2);
  run({0});
  EXPECT_THAT(calls,
              ElementsAre("declare 0,-1 leased", "declare 0", "admit 0", "plan 0", "preprocess 0",
                          "forward 0", "commit 0", "filter 0", "postprocess 0"));
  EXPECT_THAT(misses(), ElementsAre(std::pair(GraphMissReason::kKeyMismatch, 1u)));
  EXPECT_EQ(captures.num_leased, 0);
}

TEST_F(CapturedStepsTest, T_NS_8_without_a_lease_the_keys_are_not_compared) {
  engine->set_captured_steps(nullptr);
  submodule->declared_key = CgKey::interned(2);
  run({0});
  EXPECT_THAT(misses(), IsEmpty());
}

TEST_F(CapturedStepsTest, T_EN_10_a_lease_is_given_back_on_every_way_out) {
  run({0});
  EXPECT_EQ(captures.num_leased, 0);
  resource->refuses_row = -1;
  EXPECT_FALSE(engine->launch(batch_of({0})).ok()) << "the padding lane is refused";
  EXPECT_EQ(captures.num_leased, 0);
  resource->refuses_row = -100;
  captures.replay_throws = true;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0})), std::runtime_error);
  EXPECT_EQ(captures.num_leased, 0);
  resource->plan_throws = true;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0})), std::runtime_error);
  EXPECT_EQ(captures.num_leased, 0);
}

TEST_F(CapturedStepsTest, T_EN_1_a_lease_batches_lanes_that_could_not_be_batched_eagerly) {
  submodule->batches = false;
  run({0, 1});
  EXPECT_EQ(std::ranges::count(calls, "replay 0,1"), 1);
}

TEST_F(CapturedStepsTest, B_62_padding_lanes_are_told_apart_by_negative_rows) {
  run({0});
  EXPECT_EQ(engine->request_outputs().size(), 1u) << "nothing of padding leaves the node";
  EXPECT_NE(engine->request_outputs().find(infos[0].handle), nullptr);
  EXPECT_EQ(std::ranges::count(calls, "postprocess -1"), 0);
}

TEST_F(CapturedStepsTest, T_NS_4_a_scheduler_asks_for_capture_groups_where_the_walk_is_split) {
  submodule->key = CgKey::interned(3);
  EXPECT_EQ(engine->capture_group(Names::kWalk, infos[0], metadata), CgKey());
  submodule->splits = true;
  EXPECT_EQ(engine->capture_group(Names::kWalk, infos[0], metadata), CgKey::interned(3));
  EXPECT_EQ(engine->capture_group(WalkId{9}, infos[0], metadata), CgKey()) << "nothing captured";
}

PackedGraphConfig packed_config() {
  PackedGraphConfig config;
  config.token_counts = {16, 32};
  config.make_row = [](std::int64_t) { return std::make_unique<NodeInputs>(); };
  return config;
}

TEST(GraphCatalogTest, T_NS_4_walks_are_summed_up_over_all_configs) {
  PackedGraphConfig first = packed_config();
  first.replay_walks = {WalkId{5}};
  PackedGraphConfig second = packed_config();
  second.key = CgKey::interned(1);
  second.batch_sizes = {1, 128};
  second.caps_eager_batch_size = false;
  const GraphCatalog catalog({first, second}, {});
  EXPECT_TRUE(catalog.replays(WalkId{0}));
  EXPECT_TRUE(catalog.replays(WalkId{5}));
  EXPECT_FALSE(catalog.replays(WalkId{1}));
  EXPECT_EQ(catalog.max_batch_size(WalkId{0}), 64) << "the second config caps nothing";
  EXPECT_EQ(catalog.max_batch_size(WalkId{5}), 64);
  EXPECT_FALSE(catalog.max_batch_size(WalkId{1}).has_value());
}

TEST(GraphCatalogTest, T_NS_4_a_config_that_cannot_be_is_refused_by_field) {
  const auto error_of = [](std::vector<CudaGraphConfig> steps,
                           std::vector<PiecewiseCudaGraphConfig> regions) -> std::string {
    try {
      GraphCatalog(std::move(steps), std::move(regions));
    } catch (const CheckError& error) {
      return error.what();
    }
    return "";
  };
  PackedGraphConfig unsorted = packed_config();
  unsorted.batch_sizes = {4, 2};
  EXPECT_THAT(error_of({unsorted}, {}), ::testing::HasSubstr("batch_sizes"));
  EXPECT_THAT(error_of({BatchedGraphConfig()}, {}), ::testing::HasSubstr("row is missing"));
  EXPECT_THAT(error_of({packed_config(), packed_config()}, {}),
              ::testing::HasSubstr("two graph configs"));
  PiecewiseBatchedConfig region;
  region.label = "block_loop";
  EXPECT_THAT(error_of({}, {region}), ::testing::HasSubstr("make_static_inputs"));
  region.make_static_inputs = [](const PiecewiseShape&) { return NamedTensors(); };
  region.capture = [](const PiecewiseCallInputs&) { return NamedViews(); };
  EXPECT_THAT(error_of({}, {region}), ::testing::HasSubstr("seq_len is 0"));
  region.seq_len = 1;
  EXPECT_EQ(error_of({}, {region}), "");
  region.lease_before_step = true;
  EXPECT_THAT(error_of({}, {region}), ::testing::HasSubstr("declare_step"));
  region.lease_before_step = false;
  EXPECT_THAT(error_of({}, {region, region}), ::testing::HasSubstr("'block_loop'"));
}

}  // namespace
}  // namespace rigel
