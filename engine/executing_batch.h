#pragma once

#include "engine/contract/host_rows.h"
#include "engine/contract/submodule.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rigel {

/// One step of one node for one batch of requests: columns by lane, filled by the worker, then owned by the engine until
/// the step has completed. Reused, so that a steady step allocates nothing. Decode lanes come first.
class ExecutingBatch {
 public:
  WalkId walk{};

  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           const NodeInputs& inputs) {
    handles_.push_back(handle);
    infos_.push_back(&info);
    metadata_.push_back(std::move(metadata));
    inputs_.push_back(&inputs);
  }
  /// The same with the loop counters as the only metadata, made in place: what a decode lane needs.
  LoopCounters& add(RequestHandle handle, const RequestInfo& info, const NodeInputs& inputs) {
    handles_.push_back(handle);
    infos_.push_back(&info);
    inputs_.push_back(&inputs);
    return metadata_.emplace_back().loop_counters;
  }
  /// The same, for a row that lives as long as the step.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           std::unique_ptr<NodeInputs> inputs) {
    add(handle, info, std::move(metadata), *inputs);
    owned_inputs_.push_back(std::move(inputs));
  }
  /// Makes room for steps of `num_lanes`.
  void reserve(std::size_t num_lanes) {
    handles_.reserve(num_lanes);
    infos_.reserve(num_lanes);
    metadata_.reserve(num_lanes);
    inputs_.reserve(num_lanes);
  }
  void clear() {
    handles_.clear();
    infos_.clear();
    metadata_.clear();
    inputs_.clear();
    owned_inputs_.clear();
  }

  [[nodiscard]] std::size_t size() const { return handles_.size(); }
  [[nodiscard]] bool empty() const { return handles_.empty(); }
  [[nodiscard]] BatchColumns columns() const {
    return {walk, handles_, infos_, metadata_, inputs_};
  }
  [[nodiscard]] std::span<const RequestHandle> handles() const { return handles_; }
  [[nodiscard]] std::span<const RequestInfo* const> infos() const { return infos_; }
  [[nodiscard]] std::span<const InputMetadata> metadata() const { return metadata_; }
  [[nodiscard]] std::span<const NodeInputs* const> inputs() const { return inputs_; }

 private:
  std::vector<RequestHandle> handles_;
  std::vector<const RequestInfo*> infos_;
  std::vector<InputMetadata> metadata_;
  std::vector<const NodeInputs*> inputs_;
  std::vector<std::unique_ptr<NodeInputs>> owned_inputs_;
};

}  // namespace rigel
