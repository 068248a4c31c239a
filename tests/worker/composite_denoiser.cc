// The denoising loop: branches, their history and momentum, the state of its requests.

#include "kernels/page_table.h"
#include "tensor/host_function.h"
#include "tests/worker/composite_models.h"
#include "tests/worker/composite_rows.h"

#include <algorithm>
#include <utility>

namespace rigel::testing {

using Names = CompositeNames;

namespace {

constexpr const char* kConditionField = "condition";
constexpr LabelId kUnconditioned{1};
constexpr StateKey kBegun{0};     // the latents that the request came with
constexpr StateKey kNumSteps{1};  // that the request was in

/// A request's second branch.
enum class Guidance : std::uint8_t { kNone, kRuns, kBegins };

Guidance guidance_of(const BatchColumns& batch, std::size_t lane) {
  const std::int32_t iteration = batch.metadata[lane].loop_counters.count(Names::kDenoising);
  if (batch.infos[lane]->sampling.temperature == 1.0F || iteration < CompositeMath::kGuidedFrom) {
    return Guidance::kNone;
  }
  return iteration == CompositeMath::kGuidedFrom ? Guidance::kBegins : Guidance::kRuns;
}

CgKey key_of(Guidance guidance) {
  return CgKey::interned(static_cast<std::uint16_t>(guidance));
}

}  // namespace

Denoiser::Denoiser(Device& device, StreamRef stream, CompositeScript& script)
    : script_(script),
      allocator_(device),
      changes_(device, Dtype::kF32, {kMaxLanes}),
      captured_results_(allocator_.allocate(stream, Dtype::kF32, {kMaxLanes * kCapturedLatents})),
      captured_frames_(
          allocator_.allocate(stream, Dtype::kF32, {kMaxLanes, CompositeMath::kMostFrames, 2})),
      captured_traces_(allocator_.allocate(stream, Dtype::kF32, {kMaxLanes})) {}

void Denoiser::bind_node_resources(const NodeResources& resources) {
  history_ = &resources.get<KvCache>("history");
  momentum_ = &resources.get<SlotState>("momentum");
}

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
  PerRequestState& state = request_state(request.info().handle);
  if (request.loop_count(Names::kDenoising) == 0 &&
      state.empty()) {  // else it is prepared once more
    state.add(kBegun, context.signals->find(Names::kLatents)->at(0));
    state.share(kBegun);
    state.add(kNumSteps, std::int64_t{0});
  }
  return make_row(context.signals->find(Names::kLatents)->at(0),
                  context.signals->find(Names::kCondition)->at(0));
}

bool Denoiser::can_use_cuda_graphs(const BatchColumns& batch) const {
  return std::ranges::all_of(
      batch.inputs, [](const NodeInputs* row) { return row->input_seq_len == kCapturedLatents; });
}

CgKey Denoiser::cg_key_info(const BatchColumns& batch) const {
  const CgKey key = key_of(guidance_of(batch, 0));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    if (!batch.handles[lane].is_padding() && key_of(guidance_of(batch, lane)) != key) {
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
  EXPECT_TRUE(step.cg_key_info.has_bucket()) << "rows of two groups in one step";
  if (!is_nobody) {
    script_.note("group " + std::to_string(step.cg_key_info.number()));
  }
  const bool is_guided = step.cg_key_info != key_of(Guidance::kNone);
  for (const int branch : {0, 1}) {
    for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
      const bool runs = branch == 0 || (is_guided && (batch.slot_lease != nullptr ||
                                                      guidance_of(batch, lane) != Guidance::kNone));
      if (runs) {
        step.segments.push_back({batch.handles[lane], static_cast<LabelId>(branch),
                                 static_cast<std::int32_t>(batch.inputs[lane]->input_seq_len)});
      }
    }
  }
  declare_states(step);
  return true;
}

/// A token of each branch. Where the second branch begins it is the first one's until then.
void Denoiser::declare_states(SubmoduleStep& step) const {
  auto& history = step.declare<KvStep>(history_->key());
  auto& momentum = step.declare<SlotStateStep>(momentum_->key());
  for (const Segment& segment : step.segments) {
    history.segments.push_back({segment.handle, segment.label, 1});
  }
  momentum.segments = history.segments;
  if (step.cg_key_info != key_of(Guidance::kNone)) {
    history.combined_labels = {LabelId::kMain, kUnconditioned};
  }
  if (step.cg_key_info == key_of(Guidance::kBegins)) {
    history.pre_forks = {{LabelId::kMain, kUnconditioned}};
    momentum.pre_forks = history.pre_forks;
  }
}

void Denoiser::preprocess(const BatchColumns& batch, StepContext& context) {
  stage_counts(batch, context);
  const auto factors = context.staging->column<float>(2 * std::ssize(batch.handles));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    factors.host[2 * lane] = field(*batch.inputs[lane], 1).host_view().span<float>()[0];
    factors.host[2 * lane + 1] = batch.infos[lane]->sampling.temperature;
  }
  context.stage(Names::kFactors, factors.device);
  context.bring(Names::kLatents, fields(batch, 0));
}

void Denoiser::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  script_.note("denoise" + seeds_of(inputs.handles, inputs.infos));
  const StepContext& context = *inputs.context;
  const ConstDeviceView latents = latents_of(inputs);
  const std::int64_t num_lanes = std::ssize(inputs.handles);
  const Shape frames_shape{num_lanes, CompositeMath::kMostFrames, 2};
  const Tensor results = inputs.captured
                             ? captured_results_.slice(0, 0, latents.dim(0))
                             : allocator_.allocate(context.stream(), Dtype::kF32, latents.shape());
  const Tensor traces = inputs.captured
                            ? captured_traces_.slice(0, 0, num_lanes)
                            : allocator_.allocate(context.stream(), Dtype::kF32, {num_lanes});
  const Tensor frames = inputs.captured
                            ? captured_frames_.slice(0, 0, num_lanes)
                            : allocator_.allocate(context.stream(), Dtype::kF32, frames_shape);
  std::int64_t first = 0;
  for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
    const RequestHandle handle = inputs.handles[lane];
    if (!handle.is_padding()) {
      script_.on_hook("denoiser.forward", inputs.infos[lane]->seed);
      EXPECT_TRUE(inputs.states.lane(lane).is_shared(kBegun));
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
    signals.assign(Names::kTrace, {traces.slice(0, static_cast<std::int64_t>(lane), 1)});
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
         .traces = traces.device_view().data<float>(),
         .history = history_,
         .plan = context.plan<KvPlan>(history_->key()),
         .momentum = momentum_->pool().data<float>(),
         .slots = context.plan<SlotStatePlan>(momentum_->key()).slots.data<std::int32_t>(),
         .num_lanes = num_lanes,
         .is_guided = inputs.step->segments.size() > inputs.handles.size()};
  kernels::apply_page_updates(context.stream(), history_->page_table(), job.plan.page_updates);
  enqueue_host_function(context.stream(), "denoise", run, &job);
  outputs.add_rows(Names::kChange, changes);
}

/// A branch's iteration, by its token: into its history and its momentum.
float Denoiser::take_in(const Job& job, std::int64_t token, float value) {
  const std::int32_t stream = job.plan.token_streams.data<std::int32_t>()[token];
  if (stream < 0) {
    return 0.0F;
  }
  const std::int64_t place = job.plan.token_indices.data<std::int32_t>()[token];
  *cached_token(*job.history, stream, place) = value;
  float* const momentum = job.momentum + 2 * job.slots[token];
  CompositeMath::move(momentum, value);
  const std::int64_t start = std::max<std::int64_t>(0, place + 1 - CompositeMath::kWindow);
  std::vector<float> window;
  for (std::int64_t index = start; index <= place; ++index) {
    window.push_back(*cached_token(*job.history, stream, index));
  }
  return CompositeMath::trace(window.data(), std::ssize(window), start, momentum);
}

void Denoiser::run(void* data) {
  const Job& job = *static_cast<const Job*>(data);
  std::int64_t first = 0;
  for (std::int64_t lane = 0; lane < job.num_lanes; ++lane) {
    std::vector<float> row(job.latents + first, job.latents + first + job.counts[lane]);
    job.traces[lane] = take_in(job, lane, row.front());
    if (job.is_guided) {
      job.traces[lane] += take_in(job, job.num_lanes + lane, 0.5F * row.front());
    }
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
  PerRequestState& state = request_state(request.info().handle);
  const std::array<std::int32_t, 4> label{
      static_cast<std::int32_t>(inputs.input_seq_len), request.loop_count(Names::kDenoising),
      static_cast<std::int32_t>(++state.get<std::int64_t>(kNumSteps)),
      static_cast<std::int32_t>(state.get<Tensor>(kBegun).dim(0))};
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
  for (const Guidance guidance : {Guidance::kNone, Guidance::kRuns, Guidance::kBegins}) {
    BatchedGraphConfig config;
    config.capture_walk = Names::kDenoise;
    config.key = key_of(guidance);
    config.batch_sizes = {1, 2, 4};
    config.row = make_row(zeros({kCapturedLatents}), zeros({1}));
    configs.emplace_back(std::move(config));
  }
  return configs;
}

}  // namespace rigel::testing
