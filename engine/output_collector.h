#pragma once

#include "engine/contract/submodule.h"

#include <span>
#include <string>
#include <vector>

namespace rigel {

/// Brings what a forward gave into the form in which it leaves the node: packed outputs are cut by request, each request keeps
/// what it should get, and the submodule finishes it. Row outputs are left alone, so a step that has no others costs two
/// branches. Thread: worker.
class OutputCollector {
 public:
  /// A request whose postprocess threw; the others are not concerned.
  struct Failure {
    RequestHandle handle;
    std::string message;
  };

  /// Works on `outputs` in place: unpack_packed_outputs, then for each real lane in order filter_batched_output, the loop-back
  /// signals and postprocess. A failed request's outputs are taken out. What the two batch hooks throw fails the batch.
  void collect(NodeSubmodule& submodule, const BatchColumns& batch, BatchedModelOutput& outputs);

  /// Of the last step collected.
  [[nodiscard]] std::span<const Failure> failures() const { return failures_; }

 private:
  void finish_request(NodeSubmodule& submodule, const BatchColumns& batch, std::size_t lane,
                      BatchedModelOutput& outputs);

  std::vector<Failure> failures_;
};

}  // namespace rigel
