#pragma once

#include "graphs/graph_runner.h"
#include "model/checkpoint/weight_reader.h"
#include "model/model_files.h"
#include "text/tokenizer.h"
#include "worker/options.h"
#include "worker/service.h"

#include <memory>
#include <string>

namespace rigel {

/// What an operator wants to know of a worker that was started.
struct ServiceDescription {
  std::string device;
  std::string dtype;
  std::string gemm;  // which code multiplies
  std::vector<std::pair<std::string, std::int64_t>> memory_bytes;
  std::vector<std::string> capture_failures;  // steps that will run launch by launch, and why
  std::vector<GraphManifest> graphs;          // what was captured before serving: whole steps ...
  std::vector<GraphManifest>
      block_graphs;  // ... and the blocks between attentions, the key is which
};

/// An inference service in this process: one device, one worker thread, one dispatcher thread.
class LocalService : public InferenceService {
 public:
  [[nodiscard]] virtual const ServiceDescription& description() const = 0;
};

/// Loads the model on the device of `options` and starts serving. `tokenizer` (may be null: answers then have no text) and
/// `progress` (may be null) outlive the call, the tokenizer also the service. Throws ModelFileError, DeviceError, and
/// std::invalid_argument naming an option that cannot be met.
[[nodiscard]] std::unique_ptr<LocalService> start_local_service(const ModelFiles& files,
                                                                const text::Tokenizer* tokenizer,
                                                                const WorkerOptions& options,
                                                                LoadProgress* progress);

}  // namespace rigel
