// A steady decode step inside the engine uses no heap.

#include "engine/engine.h"
#include "engine/resources/attention_planner.h"
#include "engine/resources/kv_cache.h"
#include "engine/resources/positions.h"
#include "engine/resources/sampler.h"
#include "tests/engine/allocation_count.h"
#include "tests/engine/device_tensors.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

constexpr std::int32_t kSteadyRows = 16;
constexpr std::int32_t kNumSteps = 1000;
constexpr WalkId kDecode{0};
constexpr LoopId kLoop{0};
constexpr SignalId kSteadyToken{1};

/// Decodes like a language model as far as the host can see: all four resources, and one copy in place of the forward.
class DecodingSubmodule final : public NodeSubmodule {
 public:
  explicit DecodingSubmodule(Device& device)
      : tokens_(device, Dtype::kI32, {kSteadyRows}), source_(device, Dtype::kI32, {kSteadyRows}) {
    row_.input_seq_len = 1;
  }
  void bind_node_resources(const NodeResources& resources) override {
    kv_ = resources.get<KvCache>("kv").key();
    positions_ = resources.get<Positions>("positions").key();
    attention_ = resources.get<AttentionPlanner>("attention").key();
    sampler_ = resources.get<Sampler>("sampler").key();
  }
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return nullptr;
  }
  const NodeInputs* uniform_row_inputs(WalkId) const override { return &row_; }
  bool can_batch(const BatchColumns&) const override { return true; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override {
    step.declare<KvStep>(kv_);
    step.declare<PositionStep>(positions_);
    step.declare<AttentionStep>(attention_);
    auto& sampler = step.declare<SamplerStep>(sampler_);
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      step.segments.push_back({batch.handles[lane], LabelId::kMain, 1});
      sampler.lanes.push_back({batch.handles[lane], batch.infos[lane],
                               batch.metadata[lane].loop_counters.count(kLoop),
                               static_cast<std::int32_t>(lane)});
    }
    return true;
  }
  void preprocess(const BatchColumns& batch, StepContext& context) override {
    const auto ids =
        context.staging->column<std::int32_t>(static_cast<std::int64_t>(batch.handles.size()));
    std::ranges::fill(ids.host, -1);
    context.stage(kSteadyToken, ids.device);
  }
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    const Shape shape{static_cast<std::int64_t>(inputs.handles.size())};
    copy(inputs.context->stream(), tokens_.view(Dtype::kI32, shape),
         ConstDeviceView(source_.view(Dtype::kI32, shape)));
    outputs.add_rows(kSteadyToken, tokens_.view(Dtype::kI32, shape));
    outputs.set_row_handles(inputs.handles);
  }
  bool check_stop_batched(std::span<const RequestView>, const HostRows&,
                          std::vector<LoopStop>&) const override {
    return true;
  }

 private:
  ArNodeInputs row_;
  DeviceBuffer tokens_;
  DeviceBuffer source_;
  ResourceKey kv_{};
  ResourceKey positions_{};
  ResourceKey attention_{};
  ResourceKey sampler_{};
};

class SteadyStepTest : public testing::DeviceTensorTest {
 protected:
  [[nodiscard]] std::unique_ptr<Engine> make_engine() const {
    NodeResources resources;
    resources.add("kv", std::make_unique<KvCache>(resources.next_key(), *device,
                                                  KvCacheConfig{.num_layers = 1,
                                                                .num_kv_heads = 1,
                                                                .head_dim = 8,
                                                                .page_size = 16,
                                                                .num_pages = kSteadyRows * 80 + 1,
                                                                .num_rows = kSteadyRows,
                                                                .max_length = 1280}));
    resources.add("positions", std::make_unique<Positions>(resources.next_key(), kSteadyRows));
    resources.add("attention", std::make_unique<AttentionPlanner>(resources.next_key(), 16));
    resources.add("sampler", std::make_unique<Sampler>(resources.next_key(), *device,
                                                       SamplerConfig{.num_rows = kSteadyRows,
                                                                     .vocab_size = 32,
                                                                     .max_top_logprobs = 4,
                                                                     .signals = {}}));
    return std::make_unique<Engine>(*device, std::make_unique<DecodingSubmodule>(*device),
                                    std::move(resources), EngineConfig{.staging_bytes = 16384});
  }
};

TEST_F(SteadyStepTest, T_RS_7_a_thousand_decode_steps_use_no_heap) {
  const std::unique_ptr<Engine> engine = make_engine();
  std::array<RequestInfo, kSteadyRows> infos;
  std::array<ExecutingBatch, Engine::kMaxInFlight> batches;
  const InputMetadata metadata;
  std::vector<RequestView> views;
  for (RequestInfo& info : infos) {
    info.handle = {static_cast<std::int32_t>(&info - infos.data()), 1};
    engine->add_request(info);
    views.emplace_back(info, metadata);
  }
  const auto launch_step = [&](std::int32_t step) {
    ExecutingBatch& batch = batches[static_cast<std::size_t>(step) % batches.size()];
    batch.clear();
    InputMetadata lane_metadata;
    lane_metadata.loop_counters.set(kLoop, step);
    for (const RequestInfo& info : infos) {
      batch.add(info.handle, info, lane_metadata, LaneSource{.walk = kDecode});
    }
    engine->prepare_inputs(batch);
    return engine->launch(batch).ok();
  };

  std::uint64_t before = 0;
  bool all_launched = true;
  std::int64_t num_stops = 0;
  for (std::int32_t step = 0; step < kNumSteps + 40; ++step) {
    if (step == 40) {
      before = testing::num_allocations();
    }
    all_launched = launch_step(step) && all_launched;
    if (engine->num_in_flight() == Engine::kMaxInFlight) {
      const HostRows rows = engine->complete();
      num_stops += static_cast<std::int64_t>(engine->check_stop(views, rows).size());
    }
  }
  EXPECT_EQ(testing::num_allocations() - before, 0U);
  EXPECT_TRUE(all_launched);
  EXPECT_EQ(num_stops, 0);
}

TEST_F(SteadyStepTest, T_IM_1_metadata_without_chunks_is_copied_without_the_heap) {
  InputMetadata metadata;
  metadata.loop_counters.set(kLoop, 3);
  std::vector<InputMetadata> columns;
  columns.reserve(64);
  const std::uint64_t before = testing::num_allocations();
  for (int lane = 0; lane < 64; ++lane) {
    columns.push_back(metadata);
  }
  EXPECT_EQ(testing::num_allocations(), before);
  EXPECT_EQ(columns.back().loop_counters.count(kLoop), 3);
}

TEST(AllocationCount, CountsTheHeapUseOfItsThread) {
  const std::uint64_t before = testing::num_allocations();
  const auto value = std::make_unique<int>(1);
  EXPECT_EQ(testing::num_allocations(), before + *value);
}

}  // namespace
}  // namespace rigel
