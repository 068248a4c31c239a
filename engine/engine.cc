#include "engine/engine.h"

#include "tensor/error.h"
#include "tensor/trace.h"

#include <limits>

namespace rigel {

Engine::Slot::Slot(Device& device, std::int64_t staging_bytes)
    : staging(device, staging_bytes), completed(device) {}

Engine::Engine(Device& device, std::unique_ptr<NodeSubmodule> submodule, NodeResources resources,
               const EngineConfig& config)
    : device_(device),
      stream_(device),
      resources_(std::move(resources)),
      submodule_(std::move(submodule)),
      runner_(resources_),
      host_rows_(device),
      context_(stream_.ref()) {
  for (auto& slot : slots_) {
    slot = std::make_unique<Slot>(device_, config.staging_bytes);
  }
  submodule_->bind_node_resources(resources_);
}

Engine::~Engine() = default;

void Engine::add_request(const RequestInfo& info) {
  steps_.open_row(info.handle.row);
  for (Resource* resource : runner_.order()) {
    resource->ingest_request(info);
  }
  submodule_->request_states().open(info.handle);
}

void Engine::remove_request(RequestHandle handle) {
  for (Resource* resource : runner_.order()) {
    resource->remove_request(handle, last_touch(handle));
    resource->collect(last_completed());
  }
  submodule_->cleanup_request(handle);
  submodule_->request_states().erase(handle);
}

void Engine::restart_request(RequestHandle handle) {
  for (Resource* resource : runner_.order()) {
    resource->restart_request(handle, last_touch(handle));
    resource->collect(last_completed());
  }
}

void Engine::prepare_context(const ExecutingBatch& batch, Slot& slot) {
  slot.staging.reset();
  context_.reset();
  context_.epoch = last_launched() + 1;
  context_.staging = &slot.staging;
  context_.batch = batch.columns();
  for (const NodeInputs* row : batch.inputs()) {
    context_.num_tokens += row->input_seq_len;
  }
}

AdmitOutcome Engine::launch(const ExecutingBatch& batch) {
  RIGEL_CHECK(steps_.can_launch(), "{} steps are in flight already", num_in_flight());
  const TraceRange range(device_, "engine.launch");
  enter(StepPhase::kDeclare);
  Slot& slot = slot_of(last_launched() + 1);
  prepare_context(batch, slot);
  check_batch();

  step_.reset();
  const bool declared = submodule_->declare_step(context_.batch, step_);
  if (declared) {
    enter(StepPhase::kAdmit);
    if (const AdmitOutcome outcome = runner_.admit(step_, context_); !outcome.ok()) {
      return outcome;
    }
    enter(StepPhase::kPlan);
    runner_.plan(step_, context_);
  }
  enter(StepPhase::kSplice);
  submodule_->preprocess(context_.batch, context_);
  slot.staging.upload(stream_.ref());

  // From here on the device may touch what the step uses, whatever happens to the rest of the launch.
  const Epoch epoch = steps_.launch(context_.batch.handles);
  outputs_.reset();
  try {
    enter(StepPhase::kForward);
    run_forward(declared);
    if (declared) {
      enter(StepPhase::kSettle);
      runner_.commit(step_, context_);
    }
    enter(StepPhase::kLaunch);
    collector_.collect(*submodule_, context_.batch, outputs_);
  } catch (...) {
    slot.completed.record(stream_.ref());
    host_rows_.stage(stream_.ref(), epoch, BatchedModelOutput{});
    throw;
  }
  host_rows_.stage(stream_.ref(), epoch, outputs_);
  slot.completed.record(stream_.ref());
  return {};
}

void Engine::check_batch() const {
  const BatchColumns& batch = context_.batch;
  const std::size_t num_lanes = batch.handles.size();
  RIGEL_CHECK(num_lanes > 0, "a step has at least one lane");
  const auto most = static_cast<std::size_t>(
      submodule_->max_batch_size(batch.walk).value_or(std::numeric_limits<std::int32_t>::max()));
  RIGEL_CHECK(num_lanes <= most, "a step of {} lanes, its submodule takes {}", num_lanes, most);
  RIGEL_CHECK(num_lanes == 1 || submodule_->can_batch(batch),
              "{} lanes that cannot run in one forward", num_lanes);
}

void Engine::run_forward(bool declared) {
  const BatchColumns& batch = context_.batch;
  const ModelInputsFromEngine inputs{
      .handles = batch.handles,
      .infos = batch.infos,
      .metadata = batch.metadata,
      .inputs = batch.inputs,
      .step = declared ? &step_ : nullptr,
      .context = &context_,
      .states = LazyRequestStates(submodule_->request_states(), batch.handles),
      .captured = false};
  submodule_->forward(inputs, outputs_);
}

HostRows Engine::complete() {
  RIGEL_CHECK(num_in_flight() > 0, "no step is in flight");
  const TraceRange range(device_, "engine.complete");
  enter(StepPhase::kWait);
  slot_of(last_completed() + 1).completed.synchronize();
  enter(StepPhase::kSettle);
  const Epoch epoch = steps_.complete();
  for (Resource* resource : runner_.order()) {
    resource->collect(epoch);
  }
  return host_rows_.rows(epoch);
}

}  // namespace rigel
