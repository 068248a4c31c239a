#include "engine/output_collector.h"

#include "tensor/error.h"

#include <algorithm>
#include <exception>

namespace rigel {

namespace {

void drop_tensors(SignalMap& signals, SignalId signal) {
  if (TensorList* tensors = signals.find(signal)) {
    tensors->clear();
  }
}

/// A captured forward gives padding lanes what it gives everybody.
void drop_padding(RequestOutputs& outputs) {
  const auto is_padding = [](const RequestOutputs::Entry& entry) {
    return entry.first.is_padding();
  };
  for (auto entry = std::ranges::find_if(outputs, is_padding); entry != outputs.end();
       entry = std::ranges::find_if(outputs, is_padding)) {
    outputs.erase(entry->first);
  }
}

}  // namespace

void OutputCollector::collect(NodeSubmodule& submodule, const BatchColumns& batch,
                              BatchedModelOutput& outputs, RequestFailures& failures) const {
  if (!outputs.packed().empty()) {
    submodule.unpack_packed_outputs(outputs.packed(), batch, outputs.requests());
    outputs.clear_packed();
  }
  if (outputs.requests().empty()) {
    return;
  }
  drop_padding(outputs.requests());
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    finish_request(submodule, batch, lane, outputs, failures);
  }
}

void OutputCollector::finish_request(NodeSubmodule& submodule, const BatchColumns& batch,
                                     std::size_t lane, BatchedModelOutput& outputs,
                                     RequestFailures& failures) {
  const RequestHandle handle = batch.handles[lane];
  SignalMap* signals = outputs.requests().find(handle);
  if (signals == nullptr) {
    return;
  }
  if (failures.contains(handle)) {
    outputs.requests().erase(handle);
    return;
  }
  const RequestView request(*batch.infos[lane], batch.metadata[lane]);
  submodule.filter_batched_output(request, *signals);
  const NodeInputs& row = *batch.inputs[lane];
  const WalkId walk = submodule.combines_walks(batch.walk) ? row.walk : batch.walk;
  // The next step reads the value on the device, or the client gets it out of the rows: the signal is there, and no tensor
  // travels.
  for (const SignalId signal : submodule.device_loopback_signals(walk)) {
    drop_tensors(*signals, signal);
  }
  for (const InlineSignal& inlined : submodule.inline_client_signals(walk)) {
    drop_tensors(*signals, inlined.signal);
  }
  try {
    submodule.postprocess(request, *signals, row);
  } catch (const DeviceError&) {
    throw;  // concerns everybody
  } catch (const std::exception& error) {
    failures.record(handle, error.what());
    outputs.requests().erase(handle);
  }
}

}  // namespace rigel
