#include "engine/output_collector.h"

#include "tensor/error.h"

#include <exception>

namespace rigel {

void OutputCollector::collect(NodeSubmodule& submodule, const BatchColumns& batch,
                              BatchedModelOutput& outputs) {
  failures_.clear();
  if (!outputs.packed().empty()) {
    submodule.unpack_packed_outputs(outputs.packed(), batch, outputs.requests());
    outputs.clear_packed();
  }
  if (outputs.requests().empty()) {
    return;
  }
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    if (!batch.handles[lane].is_padding()) {
      finish_request(submodule, batch, lane, outputs);
    }
  }
}

void OutputCollector::finish_request(NodeSubmodule& submodule, const BatchColumns& batch,
                                     std::size_t lane, BatchedModelOutput& outputs) {
  SignalMap* signals = outputs.requests().find(batch.handles[lane]);
  if (signals == nullptr) {
    return;
  }
  const RequestView request(*batch.infos[lane], batch.metadata[lane]);
  submodule.filter_batched_output(request, *signals);
  // The value stays on the device, where the next step reads it: the signal is there, and no tensor travels.
  for (const SignalId signal : submodule.device_loopback_signals(batch.walk)) {
    if (TensorList* tensors = signals->find(signal)) {
      tensors->clear();
    }
  }
  try {
    submodule.postprocess(request, *signals, *batch.inputs[lane]);
  } catch (const DeviceError&) {
    throw;  // concerns everybody
  } catch (const std::exception& error) {
    failures_.push_back({batch.handles[lane], error.what()});
    outputs.requests().erase(batch.handles[lane]);
  }
}

}  // namespace rigel
