#include "engine/capture.h"

#include "engine/contract/engine_inputs.h"
#include "engine/engine.h"
#include "tensor/error.h"

#include <algorithm>
#include <utility>

namespace rigel {

namespace {

std::vector<std::int32_t> numbers_of(const std::vector<WalkId>& walks, WalkId without) {
  std::vector<std::int32_t> numbers;
  for (const WalkId walk : walks) {
    if (walk != without) {
      numbers.push_back(static_cast<std::int32_t>(walk));
    }
  }
  return numbers;
}

}  // namespace

StepCaptures::StepCaptures(StreamRef stream, NodeSubmodule& submodule, StepRunner& resources,
                           ResultRing& results, const GraphCatalog& catalog,
                           const CaptureOptions& options)
    : stream_(stream),
      submodule_(submodule),
      resources_(resources),
      results_(results),
      runner_(stream, options.num_slots),
      scratch_(static_cast<std::size_t>(options.staging_bytes)),
      context_(stream) {
  constexpr auto kStepsInFlight = static_cast<std::int32_t>(Engine::kMaxInFlight);
  RIGEL_CHECK(options.num_slots >= kStepsInFlight,
              "num_slots must be at least {}, the steps in flight, got {}", kStepsInFlight,
              options.num_slots);
  for (const CudaGraphConfig& config : catalog.steps()) {
    if (const auto* batched = std::get_if<BatchedGraphConfig>(&config)) {
      add_buckets(*batched);
    }
  }
  for (std::int32_t slot = 0; slot < options.num_slots; ++slot) {
    slots_.push_back(
        {.staging = std::make_unique<StepStaging>(stream.device(), options.staging_bytes),
         .lease = {}});
  }
}

void StepCaptures::add_buckets(const BatchedGraphConfig& config) {
  const std::vector<std::int32_t> aliases = numbers_of(config.replay_walks, config.capture_walk);
  for (const std::int32_t num_lanes : config.batch_sizes) {
    runner_.add({.walk = static_cast<std::int32_t>(config.capture_walk),
                 .num_lanes = num_lanes,
                 .num_tokens = config.row->input_seq_len * num_lanes,
                 .key = config.key.number()},
                BucketKind::kBatched, aliases);
    buckets_.push_back(
        {.row = config.row, .key = config.key, .rows = {}, .stop_lanes = {}, .row_lanes = {}});
  }
}

std::int64_t StepCaptures::num_bytes() const {
  std::int64_t total = runner_.num_bytes();
  for (const Slot& slot : slots_) {
    total += slot.staging->capacity_bytes();
  }
  return total;
}

std::optional<SlotLease> StepCaptures::lease(const BucketQuery& query) {
  const std::optional<GraphLease> lease =
      runner_.lease({.walk = static_cast<std::int32_t>(query.walk),
                     .num_lanes = query.num_lanes,
                     .num_tokens = query.num_tokens,
                     .key = query.key.number()});
  if (!lease) {
    return std::nullopt;
  }
  Slot& slot = slots_[static_cast<std::size_t>(lease->slot)];
  slot.lease = *lease;
  slot.is_used = false;
  return lease_of(*lease);
}

SlotLease StepCaptures::lease_of(const GraphLease& lease) const {
  const GraphBucket& bucket = runner_.buckets()[lease.bucket];
  return {lease.slot,
          {static_cast<WalkId>(bucket.walk), bucket.num_lanes, bucket.num_tokens,
           buckets_[lease.bucket].key}};
}

const NodeInputs& StepCaptures::padding_row(const SlotLease& lease) const {
  return *buckets_[slots_[static_cast<std::size_t>(lease.slot)].lease.bucket].row;
}

StepStaging* StepCaptures::staging(const SlotLease& lease) {
  StepStaging& staging = *slot_of(lease).staging;
  staging.reset();
  return &staging;
}

void StepCaptures::replay(const SlotLease& lease, const ModelInputsFromEngine& inputs,
                          BatchedModelOutput& outputs) {
  Slot& slot = slot_of(lease);
  const Bucket& bucket = buckets_[slot.lease.bucket];
  RIGEL_CHECK(slot.staging->layout() == bucket.layout,
              "a step of {} lanes stages other columns than its capture: {} bytes",
              lease.bucket.num_lanes, slot.staging->used_bytes());
  runner_.replay(slot.lease);
  slot.is_used = true;
  last_replayed_ = slot.lease.bucket;

  // Real lanes come first, so what belongs to padding stands at the end and never leaves the device.
  const auto first_padding = std::ranges::find_if(
      inputs.handles, [](RequestHandle handle) { return handle.is_padding(); });
  const auto num_real = static_cast<std::int32_t>(first_padding - inputs.handles.begin());
  std::int64_t num_rows = 0;
  for (const std::int32_t lane : bucket.row_lanes) {
    if (lane < num_real) {
      outputs.push_row_handle(inputs.handles[static_cast<std::size_t>(lane)]);
      ++num_rows;
    }
  }
  const auto all_rows = static_cast<std::int64_t>(bucket.row_lanes.size());
  for (const BatchedModelOutput::RowOutput& output : bucket.rows) {
    const bool is_by_row = output.rows.rank() > 0 && output.rows.dim(0) == all_rows;
    outputs.add_rows(output.signal, is_by_row ? output.rows.slice(0, 0, num_rows) : output.rows,
                     output.place);
  }
  if (bucket.stop_lanes) {
    StopLanes lanes = *bucket.stop_lanes;
    lanes.test.rows = lanes.test.rows.slice(0, 0, num_rows);
    lanes.test.tokens = lanes.test.tokens.slice(0, 0, num_rows);
    outputs.set_stop_lanes(lanes);
  }
}

void StepCaptures::release(const SlotLease& lease) noexcept {
  const Slot& slot = slot_of(lease);
  runner_.give_back(slot.lease, slot.is_used);
}

void StepCaptures::prepare(std::size_t bucket, std::int32_t slot) {
  resources_.clear_preplan();  // its columns may be in this slot's staging
  captured_bucket_ = bucket;
  capture_lease_ = lease_of({bucket, slot});
  context_.reset();
  step_.reset();
  outputs_.reset();
  StepStaging& staging = *slots_[static_cast<std::size_t>(slot)].staging;
  staging.reset(scratch_.data());
  context_.begin_columns(staging);
  context_.slot = slot;
  BatchColumns nobody;
  nobody.walk = capture_lease_.bucket.walk;
  context_.batch = padded_.pad(nobody, capture_lease_.bucket.num_lanes, *buckets_[bucket].row);
  context_.batch.slot_lease = &capture_lease_;
  context_.num_tokens = capture_lease_.bucket.num_tokens;
  declares_ = submodule_.declare_step(context_.batch, step_);
  if (declares_) {
    const AdmitOutcome outcome = resources_.admit(step_, context_);
    RIGEL_CHECK(outcome.ok(), "a step of padding was refused by resource {}",
                static_cast<int>(outcome.resource));
    is_admitted_ = true;
    resources_.plan(step_, context_);
  }
  submodule_.preprocess(context_.batch, context_);
}

void StepCaptures::enqueue() {
  context_.staging->upload(stream_);
  const ModelInputsFromEngine inputs{.handles = context_.batch.handles,
                                     .infos = context_.batch.infos,
                                     .metadata = context_.batch.metadata,
                                     .inputs = context_.batch.inputs,
                                     .step = declares_ ? &step_ : nullptr,
                                     .context = &context_,
                                     .states = {},
                                     .captured = true};
  submodule_.forward(inputs, outputs_);
  check_outputs();
  results_.capture(stream_, outputs_, context_.step_number);
  take_outputs(buckets_[captured_bucket_]);
}

void StepCaptures::check_outputs() const {
  RIGEL_CHECK(outputs_.requests().empty() && outputs_.packed().empty() &&
                  outputs_.stop_rows() == StopRows::kNone,
              "a captured forward of walk {} gives tensors by request or by batch; it may give row "
              "outputs only",
              static_cast<int>(capture_lease_.bucket.walk));
}

/// The lane of a row is found by its handle: lane i of a capture is padding of row -1 - i.
void StepCaptures::take_outputs(Bucket& bucket) {
  std::vector<std::int32_t> lanes;
  for (const RequestHandle handle : outputs_.row_handles()) {
    lanes.push_back(-1 - handle.row);
  }
  RIGEL_CHECK(std::ranges::is_sorted(lanes),
              "the rows of a captured forward of {} lanes are not in the order of its lanes",
              capture_lease_.bucket.num_lanes);
  if (capture_lease_.slot == 0) {
    bucket.rows.assign(outputs_.row_outputs().begin(), outputs_.row_outputs().end());
    if (const StopLanes* const stop_lanes = outputs_.stop_lanes()) {
      bucket.stop_lanes = *stop_lanes;
    }
    bucket.row_lanes = std::move(lanes);
    bucket.layout = context_.staging->layout();
    return;
  }
  const bool same_places = std::ranges::equal(bucket.rows, outputs_.row_outputs(), {},
                                              &BatchedModelOutput::RowOutput::place,
                                              &BatchedModelOutput::RowOutput::place);
  RIGEL_CHECK(
      bucket.row_lanes == lanes && same_places && bucket.layout == context_.staging->layout(),
      "slot {} of {} lanes was captured with other columns or rows than slot 0",
      capture_lease_.slot, capture_lease_.bucket.num_lanes);
}

void StepCaptures::reset() noexcept {
  if (std::exchange(is_admitted_, false)) {
    resources_.abandon(step_);
  }
}

}  // namespace rigel
