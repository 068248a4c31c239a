#include "tests/worker/composite_speaker.h"

#include "engine/contract/collate.h"
#include "engine/resources/positions.h"
#include "engine/resources/slot_state.h"
#include "kernels/page_table.h"
#include "tensor/host_function.h"
#include "tests/worker/composite_rows.h"

#include <algorithm>
#include <utility>

namespace rigel::testing {

using Speech = SpeakerNames;

namespace {

constexpr const char* kMemoryField = "memory";
constexpr ResourceKey kHistoryKey{0};
constexpr ResourceKey kPositionsKey{1};
constexpr ResourceKey kKeysKey{2};

bool is_spoken(WalkId walk) {
  return walk == Speech::kTalk || walk == Speech::kTalkAgain;
}

/// What a request has stored, as the host sees it.
class HostListener {
 public:
  explicit HostListener(const std::vector<float>& memory) {
    for (const float key : memory) {
      keys_ += static_cast<std::int64_t>(key);
    }
  }
  std::int32_t hear(const std::vector<std::int32_t>& tokens) {
    for (const std::int32_t token : tokens) {
      sum_ += SpeakerMath::stored(token, num_stored_, num_stored_);
      ++num_stored_;
    }
    return SpeakerMath::next(sum_ + keys_);
  }

 private:
  std::int64_t keys_ = 0;
  std::int64_t sum_ = 0;
  std::int64_t num_stored_ = 0;
};

}  // namespace

std::vector<float> SpeakerMath::talk(const SpeakerRequest& request) {
  HostListener listener(request.memory);
  std::vector<float> said;
  for (const std::vector<std::int32_t>& heard : {request.tokens, request.more}) {
    std::int32_t token = listener.hear(heard);
    said.push_back(static_cast<float>(token));
    for (int iteration = 0; iteration < kMaxIterations && token >= kStopsBelow; ++iteration) {
      token = listener.hear({token});
      said.push_back(static_cast<float>(token));
    }
  }
  return said;
}

Speaker::Speaker(Device& device, std::int32_t num_rows, CompositeScript& script)
    : script_(script),
      allocator_(device),
      last_said_(device, Dtype::kI32, {num_rows}),
      said_(device, Dtype::kI32, {kMaxLanes}),
      spoken_row_(std::make_shared<ArNodeInputs>()) {
  spoken_row_->walk = Speech::kTalk;
  spoken_row_->input_seq_len = 1;
  spoken_beside_ = *spoken_row_;
  const std::int32_t said_last = -1;
  spoken_beside_.input_ids = Tensor::copy_of(std::span<const std::int32_t>(&said_last, 1));
}

std::vector<std::string> Speaker::get_node_resources() const {
  return {"history", "positions", "keys"};
}

std::unique_ptr<NodeInputs> Speaker::prepare_inputs(const PrepareContext& context,
                                                    const RequestView& request) {
  script_.on_hook("speaker.prepare", request.info().seed);
  auto row = std::make_unique<ArNodeInputs>();
  row->walk = context.walk;
  const bool is_first = context.walk == Speech::kListen;
  row->input_ids = context.signals->find(is_first ? Speech::kTokens : Speech::kMore)->at(0);
  row->input_seq_len = row->input_ids.dim(0);
  if (is_first) {
    row->tensor_inputs.emplace_back(kMemoryField, context.signals->find(Speech::kMemory)->at(0));
  }
  return row;
}

/// The memory goes with the first part.
std::unique_ptr<NodeInputs> Speaker::split_inputs(const RequestView& /*request*/,
                                                  const NodeInputs& inputs, std::int64_t start,
                                                  std::int64_t end) {
  ArNodeInputs sequence = dynamic_cast<const ArNodeInputs&>(inputs);
  auto memory = std::exchange(sequence.tensor_inputs, {});
  std::unique_ptr<ArNodeInputs> part = split_ar_inputs(sequence, start, end);
  if (start == 0) {
    part->tensor_inputs = std::move(memory);
  }
  return part;
}

const NodeInputs* Speaker::uniform_row_inputs(WalkId walk) const {
  return is_spoken(walk) ? spoken_row_.get() : nullptr;
}

bool Speaker::declare_step(const BatchColumns& batch, SubmoduleStep& step) const {
  step.declare<KvStep>(kHistoryKey);
  step.declare<PositionStep>(kPositionsKey);
  auto& keys = step.declare<KvStep>(kKeysKey);
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    const NodeInputs& row = *batch.inputs[lane];
    step.segments.push_back(
        {batch.handles[lane], LabelId::kMain, static_cast<std::int32_t>(row.input_seq_len)});
    const std::int64_t num_keys =
        row.tensor_inputs.empty() ? 0 : row.tensor_inputs.front().second.dim(0);
    keys.segments.push_back(
        {batch.handles[lane], LabelId::kMain, static_cast<std::int32_t>(num_keys)});
  }
  return true;
}

void Speaker::preprocess(const BatchColumns& batch, StepContext& context) {
  const auto rows = context.staging->column<std::int32_t>(2 * std::ssize(batch.handles));
  std::int32_t last_token = -1;
  std::vector<const ArNodeInputs*> given;
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    last_token += static_cast<std::int32_t>(batch.inputs[lane]->input_seq_len);
    rows.host[2 * lane] = batch.handles[lane].row;
    rows.host[2 * lane + 1] = last_token;
    given.push_back(batch.inputs[lane] == spoken_row_.get()
                        ? &spoken_beside_
                        : dynamic_cast<const ArNodeInputs*>(batch.inputs[lane]));
  }
  context.stage(Speech::kRows, rows.device);
  if (is_spoken(batch.walk)) {
    const auto tokens = context.staging->column<std::int32_t>(context.num_tokens);
    std::ranges::fill(tokens.host, -1);
    context.stage(Speech::kTokens, tokens.device);
    return;
  }
  const CollatedInputs all = collate(given, StackingMethod::kCat, context.stream(), allocator_);
  context.bring(Speech::kTokens, {&all.find("input_ids")->stacked, 1});
  if (const CollatedField* memory = all.find(kMemoryField)) {
    context.bring(Speech::kMemory, {&memory->stacked, 1});
  }
}

void Speaker::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  const StepContext& context = *inputs.context;
  const WalkId walk = context.batch.walk;
  const char* const what =
      walk == Speech::kTogether ? "both" : (is_spoken(walk) ? "speak" : "hear");
  script_.note(what + seeds_of(inputs.handles, inputs.infos));
  outputs.set_row_handles(inputs.handles);
  const auto& history = inputs.resources->get<KvCache>("history");
  const KvCache& keys = inputs.resources->get<CrossAttentionCache>("keys").store();
  const DeviceView said = said_.view(Dtype::kI32, {std::ssize(inputs.handles)});
  Job& job = inputs.captured ? captured_jobs_.emplace_back() : jobs_[++num_steps_ % jobs_.size()];
  job = {
      .tokens = context.staged(Speech::kTokens).data<std::int32_t>(),
      .rows = context.staged(Speech::kRows).data<std::int32_t>(),
      .memory = nullptr,
      .plan = context.plan<KvPlan>(kHistoryKey),
      .positions = context.plan<PositionPlan>(kPositionsKey),
      .cross = context.plan<CrossAttentionPlan>(kKeysKey),
      .history = &history,
      .keys = &keys,
      .last_said = last_said_.view(Dtype::kI32, {history.config().num_rows}).data<std::int32_t>(),
      .said = said.data<std::int32_t>(),
      .num_lanes = std::ssize(inputs.handles)};
  if (job.cross.writes.token_indices.num_elements() > 0) {
    job.memory = context.staged(Speech::kMemory).data<float>();
  }
  kernels::apply_page_updates(context.stream(), history.page_table(), job.plan.page_updates);
  kernels::apply_page_updates(context.stream(), keys.page_table(), job.cross.writes.page_updates);
  enqueue_host_function(context.stream(), "speak", run, &job);
  outputs.add_rows(Speech::kSaid, said);
}

void Speaker::write_keys(const Job& job) {
  const auto* streams = job.cross.writes.token_streams.data<std::int32_t>();
  const auto* indices = job.cross.writes.token_indices.data<std::int32_t>();
  for (std::int64_t key = 0; key < job.cross.writes.token_indices.num_elements(); ++key) {
    if (streams[key] >= 0) {
      *cached_token(*job.keys, streams[key], indices[key]) = job.memory[key];
    }
  }
}

/// Over the tokens of its stream up to this one, and over all keys.
std::int64_t Speaker::attend(const Job& job, std::int64_t token) {
  const std::int32_t stream = job.plan.token_streams.data<std::int32_t>()[token];
  const std::int32_t last = job.plan.token_indices.data<std::int32_t>()[token];
  std::int64_t sum = 0;
  for (std::int64_t place = 0; place <= last; ++place) {
    const float* stored = cached_token(*job.history, stream, place);
    sum += SpeakerMath::stored(static_cast<std::int64_t>(stored[0]),
                               static_cast<std::int64_t>(stored[1]), place);
  }
  const std::int32_t key_stream = job.cross.query_streams.data<std::int32_t>()[token];
  for (std::int64_t key = 0; key <= job.cross.last_keys.data<std::int32_t>()[token]; ++key) {
    sum += static_cast<std::int64_t>(*cached_token(*job.keys, key_stream, key));
  }
  return sum;
}

void Speaker::run(void* data) {
  const Job& job = *static_cast<const Job*>(data);
  write_keys(job);
  const auto* streams = job.plan.token_streams.data<std::int32_t>();
  const auto* indices = job.plan.token_indices.data<std::int32_t>();
  std::int64_t token = 0;
  for (std::int64_t lane = 0; lane < job.num_lanes; ++lane) {
    const std::int32_t row = job.rows[2 * lane];
    const std::int64_t last = job.rows[2 * lane + 1];
    for (; token <= last && row >= 0; ++token) {
      float* place = cached_token(*job.history, streams[token], indices[token]);
      place[0] =
          static_cast<float>(job.tokens[token] >= 0 ? job.tokens[token] : job.last_said[row]);
      place[1] = static_cast<float>(job.positions.positions.data<std::int32_t>()[token]);
    }
    token = last + 1;
    job.said[lane] = row < 0 ? -1 : SpeakerMath::next(attend(job, last));
    if (row >= 0) {
      job.last_said[row] = job.said[lane];
    }
  }
}

std::vector<LoopId> Speaker::check_stop(const RequestView& request, const HostRows& rows) const {
  const std::int64_t row = rows.row_of(request.info().handle);
  const std::int32_t said =
      rows.find(Speech::kSaid).span<const std::int32_t>()[static_cast<std::size_t>(row)];
  if (said >= SpeakerMath::kStopsBelow) {
    return {};
  }
  const bool is_again = request.info().walk >= Speech::kListenAgain;
  return {is_again ? Speech::kTalkingAgain : Speech::kTalking};
}

std::span<const SignalId> Speaker::device_loopback_signals(WalkId walk) const {
  static constexpr std::array kSignals{Speech::kSaid};
  return is_spoken(walk) ? std::span<const SignalId>(kSignals) : std::span<const SignalId>();
}

std::span<const InlineSignal> Speaker::inline_client_signals(WalkId /*walk*/) const {
  static constexpr std::array kSignals{InlineSignal{Speech::kSaid, Speech::kSaid}};
  return kSignals;
}

std::vector<CudaGraphConfig> Speaker::get_cuda_graph_configs(Device& /*device*/, int) const {
  BatchedGraphConfig config;
  config.capture_walk = Speech::kTalk;
  config.replay_walks = {Speech::kTalkAgain};
  config.batch_sizes = {1, 2, kMaxLanes};
  config.row = spoken_row_;
  return {config};
}

namespace {

walk::Definition speaker_definition(bool combines) {
  const walk::Edge kept{.signal = "said", .next_node = walk::kNowhere, .persist = true};
  const walk::Edge to_client{
      .signal = "said", .next_node = walk::kEmitToClient, .counts_new_tokens = true};
  const walk::Edge to_itself{.signal = "said", .next_node = "speaker"};
  const walk::Node listens{
      .name = "speaker", .inputs = {"tokens", "memory"}, .outputs = {kept, to_client}};
  const walk::Node listens_again{
      .name = "speaker", .inputs = {"more"}, .outputs = {kept, to_client}};
  const walk::Node talks{.name = "speaker", .inputs = {"said"}, .outputs = {to_itself, to_client}};
  const auto loop = [&](const char* name) {
    return walk::Loop{.name = name, .sections = {talks}, .max_iters = SpeakerMath::kMaxIterations};
  };
  const std::vector<std::string> walks = {"listen", "talk", "listen_again", "talk_again"};
  std::vector<walk::CombinedWalks> combined;
  if (combines) {
    combined.push_back({.node = "speaker", .label = "together", .walks = walks});
  }
  return {.walks = {{"listen", listens},
                    {"talk", loop("talking")},
                    {"listen_again", listens_again},
                    {"talk_again", loop("talking_again")}},
          .partitions = {{.name = "voice", .walks = walks, .initial_walk = "listen"}},
          .combined = std::move(combined)};
}

}  // namespace

SpeakerModel make_speaker_model(Device& device, CompositeScript& script,
                                const SpeakerOptions& options) {
  walk::Names names;
  for (const char* signal : {"tokens", "memory", "more", "said", "rows"}) {
    names.signals.intern(signal);
  }
  SpeakerModel speaker;
  CompositeModel& model = speaker.model;
  model.stream = std::make_unique<Stream>(device);
  model.program = walk::compile(speaker_definition(options.combines), std::move(names));
  KvCacheConfig config{.num_layers = 1,
                       .num_kv_heads = 1,
                       .head_dim = 4,
                       .page_size = 4,
                       .num_pages = options.num_pages,
                       .num_rows = options.num_rows,
                       .max_length = 96,
                       .dtype = Dtype::kF32,
                       .num_host_pages = options.num_host_pages};
  NodeResources resources;
  auto history = std::make_unique<KvCache>(kHistoryKey, device, config);
  speaker.history = history.get();
  resources.add("history", std::move(history));
  resources.add("positions",
                std::make_unique<Positions>(kPositionsKey, options.num_rows, 1, kHistoryKey));
  config.num_pages = 1 + 2 * options.num_rows;
  config.max_length = 8;
  auto keys = std::make_unique<CrossAttentionCache>(kKeysKey, device, config);
  speaker.keys = &keys->store();
  resources.add("keys", std::move(keys));
  if (options.has_state) {
    resources.add("state", std::make_unique<SlotState>(
                               resources.next_key(), device,
                               SlotStateConfig{.num_rows = options.num_rows, .shape = {1}}));
  }
  model.engines.push_back(std::make_unique<Engine>(
      device, std::make_unique<Speaker>(device, options.num_rows, script), std::move(resources),
      EngineConfig{.staging_bytes = 16 * 1024, .stream = model.stream->ref()}));
  return speaker;
}

}  // namespace rigel::testing
