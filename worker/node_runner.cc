// Steps of one node: how they are made, prepared and launched. node_runner_continuing.cc adds the rows of a step in flight,
// node_runner_waiting.cc those that wait.

#include "worker/node_runner.h"

#include "tensor/error.h"

#include <algorithm>
#include <limits>
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
  RIGEL_CHECK(!has_token_rows_ || max_step_tokens >= context.table.num_rows() ||
                  std::ranges::none_of(context.program.step_walks,
                                       [node](const walk::StepWalks& walks) {
                                         return walks.node == node && walks.walks.size() > 1;
                                       }),
              "max_num_batched_tokens must be at least max_num_seqs where walks of a node of token "
              "rows are combined, got {} and {}",
              max_step_tokens, context.table.num_rows());
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

bool NodeRunner::build(const walk::StepWalks& walks, const NodeStep* in_front, NodeStep& step) {
  step.clear();
  step.node = node_;
  groups_.clear();
  waiting_rows_.reset({});
  fronts_.clear();
  find_waiting(walks, step);
  if (in_front != nullptr) {
    find_fronts(walks, *in_front);
  }
  if (waiting_.empty() && fronts_.empty()) {
    return false;
  }
  const std::int32_t most_lanes = choose(walks, in_front);
  if (!fronts_.empty()) {
    add_continuing(walks, *in_front, most_lanes, step);
  }
  add_waiting(walks, most_lanes, step);
  if (!step.batch.empty()) {
    prepare(walks, step);
  }
  return !step.batch.empty();
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

bool NodeRunner::takes(WalkId walk, SignalId input) const {
  const walk::CompiledWalk& compiled = context_.program.walk(walk);
  return compiled.input_of(*compiled.find(node_), input).has_value();
}

StepGroups::Groups NodeRunner::groups_of(const walk::StepWalks& walks, WalkId row_walk,
                                         RequestHandle handle, const InputMetadata& metadata) {
  const RequestInfo& info = info_of(handle);
  const bool shares = walks.walks.size() > 1;
  return {.walk = row_walk,
          .own = engine_->capture_group(row_walk, info, metadata),
          .shared = shares ? engine_->capture_group(walks.label, info, metadata) : CgKey()};
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

void NodeRunner::add_lane(NodeStep& step, WalkId walk, RequestHandle handle, InputMetadata metadata,
                          const SignalMap& signals) {
  const bool ends_streams = has_finite_streams_ && context_.streams.ends(handle, node_).node;
  RequestInfo& info = info_of(handle);
  info.walk = walk;
  info.partition = context_.program.walk(walk).partition;
  step.batch.add(
      handle, info, std::move(metadata),
      LaneSource{.walk = walk, .signals = &signals, .is_final_stream_chunk = ends_streams});
  step.lanes.push_back({.handle = handle, .walk = walk, .ends_streams = ends_streams});
}

void NodeRunner::prepare(const walk::StepWalks& walks, NodeStep& step) {
  engine_->prepare_inputs(step.batch);
  if (step.batch.size() < step.lanes.size()) {
    drop_unprepared(step);
  }
  label(walks, step);
}

/// Who fails is told by the engine; who declines goes back, unless nothing follows anyway.
void NodeRunner::drop_unprepared(NodeStep& step) {
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
      step.idle.push_back(lane);
    } else {
      context_.walks.push_back({lane.walk, node_}, {&lane.handle, 1});
    }
  }
  step.lanes = std::move(lanes);
  step.num_continuing = num_continuing;
  if (num_continuing == 0) {
    settle_without(step);
  }
}

/// What the step is called: after the walk that its rows have in common, or after the set of walks.
void NodeRunner::label(const walk::StepWalks& walks, NodeStep& step) const {
  for (const NodeLane& lane : step.lanes) {
    if (std::ranges::find(step.walks, lane.walk) == step.walks.end()) {
      step.walks.push_back(lane.walk);
    }
  }
  const std::span<const LaneSource> rows = step.batch.sources();
  if (rows.empty()) {
    return;
  }
  const WalkId first = rows.front().walk;
  step.is_combined =
      std::ranges::any_of(rows, [first](const LaneSource& row) { return row.walk != first; });
  step.batch.walk = step.is_combined ? walks.label : first;
}

void NodeRunner::put_back(NodeStep& step) {
  counts_.add(SpeculativeRow::kDropped, step.num_continuing);
  settle_without(step);
  for (const NodeLane& lane : std::span(step.lanes).subspan(step.num_continuing)) {
    context_.walks.push_back({lane.walk, node_}, {&lane.handle, 1});
  }
}

AdmitOutcome NodeRunner::launch(NodeStep& step) {
  const AdmitOutcome outcome = engine_->launch(step.batch);
  if (!outcome.ok()) {
    return outcome;
  }
  step.epoch = engine_->last_launched();
  ++counts_.num_steps;
  counts_.num_combined_steps += step.is_combined ? 1 : 0;
  if (!step.speculations.empty()) {
    commit(step);
    counts_.add(SpeculativeRow::kContinuing, step.num_continuing);
    counts_.add(SpeculativeRow::kFresh, step.lanes.size() - step.num_continuing);
    counts_.add(SpeculativeRow::kDropped, step.dropped.size());
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
