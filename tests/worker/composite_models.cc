#include "tests/worker/composite_models.h"

#include "tensor/host_function.h"
#include "tests/worker/composite_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rigel::testing {

using Names = CompositeNames;

void CompositeScript::note(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

std::vector<std::string> CompositeScript::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::size_t CompositeScript::count(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(
      events_, [&](const std::string& event) { return event.starts_with(prefix); }));
}

void CompositeScript::wait_for(const std::string& prefix, std::size_t count) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return static_cast<std::size_t>(std::ranges::count_if(events_, [&](const std::string& event) {
             return event.starts_with(prefix);
           })) >= count;
  });
}

float CompositeMath::denoise(std::vector<float>& latents, float condition, float guidance) {
  float change = 0.0F;
  for (float& value : latents) {
    const float before = value;
    for (int inner = 0; inner < kInnerSteps; ++inner) {
      const float with = value * 0.5F + condition;
      const float without = value * 0.5F;
      value = guidance == 1.0F ? with : without + guidance * (with - without);
    }
    change = std::max(change, std::abs(value - before));
  }
  return change;
}

float CompositeMath::encode(const float* items, std::int64_t count, std::int64_t start) {
  float sum = 0.0F;
  for (std::int64_t index = 0; index < count; ++index) {
    sum += items[index] * static_cast<float>(start + index + 1);
  }
  return sum;
}

void CompositeMath::move(float* momentum, float value) {
  momentum[0] = momentum[0] * 0.5F + value;
  momentum[1] += 1.0F;
}

float CompositeMath::trace(const float* window, std::int64_t count, std::int64_t start,
                           const float* momentum) {
  return encode(window, count, start) + 3.0F * momentum[0] + 5.0F * momentum[1];
}

namespace {

/// Says no, or fails, when the test wants it.
class Gate final : public Resource {
 public:
  Gate(ResourceKey key, CompositeScript& script) : Resource(key), script_(script) {}
  AdmitOutcome admit(const SubmoduleStep&, const StepContext& context) override {
    if (context.epoch - 1 > completed_ && script_.refuses(num_asked_++)) {
      script_.note("refused");
      return {AdmitOutcome::Reason::kNotReady, 0, context.batch.handles.front()};
    }
    return {};
  }
  void plan(const SubmoduleStep&, StepContext& context) override { tell("gate.plan", context); }
  void commit(const SubmoduleStep&, const StepContext& context) override {
    tell("gate.commit", context);
  }
  void collect(Epoch completed) override {
    script_.on_hook("gate.collect", completed);
    completed_ = completed;
  }

 private:
  void tell(const char* hook, const StepContext& context) {
    for (std::size_t lane = 0; lane < context.batch.handles.size(); ++lane) {
      if (!context.batch.handles[lane].is_padding()) {
        script_.on_hook(hook, context.batch.infos[lane]->seed);
      }
    }
  }

  CompositeScript& script_;
  Epoch completed_ = 0;
  int num_asked_ = 0;
};

}  // namespace

Encoder::Encoder(Device& device, StreamRef stream, CompositeScript& script)
    : script_(script),
      allocator_(device),
      captured_results_(allocator_.allocate(stream, Dtype::kF32, {kMaxLanes})) {}

std::unique_ptr<NodeInputs> Encoder::prepare_inputs(const PrepareContext& context,
                                                    const RequestView& request) {
  script_.on_hook("encoder.prepare", request.info().seed);
  const TensorList* frames = context.signals->find(Names::kFrame);
  if (frames->empty()) {
    EXPECT_TRUE(context.is_final_stream_chunk);
    return nullptr;
  }
  auto row = std::make_unique<NodeInputs>();
  row->tensor_inputs.emplace_back(kRow, frames->front());
  row->input_seq_len = frames->front().dim(0);
  return row;
}

/// The size of the chunks of a batch.
CgKey Encoder::cg_key_info(const BatchColumns& batch) const {
  if (!script_.keys_by_chunk) {
    return {};
  }
  if (batch.handles.front().is_padding()) {
    return batch.slot_lease->bucket.key;
  }
  const auto size_of_lane = [&](std::size_t lane) {
    return batch.metadata[lane].stream_chunk(Names::kFrame)->num_items;
  };
  for (std::size_t lane = 1; lane < batch.handles.size(); ++lane) {
    if (!batch.handles[lane].is_padding() && size_of_lane(lane) != size_of_lane(0)) {
      return CgKey::no_bucket();
    }
  }
  return CgKey::interned(static_cast<std::uint16_t>(size_of_lane(0)));
}

bool Encoder::declare_step(const BatchColumns& batch, SubmoduleStep& step) const {
  step.declare<AttentionStep>(ResourceKey{0});
  step.cg_key_info = cg_key_info(batch);
  if (script_.keys_by_chunk && !batch.handles.front().is_padding()) {
    EXPECT_TRUE(step.cg_key_info.has_bucket()) << "chunks of two sizes in one step";
    script_.note("chunks of " + std::to_string(step.cg_key_info.number()));
  }
  return true;
}

void Encoder::preprocess(const BatchColumns& batch, StepContext& context) {
  stage_counts(batch, context);
  const auto starts = context.staging->column<std::int32_t>(std::ssize(batch.handles));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    const StreamChunkInfo* chunk = batch.metadata[lane].stream_chunk(Names::kFrame);
    starts.host[lane] = chunk == nullptr ? 0 : static_cast<std::int32_t>(chunk->start_offset);
    EXPECT_TRUE(batch.handles[lane].is_padding() ||
                chunk->num_items == field(*batch.inputs[lane], 0).dim(0));
  }
  context.stage(Names::kStarts, starts.device);
  context.bring(Names::kFrame, fields(batch, 0));
}

void Encoder::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  script_.note("encode" + seeds_of(inputs.handles, inputs.infos));
  const StepContext& context = *inputs.context;
  if (context.batch.walk == Names::kEncodeBoth) {
    script_.note("both loops");
  }
  const std::int64_t num_lanes = std::ssize(inputs.handles);
  const Tensor results = inputs.captured
                             ? captured_results_.slice(0, 0, num_lanes)
                             : allocator_.allocate(context.stream(), Dtype::kF32, {num_lanes});
  for (std::int64_t lane = 0; lane < num_lanes; ++lane) {
    const RequestHandle handle = inputs.handles[static_cast<std::size_t>(lane)];
    if (!handle.is_padding()) {
      script_.on_hook("encoder.forward", inputs.infos[static_cast<std::size_t>(lane)]->seed);
    }
    outputs.requests()[handle].assign(Names::kEmbedding, {results.slice(0, lane, 1)});
  }
  Job& job = inputs.captured ? captured_jobs_.emplace_back() : jobs_[++num_steps_ % jobs_.size()];
  job = {.items = context.staged(Names::kFrame).data<float>(),
         .counts = context.staged(Names::kCounts).data<std::int32_t>(),
         .starts = context.staged(Names::kStarts).data<std::int32_t>(),
         .results = results.device_view().data<float>(),
         .num_lanes = num_lanes};
  enqueue_host_function(context.stream(), "encode", run, &job);
}

std::vector<LoopId> Encoder::check_stop(const RequestView& request, const HostRows&) const {
  const StreamChunkInfo* chunk = request.metadata().stream_chunk(Names::kFrame);
  return script_.ends_encoding(chunk->start_offset) ? std::vector{Names::kEncoding}
                                                    : std::vector<LoopId>{};
}

std::span<const SignalId> Encoder::device_loopback_signals(WalkId) const {
  static constexpr std::array kSignals{Names::kCarry};
  return kSignals;
}

void Encoder::run(void* data) {
  const Job& job = *static_cast<const Job*>(data);
  std::int64_t first = 0;
  for (std::int64_t lane = 0; lane < job.num_lanes; ++lane) {
    job.results[lane] =
        CompositeMath::encode(job.items + 2 * first, 2 * job.counts[lane], job.starts[lane]);
    first += job.counts[lane];
  }
}

std::vector<CudaGraphConfig> Encoder::get_cuda_graph_configs(Device& /*device*/, int) const {
  if (script_.keys_by_chunk) {
    std::vector<CudaGraphConfig> configs;
    for (const std::uint16_t num_items : {1, 2}) {
      BatchedGraphConfig config;
      config.capture_walk = Names::kEncode;
      config.replay_walks = {Names::kEncodeRest};
      config.key = CgKey::interned(num_items);
      config.batch_sizes = {1, 2, kMaxLanes};
      auto row = std::make_unique<NodeInputs>();
      row->input_seq_len = num_items;
      row->tensor_inputs.emplace_back(kRow, zeros({num_items, 2}));
      config.row = std::move(row);
      configs.emplace_back(std::move(config));
    }
    return configs;
  }
  PackedGraphConfig config;
  config.capture_walk = Names::kEncode;
  config.batch_sizes = {1, kMaxLanes};
  config.token_counts = {2, 6};
  config.make_row = [](std::int64_t num_items) {
    auto row = std::make_unique<NodeInputs>();
    row->input_seq_len = num_items;
    row->tensor_inputs.emplace_back(kRow, zeros({num_items, 2}));
    return row;
  };
  return {config};
}

namespace {

/// The walks of the partition "sound".
std::vector<walk::Walk> encoder_walks(walk::Node encoder, EncoderLoops loops) {
  if (loops == EncoderLoops::kOne) {
    return {{"encode", walk::Loop{.name = "encoding", .sections = {encoder}}}};
  }
  encoder.inputs.push_back("carry");
  encoder.outputs.push_back({.signal = "carry", .next_node = "encoder"});
  return {{"encode", walk::Loop{.name = "encoding", .sections = {encoder}}},
          {"encode_rest", walk::Loop{.name = "the_rest", .sections = {encoder}}}};
}

NodeResources denoiser_resources(Device& device, const CompositeScript& script) {
  constexpr std::int32_t kRows = 8;
  constexpr std::int32_t kBranches = 2;
  NodeResources resources;
  resources.add("history", std::make_unique<KvCache>(
                               resources.next_key(), device,
                               KvCacheConfig{.num_layers = 1,
                                             .num_kv_heads = 1,
                                             .head_dim = 4,
                                             .page_size = 4,
                                             .num_pages = script.num_pages,
                                             .num_rows = kRows,
                                             .max_length = 16,
                                             .dtype = Dtype::kF32,
                                             .num_labels = kBranches,
                                             .num_host_pages = script.num_host_pages,
                                             .retention = {.max_tokens = CompositeMath::kWindow}}));
  resources.add("momentum", std::make_unique<SlotState>(resources.next_key(), device,
                                                        SlotStateConfig{.num_rows = kRows,
                                                                        .num_labels = kBranches,
                                                                        .dtype = Dtype::kF32,
                                                                        .shape = {2}}));
  return resources;
}

}  // namespace

CompositeModel make_composite_model(Device& device, CompositeScript& script, EncoderLoops loops) {
  walk::Names names;
  for (const char* name : {"latents", "condition", "frame", "embedding", "label", "change", "carry",
                           "counts", "factors", "starts", "trace"}) {
    names.signals.intern(name);
  }
  const walk::Node denoiser{.name = "denoiser",
                            .inputs = {"latents", "condition"},
                            .outputs = {{.signal = "latents", .next_node = "denoiser"},
                                        {.signal = "label", .next_node = walk::kEmitToClient},
                                        {.signal = "trace", .next_node = walk::kEmitToClient},
                                        {.signal = "frame",
                                         .next_node = "encoder",
                                         .is_streaming = true,
                                         .target_partition = "sound"}}};
  const walk::Node encoder{.name = "encoder",
                           .inputs = {"frame"},
                           .outputs = {{.signal = "embedding", .next_node = walk::kEmitToClient}},
                           .streaming_inputs = {"frame"}};
  const walk::Loop denoising{.name = "denoising",
                             .sections = {denoiser},
                             .max_iters = CompositeMath::kMaxIterations,
                             .outputs = {{.signal = "latents", .next_node = walk::kEmitToClient}}};
  for (const char* name : {"denoising", "encoding"}) {
    names.loops.intern(name);
  }
  std::vector<walk::Walk> walks = {{"denoise", denoising}};
  std::vector<std::string> sound_walks;
  for (walk::Walk& walk : encoder_walks(encoder, loops)) {
    sound_walks.push_back(walk.name);
    walks.push_back(std::move(walk));
  }
  std::vector<walk::CombinedWalks> combined;
  if (script.combines_loops) {
    combined.push_back({.node = "encoder", .label = "encode_both", .walks = sound_walks});
  }
  CompositeModel model;
  model.stream = std::make_unique<Stream>(device);
  model.program = walk::compile(
      {.walks = std::move(walks),
       .partitions = {{.name = "picture", .walks = {"denoise"}, .initial_walk = "denoise"},
                      {.name = "sound",
                       .walks = std::move(sound_walks),
                       .initial_walk = "encode",
                       .producer_partitions = {"picture"}}},
       .connections = {{"picture", "sound", "frame", walk::FixedChunks{2}}},
       .combined = std::move(combined)},
      std::move(names));
  const EngineConfig config{.staging_bytes = 4096, .stream = model.stream->ref()};
  model.engines.push_back(std::make_unique<Engine>(
      device,
      script.make_denoiser ? script.make_denoiser(device, model.stream->ref(), script)
                           : std::make_unique<Denoiser>(device, model.stream->ref(), script),
      denoiser_resources(device, script), config));
  NodeResources gate;
  gate.add("gate", std::make_unique<Gate>(gate.next_key(), script));
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Encoder>(device, model.stream->ref(), script), std::move(gate),
      config));
  return model;
}

}  // namespace rigel::testing
