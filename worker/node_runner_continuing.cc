// Steps of a node that are built before the step in front has made their inputs.

#include "worker/node_runner.h"

#include <algorithm>
#include <utility>

namespace rigel {

bool NodeRunner::follows(const NodeStep& in_front, const walk::StepWalks& walks) {
  return std::ranges::any_of(walks.walks, [&](WalkId walk) { return find_target(in_front, walk); });
}

bool NodeRunner::find_target(const NodeStep& in_front, WalkId walk) {
  target_ = nullptr;
  if (takes_rows(walk)) {
    return false;  // whose length is not known before they are there
  }
  for (const NodeLane& lane : in_front.lanes) {
    if (lane.walk != walk) {
      continue;
    }
    context_.walks.targets({walk, in_front.node}, lane.handle, targets_);
    const auto found = std::ranges::find(targets_, node_, &SpeculationTarget::node);
    if (found != targets_.end()) {
      target_ = &*found;
      return true;
    }
  }
  return false;
}

void NodeRunner::find_fronts(const walk::StepWalks& walks, const NodeStep& in_front) {
  for (const WalkId walk : walks.walks) {
    if (find_target(in_front, walk)) {
      fronts_.push_back(walk);
    }
  }
}

/// Rows of the step in front go on from it, with what it will have made.
void NodeRunner::add_continuing(const walk::StepWalks& walks, const NodeStep& in_front,
                                std::int32_t most_lanes, NodeStep& step) {
  const std::int64_t room = std::int64_t{most_lanes} - std::ssize(waiting_);
  if (room <= 0) {
    return;
  }
  offer_chunks(in_front, step);
  for (std::size_t index = 0; index < fronts_.size(); ++index) {
    continue_walk(walks, fronts_[index], in_front, room - std::ssize(step.lanes),
                  continuing_rows_[index], step);
  }
  step.num_continuing = step.lanes.size();
  if (step.num_continuing == 0) {
    settle_without(step);
  }
}

void NodeRunner::continue_walk(const walk::StepWalks& walks, WalkId walk, const NodeStep& in_front,
                               std::int64_t room, ContinuingRows& rows, NodeStep& step) {
  if (!find_target(in_front, walk)) {
    return;
  }
  front_handles_.clear();
  front_lanes_.clear();
  for (std::size_t lane = 0; lane < in_front.lanes.size(); ++lane) {
    if (in_front.lanes[lane].walk == walk) {
      front_handles_.push_back(in_front.lanes[lane].handle);
      front_lanes_.push_back(static_cast<std::uint32_t>(lane));
    }
  }
  context_.walks.speculate({walk, in_front.node}, node_, front_handles_, room, step.offers,
                           continuing_);
  step.speculations.push_back(continuing_.id);
  if (continuing_.handles.empty()) {
    abandon_last(step);
    return;
  }
  snapshot_continuing(walk, step);
  const StepGroups::Groups chain = groups_of(walks, walk, continuing_.handles[0], metadata_[0]);
  if (!groups_.admits(chain) || must_yield(walks, chain)) {
    abandon_last(step);
    return;
  }
  groups_.add(chain);
  step.accepted_offers.insert(step.accepted_offers.end(), continuing_.accepted_offers.begin(),
                              continuing_.accepted_offers.end());
  deferred_signals_.clear();
  for (const walk::ConsumedEdge& edge : target_->consumed) {
    deferred_signals_.push_back(edge.input);
  }
  rows.deferred.reset(continuing_.handles, deferred_signals_);
  for (std::size_t index = 0; index < continuing_.handles.size(); ++index) {
    const RequestHandle handle = continuing_.handles[index];
    if (lacks_a_value(in_front, walk, given_by(in_front, index)) ||
        !may_be_overtaken(handle, walk) ||
        !groups_.admits(groups_of(walks, walk, handle, metadata_[index]))) {
      step.dropped.push_back(handle);
      rows.deferred.erase(handle);
    }
  }
  const bool edits = edits_rows(in_front, walk);
  if (edits) {
    rows.deferred.materialize(rows.spliced);
  }
  for (std::size_t index = 0; index < continuing_.handles.size(); ++index) {
    const RequestHandle handle = continuing_.handles[index];
    if (!rows.deferred.contains(handle)) {
      continue;
    }
    if (edits) {
      splice_row(given_by(in_front, index), walk, handle, step, rows.spliced[handle]);
    }
    add_lane(step, walk, handle, std::move(metadata_[index]),
             edits ? rows.spliced[handle] : rows.deferred.row(handle).row());
  }
}

/// The metadata of the continuing rows, with the chunks that they take along.
void NodeRunner::snapshot_continuing(WalkId walk, const NodeStep& step) {
  show_counters(walk, continuing_.handles);
  const_infos_.assign(infos_.begin(), infos_.end());
  loop_counter_snapshots(const_infos_, target_->is_new_iteration ? target_->loop : std::nullopt,
                         std::ssize(continuing_.handles), metadata_);
  for (const std::uint32_t accepted : continuing_.accepted_offers) {
    const StreamOffer& offer = step.offers[accepted];
    const auto row = std::ranges::find(continuing_.handles, offer.handle);
    metadata_[static_cast<std::size_t>(row - continuing_.handles.begin())]
        .stream_chunks.emplace_back(offer.input, step.offered[accepted].chunk.info);
  }
}

/// Whether somebody waits who cannot join, being of another capture group. Then the chain of this one has had its turn.
bool NodeRunner::must_yield(const walk::StepWalks& walks, const StepGroups::Groups& chain) {
  StepGroups with_chain = groups_;
  with_chain.add(chain);
  return std::ranges::any_of(waiting_, [&](const Waiting& waiting) {
    return !with_chain.admits(
        groups_of(walks, waiting.row_walk, waiting.row->handle, metadata_of(waiting)));
  });
}

/// Whether a step ahead of this request can be undone where it would have to be: an end of its loop that it outlives.
bool NodeRunner::may_be_overtaken(RequestHandle handle, WalkId walk) const {
  return !target_->is_new_iteration || !goes_on_[static_cast<std::size_t>(walk)] ||
         engine_->can_truncate(handle);
}

/// Whether the step in front gave outputs by request, but not all that this node takes.
bool NodeRunner::lacks_a_value(const NodeStep& in_front, WalkId walk,
                               const SignalMap& given) const {
  if (given.empty()) {
    return false;
  }
  const std::span<const SignalId> on_device =
      in_front.node == node_ ? engine_->submodule().device_loopback_signals(walk)
                             : std::span<const SignalId>();
  return std::ranges::any_of(target_->consumed, [&](const walk::ConsumedEdge& edge) {
    return given.find(edge.signal) == nullptr &&
           std::ranges::find(on_device, edge.signal) == on_device.end();
  });
}

/// Whether continuing rows have anything beside the template, which is what all of them read on the device.
bool NodeRunner::edits_rows(const NodeStep& in_front, WalkId walk) const {
  const walk::CompiledWalk& compiled = context_.program.walk(walk);
  const int num_inputs = compiled.nodes[*compiled.find(node_)].num_inputs();
  if (engine_->submodule().uniform_row_inputs(walk) != nullptr && streams_.empty()) {
    return false;
  }
  return num_inputs != std::ssize(target_->consumed) ||
         std::ranges::any_of(continuing_.lanes, [&](std::uint32_t lane) {
           return !in_front.outputs[front_lanes_[lane]].empty();
         });
}

/// What a row has beside the template: inputs that stay as they are, tensors of the step in front, a chunk.
void NodeRunner::splice_row(const SignalMap& given, WalkId walk, RequestHandle handle,
                            const NodeStep& step, SignalMap& row) const {
  context_.walks.gather_inputs({walk, node_}, handle, row);
  for (const walk::ConsumedEdge& edge : target_->consumed) {
    const TensorList* tensors = given.find(edge.signal);
    row.assign(edge.input, tensors == nullptr ? TensorList{} : *tensors);
  }
  for (const std::uint32_t accepted : continuing_.accepted_offers) {
    if (step.offers[accepted].handle == handle) {
      row.assign(step.offers[accepted].input, step.offered[accepted].chunk.tensors());
    }
  }
}

void NodeRunner::offer_chunks(const NodeStep& in_front, NodeStep& step) {
  if (streams_.empty()) {
    return;
  }
  for (const NodeLane& lane : in_front.lanes) {
    const RequestHandle handle = lane.handle;
    if (std::ranges::find(fronts_, lane.walk) == fronts_.end()) {
      continue;
    }
    for (const walk::StreamId id : streams_) {
      StreamBuffer* buffer = context_.streams.find(handle, id);
      if (buffer == nullptr || !buffer->has_chunk_ready()) {
        continue;
      }
      StreamChunk chunk =
          context_.streams.pop_chunk(handle, id, context_.stream, context_.allocator);
      const walk::Stream& stream = context_.program.streams[static_cast<std::size_t>(id)];
      step.offers.push_back({handle, stream.input, chunk.tensors()});
      step.offered.push_back({handle, id, std::move(chunk)});
    }
  }
}

void NodeRunner::return_offer(NodeStep& step, std::size_t index) {
  OfferedChunk& offered = step.offered[index];
  context_.streams.give_back(offered.handle, offered.stream, std::move(offered.chunk));
}

/// The step's speculations are in flight; chunks that were accepted and did not come back are taken, the others are returned.
void NodeRunner::commit(NodeStep& step) {
  for (const SpeculationId id : step.speculations) {
    context_.walks.commit(id, step.dropped, step.offers, returned_);
    std::erase_if(step.accepted_offers, [this](std::uint32_t index) {
      return std::ranges::find(returned_, index) != returned_.end();
    });
  }
  step.speculations.clear();
  for (std::uint32_t index = 0; index < step.offered.size(); ++index) {
    if (std::ranges::find(step.accepted_offers, index) != step.accepted_offers.end()) {
      step.taken.push_back(std::move(step.offered[index]));
    } else {
      return_offer(step, index);
    }
  }
}

void NodeRunner::give_back_chunks(NodeStep& step, RequestHandle handle) {
  for (OfferedChunk& taken : step.taken) {
    if (taken.handle == handle) {
      context_.streams.give_back(handle, taken.stream, std::move(taken.chunk));
    }
  }
  std::erase_if(step.taken, [handle](const OfferedChunk& taken) { return taken.handle == handle; });
}

void NodeRunner::undo_lane(NodeStep& step, WalkId walk, RequestHandle handle) {
  const auto lane = std::ranges::find(step.lanes, handle, &NodeLane::handle);
  if (lane == step.lanes.end() || lane->walk != walk || lane->is_undone) {
    return;
  }
  lane->is_undone = true;
  give_back_chunks(step, handle);
  engine_->truncate_request(info_of(handle), step.epoch);
}

/// Nobody continues in the walk tried last; the offers stay with the step.
void NodeRunner::abandon_last(NodeStep& step) {
  context_.walks.abandon(step.speculations.back(), step.offers, returned_);
  step.speculations.pop_back();
}

/// Nobody continues after all.
void NodeRunner::settle_without(NodeStep& step) {
  while (!step.speculations.empty()) {
    abandon_last(step);
  }
  for (std::size_t index = 0; index < step.offered.size(); ++index) {
    return_offer(step, index);
  }
  step.offers.clear();
  step.offered.clear();
  step.accepted_offers.clear();
  step.dropped.clear();
}

}  // namespace rigel
