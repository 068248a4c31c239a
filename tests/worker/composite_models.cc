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

/// Where the device finds them; a request's own inputs are on the host.
const float* floats(const Tensor& tensor) {
  return tensor.space() == Space::kHost ? tensor.host_view().data<float>()
                                        : tensor.device_view().data<float>();
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
  void collect(Epoch completed) override { completed_ = completed; }

 private:
  CompositeScript& script_;
  Epoch completed_ = 0;
  int num_asked_ = 0;
};

}  // namespace

Denoiser::Denoiser(Device& device, CompositeScript& script)
    : script_(script), allocator_(device), changes_(device, Dtype::kF32, {8}) {}

std::unique_ptr<NodeInputs> Denoiser::prepare_inputs(const PrepareContext& context,
                                                     const RequestView& request) {
  script_.on_hook("denoiser.prepare", request.info().seed);
  auto row = std::make_unique<NodeInputs>();
  row->tensor_inputs.emplace_back(kRow, context.signals->find(Names::kLatents)->at(0));
  row->tensor_inputs.emplace_back(kConditionField, context.signals->find(Names::kCondition)->at(0));
  row->input_seq_len = row->tensor_inputs.front().second.dim(0);
  return row;
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
  step.cg_key_info = cg_key_info(batch);
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

void Denoiser::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  script_.note("denoise" + seeds_of(inputs.handles, inputs.infos));
  const StreamRef stream = inputs.context->stream();
  Slot& slot = slots_[++num_steps_ % slots_.size()];
  slot.jobs.clear();
  std::int64_t num_rows = 0;
  for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
    const RequestHandle handle = inputs.handles[lane];
    if (handle.is_padding()) {
      continue;
    }
    script_.on_hook("denoiser.forward", inputs.infos[lane]->seed);
    const Tensor& latents = field(*inputs.inputs[lane], 0);
    Job job{.branches = {},
            .count = latents.num_elements(),
            .condition = field(*inputs.inputs[lane], 1).host_view().span<float>()[0],
            .guidance = guidance_of(*inputs.infos[lane])};
    for (const Segment& segment : inputs.step->segments) {
      if (segment.handle == handle) {
        job.branches.push_back(floats(latents));
      }
    }
    Tensor result = allocator_.allocate(stream, Dtype::kF32, {job.count});
    job.result = result.device_view().data<float>();
    job.change = changes_.view(Dtype::kF32, {8}).slice(0, num_rows++, 1).data<float>();
    TensorList frames;
    if (const int count = CompositeMath::num_frames(static_cast<std::size_t>(job.count));
        count > 0) {
      const Tensor all = allocator_.allocate(stream, Dtype::kF32, {count, 2});
      job.frames = all.device_view().data<float>();
      for (int index = 0; index < count; ++index) {
        frames.push_back(all.select(0, index));
      }
    }
    slot.jobs.push_back(job);
    SignalMap& given = outputs.requests()[handle];
    given.assign(Names::kLatents, {std::move(result)});
    given.assign(Names::kFrame, std::move(frames));
    outputs.push_row_handle(handle);
  }
  enqueue_host_function(stream, "denoise", run, &slot);
  outputs.add_rows(Names::kChange, changes_.view(Dtype::kF32, {num_rows}));
}

void Denoiser::run(void* data) {
  for (const Job& job : static_cast<Slot*>(data)->jobs) {
    // Without its second branch a guided request would get what an unguided one gets.
    const float guidance = job.branches.size() == 2 ? job.guidance : 1.0F;
    std::vector<float> row(job.branches.front(), job.branches.front() + job.count);
    *job.change = CompositeMath::denoise(row, job.condition, guidance);
    std::ranges::copy(row, job.result);
    for (int frame = 0; frame < CompositeMath::num_frames(row.size()); ++frame) {
      job.frames[2 * frame] = row.front();
      job.frames[2 * frame + 1] = static_cast<float>(frame);
    }
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
    auto row = std::make_shared<NodeInputs>();
    row->input_seq_len = 4;
    config.row = row;
    configs.emplace_back(std::move(config));
  }
  return configs;
}

Encoder::Encoder(Device& device, CompositeScript& script) : script_(script), allocator_(device) {}

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

void Encoder::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  script_.note("encode" + seeds_of(inputs.handles, inputs.infos));
  const StreamRef stream = inputs.context->stream();
  Slot& slot = slots_[++num_steps_ % slots_.size()];
  slot.jobs.clear();
  for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
    script_.on_hook("encoder.forward", inputs.infos[lane]->seed);
    const Tensor& items = field(*inputs.inputs[lane], 0);
    const StreamChunkInfo* chunk = inputs.metadata[lane].stream_chunk(Names::kFrame);
    EXPECT_EQ(chunk->num_items, items.dim(0));
    Tensor result = allocator_.allocate(stream, Dtype::kF32, {1});
    slot.jobs.push_back({floats(items), items.num_elements(), chunk->start_offset,
                         result.device_view().data<float>()});
    outputs.requests()[inputs.handles[lane]].assign(Names::kEmbedding, {std::move(result)});
  }
  enqueue_host_function(stream, "encode", run, &slot);
}

void Encoder::run(void* data) {
  for (const Job& job : static_cast<Slot*>(data)->jobs) {
    *job.result = CompositeMath::encode(job.items, job.count, job.start);
  }
}

CompositeModel make_composite_model(Device& device, CompositeScript& script) {
  walk::Names names;
  for (const char* name : {"latents", "condition", "frame", "embedding", "label"}) {
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
  CompositeModel model;
  model.stream = std::make_unique<Stream>(device);
  model.program = walk::compile(
      {.walks = {{"denoise", denoising},
                 {"encode", walk::Loop{.name = "encoding", .sections = {encoder}}}},
       .partitions = {{.name = "picture", .walks = {"denoise"}, .initial_walk = "denoise"},
                      {.name = "sound",
                       .walks = {"encode"},
                       .initial_walk = "encode",
                       .producer_partitions = {"picture"}}},
       .connections = {{"picture", "sound", "frame", walk::FixedChunks{2}}}},
      std::move(names));
  const EngineConfig config{.staging_bytes = 4096, .stream = model.stream->ref()};
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Denoiser>(device, script), NodeResources(), config));
  NodeResources gate;
  gate.add("gate", std::make_unique<Gate>(gate.next_key(), script));
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Encoder>(device, script), std::move(gate), config));
  return model;
}

}  // namespace rigel::testing
