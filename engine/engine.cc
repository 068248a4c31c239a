// A node's life around its steps: load, requests, completion, stop checks. engine_declare.cc and engine_launch.cc run the steps,
// engine_preplan.cc plans them ahead.

#include "engine/engine.h"

#include "engine/preparation.h"
#include "tensor/error.h"
#include "tensor/trace.h"

#include <exception>
#include <string>

namespace rigel {

namespace {

constexpr int kTensorParallelSize = 1;

/// A submodule that opted out of casting works in its parameters' type, which is f32.
Dtype compute_dtype_of(const NodeSubmodule& submodule, Dtype engine_dtype) {
  return submodule.disable_autocast() ? Dtype::kF32
                                      : submodule.compute_dtype().value_or(engine_dtype);
}

void check_resources(const NodeSubmodule& submodule, const NodeResources& resources) {
  for (const std::string& name : submodule.get_node_resources()) {
    std::ignore = resources.get<Resource>(name);
  }
}

}  // namespace

Engine::Slot::Slot(Device& device, std::int64_t staging_bytes)
    : staging(device, staging_bytes), tensor_inputs(device), completed(device) {}

Engine::Engine(Device& device, std::unique_ptr<NodeSubmodule> submodule, NodeResources resources,
               const EngineConfig& config)
    : device_(device),
      own_stream_(config.stream ? std::nullopt : std::optional<Stream>(std::in_place, device)),
      stream_(config.stream ? *config.stream : own_stream_->ref()),
      resources_(std::move(resources)),
      submodule_(std::move(submodule)),
      runner_(resources_),
      compute_dtype_(compute_dtype_of(*submodule_, config.dtype)),
      results_(device, config.result_bytes, config.max_turns),
      preplans_(config.preplan) {
  const Device* wanted = submodule_->get_device();
  RIGEL_CHECK(wanted == nullptr || wanted == &device,
              "the submodule's parameters are on another device than its engine, {}",
              device.name());
  for (auto& slot : slots_) {
    slot = std::make_unique<Slot>(device_, config.staging_bytes);
  }
  check_resources(*submodule_, resources_);
  submodule_->bind_node_resources(resources_);
  graph_catalog_ = std::make_unique<GraphCatalog>(
      submodule_->get_cuda_graph_configs(device_, kTensorParallelSize),
      submodule_->get_piecewise_cuda_graph_configs(device_, compute_dtype_, kTensorParallelSize));
}

Engine::~Engine() {
  try {
    stream_.synchronize();
  } catch (const DeviceError&) {
    // The device has failed, so it touches nothing any more; whoever waited for a step knows.
  }
}

StepCaptures& Engine::capture_steps(const CaptureOptions& options) {
  RIGEL_CHECK(captures_ == nullptr,
              "the steps of a node are captured once, got a second call of {}", "capture_steps");
  captures_ = std::make_unique<StepCaptures>(stream_, *submodule_, runner_, results_,
                                             *graph_catalog_, options);
  captured_ = captures_.get();
  return *captures_;
}

void Engine::add_request(const RequestInfo& info) {
  steps_.open_row(info.handle.row);
  for (Resource* resource : runner_.order()) {
    resource->ingest_request(info);
  }
  submodule_->request_states().open(info.handle);
}

void Engine::remove_request(RequestHandle handle) {
  drop_preplan_of(handle);
  forget_turns_of(handle);
  for (Resource* resource : runner_.order()) {
    resource->remove_request(handle, last_touch(handle));
    resource->collect(last_completed());
  }
  submodule_->cleanup_request(handle);
  PerRequestState state = submodule_->request_states().take(handle);
  if (num_in_flight() > 0 && !state.empty()) {
    slot_of(last_launched()).retired.push_back(std::move(state));
  }
  failures_.forget(handle);
}

void Engine::restart_request(RequestHandle handle) {
  drop_preplan_of(handle);
  forget_turns_of(handle);
  for (Resource* resource : runner_.order()) {
    resource->restart_request(handle, last_touch(handle));
    resource->collect(last_completed());
  }
}

void Engine::truncate_request(const RequestInfo& accepted, Epoch step) {
  RIGEL_CHECK(
      step == last_touch(accepted.handle) && step >= last_completed(),
      "step {} of row {} cannot be taken back: it was in step {}, and step {} has completed", step,
      accepted.handle.row, last_touch(accepted.handle), last_completed());
  drop_preplan_of(accepted.handle);
  for (const Drive& drive : slot_of(step).drives) {
    if (drive.context.epoch == step && drive.declares) {
      runner_.truncate_request(drive.step, accepted, step);
    }
  }
  for (Resource* resource : runner_.order()) {
    resource->collect(last_completed());
  }
}

bool Engine::offload_request(RequestHandle handle) {
  drop_preplan_of(handle);
  return runner_.offload(handle, stream_, last_launched());
}

bool Engine::reload_request(RequestHandle handle) {
  return runner_.reload(handle, stream_, last_launched());
}

void Engine::prepare_inputs(ExecutingBatch& batch) {
  const TraceRange range(device_, "engine.prepare");
  prepare_lanes(*submodule_, batch, failures_);
}

HostRows Engine::complete() {
  RIGEL_CHECK(num_in_flight() > 0, "no step is in flight");
  const TraceRange range(device_, "engine.complete");
  enter(StepPhase::kWait);
  Slot& slot = slot_of(last_completed() + 1);
  try {
    slot.completed.synchronize();
  } catch (...) {
    // A device that has failed runs nothing any more: the step is over, and whoever waits for its end goes on.
    end_step(slot);
    throw;
  }
  enter(StepPhase::kSettle);
  commit_turns(last_completed() + 1);
  const Epoch epoch = end_step(slot);
  return results_.rows(epoch);
}

/// The first turn was committed at the launch, like any step; how many others there were is known now.
void Engine::commit_turns(Epoch epoch) {
  completed_turns_ = 1;
  if (launched_turns_ == 1) {
    return;
  }
  completed_turns_ = results_.num_turns(epoch, launched_turns_);
  const Drive& drive = slot_of(epoch).drives.front();
  for (std::int32_t turn = 1; turn < completed_turns_; ++turn) {
    runner_.commit(drive.step, drive.context);
  }
}

/// A request that goes while its turns run has nothing left that they could be committed to.
void Engine::forget_turns_of(RequestHandle handle) {
  if (launched_turns_ > 1) {
    slot_of(last_launched()).drives.front().step.drop(handle);
  }
}

Epoch Engine::end_step(Slot& slot) {
  const Epoch epoch = steps_.complete();
  launched_turns_ = 1;
  slot.retired.clear();
  for (Resource* resource : runner_.order()) {
    resource->collect(epoch);
  }
  return epoch;
}

std::span<const LoopStop> Engine::check_stop(std::span<const RequestView> requests,
                                             const HostRows& rows) {
  stops_.clear();
  bool answered = false;
  try {
    answered = submodule_->check_stop_batched(requests, rows, stops_);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception&) {
    // Whose fault it was shows when each request is asked alone.
  }
  if (!answered) {
    check_stop_apart(requests, rows);
  } else if (!failures_.empty()) {
    std::erase_if(stops_, [this](const LoopStop& stop) { return failures_.contains(stop.handle); });
  }
  return stops_;
}

void Engine::check_stop_apart(std::span<const RequestView> requests, const HostRows& rows) {
  stops_.clear();
  for (const RequestView& request : requests) {
    const RequestHandle handle = request.info().handle;
    if (failures_.contains(handle)) {
      continue;
    }
    try {
      for (const LoopId loop : submodule_->check_stop(request, rows)) {
        stops_.push_back({handle, loop});
      }
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception& error) {
      failures_.record(handle, error.what());
    }
  }
}

std::optional<std::int32_t> Engine::max_batch_size(WalkId walk) const {
  const std::optional<std::int32_t> model = submodule_->max_batch_size(walk);
  const std::optional<std::int32_t> captured = graph_catalog_->max_batch_size(walk);
  return model && captured ? std::min(*model, *captured) : (model ? model : captured);
}

CgKey Engine::capture_group(WalkId walk, const RequestInfo& info,
                            const InputMetadata& metadata) const {
  if (!graph_catalog_->replays(walk) || !submodule_->split_batches_by_capture_key(walk)) {
    return {};
  }
  const RequestInfo* const infos = &info;
  return submodule_->cg_key_info(
      {walk, {&info.handle, 1}, {&infos, 1}, {&metadata, 1}, {}, nullptr});
}

void Engine::append_inline_values(WalkId walk, const HostRows& rows, RequestHandle handle,
                                  std::size_t lane, std::vector<InlineValue>& values) const {
  const std::span<const InlineSignal> signals = submodule_->inline_client_signals(walk);
  const std::int64_t row = signals.empty() ? -1 : rows.row_of(handle, lane);
  for (const InlineSignal& inlined : signals) {
    const ConstHostView buffer = rows.find(inlined.row_buffer);
    if (row >= 0 && buffer.defined()) {
      values.push_back({inlined.signal, buffer.slice(0, row, 1)});
    }
  }
}

}  // namespace rigel
