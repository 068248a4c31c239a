#include "tests/worker/composite_models.h"

#include "tensor/host_function.h"

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

namespace {

constexpr const char* kRow = "row";
constexpr const char* kConditionField = "condition";

float guidance_of(const RequestInfo& info) {
  return info.sampling.temperature;
}

CgKey key_of(float guidance) {
  return CgKey::interned(guidance == 1.0F ? 0 : 1);
}

std::string seeds_of(std::span<const RequestHandle> handles,
                     std::span<const RequestInfo* const> infos) {
  std::string text;
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    text += handles[lane].is_padding() ? " -" : " " + std::to_string(infos[lane]->seed);
  }
  return text;
}

const Tensor& field(const NodeInputs& row, std::size_t index) {
  return row.tensor_inputs.at(index).second;
}

/// Field `index` of all rows, and how long each is along its first dimension.
std::vector<Tensor> fields(const BatchColumns& batch, std::size_t index) {
  std::vector<Tensor> tensors;
  for (const NodeInputs* row : batch.inputs) {
    tensors.push_back(field(*row, index));
  }
  return tensors;
}

void stage_counts(const BatchColumns& batch, StepContext& context) {
  const auto counts = context.staging->column<std::int32_t>(std::ssize(batch.handles));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    counts.host[lane] = static_cast<std::int32_t>(field(*batch.inputs[lane], 0).dim(0));
  }
  context.stage(Names::kCounts, counts.device);
}

Tensor zeros(const Shape& shape) {
  const std::vector<float> values(static_cast<std::size_t>(shape.num_elements()) + 1);
  return Tensor::copy_of(
      ConstHostView(reinterpret_cast<const std::byte*>(values.data()), Dtype::kF32, shape));
}

/// Says no when the test wants it.
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
  void plan(const SubmoduleStep&, StepContext&) override {}
  void collect(Epoch completed) override {
    script_.on_hook("gate.collect", completed);
    completed_ = completed;
  }

 private:
  CompositeScript& script_;
  Epoch completed_ = 0;
  int num_asked_ = 0;
};

}  // namespace

Denoiser::Denoiser(Device& device, StreamRef stream, CompositeScript& script)
    : script_(script),
      allocator_(device),
      changes_(device, Dtype::kF32, {kMaxLanes}),
      captured_results_(allocator_.allocate(stream, Dtype::kF32, {kMaxLanes * kCapturedLatents})),
      captured_frames_(
          allocator_.allocate(stream, Dtype::kF32, {kMaxLanes, CompositeMath::kMostFrames, 2})) {}

std::unique_ptr<NodeInputs> Denoiser::make_row(Tensor latents, Tensor condition) {
  auto row = std::make_unique<NodeInputs>();
  row->input_seq_len = latents.dim(0);
  row->tensor_inputs.emplace_back(kRow, std::move(latents));
  row->tensor_inputs.emplace_back(kConditionField, std::move(condition));
  return row;
}

std::unique_ptr<NodeInputs> Denoiser::prepare_inputs(const PrepareContext& context,
                                                     const RequestView& request) {
  script_.on_hook("denoiser.prepare", request.info().seed);
  return make_row(context.signals->find(Names::kLatents)->at(0),
                  context.signals->find(Names::kCondition)->at(0));
}

bool Denoiser::can_use_cuda_graphs(const BatchColumns& batch) const {
  return std::ranges::all_of(
      batch.inputs, [](const NodeInputs* row) { return row->input_seq_len == kCapturedLatents; });
}

CgKey Denoiser::cg_key_info(const BatchColumns& batch) const {
  const CgKey key = key_of(guidance_of(*batch.infos.front()));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    if (!batch.handles[lane].is_padding() && key_of(guidance_of(*batch.infos[lane])) != key) {
      return CgKey::no_bucket();
    }
  }
  return key;
}

/// The branches with a condition, then those without: of guided requests, and in a captured step of every lane.
bool Denoiser::declare_step(const BatchColumns& batch, SubmoduleStep& step) const {
  // While it is captured there is nobody to ask.
  const bool is_nobody = batch.handles.front().is_padding();
  step.cg_key_info = is_nobody ? batch.slot_lease->bucket.key : cg_key_info(batch);
  const bool is_guided = step.cg_key_info != key_of(1.0F);
  for (const int branch : {0, 1}) {
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      const bool runs =
          branch == 0 ||
          (is_guided && (batch.slot_lease != nullptr || guidance_of(*batch.infos[lane]) != 1.0F));
      if (runs) {
        step.segments.push_back({batch.handles[lane], static_cast<LabelId>(branch),
                                 static_cast<std::int32_t>(batch.inputs[lane]->input_seq_len)});
      }
    }
  }
  return true;
}

void Denoiser::preprocess(const BatchColumns& batch, StepContext& context) {
  stage_counts(batch, context);
  const auto factors = context.staging->column<float>(2 * std::ssize(batch.handles));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    factors.host[2 * lane] = field(*batch.inputs[lane], 1).host_view().span<float>()[0];
    factors.host[2 * lane + 1] = guidance_of(*batch.infos[lane]);
  }
  context.stage(Names::kFactors, factors.device);
  context.bring(Names::kLatents, fields(batch, 0));
}

void Denoiser::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  script_.note("denoise" + seeds_of(inputs.handles, inputs.infos));
  const StepContext& context = *inputs.context;
  const ConstDeviceView latents = context.staged(Names::kLatents);
  const std::int64_t num_lanes = std::ssize(inputs.handles);
  const Shape frames_shape{num_lanes, CompositeMath::kMostFrames, 2};
  const Tensor results = inputs.captured
                             ? captured_results_.slice(0, 0, latents.dim(0))
                             : allocator_.allocate(context.stream(), Dtype::kF32, latents.shape());
  const Tensor frames = inputs.captured
                            ? captured_frames_.slice(0, 0, num_lanes)
                            : allocator_.allocate(context.stream(), Dtype::kF32, frames_shape);
  std::int64_t first = 0;
  for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
    const RequestHandle handle = inputs.handles[lane];
    if (!handle.is_padding()) {
      script_.on_hook("denoiser.forward", inputs.infos[lane]->seed);
    }
    const std::int64_t count = inputs.inputs[lane]->input_seq_len;
    TensorList given;
    for (int frame = 0; frame < CompositeMath::num_frames(static_cast<std::size_t>(count));
         ++frame) {
      given.push_back(frames.select(0, static_cast<std::int64_t>(lane)).select(0, frame));
    }
    SignalMap& signals = outputs.requests()[handle];
    signals.assign(Names::kLatents, {results.slice(0, first, count)});
    signals.assign(Names::kFrame, std::move(given));
    outputs.push_row_handle(handle);
    first += count;
  }
  const DeviceView changes = changes_.view(Dtype::kF32, {num_lanes});
  Job& job = inputs.captured ? captured_jobs_.emplace_back() : jobs_[++num_steps_ % jobs_.size()];
  // Without its second branch a guided request would get what an unguided one gets.
  job = {.latents = latents.data<float>(),
         .counts = context.staged(Names::kCounts).data<std::int32_t>(),
         .factors = context.staged(Names::kFactors).data<float>(),
         .results = results.device_view().data<float>(),
         .frames = frames.device_view().data<float>(),
         .changes = changes.data<float>(),
         .num_lanes = num_lanes,
         .is_guided = inputs.step->segments.size() > inputs.handles.size()};
  enqueue_host_function(context.stream(), "denoise", run, &job);
  outputs.add_rows(Names::kChange, changes);
}

void Denoiser::run(void* data) {
  const Job& job = *static_cast<const Job*>(data);
  std::int64_t first = 0;
  for (std::int64_t lane = 0; lane < job.num_lanes; ++lane) {
    std::vector<float> row(job.latents + first, job.latents + first + job.counts[lane]);
    const float guidance = job.is_guided ? job.factors[2 * lane + 1] : 1.0F;
    job.changes[lane] = CompositeMath::denoise(row, job.factors[2 * lane], guidance);
    std::ranges::copy(row, job.results + first);
    float* frames = job.frames + lane * CompositeMath::kMostFrames * 2;
    for (int frame = 0; frame < CompositeMath::num_frames(row.size()); ++frame) {
      frames[2 * frame] = row.front();
      frames[2 * frame + 1] = static_cast<float>(frame);
    }
    first += job.counts[lane];
  }
}

void Denoiser::postprocess(const RequestView& request, SignalMap& outputs,
                           const NodeInputs& inputs) {
  script_.on_hook("denoiser.postprocess", request.info().seed);
  const std::array<std::int32_t, 2> label{static_cast<std::int32_t>(inputs.input_seq_len),
                                          request.loop_count(Names::kDenoising)};
  outputs.assign(Names::kLabel, {Tensor::copy_of(std::span<const std::int32_t>(label))});
}

std::vector<LoopId> Denoiser::check_stop(const RequestView& request, const HostRows& rows) const {
  script_.on_hook("denoiser.check_stop", request.info().seed);
  const std::int64_t row = rows.row_of(request.info().handle);
  const float change = rows.find(Names::kChange).span<const float>()[static_cast<std::size_t>(row)];
  return change < CompositeMath::kSmallChange ? std::vector{Names::kDenoising}
                                              : std::vector<LoopId>{};
}

std::vector<CudaGraphConfig> Denoiser::get_cuda_graph_configs(Device& /*device*/, int) const {
  std::vector<CudaGraphConfig> configs;
  for (const float guidance : {1.0F, 2.0F}) {
    BatchedGraphConfig config;
    config.capture_walk = Names::kDenoise;
    config.key = key_of(guidance);
    config.batch_sizes = {1, 2, 4};
    config.row = make_row(zeros({kCapturedLatents}), zeros({1}));
    configs.emplace_back(std::move(config));
  }
  return configs;
}

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

bool Encoder::declare_step(const BatchColumns& /*batch*/, SubmoduleStep& step) const {
  step.declare<AttentionStep>(ResourceKey{0});
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

}  // namespace

CompositeModel make_composite_model(Device& device, CompositeScript& script, EncoderLoops loops) {
  walk::Names names;
  for (const char* name :
       {"latents", "condition", "frame", "embedding", "label", "change", "carry"}) {
    names.signals.intern(name);
  }
  const walk::Node denoiser{.name = "denoiser",
                            .inputs = {"latents", "condition"},
                            .outputs = {{.signal = "latents", .next_node = "denoiser"},
                                        {.signal = "label", .next_node = walk::kEmitToClient},
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
  CompositeModel model;
  model.stream = std::make_unique<Stream>(device);
  model.program = walk::compile(
      {.walks = std::move(walks),
       .partitions = {{.name = "picture", .walks = {"denoise"}, .initial_walk = "denoise"},
                      {.name = "sound",
                       .walks = std::move(sound_walks),
                       .initial_walk = "encode",
                       .producer_partitions = {"picture"}}},
       .connections = {{"picture", "sound", "frame", walk::FixedChunks{2}}}},
      std::move(names));
  const EngineConfig config{.staging_bytes = 4096, .stream = model.stream->ref()};
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Denoiser>(device, model.stream->ref(), script), NodeResources(),
      config));
  NodeResources gate;
  gate.add("gate", std::make_unique<Gate>(gate.next_key(), script));
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Encoder>(device, model.stream->ref(), script), std::move(gate),
      config));
  return model;
}

}  // namespace rigel::testing
