#include "engine/piecewise_step.h"

#include "engine/engine.h"
#include "tensor/error.h"

#include <numeric>
#include <utility>

namespace rigel {

PiecewiseStep::PiecewiseStep(StreamRef stream, const PiecewiseConfig& config, StepRunner& resources,
                             std::int64_t staging_bytes)
    : stream_(stream),
      config_(config),
      resources_(resources),
      staging_(stream.device(), staging_bytes),
      scratch_(static_cast<std::size_t>(staging_bytes)),
      context_(stream),
      pinned_(stream.device()),
      held_(Engine::kMaxInFlight) {}

void PiecewiseStep::declare(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                            std::int64_t num_tokens) {
  context_.reset();
  step_.reset();
  context_.batch = lanes;
  context_.num_tokens = num_tokens;
  config_.declare_step(lanes, seq_lens, step_);
  pad_segments(lanes, step_);
}

void PiecewiseStep::admit() {
  const AdmitOutcome outcome = resources_.admit(step_, context_);
  RIGEL_CHECK(outcome.ok(), "region '{}': its step was refused by resource {}", config_.label,
              static_cast<int>(outcome.resource));
  is_admitted_ = true;
}

std::span<const std::int64_t> PiecewiseStep::padded(std::span<const std::int64_t> seq_lens,
                                                    const SlotLease& lease) {
  seq_lens_.assign(seq_lens.begin(), seq_lens.end());
  const std::int64_t of_padding =
      lease.bucket.is_packed ? 0 : lease.bucket.num_tokens / lease.bucket.num_lanes;
  seq_lens_.resize(static_cast<std::size_t>(lease.bucket.num_lanes), of_padding);
  return seq_lens_;
}

void PiecewiseStep::begin_capture(const SlotLease& lease, std::span<const std::int64_t> seq_lens) {
  resources_.clear_preplan();
  BatchColumns nobody;
  nobody.walk = lease.bucket.walk;
  nobody = padded_.pad(nobody, lease.bucket.num_lanes, padding_row_);
  nobody.slot_lease = &lease;
  context_.epoch = 0;
  staging_.reset(scratch_.data());
  context_.begin_columns(staging_);
  declare(nobody, seq_lens, lease.bucket.num_tokens);
  admit();
  resources_.plan(step_, context_);
}

bool PiecewiseStep::begin_replay(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                                 const SlotLease& lease, Epoch epoch, std::uint64_t layout) {
  BatchColumns all = padded_.pad(lanes, lease.bucket.num_lanes, padding_row_);
  all.slot_lease = &lease;
  context_.epoch = epoch;
  staging_.reset(pinned_columns(epoch));
  context_.begin_columns(staging_);
  declare(all, padded(seq_lens, lease), lease.bucket.num_tokens);
  admit();
  if (!resources_.fits_capture(step_, context_)) {
    reset();
    return false;
  }
  resources_.plan(step_, context_);
  RIGEL_CHECK(staging_.layout() == layout,
              "region '{}': a run of {} lanes stages other columns than its capture: {} bytes",
              config_.label, lanes.handles.size(), staging_.used_bytes());
  staging_.upload_written(stream_);
  return true;
}

void PiecewiseStep::begin_eager(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                                const StepContext& outer) {
  context_.epoch = outer.epoch;
  context_.staging = outer.staging;
  context_.step_number = outer.step_number;
  declare(lanes, seq_lens, std::accumulate(seq_lens.begin(), seq_lens.end(), std::int64_t{0}));
  admit();
  resources_.plan(step_, context_);
  outer.staging->upload(stream_);
}

void PiecewiseStep::commit() {
  resources_.commit(step_, context_);
  is_admitted_ = false;
}

void PiecewiseStep::reset() noexcept {
  if (std::exchange(is_admitted_, false)) {
    resources_.abandon(step_);
  }
}

ModelInputsFromEngine PiecewiseStep::inputs(const ModelInputsFromEngine& outer) const {
  ModelInputsFromEngine inputs = outer;
  inputs.handles = context_.batch.handles;
  inputs.infos = context_.batch.infos;
  inputs.metadata = context_.batch.metadata;
  inputs.inputs = context_.batch.inputs;
  inputs.step = &step_;
  inputs.context = &context_;
  return inputs;
}

/// Steps complete in order, and no more than those held are in flight: who had this place before has been read.
std::byte* PiecewiseStep::pinned_columns(Epoch epoch) {
  Held& held = held_[epoch % held_.size()];
  if (held.epoch != epoch) {
    held.epoch = epoch;
    held.columns.clear();
  }
  held.columns.push_back(pinned_.allocate(Dtype::kU8, {staging_.capacity_bytes()}));
  return held.columns.back().host_view().raw();
}

}  // namespace rigel
