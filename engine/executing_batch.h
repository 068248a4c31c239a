#pragma once

#include "engine/contract/host_rows.h"
#include "engine/contract/submodule.h"

#include <cstdint>
#include <memory>
#include <span>
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
  /// The same where it is prepared already: a row that lives as long as the step.
  const NodeInputs* prepared_row = nullptr;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// One step of one node for one batch of requests: columns by lane, filled by the worker, prepared by the engine and then
/// owned by it until the step has completed. Reused, so that a steady step allocates nothing. Decode lanes come first.
class ExecutingBatch {
 public:
  WalkId walk{};
  /// Turns that one launch may run of it, where its captures allow that: see Engine::launch.
  std::int32_t num_turns = 1;

  /// A lane whose row the engine prepares.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           const LaneSource& source) {
    push(handle, info, nullptr) = std::move(metadata);
    sources_[size() - 1] = source;
  }
  /// A lane with a row that is shared or kept elsewhere.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           const NodeInputs& inputs) {
    push(handle, info, &inputs) = std::move(metadata);
  }
  /// The same with the loop counters as the only metadata, made in place: what a decode lane needs.
  LoopCounters& add(RequestHandle handle, const RequestInfo& info, const NodeInputs& inputs) {
    InputMetadata& metadata = push(handle, info, &inputs);
    metadata.stream_chunks.clear();
    metadata.loop_counters = LoopCounters();
    return metadata.loop_counters;
  }
  /// Lanes that share a row and have the count of one loop as their only metadata: what a decode step is made of.
  void add(std::span<const RequestHandle> handles, std::span<const RequestInfo* const> infos,
           const NodeInputs& inputs, LoopId loop, std::span<const std::int32_t> iterations);
  /// A lane with a row that lives as long as the step.
  void add(RequestHandle handle, const RequestInfo& info, InputMetadata metadata,
           std::unique_ptr<NodeInputs> inputs) {
    push(handle, info, inputs.get()) = std::move(metadata);
    owned_inputs_.push_back(std::move(inputs));
  }
  /// The lanes go on to the next iteration of this loop, in the same launch.
  void advance_loop(LoopId loop) {
    for (InputMetadata& lane : std::span(metadata_).first(num_lanes_)) {
      lane.loop_counters.set(loop, lane.loop_counters.count(loop) + 1);
    }
  }
  /// Makes room for steps of `num_lanes`.
  void reserve(std::size_t num_lanes);
  void clear();

  /// Takes lanes out for which `drop(lane)` holds; the others keep their order, which is the order of every column.
  template <class Drop>
  void drop_if(const Drop& drop);

  [[nodiscard]] std::size_t size() const { return num_lanes_; }
  [[nodiscard]] bool empty() const { return num_lanes_ == 0; }
  [[nodiscard]] BatchColumns columns() const {
    return {walk, handles(), infos(), metadata(), inputs()};
  }
  [[nodiscard]] std::span<const RequestHandle> handles() const {
    return std::span(handles_).first(num_lanes_);
  }
  [[nodiscard]] std::span<const RequestInfo* const> infos() const {
    return std::span(infos_).first(num_lanes_);
  }
  [[nodiscard]] std::span<const InputMetadata> metadata() const {
    return std::span(metadata_).first(num_lanes_);
  }
  [[nodiscard]] std::span<const NodeInputs* const> inputs() const {
    return std::span(inputs_).first(num_lanes_);
  }
  /// Of lanes that were added without a row; the others' say nothing.
  [[nodiscard]] std::span<const LaneSource> sources() const {
    return std::span(sources_).first(num_lanes_);
  }
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
  /// Adds a lane; gives its metadata, which still are those of an earlier one.
  InputMetadata& push(RequestHandle handle, const RequestInfo& info, const NodeInputs* inputs) {
    if (num_lanes_ == handles_.size()) {
      grow(num_lanes_ + 1);
    }
    handles_[num_lanes_] = handle;
    infos_[num_lanes_] = &info;
    inputs_[num_lanes_] = inputs;
    return metadata_[num_lanes_++];
  }
  void grow(std::size_t num_lanes);

  // Columns are as long as the longest step so far and never shrink: their elements are used again.
  std::size_t num_lanes_ = 0;
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
  num_lanes_ = kept;
}

}  // namespace rigel
