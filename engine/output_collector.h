#pragma once

#include "engine/contract/submodule.h"
#include "engine/request_failures.h"

namespace rigel {

/// Brings what a forward gave into the form in which it leaves the node: packed outputs are cut by request, each request keeps
/// what it should get, and the submodule finishes it. Row outputs are left alone, so a step that has no others costs two
/// branches. Thread: worker.
class OutputCollector {
 public:
  /// Works on `outputs` in place: unpack_packed_outputs, then for each real lane in order filter_batched_output, the signals
  /// that stay on the device and postprocess. `batch` holds the real lanes. A request whose postprocess throws is recorded and
  /// its outputs are taken out, as are those of a request that failed before; what the two batch hooks throw fails the batch.
  void collect(NodeSubmodule& submodule, const BatchColumns& batch, BatchedModelOutput& outputs,
               RequestFailures& failures) const;

 private:
  static void finish_request(NodeSubmodule& submodule, const BatchColumns& batch, std::size_t lane,
                             BatchedModelOutput& outputs, RequestFailures& failures);
};

}  // namespace rigel
