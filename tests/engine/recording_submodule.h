#pragma once

#include "engine/engine.h"
#include "tests/engine/device_tensors.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rigel::testing {

using Calls = std::vector<std::string>;

struct RecordingNames {
  static constexpr ResourceKey kKey{0};
  static constexpr WalkId kWalk{0};
  static constexpr WalkId kAlias{1};
  static constexpr LoopId kLoop{0};
  static constexpr SignalId kToken{1};
  static constexpr SignalId kText{2};
  static constexpr SignalId kHidden{3};
  static constexpr SignalId kRowToken{4};
  static constexpr StateKey kNumSteps{0};
};

/// The rows of lanes as one word: "0", "0,2".
inline std::string rows_of(std::span<const RequestHandle> handles) {
  std::string text;
  for (const RequestHandle handle : handles) {
    text += (text.empty() ? "" : ",") + std::to_string(handle.row);
  }
  return text;
}

/// Notes what is asked of it.
class RecordingResource final : public Resource {
 public:
  explicit RecordingResource(Calls& calls) : Resource(RecordingNames::kKey), calls_(calls) {}
  AdmitOutcome admit(const SubmoduleStep&, const StepContext& context) override {
    calls_.push_back("admit " + rows_of(context.batch.handles));
    return context.batch.handles.back().row == refuses_row
               ? AdmitOutcome{AdmitOutcome::Reason::kAllocationFailed, 1,
                              context.batch.handles.back()}
               : AdmitOutcome{};
  }
  void plan(const SubmoduleStep&, StepContext& context) override {
    calls_.push_back("plan " + rows_of(context.batch.handles));
    if (plan_throws) {
      throw std::runtime_error("no plan");
    }
    if (preplans) {  // its column, by lane
      std::ignore = context.staging->column<std::int32_t>(
          static_cast<std::int64_t>(context.batch.handles.size()));
    }
  }
  void commit(const SubmoduleStep&, const StepContext& context) override {
    calls_.push_back("commit " + rows_of(context.batch.handles));
  }
  bool supports_preplan() const override { return preplans; }
  void begin_preplan() override { calls_.push_back("begin"); }
  void promote(Epoch epoch) override { calls_.push_back("promote " + std::to_string(epoch)); }
  void clear_preplan() override { calls_.push_back("clear"); }
  int refuses_row = -100;
  bool plan_throws = false;
  bool preplans = false;

 private:
  Calls& calls_;
};

/// Notes which hook is called with which rows, gives each request the number of its steps, and fails where it is told to.
class RecordingSubmodule final : public NodeSubmodule {
  using Names = RecordingNames;

 public:
  RecordingSubmodule(Calls& calls, Device& device)
      : calls_(calls), tokens_(device, Dtype::kI32, {kMaxLanes}) {}

  [[nodiscard]] std::vector<std::string> get_node_resources() const override {
    return {"resource"};
  }
  void bind_node_resources(const NodeResources& resources) override {
    calls_.push_back("bind");
    std::ignore = resources.get<RecordingResource>("resource");
  }
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView& request) override {
    const int row = request.info().handle.row;
    calls_.push_back("prepare " + std::to_string(row));
    note_metadata(request.metadata());
    last_context = context;
    if (row == prepare_fails_row) {
      throw std::runtime_error("bad picture");
    }
    auto inputs = std::make_unique<NodeInputs>();
    inputs->input_seq_len = 4;
    return row == declines_row ? nullptr : std::move(inputs);
  }
  std::unique_ptr<NodeInputs> split_inputs(const RequestView& request, const NodeInputs& inputs,
                                           std::int64_t start, std::int64_t end) override {
    calls_.push_back("split " + std::to_string(request.info().handle.row));
    EXPECT_EQ(inputs.input_seq_len, 4);
    auto part = std::make_unique<NodeInputs>();
    part->input_seq_len = end - start;
    return part;
  }
  const NodeInputs* uniform_row_inputs(WalkId) const override {
    return has_uniform_row ? &uniform_row : nullptr;
  }
  bool can_batch(const BatchColumns&) const override {
    calls_.push_back("can_batch");
    return batches;
  }
  bool can_use_cuda_graphs(const BatchColumns&) const override { return takes_graphs; }
  CgKey cg_key_info(const BatchColumns&) const override { return key; }
  bool split_batches_by_capture_key(WalkId) const override { return splits; }
  std::optional<std::int32_t> max_batch_size(WalkId) const override { return 3; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override {
    calls_.push_back("declare " + rows_of(batch.handles) +
                     (batch.slot_lease != nullptr ? " leased" : ""));
    if (declare_throws) {
      throw std::runtime_error("no declaration");
    }
    step.declare<AttentionStep>(Names::kKey);
    step.cg_key_info = declared_key;
    return declares;
  }
  void preprocess(const BatchColumns& batch, StepContext& context) override {
    calls_.push_back("preprocess " + rows_of(batch.handles));
    const auto column =
        context.staging->column<std::int32_t>(static_cast<std::int64_t>(batch.handles.size()));
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      column.host[lane] = 100 + batch.handles[lane].row;
    }
    context.stage(Names::kRowToken, column.device);
  }
  void forward_batched(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    ++num_batched_forwards;
    NodeSubmodule::forward_batched(inputs, outputs);
  }
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override {
    calls_.push_back("forward " + rows_of(inputs.handles));
    EXPECT_EQ(inputs.step != nullptr, declares);
    was_captured = inputs.captured;
    for (const InputMetadata& metadata : inputs.metadata) {
      note_metadata(metadata);
    }
    if (forward_fails_row >= 0 && inputs.handles.back().row == forward_fails_row) {
      throw std::runtime_error("no kernel");
    }
    if (diverges) {
      testing::diverge(inputs.context->stream());
    }
    if (packs) {
      outputs.set_packed("__hidden__", host_ids({10, 11}));
    }
    if (gives_rows) {
      ConstDeviceView staged = inputs.context->staged(Names::kRowToken);
      const DeviceView rows = tokens_.view(Dtype::kI32, staged.shape());
      if (reads_rows_of != nullptr) {
        staged = reads_rows_of->tokens_.view(Dtype::kI32, staged.shape());
      }
      copy(inputs.context->stream(), rows, staged);
      outputs.add_rows(Names::kRowToken, rows);
      outputs.set_row_handles(inputs.handles);
    }
    if (!gives_outputs) {
      return;
    }
    for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
      PerRequestState& state = inputs.states.lane(lane);
      if (!state.contains(Names::kNumSteps)) {
        state.add(Names::kNumSteps, std::int64_t{0});
      }
      const auto count = ++state.get<std::int64_t>(Names::kNumSteps);
      outputs.requests()[inputs.handles[lane]].assign(
          Names::kToken, {host_ids({static_cast<std::int32_t>(count)})});
    }
  }
  void unpack_packed_outputs(const BatchedModelOutput::Packed& packed, const BatchColumns& batch,
                             RequestOutputs& outputs) override {
    calls_.push_back("unpack " + rows_of(batch.handles));
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      outputs[batch.handles[lane]].assign(
          Names::kHidden, {packed.front().second.slice(0, static_cast<std::int64_t>(lane), 1)});
    }
  }
  void filter_batched_output(const RequestView& request, SignalMap& outputs) const override {
    calls_.push_back("filter " + std::to_string(request.info().handle.row));
    if (request.info().handle.row == 1) {
      outputs.erase(Names::kHidden);
    }
  }
  std::span<const SignalId> device_loopback_signals(WalkId) const override { return loopback; }
  std::span<const InlineSignal> inline_client_signals(WalkId) const override { return inlined; }
  void postprocess(const RequestView& request, SignalMap& outputs, const NodeInputs&) override {
    calls_.push_back("postprocess " + std::to_string(request.info().handle.row));
    note_metadata(request.metadata());
    if (request.info().handle.row == postprocess_fails_row) {
      throw std::runtime_error("no such voice");
    }
    outputs.assign(Names::kText, *outputs.find(Names::kToken));
  }
  std::vector<LoopId> check_stop(const RequestView& request, const HostRows& rows) const override {
    const RequestHandle handle = request.info().handle;
    calls_.push_back("check_stop " + std::to_string(handle.row));
    if (handle.row == check_stop_fails_row) {
      throw std::runtime_error("no such token");
    }
    return stops(handle, rows) ? std::vector{Names::kLoop} : std::vector<LoopId>{};
  }
  bool check_stop_batched(std::span<const RequestView> requests, const HostRows& rows,
                          std::vector<LoopStop>& out) const override {
    for (const RequestView& request : requests) {
      if (stops(request.info().handle, rows)) {
        out.push_back({request.info().handle, Names::kLoop});
      }
    }
    if (batched_check_throws) {
      throw std::runtime_error("not all of them");
    }
    return checks_batched;
  }
  void cleanup_request(RequestHandle) override { calls_.push_back("cleanup"); }
  std::vector<CudaGraphConfig> get_cuda_graph_configs(Device&, int) const override {
    return graph_configs;
  }

  bool batches = true;
  bool declares = true;
  bool declare_throws = false;
  bool packs = false;
  bool gives_outputs = true;
  bool gives_rows = false;
  bool has_uniform_row = false;
  bool checks_batched = true;
  bool batched_check_throws = false;
  bool takes_graphs = true;
  bool splits = false;
  bool was_captured = false;
  int prepare_fails_row = -1;
  int declines_row = -1;
  int forward_fails_row = -1;
  int num_batched_forwards = 0;
  bool diverges = false;  // its kernel fails on the device
  int postprocess_fails_row = -1;
  int check_stop_fails_row = -1;
  std::int32_t stop_token = -1;
  const RecordingSubmodule* reads_rows_of = nullptr;  // another node, in place of its own columns
  CgKey key;
  CgKey declared_key;
  PrepareContext last_context;
  std::vector<std::int32_t> loop_counts;  // of kLoop, as each hook saw it
  std::vector<std::int64_t> chunk_sizes;  // of kHidden's
  NodeInputs uniform_row;
  std::vector<SignalId> loopback;
  std::vector<InlineSignal> inlined;
  std::vector<CudaGraphConfig> graph_configs;

 private:
  static constexpr std::int64_t kMaxLanes = 8;

  void note_metadata(const InputMetadata& metadata) {
    loop_counts.push_back(metadata.loop_counters.count(Names::kLoop));
    if (const StreamChunkInfo* chunk = metadata.stream_chunk(Names::kHidden)) {
      chunk_sizes.push_back(chunk->num_items);
    }
  }

  [[nodiscard]] bool stops(RequestHandle handle, const HostRows& rows) const {
    const std::int64_t row = rows.row_of(handle);
    return row >= 0 &&
           rows.find(Names::kRowToken).span<const std::int32_t>()[static_cast<std::size_t>(row)] ==
               stop_token;
  }

  Calls& calls_;
  DeviceBuffer tokens_;
};

/// An engine over the two, and four requests.
class RecordingEngineTest : public DeviceTensorTest {
 protected:
  void SetUp() override {
    DeviceTensorTest::SetUp();
    if (!IsSkipped()) {
      make_engine();
    }
  }
  /// A new engine; `prepare` sets what the submodule answers at load.
  void make_engine(const std::function<void(RecordingSubmodule&)>& prepare = {},
                   const EngineConfig& config = {.staging_bytes = 1024}) {
    engine.reset();
    NodeResources resources;
    auto made = std::make_unique<RecordingResource>(calls);
    resource = made.get();
    resources.add("resource", std::move(made));
    auto model = std::make_unique<RecordingSubmodule>(calls, *device);
    submodule = model.get();
    if (prepare) {
      prepare(*model);
    }
    engine = std::make_unique<Engine>(*device, std::move(model), std::move(resources), config);
    for (RequestInfo& info : infos) {
      info.handle = {static_cast<std::int32_t>(&info - infos.data()), 1};
      engine->add_request(info);
    }
    calls.clear();
  }
  ExecutingBatch& batch_of(std::initializer_list<std::size_t> requests) {
    batch.clear();
    for (const std::size_t request : requests) {
      batch.add(infos[request].handle, infos[request], {}, row);
    }
    return batch;
  }
  ExecutingBatch& unprepared_batch_of(std::initializer_list<std::size_t> requests) {
    batch.clear();
    for (const std::size_t request : requests) {
      batch.add(infos[request].handle, infos[request], {}, LaneSource{});
    }
    return batch;
  }
  HostRows run(std::initializer_list<std::size_t> requests) {
    EXPECT_TRUE(engine->launch(batch_of(requests)).ok());
    return engine->complete();
  }
  [[nodiscard]] std::vector<RequestView> views_of(std::initializer_list<std::size_t> requests) {
    std::vector<RequestView> views;
    for (const std::size_t request : requests) {
      views.emplace_back(infos[request], metadata);
    }
    return views;
  }
  [[nodiscard]] std::vector<std::int32_t> output_of(std::size_t request, SignalId signal) const {
    return host_values(engine->request_outputs().find(infos[request].handle)->find(signal)->at(0));
  }
  /// What has failed since the last call, as "row: message".
  [[nodiscard]] Calls failures() const {
    std::vector<RequestFailure> taken;
    engine->take_failures(taken);
    Calls texts;
    for (const RequestFailure& failure : taken) {
      texts.push_back(std::to_string(failure.handle.row) + ": " + failure.message);
    }
    return texts;
  }

  Calls calls;
  RecordingResource* resource = nullptr;
  RecordingSubmodule* submodule = nullptr;
  std::unique_ptr<Engine> engine;
  std::array<RequestInfo, 4> infos;
  InputMetadata metadata;
  NodeInputs row;
  ExecutingBatch batch;
};

}  // namespace rigel::testing
