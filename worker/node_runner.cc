// Steps of one node: rows that wait, preparation, launch. node_runner_continuing.cc adds the rows of a step in flight.

#include "worker/node_runner.h"

#include "tensor/error.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace rigel {

namespace {

/// Whether a request that has left the node's loop in `walk` may come to the node again: in a later walk, or in another
/// iteration of a loop around that one.
bool runs_behind_loop(const walk::Program& program, const walk::CompiledWalk& walk, NodeId node) {
  const std::optional<std::uint16_t> index = walk.find(node);
  if (!index) {
    return false;
  }
  const std::vector<WalkId>& walks =
      program.partitions[static_cast<std::size_t>(walk.partition)].walks;
  return walk.scopes[walk.nodes[*index].scope].parent != 0 ||
         std::any_of(std::ranges::find(walks, walk.id) + 1, walks.end(),
                     [&](WalkId later) { return program.walk(later).find(node).has_value(); });
}

}  // namespace

NodeRunner::NodeRunner(WalkContext& context, NodeId node, std::unique_ptr<Engine> engine,
                       std::int32_t max_step_tokens)
    : context_(context),
      node_(node),
      engine_(std::move(engine)),
      has_token_rows_(dynamic_cast<const ArNodeSubmodule*>(&engine_->submodule()) != nullptr),
      max_step_tokens_(max_step_tokens),
      rows_(static_cast<std::size_t>(context.table.num_rows())),
      parked_(context.table.num_rows()) {
  RIGEL_CHECK(!has_token_rows_ || max_step_tokens > 0,
              "a node with rows of tokens runs {} tokens a step", max_step_tokens);
  NodeResources& resources = engine_->resources();
  for (std::size_t index = 0; index < resources.size() && kv_cache_ == nullptr; ++index) {
    kv_cache_ = dynamic_cast<KvCache*>(&resources[index]);
  }
  for (const walk::CompiledWalk& walk : context.program.walks) {
    goes_on_.push_back(runs_behind_loop(context.program, walk, node));
  }
  for (std::size_t index = 0; index < context.program.streams.size(); ++index) {
    if (context.program.streams[index].consumer == node) {
      streams_.push_back(static_cast<walk::StreamId>(index));
      has_finite_streams_ = has_finite_streams_ || context.program.streams[index].finite();
    }
  }
}

NodeRow& NodeRunner::row_of(RequestHandle handle) {
  NodeRow& row = rows_.at(static_cast<std::size_t>(handle.row));
  RIGEL_CHECK(row.handle == handle, "row {} belongs to another request", handle.row);
  return row;
}

void NodeRunner::open(const RequestInfo& info) {
  NodeRow& row = rows_.at(static_cast<std::size_t>(info.handle.row));
  row = {.handle = info.handle, .info = info, .number = ++num_opened_};
  engine_->add_request(row.info);
}

void NodeRunner::remove(RequestHandle handle) {
  engine_->remove_request(handle);
  NodeRow& row = row_of(handle);
  std::erase(resident_, &row);
  parked_.erase(handle.row);
  row = {};
}

bool NodeRunner::build(WalkId walk, const NodeStep* in_front, NodeStep& step) {
  step.clear();
  step.node = {walk, node_};
  step.batch.walk = walk;
  deferred_.reset({});
  find_waiting(step.node);
  if (in_front != nullptr && in_front->node.walk == walk && find_target(*in_front)) {
    add_continuing(*in_front, step);
  }
  if (step.lanes.empty() && (takes_rows(walk) || anybody_brings_tokens())) {
    add_parts(step);
  }
  if (step.rows.empty() && !takes_rows(walk)) {
    add_waiting(step);
  }
  if (!step.batch.empty()) {
    prepare(step);
  }
  return !step.batch.empty();
}

/// Rows that are ready; the order in which they last ran is that in which they have waited.
void NodeRunner::find_waiting(WalkNode node) {
  context_.walks.ready_nodes(&parked_, node, std::nullopt, ready_);
  waiting_.assign(ready_.handles.begin(), ready_.handles.end());
  std::ranges::stable_sort(
      waiting_, {}, [this](RequestHandle handle) { return context_.steps.last_touch(handle.row); });
}

std::int32_t NodeRunner::max_lanes(WalkId walk) const {
  return engine_->max_batch_size(walk).value_or(std::numeric_limits<std::int32_t>::max());
}

/// A request may be in walks of several partitions, and shows the loops of one at a time: from now on those of `walk`.
void NodeRunner::show_counters(WalkId walk, std::span<const RequestHandle> handles) {
  infos_.clear();
  for (const RequestHandle handle : handles) {
    infos_.push_back(&info_of(handle));
  }
  context_.walks.update_loop_counters(walk, handles, infos_);
}

/// The counters at which each of `handles` will run, the first `num_next` one iteration of `loop` later, to `metadata_`.
void NodeRunner::snapshot(WalkId walk, std::span<const RequestHandle> handles,
                          std::optional<LoopId> loop, std::int64_t num_next) {
  show_counters(walk, handles);
  const_infos_.assign(infos_.begin(), infos_.end());
  loop_counter_snapshots(const_infos_, loop, num_next, metadata_);
}

bool NodeRunner::takes(WalkId walk, SignalId input) const {
  const walk::CompiledWalk& compiled = context_.program.walk(walk);
  return compiled.input_of(*compiled.find(node_), input).has_value();
}

CgKey NodeRunner::group_of(WalkId walk, RequestHandle handle, const InputMetadata& metadata) {
  return engine_->capture_group(walk, info_of(handle), metadata);
}

/// Where the chunks of streams that wait at the node stand.
void NodeRunner::add_chunk_info(WalkId walk, RequestHandle handle, InputMetadata& metadata) {
  for (const walk::StreamId id : streams_) {
    const SignalId input = context_.program.streams[static_cast<std::size_t>(id)].input;
    if (takes(walk, input)) {
      metadata.stream_chunks.emplace_back(input, context_.current_chunk(handle, id));
    }
  }
}

void NodeRunner::add_waiting(NodeStep& step) {
  if (waiting_.empty()) {
    return;
  }
  const auto cap = static_cast<std::size_t>(max_lanes(step.node.walk));
  snapshot(step.node.walk, waiting_, std::nullopt, 0);
  std::optional<CgKey> group;
  if (!step.batch.empty()) {
    group = group_of(step.node.walk, step.lanes[0].handle, step.batch.metadata()[0]);
  }
  for (std::size_t index = 0; index < waiting_.size() && step.batch.size() < cap; ++index) {
    const RequestHandle handle = waiting_[index];
    InputMetadata& metadata = metadata_[index];
    add_chunk_info(step.node.walk, handle, metadata);
    const CgKey own = group_of(step.node.walk, handle, metadata);
    NodeRow& row = row_of(handle);
    if ((group && own != *group) || row.brings_tokens() || !begin(row)) {
      continue;
    }
    group = own;
    std::ignore = context_.walks.pop(step.node, {&handle, 1}, /*check_ready=*/false);
    SignalMap& signals = deferred_.assign(handle);
    context_.walks.gather_inputs(step.node, handle, signals);
    add_lane(step, handle, std::move(metadata), signals);
  }
}

void NodeRunner::add_lane(NodeStep& step, RequestHandle handle, InputMetadata metadata,
                          const SignalMap& signals) {
  const bool ends_streams = has_finite_streams_ && context_.streams.ends(handle, node_).node;
  RequestInfo& info = info_of(handle);
  info.walk = step.node.walk;
  info.partition = context_.program.walk(step.node.walk).partition;
  step.batch.add(
      handle, info, std::move(metadata),
      LaneSource{
          .walk = step.node.walk, .signals = &signals, .is_final_stream_chunk = ends_streams});
  step.lanes.push_back({handle, ends_streams});
}

/// Lets the engine prepare the rows. Who fails is told by it; who declines goes back, unless nothing follows anyway.
void NodeRunner::prepare(NodeStep& step) {
  engine_->prepare_inputs(step.batch);
  if (step.batch.size() == step.lanes.size()) {
    return;
  }
  const std::span<const RequestHandle> left = step.batch.handles();
  const std::span<const RequestHandle> declined = step.batch.skipped();
  std::vector<NodeLane> lanes;
  std::size_t num_continuing = 0;
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    const NodeLane& lane = step.lanes[index];
    const bool continues = index < step.num_continuing;
    if (lanes.size() < left.size() && left[lanes.size()] == lane.handle) {
      num_continuing += continues ? 1 : 0;
      lanes.push_back(lane);
    } else if (continues) {
      step.dropped.push_back(lane.handle);
    } else if (std::ranges::find(declined, lane.handle) == declined.end()) {
      continue;  // has failed
    } else if (lane.ends_streams) {
      step.idle.push_back(lane.handle);
    } else {
      context_.walks.push_back(step.node, {&lane.handle, 1});
    }
  }
  step.lanes = std::move(lanes);
  step.num_continuing = num_continuing;
  if (num_continuing == 0) {
    settle_without(step);
  }
}

void NodeRunner::put_back(NodeStep& step) {
  counts_.add(SpeculativeRow::kDropped, step.num_continuing);
  settle_without(step);
  context_.walks.push_back(step.node, step.batch.handles().subspan(step.num_continuing));
}

AdmitOutcome NodeRunner::launch(NodeStep& step) {
  const AdmitOutcome outcome = engine_->launch(step.batch);
  if (!outcome.ok()) {
    return outcome;
  }
  step.epoch = engine_->last_launched();
  if (step.speculation) {
    context_.walks.commit(*step.speculation, step.dropped, step.offers, returned_);
    counts_.add(SpeculativeRow::kContinuing, step.num_continuing);
    counts_.add(SpeculativeRow::kFresh, step.lanes.size() - step.num_continuing);
    counts_.add(SpeculativeRow::kDropped, step.dropped.size());
    step.speculation.reset();
    settle_offers(step);
  }
  after_launch(step);
  step.outputs.resize(step.lanes.size());
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    if (SignalMap* given = engine_->request_outputs().find(step.lanes[index].handle)) {
      step.outputs[index] = std::move(*given);
    }
  }
  return outcome;
}

}  // namespace rigel
