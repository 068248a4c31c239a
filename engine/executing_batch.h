#pragma once

#include "engine/contract/host_rows.h"
#include "engine/contract/submodule.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace rigel {

/// What a lane's row is prepared from. What it points to lives until the batch was prepared.
struct LaneSource {
  WalkId walk{};  // the lane's own, where several run in one step
  const SignalMap* signals = nullptr;
  bool is_final_stream_chunk = false;
  /// Where the request keeps the row of its whole input, which is prepared once and then cut to [start, end); null: the row
  /// is prepared for this step.
  std::unique_ptr<NodeInputs>* whole_row = nullptr;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// One step of one node for one batch of requests: columns by lane, filled by the worker, prepared by the engine and then
/// owned by it until the step has completed. Reused, so that a steady step allocates nothing. Decode lanes come first.
class ExecutingBatch {
 public:
  WalkId walk{};

  /// A lane whose row the engine prepares.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           const LaneSource& source) {
    push(handle, info, std::move(metadata), nullptr, source);
  }
  /// A lane with a row that is shared or kept elsewhere.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           const NodeInputs& inputs) {
    push(handle, info, std::move(metadata), &inputs, {});
  }
  /// The same with the loop counters as the only metadata, made in place: what a decode lane needs.
  LoopCounters& add(RequestHandle handle, const RequestInfo& info, const NodeInputs& inputs) {
    push(handle, info, {}, &inputs, {});
    return metadata_.back().loop_counters;
  }
  /// A lane with a row that lives as long as the step.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           std::unique_ptr<NodeInputs> inputs) {
    push(handle, info, std::move(metadata), inputs.get(), {});
    owned_inputs_.push_back(std::move(inputs));
  }
  /// Makes room for steps of `num_lanes`.
  void reserve(std::size_t num_lanes);
  void clear();

  /// Takes lanes out for which `drop(lane)` holds; the others keep their order, which is the order of every column.
  template <class Drop>
  void drop_if(const Drop& drop);

  [[nodiscard]] std::size_t size() const { return handles_.size(); }
  [[nodiscard]] bool empty() const { return handles_.empty(); }
  [[nodiscard]] BatchColumns columns() const {
    return {walk, handles_, infos_, metadata_, inputs_};
  }
  [[nodiscard]] std::span<const RequestHandle> handles() const { return handles_; }
  [[nodiscard]] std::span<const RequestInfo* const> infos() const { return infos_; }
  [[nodiscard]] std::span<const InputMetadata> metadata() const { return metadata_; }
  [[nodiscard]] std::span<const NodeInputs* const> inputs() const { return inputs_; }
  [[nodiscard]] std::span<const LaneSource> sources() const { return sources_; }
  /// Requests that declined the step when it was prepared. They left the batch, and nothing of them failed.
  [[nodiscard]] std::span<const RequestHandle> skipped() const { return skipped_; }

  // For the engine, while it prepares.
  void set_inputs(std::size_t lane, const NodeInputs& inputs) { inputs_[lane] = &inputs; }
  void set_inputs(std::size_t lane, std::unique_ptr<NodeInputs> inputs) {
    inputs_[lane] = inputs.get();
    owned_inputs_.push_back(std::move(inputs));
  }
  void clear_inputs(std::size_t lane) { inputs_[lane] = nullptr; }
  void add_skipped(RequestHandle handle) { skipped_.push_back(handle); }

 private:
  void push(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
            const NodeInputs* inputs, const LaneSource& source) {
    handles_.push_back(handle);
    infos_.push_back(&info);
    metadata_.push_back(std::move(metadata));
    inputs_.push_back(inputs);
    sources_.push_back(source);
  }
  void truncate(std::size_t num_lanes);

  std::vector<RequestHandle> handles_;
  std::vector<const RequestInfo*> infos_;
  std::vector<InputMetadata> metadata_;
  std::vector<const NodeInputs*> inputs_;
  std::vector<LaneSource> sources_;
  std::vector<std::unique_ptr<NodeInputs>> owned_inputs_;
  std::vector<RequestHandle> skipped_;
};

template <class Drop>
void ExecutingBatch::drop_if(const Drop& drop) {
  std::size_t kept = 0;
  for (std::size_t lane = 0; lane < size(); ++lane) {
    if (drop(lane)) {
      continue;
    }
    if (kept != lane) {
      handles_[kept] = handles_[lane];
      infos_[kept] = infos_[lane];
      metadata_[kept] = std::move(metadata_[lane]);
      inputs_[kept] = inputs_[lane];
      sources_[kept] = sources_[lane];
    }
    ++kept;
  }
  truncate(kept);
}

}  // namespace rigel
