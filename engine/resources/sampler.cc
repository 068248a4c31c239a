#include "engine/resources/sampler.h"

#include "kernels/log_probs.h"
#include "kernels/penalties.h"
#include "kernels/sampling.h"
#include "tensor/copy.h"

#include <algorithm>

namespace rigel {

namespace {

/// Random numbers of a node's one sampler; a second sampler of a model has another number.
constexpr std::uint32_t kSamplerId = 0;

}  // namespace

Sampler::Sampler(ResourceKey key, Device& device, const SamplerConfig& config)
    : Resource(key),
      config_(config),
      last_tokens_(device, Dtype::kI32, {config.num_rows}),
      penalty_counts_(device, Dtype::kI32, {config.num_rows, config.vocab_size}),
      raw_logits_(device, Dtype::kF32, {config.num_rows, config.vocab_size}),
      tokens_(device, Dtype::kI32, {config.num_rows}),
      flags_(device, Dtype::kI32, {config.num_rows}),
      chosen_logprobs_(device, Dtype::kF32, {config.num_rows}),
      top_ids_(device, Dtype::kI32, {config.num_rows, config.max_top_logprobs}),
      top_logprobs_(device, Dtype::kF32, {config.num_rows, config.max_top_logprobs}) {
  fresh_rows_.reserve(static_cast<std::size_t>(config.num_rows));
  owners_.resize(static_cast<std::size_t>(config.num_rows));
}

void Sampler::ingest_request(const RequestInfo& info) {
  const Owner owner{info.handle, info.sampling.num_logprobs >= 0, info.sampling.has_penalties()};
  const Owner& before = owners_.at(static_cast<std::size_t>(info.handle.row));
  if (owner.has_penalties && (before.handle != owner.handle || !before.has_penalties)) {
    fresh_rows_.push_back(info.handle.row);
  }
  set_owner(info.handle.row, owner);
  for (StagedLanes& staged : staged_) {
    staged.forget(info.handle);
  }
  examined_ = {};
}

void Sampler::remove_request(RequestHandle handle, Epoch /*last_touch*/) {
  if (owners_.at(static_cast<std::size_t>(handle.row)).handle == handle) {
    set_owner(handle.row, {});
  }
}

void Sampler::set_owner(std::int32_t row, const Owner& owner) {
  Owner& place = owners_[static_cast<std::size_t>(row)];
  num_with_logprobs_ += (owner.wants_logprobs ? 1 : 0) - (place.wants_logprobs ? 1 : 0);
  num_with_penalties_ += (owner.has_penalties ? 1 : 0) - (place.has_penalties ? 1 : 0);
  place = owner;
}

void Sampler::plan(const SubmoduleStep& step, StepContext& context) {
  clear_fresh_counts(context);
  const auto& sampling = std::get<SamplerStep>(*step.find(key()));
  SamplerPlan plan;
  plan_prompt_marks(context, plan);
  plan_tracked_tokens(sampling, context, plan);
  plan_lanes(sampling, context, plan);
  context.set_plan(key(), plan);
}

DeviceView Sampler::counts() const {
  return penalty_counts_.view(Dtype::kI32, {config_.num_rows, config_.vocab_size});
}

DeviceView Sampler::last_tokens() const {
  return last_tokens_.view(Dtype::kI32, {config_.num_rows});
}

std::int64_t Sampler::bytes_of(const SamplerConfig& config) {
  constexpr std::int64_t kWord = 4;
  const std::int64_t by_vocabulary = 2 * std::int64_t{config.vocab_size};  // counts, raw logits
  const std::int64_t by_alternative = 2 * std::int64_t{config.max_top_logprobs};
  constexpr std::int64_t kByRow = 4;  // last token, token, flag, log-probability
  return config.num_rows * (by_vocabulary + by_alternative + kByRow) * kWord;
}

void Sampler::enqueue_prompt_counts(const StepContext& context,
                                    const ConstDeviceView& token_ids) const {
  const auto& plan = context.plan<SamplerPlan>(key());
  if (plan.prompt_rows.defined()) {
    kernels::count_prompt(context.stream(), counts(), plan.prompt_rows, token_ids);
  }
  if (plan.tracked_rows.defined()) {
    kernels::count_prompt(context.stream(), counts(), plan.tracked_rows, plan.tracked_tokens);
  }
}

void Sampler::enqueue(const StepContext& context, const DeviceView& logits,
                      BatchedModelOutput& outputs) const {
  const auto& plan = context.plan<SamplerPlan>(key());
  const StreamRef stream = context.stream();
  const bool changes_logits = plan.has_penalties || plan.bias_lanes.num_elements() > 0 ||
                              plan.barred_lanes.num_elements() > 0;
  ConstDeviceView raw_logits = logits;
  if (changes_logits && plan.max_logprobs >= 0) {
    const DeviceView kept = raw_logits_.view(Dtype::kF32, logits.shape());
    copy(stream, kept, ConstDeviceView(logits));
    raw_logits = kept;
  }

  const kernels::PenaltyColumns penalties{plan.penalty_rows, plan.repetition, plan.presence,
                                          plan.frequency};
  kernels::apply_logit_bias(stream, logits, plan.bias_lanes, plan.bias_tokens, plan.bias_values);
  if (plan.has_penalties) {
    kernels::apply_penalties(stream, logits, counts(), plan.lanes, penalties);
  }
  kernels::bar_tokens(stream, logits, plan.barred_lanes, plan.barred_tokens);

  const DeviceView tokens = tokens_.view(Dtype::kI32, {plan.num_lanes});
  const kernels::SampleOutputs sampled{tokens, flags_.view(Dtype::kI32, {plan.num_lanes}), {}};
  const kernels::SamplingColumns columns{plan.temperature, plan.top_k, plan.top_p, plan.min_p,
                                         plan.seeds};
  kernels::sample(stream, sampled, logits, plan.lanes, plan.positions, columns, kSamplerId);
  kernels::publish_tokens(stream, last_tokens(), tokens, plan.rows, plan.publish);
  if (plan.has_penalties) {
    kernels::count_tokens(stream, counts(), plan.penalty_rows, plan.lanes, tokens, plan.publish);
  }
  outputs.add_rows(config_.signals.token, tokens);
  if (plan.max_logprobs >= 0) {
    enqueue_logprobs(context, plan, raw_logits, outputs);
  }
}

void Sampler::enqueue_logprobs(const StepContext& context, const SamplerPlan& plan,
                               const ConstDeviceView& raw_logits,
                               BatchedModelOutput& outputs) const {
  const std::int64_t width = std::max(plan.max_logprobs, 1);
  const DeviceView chosen = chosen_logprobs_.view(Dtype::kF32, {plan.num_lanes});
  const DeviceView ids = top_ids_.view(Dtype::kI32, {plan.num_lanes, width});
  const DeviceView values = top_logprobs_.view(Dtype::kF32, {plan.num_lanes, width});
  kernels::log_probs(context.stream(), {chosen, ids, values}, raw_logits,
                     tokens_.view(Dtype::kI32, {plan.num_lanes}), plan.logprob_counts);
  outputs.add_rows(config_.signals.chosen_logprob, chosen);
  outputs.add_rows(config_.signals.top_ids, ids);
  outputs.add_rows(config_.signals.top_logprobs, values);
}

}  // namespace rigel
