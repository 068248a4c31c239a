// The host side of the language model's steps: what a request brings, what a batch declares and stages, when a request stops.

#include "engine/step_context.h"
#include "model/language_model.h"

#include <algorithm>

namespace rigel {

using Names = LanguageModelNames;

namespace {

constexpr const char* kTargets = "targets";
constexpr const char* kCachedTokens = "cached_tokens";

const ArNodeInputs& ar_row(const NodeInputs& inputs) {
  return dynamic_cast<const ArNodeInputs&>(inputs);
}

/// The tokens that follow those of the row: what a scored prompt is scored on.
Tensor following_tokens(const Tensor& ids) {
  const auto tokens = ids.host_view().span<const std::int32_t>();
  std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-1);
  return Tensor::copy_of(std::span<const std::int32_t>(targets));
}

const Tensor* find_tensor(const NodeInputs& row, std::string_view name) {
  for (const auto& [field, tensor] : row.tensor_inputs) {
    if (field == name) {
      return &tensor;
    }
  }
  return nullptr;
}

/// The device's stop tests, by row; none where nobody sampled.
std::span<const kernels::StepRecord> records_of(const HostRows& rows) {
  const ConstHostView records = rows.find(Names::kStopRecord);
  return {reinterpret_cast<const kernels::StepRecord*>(records.raw()),
          records.defined() ? rows.handles.size() : 0};
}

/// The device's word, and where a request has more stop ids than it keeps, the rest of them.
bool stops(const RequestView& request, const kernels::StepRecord& record) {
  if ((record.flags & kernels::kStopped) != 0) {
    return true;
  }
  return (record.flags & kernels::kHostMustCheck) != 0 &&
         std::ranges::find(request.info().sampling.stop_token_ids, record.token) !=
             request.info().sampling.stop_token_ids.end();
}

bool is_scored(const RequestInfo& info, const NodeInputs& row) {
  // A request that lost its pages after its first token was scored before.
  return row.walk == Names::kPrefill && info.scoring.has_value() && info.num_generated == 0;
}

}  // namespace

std::unique_ptr<NodeInputs> LanguageModel::prepare_inputs(const PrepareContext& context,
                                                          const RequestView& request) {
  if (context.walk == Names::kDecode) {
    auto row = std::make_unique<ArNodeInputs>();
    row->walk = Names::kDecode;
    row->input_seq_len = 1;
    return row;
  }
  const TensorList* text = context.signals->find(Names::kTextInputs);
  RIGEL_CHECK(text != nullptr && text->size() == 1, "a prefill takes one tensor of token ids");
  auto row = std::make_unique<ArNodeInputs>();
  row->walk = Names::kPrefill;
  row->input_ids = text->front();
  row->input_seq_len = row->input_ids.dim(0);
  if (is_scored(request.info(), *row)) {
    row->tensor_inputs.emplace_back(kTargets, following_tokens(row->input_ids));
  }
  return row;
}

std::unique_ptr<NodeInputs> LanguageModel::split_inputs(const RequestView& request,
                                                        const NodeInputs& inputs,
                                                        std::int64_t start, std::int64_t end) {
  ArNodeInputs sequence = ar_row(inputs);
  sequence.tensor_inputs.clear();
  std::unique_ptr<ArNodeInputs> part = split_ar_inputs(sequence, start, end);
  for (const auto& [name, tensor] : inputs.tensor_inputs) {
    part->tensor_inputs.emplace_back(name, tensor.slice(0, start, end - start));
  }
  const RequestInfo& info = request.info();
  if (start > 0 && start == info.num_cached_tokens && info.sampling.has_penalties()) {
    // Penalties count the prompt's tokens where they pass by; these will not.
    const std::int64_t num_tokens = std::min<std::int64_t>(start, info.num_prompt_tokens);
    part->tensor_inputs.emplace_back(kCachedTokens, sequence.input_ids.slice(0, 0, num_tokens));
  }
  return part;
}

const NodeInputs* LanguageModel::uniform_row_inputs(WalkId walk) const {
  return walk == Names::kDecode ? decode_row_.get() : nullptr;
}

CgKey LanguageModel::cg_key_info(const BatchColumns& batch) const {
  const bool anybody = std::ranges::any_of(
      batch.infos, [](const RequestInfo* info) { return info->sampling.num_logprobs >= 0; });
  return anybody ? Names::kDecodeWithLogprobs : Names::kPlainDecode;
}

std::vector<CudaGraphConfig> LanguageModel::get_cuda_graph_configs(
    Device& /*device*/, int /*tensor_parallel_size*/) const {
  std::vector<CudaGraphConfig> configs;
  if (decode_batch_sizes_.empty()) {
    return configs;
  }
  for (const CgKey key : {Names::kPlainDecode, Names::kDecodeWithLogprobs}) {
    BatchedGraphConfig config;
    config.capture_walk = Names::kDecode;
    config.key = key;
    config.batch_sizes = decode_batch_sizes_;
    config.row = decode_row_;
    configs.emplace_back(std::move(config));
  }
  return configs;
}

bool LanguageModel::can_batch(const BatchColumns& /*batch*/) const {
  return true;
}

bool LanguageModel::declare_step(const BatchColumns& batch, SubmoduleStep& step) const {
  step.declare<KvStep>(kv_key_);
  step.declare<PositionStep>(positions_key_);
  step.declare<AttentionStep>(attention_key_);
  step.declare<std::monostate>(stops_key_);
  auto& sampler = step.declare<SamplerStep>(sampler_key_);
  step.cg_key_info = cg_key_info(batch);
  if (batch.slot_lease != nullptr && batch.slot_lease->bucket.key == Names::kDecodeWithLogprobs) {
    sampler.captured_logprobs = kMaxSampledLogprobs;
  }
  const std::size_t num_decoding = declare_decode_lanes(batch, step, sampler);
  auto next_token = static_cast<std::int32_t>(num_decoding);
  for (std::size_t lane = num_decoding; lane < batch.handles.size(); ++lane) {
    const NodeInputs& row = *batch.inputs[lane];
    const auto span = static_cast<std::int32_t>(row.input_seq_len);
    step.segments.push_back({batch.handles[lane], LabelId::kMain, span});
    next_token += span;
    if (const Tensor* cached = find_tensor(row, kCachedTokens)) {
      sampler.prefill_tracked_tokens.push_back(
          {batch.handles[lane], cached->host_view().span<const std::int32_t>()});
    }
    if (row.is_final_chunk() && batch.infos[lane]->max_tokens > 0) {
      sampler.lanes.push_back(
          {.handle = batch.handles[lane],
           .info = batch.infos[lane],
           .num_generated = batch.metadata[lane].loop_counters.count(Names::kDecodeLoop),
           .token_index = next_token - 1});
    }
  }
  return true;
}

/// Declares the leading lanes that share the row of a decode step, padding included: one token, which samples. What it has
/// generated is all that is asked of each.
std::size_t LanguageModel::declare_decode_lanes(const BatchColumns& batch, SubmoduleStep& step,
                                                SamplerStep& sampler) const {
  const std::size_t num_decoding = num_decode_lanes(batch);
  step.segments.resize(num_decoding);
  sampler.lanes.resize(num_decoding);
  for (std::size_t lane = 0; lane < num_decoding; ++lane) {
    const RequestHandle handle = batch.handles[lane];
    step.segments[lane] = {handle, LabelId::kMain, 1};
    sampler.lanes[lane] = {
        .handle = handle,
        .info = batch.infos[lane],
        .num_generated = batch.metadata[lane].loop_counters.count(Names::kDecodeLoop),
        .token_index = static_cast<std::int32_t>(lane)};
  }
  return num_decoding;
}

std::size_t LanguageModel::num_decode_lanes(const BatchColumns& batch) const {
  const NodeInputs* const decode_row = decode_row_.get();
  return static_cast<std::size_t>(
      std::ranges::find_if(batch.inputs, [=](const NodeInputs* row) { return row != decode_row; }) -
      batch.inputs.begin());
}

void LanguageModel::preprocess(const BatchColumns& batch, StepContext& context) {
  const auto ids = context.staging->column<std::int32_t>(context.num_tokens);
  const std::size_t num_decoding = num_decode_lanes(batch);
  // -1: the token that the row sampled last, known to the device.
  std::ranges::fill(ids.host.first(num_decoding), -1);
  std::size_t token = num_decoding;
  for (const NodeInputs* inputs : batch.inputs.subspan(num_decoding)) {
    const Tensor& given = ar_row(*inputs).input_ids;
    if (!given.defined()) {
      ids.host[token++] = -1;
      continue;
    }
    const auto tokens = given.host_view().span<const std::int32_t>();
    std::ranges::copy(tokens, ids.host.begin() + static_cast<std::ptrdiff_t>(token));
    token += tokens.size();
  }
  context.stage(Names::kStagedIds, ids.device);
  stage_scores(batch, num_decoding, context);
}

void LanguageModel::stage_scores(const BatchColumns& batch, std::size_t num_decoding,
                                 StepContext& context) {
  std::int64_t num_scored = 0;
  for (std::size_t lane = num_decoding; lane < batch.handles.size(); ++lane) {
    if (is_scored(*batch.infos[lane], *batch.inputs[lane])) {
      num_scored += batch.inputs[lane]->input_seq_len;
    }
  }
  const auto tokens = context.staging->column<std::int32_t>(num_scored);
  const auto targets = context.staging->column<std::int32_t>(num_scored);
  const auto top_counts = context.staging->column<std::int32_t>(num_scored);
  std::size_t at = 0;
  auto first_token = static_cast<std::int32_t>(num_decoding);
  for (std::size_t lane = num_decoding; lane < batch.handles.size(); ++lane) {
    const NodeInputs& row = *batch.inputs[lane];
    if (is_scored(*batch.infos[lane], row)) {
      const auto next = row.tensor_inputs.front().second.host_view().span<const std::int32_t>();
      for (std::size_t offset = 0; offset < next.size(); ++offset, ++at) {
        tokens.host[at] = first_token + static_cast<std::int32_t>(offset);
        targets.host[at] = next[offset];
        top_counts.host[at] = batch.infos[lane]->scoring->num_top;
      }
    }
    first_token += static_cast<std::int32_t>(row.input_seq_len);
  }
  context.stage(Names::kScoreTokens, tokens.device);
  context.stage(Names::kScoreTargets, targets.device);
  context.stage(Names::kScoreTopCounts, top_counts.device);
}

std::vector<LoopId> LanguageModel::check_stop(const RequestView& request,
                                              const HostRows& rows) const {
  const std::span<const kernels::StepRecord> records = records_of(rows);
  const std::int64_t row = rows.row_of(request.info().handle);
  if (records.empty() || row < 0) {
    return {};
  }
  return stops(request, records[static_cast<std::size_t>(row)]) ? std::vector{Names::kDecodeLoop}
                                                                : std::vector<LoopId>{};
}

bool LanguageModel::check_stop_batched(std::span<const RequestView> requests, const HostRows& rows,
                                       std::vector<LoopStop>& stopped) const {
  const std::span<const kernels::StepRecord> records = records_of(rows);
  // The views usually come in the order of the rows, so the search begins behind the last one found.
  const std::size_t num_rows = records.size();
  std::size_t next = 0;
  for (const RequestView& request : requests) {
    const RequestHandle handle = request.info().handle;
    std::size_t row = next;
    std::size_t num_left = num_rows;
    while (num_left > 0 && rows.handles[row] != handle) {
      row = row + 1 == num_rows ? 0 : row + 1;
      --num_left;
    }
    if (num_left == 0) {
      continue;
    }
    if (stops(request, records[row])) {
      stopped.push_back({handle, Names::kDecodeLoop});
    }
    next = row + 1 == num_rows ? 0 : row + 1;
  }
  return true;
}

}  // namespace rigel
