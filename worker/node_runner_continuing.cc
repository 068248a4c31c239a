// Steps of a node that are built before the step in front has made their inputs.

#include "worker/node_runner.h"

#include <algorithm>
#include <utility>

namespace rigel {

bool NodeRunner::follows(const NodeStep& in_front) {
  return find_target(in_front);
}

bool NodeRunner::find_target(const NodeStep& in_front) {
  target_ = nullptr;
  if (takes_rows(in_front.node.walk)) {
    return false;  // whose length is not known before they are there
  }
  for (const RequestHandle handle : in_front.batch.handles()) {
    context_.walks.targets(in_front.node, handle, targets_);
    const auto found = std::ranges::find(targets_, node_, &SpeculationTarget::node);
    if (found != targets_.end()) {
      target_ = &*found;
      return true;
    }
  }
  return false;
}

/// Rows of the step in front go on from it, with what it will have made.
void NodeRunner::add_continuing(const NodeStep& in_front, NodeStep& step) {
  const std::int64_t room = std::int64_t{max_lanes(step.node.walk)} - std::ssize(waiting_);
  if (room <= 0) {
    return;
  }
  offer_chunks(in_front, step);
  context_.walks.speculate(in_front.node, node_, in_front.batch.handles(), room, step.offers,
                           continuing_);
  step.speculation = continuing_.id;
  if (continuing_.handles.empty()) {
    settle_without(step);
    return;
  }
  snapshot_continuing(step);
  const CgKey group = group_of(step.node.walk, continuing_.handles[0], metadata_[0]);
  if (must_yield(step.node.walk, group)) {
    settle_without(step);
    return;
  }
  deferred_signals_.clear();
  for (const walk::ConsumedEdge& edge : target_->consumed) {
    deferred_signals_.push_back(edge.input);
  }
  deferred_.reset(continuing_.handles, deferred_signals_);
  for (std::size_t index = 0; index < continuing_.handles.size(); ++index) {
    const RequestHandle handle = continuing_.handles[index];
    if (lacks_a_value(in_front, given_by(in_front, index)) ||
        !may_be_overtaken(handle, step.node.walk) ||
        group_of(step.node.walk, handle, metadata_[index]) != group) {
      step.dropped.push_back(handle);
      deferred_.erase(handle);
    }
  }
  const bool edits = edits_rows(in_front, step.node.walk);
  if (edits) {
    deferred_.materialize(spliced_);
  }
  for (std::size_t index = 0; index < continuing_.handles.size(); ++index) {
    const RequestHandle handle = continuing_.handles[index];
    if (!deferred_.contains(handle)) {
      continue;
    }
    if (edits) {
      splice_row(given_by(in_front, index), handle, step, spliced_[handle]);
    }
    add_lane(step, handle, std::move(metadata_[index]),
             edits ? spliced_[handle] : deferred_.row(handle).row());
  }
  step.num_continuing = step.lanes.size();
  if (step.num_continuing == 0) {
    settle_without(step);
  }
}

/// The metadata of the continuing rows, with the chunks that they take along.
void NodeRunner::snapshot_continuing(const NodeStep& step) {
  snapshot(step.node.walk, continuing_.handles,
           target_->is_new_iteration ? target_->loop : std::nullopt,
           std::ssize(continuing_.handles));
  for (const std::uint32_t accepted : continuing_.accepted_offers) {
    const StreamOffer& offer = step.offers[accepted];
    const auto row = std::ranges::find(continuing_.handles, offer.handle);
    metadata_[static_cast<std::size_t>(row - continuing_.handles.begin())]
        .stream_chunks.emplace_back(offer.input, step.offered[accepted].chunk.info);
  }
}

/// Whether somebody waits who cannot join: of another capture group, or with tokens to bring. Then the chain of this one has had its turn.
bool NodeRunner::must_yield(WalkId walk, CgKey group) {
  if (anybody_brings_tokens()) {
    return true;
  }
  show_counters(walk, waiting_);
  return std::ranges::any_of(waiting_, [&](RequestHandle handle) {
    InputMetadata metadata{.loop_counters = info_of(handle).loop_counters, .stream_chunks = {}};
    add_chunk_info(walk, handle, metadata);
    return group_of(walk, handle, metadata) != group;
  });
}

/// Whether a step ahead of this request can be undone where it would have to be: an end of its loop that it outlives.
bool NodeRunner::may_be_overtaken(RequestHandle handle, WalkId walk) const {
  return !target_->is_new_iteration || !goes_on_[static_cast<std::size_t>(walk)] ||
         engine_->can_truncate(handle);
}

/// Whether the step in front gave outputs by request, but not all that this node takes.
bool NodeRunner::lacks_a_value(const NodeStep& in_front, const SignalMap& given) const {
  if (given.empty()) {
    return false;
  }
  const std::span<const SignalId> on_device =
      in_front.node.node == node_ ? engine_->submodule().device_loopback_signals(in_front.node.walk)
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
         std::ranges::any_of(continuing_.lanes,
                             [&](std::uint32_t lane) { return !in_front.outputs[lane].empty(); });
}

/// What a row has beside the template: inputs that stay as they are, tensors of the step in front, a chunk.
void NodeRunner::splice_row(const SignalMap& given, RequestHandle handle, const NodeStep& step,
                            SignalMap& row) const {
  context_.walks.gather_inputs(step.node, handle, row);
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
  for (const RequestHandle handle : in_front.batch.handles()) {
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

/// The speculation is committed, and `returned_` says whose offers came back of it: what was accepted otherwise is taken.
void NodeRunner::settle_offers(NodeStep& step) {
  const auto is_among = [](const std::vector<std::uint32_t>& indices, std::size_t index) {
    return std::ranges::find(indices, index) != indices.end();
  };
  for (std::size_t index = 0; index < step.offered.size(); ++index) {
    if (is_among(continuing_.accepted_offers, index) && !is_among(returned_, index)) {
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

void NodeRunner::undo_lane(NodeStep& step, RequestHandle handle) {
  const auto lane = std::ranges::find(step.lanes, handle, &NodeLane::handle);
  if (lane == step.lanes.end() || lane->is_undone) {
    return;
  }
  lane->is_undone = true;
  give_back_chunks(step, handle);
  engine_->truncate_request(info_of(handle), step.epoch);
}

/// Nobody continues after all.
void NodeRunner::settle_without(NodeStep& step) {
  if (!step.speculation) {
    return;
  }
  context_.walks.abandon(*step.speculation, step.offers, returned_);
  step.speculation.reset();
  for (std::size_t index = 0; index < step.offered.size(); ++index) {
    return_offer(step, index);
  }
  step.offers.clear();
  step.offered.clear();
  step.dropped.clear();
}

}  // namespace rigel
