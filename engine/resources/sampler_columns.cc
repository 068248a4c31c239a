// From requests to the columns of a step, and what of them stays from one step to the next.

#include "engine/resources/sampler_columns.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace rigel {

namespace {

const SamplingConfig& config_of(const SamplerStep::Lane& lane) {
  return lane.info->sampling;
}

std::span<const std::int32_t> barred_tokens(const SamplerStep::Lane& lane) {
  const SamplingConfig& config = config_of(lane);
  return lane.num_generated < config.min_tokens
             ? std::span<const std::int32_t>(config.stop_token_ids)
             : std::span<const std::int32_t>();
}

template <class T>
const std::byte* begin_of(const StagedColumn<T>& column) {
  return std::as_bytes(column.host).data();
}

template <class T>
const std::byte* end_of(const StagedColumn<T>& column) {
  return std::as_bytes(column.host).data() + column.host.size_bytes();
}

}  // namespace

SamplingDemand SamplingDemand::of(std::span<const SamplerStep::Lane> lanes) {
  SamplingDemand demand;
  for (const SamplerStep::Lane& lane : lanes) {
    const SamplingConfig& config = config_of(lane);
    demand.num_biases += static_cast<std::int64_t>(config.logit_bias.size());
    demand.num_with_min_tokens += config.min_tokens > 0 ? 1 : 0;
    demand.max_logprobs = std::max(demand.max_logprobs, config.num_logprobs);
    demand.has_penalties = demand.has_penalties || config.has_penalties();
  }
  return demand;
}

std::int64_t count_barred(std::span<const SamplerStep::Lane> lanes) {
  std::int64_t num_barred = 0;
  for (const SamplerStep::Lane& lane : lanes) {
    num_barred += static_cast<std::int64_t>(barred_tokens(lane).size());
  }
  return num_barred;
}

bool StagedLanes::are_of(std::span<const SamplerStep::Lane> lanes) const {
  return std::ranges::equal(lanes, handles, {}, &SamplerStep::Lane::handle);
}

void StagedLanes::forget(RequestHandle handle) {
  constexpr RequestHandle kNobody{std::numeric_limits<std::int32_t>::min(), 0};
  std::ranges::replace(handles, handle, kNobody);
}

SamplerColumns::SamplerColumns(StepStaging& staging, const Sizes& sizes)
    : staging_(staging),
      token_indices_(staging.column<std::int32_t>(sizes.num_lanes)),
      positions_(staging.column<std::int32_t>(sizes.num_lanes)),
      lanes_(staging.column<std::int32_t>(sizes.num_lanes)),
      rows_(staging.column<std::int32_t>(sizes.num_lanes)),
      temperature_(staging.column<float>(sizes.num_lanes)),
      top_k_(staging.column<std::int32_t>(sizes.num_lanes)),
      top_p_(staging.column<float>(sizes.num_lanes)),
      min_p_(staging.column<float>(sizes.num_lanes)),
      seeds_(staging.column<std::int64_t>(sizes.num_lanes)),
      publish_(staging.column<std::int32_t>(sizes.num_lanes)),
      logprob_counts_(staging.column<std::int32_t>(sizes.num_lanes)),
      penalty_rows_(staging.column<std::int32_t>(sizes.num_penalty_lanes)),
      repetition_(staging.column<float>(sizes.num_penalty_lanes)),
      presence_(staging.column<float>(sizes.num_penalty_lanes)),
      frequency_(staging.column<float>(sizes.num_penalty_lanes)),
      bias_lanes_(staging.column<std::int32_t>(sizes.num_bias_places)),
      bias_tokens_(staging.column<std::int32_t>(sizes.num_bias_places)),
      bias_values_(staging.column<float>(sizes.num_bias_places)),
      barred_lanes_(staging.column<std::int32_t>(sizes.num_barred_places)),
      barred_tokens_(staging.column<std::int32_t>(sizes.num_barred_places)) {}

bool SamplerColumns::hold(const StagedLanes& staged) const {
  // The columns have a fixed order, and sizes that these and the place of the end give: same sizes, same places.
  return staged.begin == begin_of(token_indices_) && staged.end == end_of(barred_tokens_) &&
         staged.num_resets + 1 == staging_.num_resets() &&
         staged.handles.size() == rows_.host.size() &&
         staged.num_penalty_lanes == penalty_rows_.host.size() &&
         staged.num_bias_places == bias_lanes_.host.size();
}

void SamplerColumns::write(std::span<const SamplerStep::Lane> lanes, const Contents& contents,
                           StagedLanes& staged) const {
  const bool stand = hold(staged);
  const bool are_same = stand && contents.lanes_go_on;
  staged.handles.resize(lanes.size());
  staged.num_prompt_tokens.resize(lanes.size());
  if (!are_same) {
    for (std::size_t index = 0; index < lanes.size(); ++index) {
      if (!stand || staged.handles[index] != lanes[index].handle) {
        write_lane(index, lanes[index]);
        staged.handles[index] = lanes[index].handle;
        staged.num_prompt_tokens[index] = lanes[index].info->num_prompt_tokens;
      }
    }
  }
  for (std::size_t index = 0; index < lanes.size(); ++index) {
    token_indices_.host[index] = lanes[index].token_index;
    positions_.host[index] = staged.num_prompt_tokens[index] + lanes[index].num_generated;
  }
  if (!stand || (!are_same && staged.demand.num_biases + contents.demand.num_biases > 0)) {
    write_biases(lanes, contents.demand.num_biases);
  }
  if (!stand || staged.num_barred + contents.num_barred > 0) {
    write_barred(lanes, contents.num_barred);
  }
  staged.num_resets = staging_.num_resets();
  staged.begin = begin_of(token_indices_);
  staged.end = end_of(barred_tokens_);
  staged.num_penalty_lanes = penalty_rows_.host.size();
  staged.num_bias_places = bias_lanes_.host.size();
  staged.demand = contents.demand;
  staged.num_barred = contents.num_barred;
}

void SamplerColumns::write_lane(std::size_t index, const SamplerStep::Lane& lane) const {
  const SamplingConfig& config = config_of(lane);
  lanes_.host[index] = lane.handle.is_padding() ? -1 : static_cast<std::int32_t>(index);
  rows_.host[index] = lane.handle.row;
  temperature_.host[index] = config.temperature;
  top_k_.host[index] = config.top_k;
  top_p_.host[index] = config.top_p;
  min_p_.host[index] = config.min_p;
  seeds_.host[index] = std::bit_cast<std::int64_t>(lane.info->seed);
  publish_.host[index] = 1;
  logprob_counts_.host[index] = config.num_logprobs;
  if (!penalty_rows_.host.empty()) {
    penalty_rows_.host[index] = config.has_penalties() ? lane.handle.row : -1;
    repetition_.host[index] = config.repetition_penalty;
    presence_.host[index] = config.presence_penalty;
    frequency_.host[index] = config.frequency_penalty;
  }
}

void SamplerColumns::write_biases(std::span<const SamplerStep::Lane> lanes,
                                  std::int64_t num_entries) const {
  std::ranges::fill(bias_lanes_.host.subspan(static_cast<std::size_t>(num_entries)), -1);
  std::size_t at = 0;
  for (std::size_t index = 0; index < lanes.size() && num_entries > 0; ++index) {
    for (const auto& [token, bias] : config_of(lanes[index]).logit_bias) {
      bias_lanes_.host[at] = static_cast<std::int32_t>(index);
      bias_tokens_.host[at] = token;
      bias_values_.host[at++] = bias;
    }
  }
}

void SamplerColumns::write_barred(std::span<const SamplerStep::Lane> lanes,
                                  std::int64_t num_entries) const {
  std::ranges::fill(barred_lanes_.host.subspan(static_cast<std::size_t>(num_entries)), -1);
  std::size_t at = 0;
  for (std::size_t index = 0; index < lanes.size() && num_entries > 0; ++index) {
    for (const std::int32_t token : barred_tokens(lanes[index])) {
      barred_lanes_.host[at] = static_cast<std::int32_t>(index);
      barred_tokens_.host[at++] = token;
    }
  }
}

void SamplerColumns::give(SamplerPlan& plan) const {
  plan.token_indices = token_indices_.device;
  plan.lanes = lanes_.device;
  plan.rows = rows_.device;
  plan.temperature = temperature_.device;
  plan.top_k = top_k_.device;
  plan.top_p = top_p_.device;
  plan.min_p = min_p_.device;
  plan.seeds = seeds_.device;
  plan.positions = positions_.device;
  plan.publish = publish_.device;
  plan.logprob_counts = logprob_counts_.device;
  plan.penalty_rows = penalty_rows_.device;
  plan.repetition = repetition_.device;
  plan.presence = presence_.device;
  plan.frequency = frequency_.device;
  plan.bias_lanes = bias_lanes_.device;
  plan.bias_tokens = bias_tokens_.device;
  plan.bias_values = bias_values_.device;
  plan.barred_lanes = barred_lanes_.device;
  plan.barred_tokens = barred_tokens_.device;
}

}  // namespace rigel
