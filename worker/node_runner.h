#pragma once

#include "engine/engine.h"
#include "worker/node_step.h"
#include "worker/spec_rows.h"
#include "worker/walk_context.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rigel {

/// One node of a composite model: its engine, and how its steps are made of requests that are in their walks.
///
/// A step has rows of one walk and one capture group, up to the node's largest batch: first those that continue from the step
/// in front one step ahead of its values, then those that wait, least recently run first. Waiting rows take room from
/// continuing ones, and end a chain of another capture group. Thread: worker.
class NodeRunner {
 public:
  /// `context` outlives it.
  NodeRunner(WalkContext& context, NodeId node, std::unique_ptr<Engine> engine);

  /// Whether rows of a step in flight could go on here.
  [[nodiscard]] bool follows(const NodeStep& in_front);
  /// Makes a prepared step of `walk`; false: nobody runs. `in_front`: the step in flight that it continues, or null.
  [[nodiscard]] bool build(WalkId walk, const NodeStep* in_front, NodeStep& step);
  /// Nobody continues: the speculation and its chunks are undone.
  void settle_without(NodeStep& step);
  /// The step is not launched: requests and chunks are where they were.
  void put_back(NodeStep& step);
  /// Enqueues the step and takes its outputs. A refusal launches nothing and leaves the step to put_back. Throws what the engine
  /// throws; the step's requests have then failed.
  [[nodiscard]] AdmitOutcome launch(NodeStep& step);

  [[nodiscard]] Engine& engine() { return *engine_; }

 private:
  [[nodiscard]] bool find_target(const NodeStep& in_front);
  void find_waiting(WalkNode node);
  void add_continuing(const NodeStep& in_front, NodeStep& step);
  void offer_chunks(const NodeStep& in_front, NodeStep& step);
  void return_offers(std::span<const std::uint32_t> indices, NodeStep& step);
  void snapshot_continuing(const NodeStep& step);
  [[nodiscard]] bool must_yield(WalkId walk, CgKey group);
  [[nodiscard]] bool lacks_a_value(const SignalMap& given) const;
  void fill_continuing_row(const SignalMap& given, RequestHandle handle, const NodeStep& step);
  void add_waiting(NodeStep& step);
  void add_lane(NodeStep& step, RequestHandle handle, InputMetadata metadata,
                const SignalMap& signals);
  void prepare(NodeStep& step);
  [[nodiscard]] std::int32_t max_lanes(WalkId walk) const;
  [[nodiscard]] bool takes(WalkId walk, SignalId input) const;
  [[nodiscard]] CgKey group_of(WalkId walk, RequestHandle handle, const InputMetadata& metadata);
  void show_counters(WalkId walk, std::span<const RequestHandle> handles);
  void snapshot(WalkId walk, std::span<const RequestHandle> handles, std::optional<LoopId> loop,
                std::int64_t num_next);

  WalkContext& context_;
  NodeId node_;
  std::unique_ptr<Engine> engine_;
  std::vector<walk::StreamId> streams_;  // into the node
  bool has_finite_streams_ = false;

  // Scratch of build.
  std::vector<SpeculationTarget> targets_;
  const SpeculationTarget* target_ = nullptr;
  SpeculatedRows continuing_;
  DeferredRowInputs deferred_;
  std::vector<SignalId> deferred_signals_;
  ReadyNodes ready_;
  std::vector<RequestHandle> waiting_;
  std::vector<SignalMap> waiting_signals_;  // by place in the step
  std::vector<InputMetadata> metadata_;
  std::vector<RequestInfo*> infos_;
  std::vector<const RequestInfo*> const_infos_;
  std::vector<std::uint32_t> returned_;
};

}  // namespace rigel
