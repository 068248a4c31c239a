#pragma once

#include "engine/engine.h"
#include "worker/combined_walks.h"
#include "worker/node_counts.h"
#include "worker/node_row.h"
#include "worker/node_step.h"
#include "worker/page_policy.h"
#include "worker/spec_rows.h"
#include "worker/walk_context.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rigel {

/// One node of a composite model: its engine, and how its steps are made of requests that are in their walks.
///
/// A step has rows of one walk, or of those walks that the model combines, and of one capture group, up to the node's largest
/// batch: first those that continue from the step in front one step ahead of its values, then those that wait, least recently
/// run first. Waiting rows take room from continuing ones, and end a chain of another capture group. Which walks a step has
/// is choose_walks' choice. A node's KV cache is shared out as page_policy.h says.
///
/// Where rows are token sequences (an ArNodeSubmodule), what a request brings is prepared once and run in parts under a budget of
/// tokens a step, shared max-min fairly behind the lanes that decode, where the model combines the walks. Thread: worker.
class NodeRunner {
 public:
  /// `context` outlives it. `max_step_tokens`: of a node whose rows are token sequences; longer ones run part by part. Throws
  /// CheckError where that leaves nothing to prompts beside all who decode.
  NodeRunner(WalkContext& context, NodeId node, std::unique_ptr<Engine> engine,
             std::int32_t max_step_tokens);

  /// A request comes to the node; `info` is copied.
  void open(const RequestInfo& info);
  void remove(RequestHandle handle);
  /// Its facts as this node sees them. Requires that it is open.
  [[nodiscard]] RequestInfo& info_of(RequestHandle handle) { return row_of(handle).info; }
  /// The node has sampled tokens for it, which the host knows now.
  void add_sampled(RequestHandle handle, std::span<const std::int32_t> tokens);

  /// Requests that lost their pages of this node's cache take part again, the oldest first, as far as there are pages for them.
  void resume();
  /// Whether rows of a step in flight could go on here in one of these walks.
  [[nodiscard]] bool follows(const NodeStep& in_front, const walk::StepWalks& walks);
  /// Makes a prepared step of these walks; false: nobody runs. `in_front`: the step in flight that it continues, or null.
  [[nodiscard]] bool build(const walk::StepWalks& walks, const NodeStep* in_front, NodeStep& step);
  /// Nobody continues: the speculation and its chunks are undone.
  void settle_without(NodeStep& step);
  /// The step is not launched: requests and chunks are where they were.
  void put_back(NodeStep& step);
  /// Enqueues the step and takes its outputs. A refusal launches nothing and leaves the step to put_back. Throws what the engine
  /// throws; the step's requests have then failed.
  [[nodiscard]] AdmitOutcome launch(NodeStep& step);
  /// The step was refused for want of pages, and nothing is in flight: the newest request that has some loses them, to the host or
  /// for good. False: nobody else has any. Requests that could not go on afterwards are in step.failed.
  [[nodiscard]] bool make_room(NodeStep& step);
  /// Whether the request waits for nothing but pages here.
  [[nodiscard]] bool waits_for_pages(RequestHandle handle) {
    const NodeRow& row = row_of(handle);
    return parked_.contains(handle.row) ||
           (row.phase == NodeRow::Phase::kWaiting && row.has_current);
  }
  /// What the node has done so far, and the pages of its cache now.
  [[nodiscard]] NodeCounts counts() const;
  /// A loop of `walk` has ended before the request's lane of a launched step, and the request goes on: chunks that the lane took
  /// go back to their streams, and the node's resources are truncated to what was accepted. Nothing happens the second time, nor
  /// where the request has no lane in that walk.
  void undo_lane(NodeStep& step, WalkId walk, RequestHandle handle);

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const Engine& engine() const { return *engine_; }

 private:
  /// A request that could run now.
  struct Waiting {
    NodeRow* row = nullptr;
    WalkId walk{};         // in which it stands
    WalkId row_walk{};     // that of its next row: an earlier one where it runs that once more
    Epoch last_touch = 0;  // of a step of any node
  };
  /// The inputs of rows that continue in one walk.
  struct ContinuingRows {
    DeferredRowInputs deferred;
    RequestOutputs spliced;  // where they are edited one by one
  };

  [[nodiscard]] bool find_target(const NodeStep& in_front, WalkId walk);
  void find_fronts(const walk::StepWalks& walks, const NodeStep& in_front);
  void find_waiting(const walk::StepWalks& walks, NodeStep& step);
  void admit_waiting(NodeStep& step);
  [[nodiscard]] std::int32_t choose(const walk::StepWalks& walks, const NodeStep* in_front);
  void add_continuing(const walk::StepWalks& walks, const NodeStep& in_front,
                      std::int32_t most_lanes, NodeStep& step);
  void continue_walk(const walk::StepWalks& walks, WalkId walk, const NodeStep& in_front,
                     std::int64_t room, ContinuingRows& rows, NodeStep& step);
  void abandon_last(NodeStep& step);
  void offer_chunks(const NodeStep& in_front, NodeStep& step);
  void return_offer(NodeStep& step, std::size_t index);
  void commit(NodeStep& step);
  void snapshot_continuing(WalkId walk, const NodeStep& step);
  [[nodiscard]] bool must_yield(const walk::StepWalks& walks, const StepGroups::Groups& chain);
  void give_back_chunks(NodeStep& step, RequestHandle handle);
  [[nodiscard]] bool may_be_overtaken(RequestHandle handle, WalkId walk) const;
  [[nodiscard]] bool lacks_a_value(const NodeStep& in_front, WalkId walk,
                                   const SignalMap& given) const;
  [[nodiscard]] const SignalMap& given_by(const NodeStep& in_front, std::size_t index) const {
    return in_front.outputs[front_lanes_[continuing_.lanes[index]]];
  }
  [[nodiscard]] bool edits_rows(const NodeStep& in_front, WalkId walk) const;
  void splice_row(const SignalMap& given, WalkId walk, RequestHandle handle, const NodeStep& step,
                  SignalMap& row) const;
  void add_waiting(const walk::StepWalks& walks, std::int32_t most_lanes, NodeStep& step);
  [[nodiscard]] NodeRow& row_of(RequestHandle handle);
  /// Whether rows of this walk are given, and not just the token sampled last.
  [[nodiscard]] bool takes_rows(WalkId walk) const;
  void add_parts(NodeStep& step);
  [[nodiscard]] bool bring_tokens(NodeStep& step, const Waiting& waiting);
  void add_part(NodeStep& step, const Waiting& waiting, std::int32_t count, InputMetadata metadata);
  void after_launch(NodeStep& step);
  [[nodiscard]] bool begin(NodeRow& row);
  [[nodiscard]] static PageHolder holder_of(const NodeRow* row);
  void add_chunk_info(WalkId walk, RequestHandle handle, InputMetadata& metadata);
  [[nodiscard]] InputMetadata metadata_of(const Waiting& waiting);
  void add_lane(NodeStep& step, WalkId walk, RequestHandle handle, InputMetadata metadata,
                const SignalMap& signals);
  void prepare(const walk::StepWalks& walks, NodeStep& step);
  void drop_unprepared(NodeStep& step);
  void label(const walk::StepWalks& walks, NodeStep& step) const;
  [[nodiscard]] std::int32_t max_lanes(WalkId walk) const;
  [[nodiscard]] bool takes(WalkId walk, SignalId input) const;
  [[nodiscard]] StepGroups::Groups groups_of(const walk::StepWalks& walks, WalkId row_walk,
                                             RequestHandle handle, const InputMetadata& metadata);
  void show_counters(WalkId walk, std::span<const RequestHandle> handles);

  WalkContext& context_;
  NodeId node_;
  std::unique_ptr<Engine> engine_;
  std::vector<walk::StreamId> streams_;  // into the node
  bool has_finite_streams_ = false;
  bool has_token_rows_ = false;
  std::vector<bool> goes_on_;  // by walk: behind its loop there the node may run again
  std::int32_t max_step_tokens_;
  std::vector<NodeRow> rows_;  // by row
  std::uint64_t num_opened_ = 0;
  KvCache* kv_cache_ = nullptr;     // null: the node keeps none
  std::vector<NodeRow*> resident_;  // that have begun, in that order
  RowSet parked_;                   // of those: that wait for their pages
  NodeCounts counts_;

  // Scratch of build.
  std::vector<SpeculationTarget> targets_;
  const SpeculationTarget* target_ = nullptr;
  SpeculatedRows continuing_;
  std::vector<WalkId> fronts_;                // walks in which rows of the step in front may go on
  std::vector<RequestHandle> front_handles_;  // of one of them: its lanes in the step in front
  std::vector<std::uint32_t> front_lanes_;
  std::array<ContinuingRows, walk::CombinedWalks::kMaxWalks> continuing_rows_;  // beside fronts_
  DeferredRowInputs waiting_rows_;
  std::vector<SignalId> deferred_signals_;
  ReadyNodes ready_;
  std::vector<Waiting> waiting_;  // in the order in which they have waited
  std::vector<Waiting*> arriving_;
  std::vector<WalkDemand> demands_;
  StepGroups groups_;
  std::vector<InputMetadata> metadata_;
  std::vector<RequestInfo*> infos_;
  std::vector<const RequestInfo*> const_infos_;
  std::vector<std::uint32_t> returned_;
  std::vector<std::pair<Waiting, InputMetadata>> parts_;  // rows that bring tokens
  std::vector<std::int32_t> needs_;
  std::vector<std::int32_t> grants_;
};

}  // namespace rigel
