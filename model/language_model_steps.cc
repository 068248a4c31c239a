// The host side of the language model's steps: what a request brings, what a batch declares and stages, when a request stops.

#include "engine/step_context.h"
#include "model/language_model.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>

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
  if (record.token < 0) {
    throw std::runtime_error("the model gave no finite logits for this request");
  }
  if ((record.flags & kernels::kStopped) != 0) {
    return true;
  }
  return (record.flags & kernels::kHostMustCheck) != 0 &&
         std::ranges::find(request.info().sampling.stop_token_ids, record.token) !=
             request.info().sampling.stop_token_ids.end();
}

/// The request's view. Views usually come in the order of the rows and leave a few out: at `row`, or a little before.
const RequestView* find_view(std::span<const RequestView> requests, RequestHandle handle,
                             std::size_t row) {
  const auto is_it = [handle](const RequestView& view) { return view.info().handle == handle; };
  const auto end =
      requests.begin() + static_cast<std::ptrdiff_t>(std::min(row + 1, requests.size()));
  if (const auto before = std::find_if(std::make_reverse_iterator(end), requests.rend(), is_it);
      before != requests.rend()) {
    return &*before;
  }
  const auto behind = std::find_if(end, requests.end(), is_it);
  return behind == requests.end() ? nullptr : &*behind;
}

/// What another node has made of the request's input. Throws CheckError naming what does not fit.
const Tensor& whole_embeddings(const TensorList& embeddings, std::int64_t hidden_size) {
  RIGEL_CHECK(embeddings.size() == 1, "a prefill takes one tensor of embeddings, got {}",
              embeddings.size());
  const Tensor& tensor = embeddings.front();
  RIGEL_CHECK(tensor.space() == Space::kDevice && tensor.dtype() == Dtype::kF32 &&
                  tensor.rank() == 2 && tensor.dim(0) > 0 && tensor.dim(1) == hidden_size &&
                  tensor.is_contiguous(),
              "embeddings must be (n, {}) f32 on the device, got {} of {}", hidden_size,
              to_string(tensor.shape()), name_of(tensor.dtype()));
  return tensor;
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
  auto row = std::make_unique<ArNodeInputs>();
  row->walk = context.walk;
  if (const TensorList* embeddings = context.signals->find(Names::kEmbeddings)) {
    row->input_embeds = whole_embeddings(*embeddings, config_.hidden_size);
    row->input_seq_len = row->input_embeds.dim(0);
    return row;
  }
  const TensorList* text = context.signals->find(Names::kTextInputs);
  RIGEL_CHECK(text != nullptr && text->size() == 1, "a prefill takes one tensor of token ids");
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

std::unique_ptr<NodeInputs> LanguageModel::replay_inputs(const RequestView& request,
                                                         const Tensor& tokens) {
  std::unique_ptr<NodeInputs> row = ArNodeSubmodule::replay_inputs(request, tokens);
  row->walk = Names::kPrefill;
  return row;
}

std::optional<LoopBounds> LanguageModel::loop_bounds(LoopId loop, const RequestInfo& info) const {
  if (loop != Names::kDecodeLoop) {
    return std::nullopt;
  }
  return LoopBounds{info.num_generated,
                    std::min(info.max_tokens, info.max_length - info.num_prompt_tokens)};
}

std::span<const SignalId> LanguageModel::device_loopback_signals(WalkId walk) const {
  static constexpr std::array kSignals{Names::kNewToken};
  return walk == Names::kDecode ? std::span<const SignalId>(kSignals) : std::span<const SignalId>();
}

std::span<const InlineSignal> LanguageModel::inline_client_signals(WalkId /*walk*/) const {
  static constexpr std::array kSignals{InlineSignal{Names::kNewToken, Names::kNewToken}};
  return kSignals;
}

const NodeInputs* LanguageModel::uniform_row_inputs(WalkId walk) const {
  return walk == Names::kDecode ? decode_row_.get() : nullptr;
}

/// How many logits a scored prompt asks for is its own affair, and they are computed block by block. Embeddings lie where each
/// request has them.
bool LanguageModel::can_use_cuda_graphs(const BatchColumns& batch) const {
  if (batch.walk == Names::kDecode) {
    return true;
  }
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    if (is_scored(*batch.infos[lane], *batch.inputs[lane]) ||
        ar_row(*batch.inputs[lane]).input_embeds.defined()) {
      return false;
    }
  }
  return true;
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
  if (batch.slot_lease != nullptr && batch.slot_lease->bucket.key == Names::kWithLogprobs) {
    sampler.captured_logprobs = kMaxSampledLogprobs;
  }
  const std::size_t num_decoding = declare_decode_lanes(batch, step, sampler);
  auto next_token = static_cast<std::int32_t>(num_decoding);
  for (std::size_t lane = num_decoding; lane < batch.handles.size(); ++lane) {
    const NodeInputs& row = *batch.inputs[lane];
    const auto span = static_cast<std::int32_t>(row.input_seq_len);
    step.segments.push_back({batch.handles[lane], LabelId::kMain, span});
    next_token += span;
    if (batch.handles[lane].is_padding()) {
      continue;
    }
    if (const Tensor* cached = find_tensor(row, kCachedTokens)) {
      sampler.prefill_tracked_tokens.push_back(
          {batch.handles[lane], cached->host_view().span<const std::int32_t>()});
    }
    if (row.walk == Names::kPrefill && row.is_final_chunk() && batch.infos[lane]->max_tokens > 0) {
      sampler.lanes.push_back(
          {.handle = batch.handles[lane],
           .info = batch.infos[lane],
           .num_generated = batch.metadata[lane].loop_counters.count(Names::kDecodeLoop),
           .token_index = next_token - 1});
    }
  }
  if (is_packed(batch.slot_lease)) {
    declare_packed_rows(batch, step, sampler);
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
  const std::span<Segment> segments = step.segments;
  const std::span<SamplerStep::Lane> lanes = sampler.lanes;
  for (std::size_t lane = 0; lane < num_decoding; ++lane) {
    const RequestHandle handle = batch.handles[lane];
    segments[lane] = {handle, LabelId::kMain, 1};
    lanes[lane] = {.handle = handle,
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
    const auto num_tokens = static_cast<std::size_t>(inputs->input_seq_len);
    const auto place = ids.host.subspan(token, num_tokens);
    if (const Tensor& given = ar_row(*inputs).input_ids; given.defined()) {
      std::ranges::copy(given.host_view().span<const std::int32_t>(), place.begin());
    } else {
      // No id at all where the row brings embeddings: one beyond the vocabulary starts from zeros and counts for nothing.
      const bool is_embedded = ar_row(*inputs).input_embeds.defined();
      std::ranges::fill(place, is_embedded ? config_.vocab_size : -1);
    }
    token += num_tokens;
  }
  std::ranges::fill(ids.host.subspan(token), -1);  // of a packed capture's padding
  context.stage(Names::kStagedIds, ids.device);
  stage_embeddings(batch, num_decoding, context);
  stage_scores(batch, num_decoding, context);
}

/// Where the rows' embeddings go in the residual stream: one copy for each row, all in one launch.
void LanguageModel::stage_embeddings(const BatchColumns& batch, std::size_t num_decoding,
                                     StepContext& context) {
  embedding_table_ = {};
  std::vector<kernels::RowTensor> copies;
  auto token = static_cast<std::int64_t>(num_decoding);
  for (const NodeInputs* inputs : batch.inputs.subspan(num_decoding)) {
    const std::int64_t span = inputs->input_seq_len;
    if (const Tensor& given = ar_row(*inputs).input_embeds; given.defined()) {
      const Shape as_one{1, span, config_.hidden_size};
      copies.push_back(
          {.tensor = buffers_.residual.view(Dtype::kF32, {context.num_tokens, config_.hidden_size})
                         .slice(0, token, span),
           .rows = given.device_view().reshape(as_one)});
    }
    token += span;
  }
  if (!copies.empty()) {
    const auto table =
        context.staging->column<std::int64_t>(std::ssize(copies) * kernels::kRowCopyWords);
    embedding_table_ = kernels::fill_row_tensor_table(table.host, table.device, copies);
  }
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
  for (std::size_t row = 0; row < records.size(); ++row) {
    // Few steps stop anybody; the requests are only looked at where one does.
    if ((records[row].flags & (kernels::kStopped | kernels::kHostMustCheck)) == 0) {
      continue;
    }
    const RequestHandle handle = rows.handles[row];
    const RequestView* const request = find_view(requests, handle, row);
    if (request != nullptr && stops(*request, records[row])) {
      stopped.push_back({handle, Names::kDecodeLoop});
    }
  }
  return true;
}

}  // namespace rigel
