// The host half of the sampler: from requests to the columns of a step.

#include "engine/resources/sampler.h"
#include "tensor/copy.h"

#include <algorithm>
#include <bit>

namespace rigel {

namespace {

const SamplingConfig& config_of(const SamplerStep::Lane& lane) {
  return lane.info->sampling;
}

/// Stop tokens that the lane must not draw yet.
std::span<const std::int32_t> barred_tokens(const SamplerStep::Lane& lane) {
  const SamplingConfig& config = config_of(lane);
  return lane.num_generated < config.min_tokens
             ? std::span<const std::int32_t>(config.stop_token_ids)
             : std::span<const std::int32_t>();
}

}  // namespace

void Sampler::Demand::add(const SamplerStep::Lane& lane) {
  num_bias_entries += static_cast<std::int64_t>(config_of(lane).logit_bias.size());
  num_barred_entries += static_cast<std::int64_t>(barred_tokens(lane).size());
}

std::int64_t Sampler::captured_entries(std::size_t num_lanes) {
  return 320 + 4 * static_cast<std::int64_t>(num_lanes);
}

/// Everybody's part of a captured step is there; only what one request may bring a lot of has an end.
bool Sampler::fits_capture(const SubmoduleStep& step, const StepContext& /*context*/) const {
  const auto& sampling = std::get<SamplerStep>(*step.find(key()));
  Demand demand;
  bool has_logprobs = true;
  for (const SamplerStep::Lane& lane : sampling.lanes) {
    demand.add(lane);
    has_logprobs = has_logprobs && config_of(lane).num_logprobs <= sampling.captured_logprobs;
  }
  const std::int64_t num_places = captured_entries(sampling.lanes.size());
  return has_logprobs && sampling.prefill_tracked_tokens.empty() &&
         demand.num_bias_entries <= num_places && demand.num_barred_entries <= num_places;
}

void Sampler::clear_fresh_counts(const StepContext& context) {
  for (const std::int32_t row : fresh_rows_) {
    fill_bytes(context.stream(), counts().select(0, row), 0);
  }
  fresh_rows_.clear();
}

Sampler::Demand Sampler::plan_lanes(const SamplerStep& step, StepContext& context,
                                    SamplerPlan& plan) {
  Demand demand;
  StepStaging& staging = *context.staging;
  const std::int64_t num_lanes = plan.num_lanes;
  const auto token_indices = staging.column<std::int32_t>(num_lanes);
  const auto lanes = staging.column<std::int32_t>(num_lanes);
  const auto rows = staging.column<std::int32_t>(num_lanes);
  const auto temperature = staging.column<float>(num_lanes);
  const auto top_k = staging.column<std::int32_t>(num_lanes);
  const auto top_p = staging.column<float>(num_lanes);
  const auto min_p = staging.column<float>(num_lanes);
  const auto seeds = staging.column<std::int64_t>(num_lanes);
  const auto positions = staging.column<std::int32_t>(num_lanes);
  const auto publish = staging.column<std::int32_t>(num_lanes);
  const auto logprob_counts = staging.column<std::int32_t>(num_lanes);
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    const SamplerStep::Lane& lane = step.lanes[index];
    const SamplingConfig& config = config_of(lane);
    token_indices.host[index] = lane.token_index;
    lanes.host[index] = lane.handle.is_padding() ? -1 : static_cast<std::int32_t>(index);
    rows.host[index] = lane.handle.row;
    temperature.host[index] = config.temperature;
    top_k.host[index] = config.top_k;
    top_p.host[index] = config.top_p;
    min_p.host[index] = config.min_p;
    seeds.host[index] = std::bit_cast<std::int64_t>(lane.info->seed);
    positions.host[index] = lane.info->num_prompt_tokens + lane.num_generated;
    publish.host[index] = 1;
    logprob_counts.host[index] = config.num_logprobs;
    plan.max_logprobs = std::max(plan.max_logprobs, config.num_logprobs);
    plan.has_penalties = plan.has_penalties || (step.apply_penalty && config.has_penalties());
    demand.add(lane);
  }
  plan.token_indices = token_indices.device;
  plan.lanes = lanes.device;
  plan.rows = rows.device;
  plan.temperature = temperature.device;
  plan.top_k = top_k.device;
  plan.top_p = top_p.device;
  plan.min_p = min_p.device;
  plan.seeds = seeds.device;
  plan.positions = positions.device;
  plan.publish = publish.device;
  plan.logprob_counts = logprob_counts.device;
  return demand;
}

void Sampler::plan_penalties(const SamplerStep& step, StepContext& context,
                             SamplerPlan& plan) const {
  if (!plan.has_penalties) {
    return;
  }
  StepStaging& staging = *context.staging;
  const auto rows = staging.column<std::int32_t>(plan.num_lanes);
  const auto repetition = staging.column<float>(plan.num_lanes);
  const auto presence = staging.column<float>(plan.num_lanes);
  const auto frequency = staging.column<float>(plan.num_lanes);
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    const SamplingConfig& config = config_of(step.lanes[index]);
    rows.host[index] = config.has_penalties() ? step.lanes[index].handle.row : -1;
    repetition.host[index] = config.repetition_penalty;
    presence.host[index] = config.presence_penalty;
    frequency.host[index] = config.frequency_penalty;
  }
  plan.penalty_rows = rows.device;
  plan.repetition = repetition.device;
  plan.presence = presence.device;
  plan.frequency = frequency.device;
}

void Sampler::plan_bias(const SamplerStep& step, std::int64_t num_entries, std::int64_t num_places,
                        StepContext& context, SamplerPlan& plan) {
  const auto lanes = context.staging->column<std::int32_t>(num_places);
  const auto tokens = context.staging->column<std::int32_t>(num_places);
  const auto values = context.staging->column<float>(num_places);
  plan.bias_lanes = lanes.device;
  plan.bias_tokens = tokens.device;
  plan.bias_values = values.device;
  std::fill(lanes.host.begin() + static_cast<std::ptrdiff_t>(num_entries), lanes.host.end(), -1);
  if (num_entries == 0) {
    return;
  }
  std::size_t at = 0;
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    for (const auto& [token, bias] : config_of(step.lanes[index]).logit_bias) {
      lanes.host[at] = static_cast<std::int32_t>(index);
      tokens.host[at] = token;
      values.host[at++] = bias;
    }
  }
}

void Sampler::plan_barred(const SamplerStep& step, std::int64_t num_entries,
                          std::int64_t num_places, StepContext& context, SamplerPlan& plan) {
  const auto lanes = context.staging->column<std::int32_t>(num_places);
  const auto tokens = context.staging->column<std::int32_t>(num_places);
  plan.barred_lanes = lanes.device;
  plan.barred_tokens = tokens.device;
  std::fill(lanes.host.begin() + static_cast<std::ptrdiff_t>(num_entries), lanes.host.end(), -1);
  if (num_entries == 0) {
    return;
  }
  std::size_t at = 0;
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    for (const std::int32_t token : barred_tokens(step.lanes[index])) {
      lanes.host[at] = static_cast<std::int32_t>(index);
      tokens.host[at++] = token;
    }
  }
}

void Sampler::plan_tracked_tokens(const SamplerStep& step, StepContext& context,
                                  SamplerPlan& plan) const {
  std::int64_t num_tokens = 0;
  for (const SamplerStep::TrackedTokens& tracked : step.prefill_tracked_tokens) {
    num_tokens += static_cast<std::int64_t>(tracked.tokens.size());
  }
  if (num_tokens == 0) {
    return;
  }
  const auto rows = context.staging->column<std::int32_t>(num_tokens);
  const auto tokens = context.staging->column<std::int32_t>(num_tokens);
  std::size_t at = 0;
  for (const SamplerStep::TrackedTokens& tracked : step.prefill_tracked_tokens) {
    for (const std::int32_t token : tracked.tokens) {
      rows.host[at] = tracked.handle.is_padding() ? -1 : tracked.handle.row;
      tokens.host[at++] = token;
    }
  }
  plan.tracked_rows = rows.device;
  plan.tracked_tokens = tokens.device;
}

void Sampler::plan_prompt_marks(StepContext& context, SamplerPlan& plan) const {
  const BatchColumns& batch = context.batch;
  const auto counts_prompt = [&](std::size_t lane) {
    // A decode lane's token was counted when it was sampled.
    return batch.inputs[lane]->chunk_total > 0 && batch.infos[lane]->sampling.has_penalties();
  };
  bool anybody = false;
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    anybody = anybody || counts_prompt(lane);
  }
  if (!anybody) {
    return;
  }
  const auto rows = context.staging->column<std::int32_t>(context.num_tokens);
  std::size_t token = 0;
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    const NodeInputs& inputs = *batch.inputs[lane];
    for (std::int64_t offset = 0; offset < inputs.input_seq_len; ++offset) {
      // A request that starts over brings generated tokens along, which are counted already.
      const bool is_prompt =
          counts_prompt(lane) && inputs.chunk_start + offset < batch.infos[lane]->num_prompt_tokens;
      rows.host[token++] = is_prompt ? batch.handles[lane].row : -1;
    }
  }
  plan.prompt_rows = rows.device;
}

}  // namespace rigel
