#include "engine/capture.h"

#include "engine/contract/engine_inputs.h"
#include "engine/engine.h"
#include "engine/piecewise_runners.h"
#include "kernels/turns.h"
#include "tensor/error.h"

#include <fmt/core.h>

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
      allocator_(stream.device()),
      regions_(
          std::make_unique<PiecewiseRunners>(stream, resources, catalog, options.staging_bytes)),
      scratch_(static_cast<std::size_t>(options.staging_bytes)),
      context_(stream) {
  constexpr auto kStepsInFlight = static_cast<std::int32_t>(Engine::kMaxInFlight);
  RIGEL_CHECK(options.num_slots >= kStepsInFlight,
              "num_slots must be at least {}, the steps in flight, got {}", kStepsInFlight,
              options.num_slots);
  for (const CudaGraphConfig& config : catalog.steps()) {
    tensors_.push_back(std::make_unique<StaticInputs>(stream.device(), options.num_slots));
    std::visit([this](const auto& kind) { add_buckets(kind); }, config);
  }
  for (std::int32_t slot = 0; slot < options.num_slots; ++slot) {
    slots_.push_back(
        {.staging = std::make_unique<StepStaging>(stream.device(), options.staging_bytes),
         .lease = {}});
  }
}

StepCaptures::~StepCaptures() = default;

void StepCaptures::capture_all() {
  runner_.capture_all(*this);
  regions_->capture_all();
}

bool StepCaptures::capture_next() {
  return runner_.capture_next(*this) || regions_->capture_next();
}

std::size_t StepCaptures::num_pending() const {
  return runner_.num_pending() + regions_->runner().num_pending();
}

void StepCaptures::add_buckets(const BatchedGraphConfig& config) {
  for (const std::int32_t num_lanes : config.batch_sizes) {
    Bucket& bucket = add_bucket(config, BucketKind::kBatched, config.row->input_seq_len * num_lanes,
                                config.row, {static_cast<std::size_t>(num_lanes), config.row});
    bucket.repeats = config.repeats && results_.max_turns() > 1;
  }
}

/// Every lane brings a token, so no bucket has more lanes than tokens.
void StepCaptures::add_buckets(const PackedGraphConfig& config) {
  const auto row_of = [&config](std::int64_t num_tokens) {
    std::shared_ptr<const NodeInputs> row = config.make_row(num_tokens);
    RIGEL_CHECK(row != nullptr && row->input_seq_len == num_tokens,
                "make_row of walk {} gives {} tokens where it is asked for {}",
                static_cast<int>(config.capture_walk), row == nullptr ? -1 : row->input_seq_len,
                num_tokens);
    return row;
  };
  for (const std::int64_t num_tokens : config.token_counts) {
    for (const std::int32_t num_lanes : config.batch_sizes) {
      const std::int64_t held = std::min<std::int64_t>(num_lanes, num_tokens);
      std::vector<std::shared_ptr<const NodeInputs>> rows(static_cast<std::size_t>(held),
                                                          row_of(num_tokens / held));
      rows.front() = row_of(num_tokens / held + num_tokens % held);
      add_bucket(config, BucketKind::kPacked, num_tokens, row_of(0), std::move(rows));
      if (num_lanes >= num_tokens) {
        break;
      }
    }
  }
}

StepCaptures::Bucket& StepCaptures::add_bucket(
    const GraphConfig& config, BucketKind kind, std::int64_t num_tokens,
    std::shared_ptr<const NodeInputs> padding_row,
    std::vector<std::shared_ptr<const NodeInputs>> capture_rows) {
  runner_.add({.walk = static_cast<std::int32_t>(config.capture_walk),
               .num_lanes = static_cast<std::int32_t>(capture_rows.size()),
               .num_tokens = num_tokens,
               .key = config.key.number()},
              kind, numbers_of(config.replay_walks, config.capture_walk));
  return buckets_.emplace_back(Bucket{.config = tensors_.size() - 1,
                                      .key = config.key,
                                      .key_name = config.key_name,
                                      .row = std::move(padding_row),
                                      .capture_rows = std::move(capture_rows),
                                      .outputs = {}});
}

std::string StepCaptures::bucket_name(std::size_t bucket) const {
  const BucketTable& table = runner_.buckets();
  std::string name = fmt::format("{}", table[bucket].num_lanes);
  if (table.kind(bucket) == BucketKind::kPacked) {
    name += fmt::format("/{}-tokens", table[bucket].num_tokens);
  }
  return buckets_[bucket].key_name.empty() ? name : name + "/" + buckets_[bucket].key_name;
}

std::int64_t StepCaptures::num_bytes() const {
  std::int64_t total = runner_.num_bytes() + regions_->num_bytes();
  for (const Slot& slot : slots_) {
    total += slot.staging->capacity_bytes();
  }
  for (const auto& tensors : tensors_) {
    total += tensors->num_bytes();
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
           buckets_[lease.bucket].key, runner_.buckets().kind(lease.bucket) == BucketKind::kPacked},
          buckets_[lease.bucket].repeats ? results_.max_turns() : 1};
}

const NodeInputs& StepCaptures::padding_row(const SlotLease& lease) const {
  return *buckets_[slots_[static_cast<std::size_t>(lease.slot)].lease.bucket].row;
}

StepStaging* StepCaptures::staging(const SlotLease& lease) {
  StepStaging& staging = *slot_of(lease).staging;
  staging.reset();
  return &staging;
}

TensorInputs* StepCaptures::tensor_inputs(const SlotLease& lease) {
  StaticInputs& tensors = tensors_of(slot_of(lease).lease.bucket);
  tensors.begin_replay(slot_of(lease).lease.bucket, lease.slot);
  return &tensors;
}

void StepCaptures::replay(const SlotLease& lease, const ModelInputsFromEngine& inputs,
                          BatchedModelOutput& outputs) {
  Slot& slot = slot_of(lease);
  const Bucket& bucket = buckets_[slot.lease.bucket];
  RIGEL_CHECK(slot.staging->layout() == bucket.layout,
              "a step of {} lanes stages other columns than its capture: {} bytes",
              lease.bucket.num_lanes, slot.staging->used_bytes());
  tensors_of(slot.lease.bucket).check_complete();
  runner_.replay(slot.lease);
  slot.is_used = true;
  last_replayed_ = slot.lease.bucket;
  bucket.outputs.give(lease.slot, inputs, stream_, allocator_, outputs);
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
  capture_rows_.clear();
  for (const auto& row : buckets_[bucket].capture_rows) {
    capture_rows_.push_back(row.get());
  }
  context_.batch.inputs = capture_rows_;
  context_.batch.slot_lease = &capture_lease_;
  context_.num_tokens = num_step_tokens(context_.batch);
  declares_ = submodule_.declare_step(context_.batch, step_);
  if (declares_) {
    pad_segments(context_.batch, step_);
    const AdmitOutcome outcome = resources_.admit(step_, context_);
    RIGEL_CHECK(outcome.ok(), "a step of padding was refused by resource {}",
                static_cast<int>(outcome.resource));
    is_admitted_ = true;
    resources_.plan(step_, context_);
  }
  tensors_of(bucket).begin_capture(bucket);
  context_.tensor_inputs = &tensors_of(bucket);
  submodule_.preprocess(context_.batch, context_);
  context_.stage_splices();
}

void StepCaptures::enqueue() {
  context_.staging->upload(stream_);
  context_.enqueue_splices();
  if (!repeats()) {
    enqueue_step();
  }
}

void StepCaptures::enqueue_turn(LoopCondition condition) {
  enqueue_step();
  check_repeatable();
  std::vector<ConstDeviceView> counting;
  resources_.add_counting_columns(step_, context_, counting);
  std::vector<DeviceView> columns;
  for (const ConstDeviceView& column : counting) {
    columns.push_back(context_.staging->writable(column));
  }
  kernels::end_turn(
      stream_,
      {columns, context_.staging->writable(context_.step_number), context_.last_step_number},
      outputs_.stop_lanes()->test, condition);
}

void StepCaptures::check_repeatable() const {
  const int walk = static_cast<int>(context_.batch.walk);
  RIGEL_CHECK(declares_ && outputs_.stop_lanes() != nullptr,
              "a step of walk {} that repeats declares itself and gives stop lanes", walk);
  RIGEL_CHECK(outputs_.requests().empty() && outputs_.packed().empty(),
              "a step of walk {} that repeats gives row outputs alone", walk);
  for (const BatchedModelOutput::RowOutput& output : outputs_.row_outputs()) {
    RIGEL_CHECK(output.place != kNoPlace,
                "signal {} of walk {}, whose steps repeat, finds no room in a turn's results",
                static_cast<int>(output.signal), walk);
  }
}

void StepCaptures::enqueue_step() {
  const ModelInputsFromEngine inputs{.handles = context_.batch.handles,
                                     .infos = context_.batch.infos,
                                     .metadata = context_.batch.metadata,
                                     .inputs = context_.batch.inputs,
                                     .step = declares_ ? &step_ : nullptr,
                                     .context = &context_,
                                     .resources = &resources_.resources(),
                                     .states = {},
                                     .captured = true};
  submodule_.forward_batched(inputs, outputs_);
  results_.capture(stream_, outputs_, context_.step_number);
  take_outputs(inputs);
}

void StepCaptures::take_outputs(const ModelInputsFromEngine& inputs) {
  Bucket& bucket = buckets_[captured_bucket_];
  const std::uint64_t layout = context_.staging->layout();
  bucket.outputs.take(capture_lease_.slot, inputs, outputs_);
  if (capture_lease_.slot == 0) {
    bucket.layout = layout;
  }
  RIGEL_CHECK(bucket.layout == layout,
              "slot {} of {} lanes was captured with other columns than slot 0",
              capture_lease_.slot, capture_lease_.bucket.num_lanes);
}

void StepCaptures::reset() noexcept {
  if (std::exchange(is_admitted_, false)) {
    resources_.abandon(step_);
  }
}

}  // namespace rigel
