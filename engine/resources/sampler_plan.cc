// The host half of the sampler: what a step asks for, and its columns.

#include "engine/resources/sampler.h"
#include "tensor/copy.h"

#include <algorithm>
#include <utility>

namespace rigel {

std::int64_t Sampler::captured_entries(std::size_t num_lanes) {
  return 320 + 4 * static_cast<std::int64_t>(num_lanes);
}

const StagedLanes* Sampler::find_staged(const StepStaging& staging) const {
  const auto staged = std::ranges::find(staged_, &staging, &StagedLanes::staging);
  return staged == staged_.end() ? nullptr : &*staged;
}

StagedLanes& Sampler::staged_in(const StepStaging& staging) {
  if (const StagedLanes* const known = find_staged(staging)) {
    return const_cast<StagedLanes&>(*known);
  }
  StagedLanes& fresh = staged_.emplace_back();
  fresh.staging = &staging;
  fresh.handles.reserve(static_cast<std::size_t>(config_.num_rows));
  fresh.num_prompt_tokens.reserve(static_cast<std::size_t>(config_.num_rows));
  return fresh;
}

SamplerColumns::Contents Sampler::examine(std::span<const SamplerStep::Lane> lanes,
                                          const StepStaging& staging) const {
  const StagedLanes* const staged = find_staged(staging);
  const bool go_on = staged != nullptr && staged->are_of(lanes);
  const SamplingDemand demand = go_on ? staged->demand : SamplingDemand::of(lanes);
  return {demand, demand.num_with_min_tokens == 0 ? 0 : count_barred(lanes), go_on};
}

/// The same; what fits_capture found serves once.
SamplerColumns::Contents Sampler::take_examined(std::span<const SamplerStep::Lane> lanes,
                                                const StepStaging& staging) {
  const Examined known = std::exchange(examined_, {});
  const bool is_known = known.staging == &staging && known.num_resets == staging.num_resets() &&
                        known.lanes.data() == lanes.data() && known.lanes.size() == lanes.size();
  return is_known ? known.contents : examine(lanes, staging);
}

/// Everybody's part of a captured step is there; only what one request may bring a lot of has an end.
bool Sampler::fits_capture(const SubmoduleStep& step, const StepContext& context) const {
  const auto& sampling = std::get<SamplerStep>(*step.find(key()));
  const SamplerColumns::Contents contents = examine(sampling.lanes, *context.staging);
  examined_ = {context.staging, context.staging->num_resets(), sampling.lanes, contents};
  const SamplingDemand& demand = contents.demand;
  const std::int64_t num_places = captured_entries(sampling.lanes.size());
  return demand.max_logprobs <= sampling.captured_logprobs &&
         sampling.prefill_tracked_tokens.empty() && demand.num_biases <= num_places &&
         contents.num_barred <= num_places;
}

std::int32_t Sampler::admit_turns(const SubmoduleStep& step, const StepContext& /*context*/,
                                  std::int32_t num_turns) {
  for (const SamplerStep::Lane& lane : std::get<SamplerStep>(*step.find(key())).lanes) {
    const std::int32_t min_tokens = lane.info == nullptr ? 0 : lane.info->sampling.min_tokens;
    if (lane.num_generated < min_tokens) {
      num_turns = std::min(num_turns, min_tokens - lane.num_generated);
    }
  }
  return num_turns;
}

void Sampler::clear_fresh_counts(const StepContext& context) {
  for (const std::int32_t row : fresh_rows_) {
    fill_bytes(context.stream(), counts().select(0, row), 0);
  }
  fresh_rows_.clear();
}

void Sampler::plan_lanes(const SamplerStep& step, StepContext& context, SamplerPlan& plan) {
  StagedLanes& staged = staged_in(*context.staging);
  const SamplerColumns::Contents contents = take_examined(step.lanes, *context.staging);
  const SamplingDemand& demand = contents.demand;
  plan.num_lanes = static_cast<std::int64_t>(step.lanes.size());
  plan.max_logprobs = demand.max_logprobs;
  plan.has_penalties = step.apply_penalty && demand.has_penalties;
  SamplerColumns::Sizes sizes{.num_lanes = plan.num_lanes,
                              .num_penalty_lanes = 0,
                              .num_bias_places = demand.num_biases,
                              .num_barred_places = contents.num_barred};
  if (context.batch.slot_lease != nullptr) {
    // The graph has every part, whether a lane of this step asks for it or not.
    sizes.num_bias_places = captured_entries(step.lanes.size());
    sizes.num_barred_places = sizes.num_bias_places;
    plan.has_penalties = step.apply_penalty;
    plan.max_logprobs = step.captured_logprobs;
  }
  sizes.num_penalty_lanes = plan.has_penalties ? plan.num_lanes : 0;
  const SamplerColumns columns(*context.staging, sizes);
  columns.write(step.lanes, contents, staged);
  columns.give(plan);
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
  if (num_with_penalties_ == 0 && !is_packed(batch.slot_lease)) {
    return;
  }
  const auto counts_prompt = [&](std::size_t lane) {
    // A decode lane's token was counted when it was sampled.
    return batch.inputs[lane]->chunk_total > 0 && batch.infos[lane]->sampling.has_penalties();
  };
  std::size_t first = 0;
  while (first < batch.handles.size() && !counts_prompt(first)) {
    ++first;
  }
  if (first == batch.handles.size() && !is_packed(batch.slot_lease)) {
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
  std::ranges::fill(rows.host.subspan(token), -1);
  plan.prompt_rows = rows.device;
}

}  // namespace rigel
