// Steps of a node that are built before the step in front has made their inputs.

#include "worker/node_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rigel {

bool NodeRunner::follows(const NodeStep& in_front) {
  return find_target(in_front);
}

bool NodeRunner::find_target(const NodeStep& in_front) {
  target_ = nullptr;
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
    const SignalMap& given = in_front.outputs[continuing_.lanes[index]];
    if (lacks_a_value(given) || group_of(step.node.walk, handle, metadata_[index]) != group) {
      step.dropped.push_back(handle);
      continue;
    }
    fill_continuing_row(given, handle, step);
    add_lane(step, handle, std::move(metadata_[index]), deferred_.row(handle).row());
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
        .stream_chunks.emplace_back(offer.input, step.offered[accepted].info);
  }
}

/// Whether somebody of another capture group waits: then the chain of this one has had its turn.
bool NodeRunner::must_yield(WalkId walk, CgKey group) {
  show_counters(walk, waiting_);
  return std::ranges::any_of(waiting_, [&](RequestHandle handle) {
    const InputMetadata metadata{.loop_counters = context_.table.find(handle)->info.loop_counters,
                                 .stream_chunks = {}};
    return group_of(walk, handle, metadata) != group;
  });
}

/// Whether the step in front gave outputs by request, but not all that this node takes.
bool NodeRunner::lacks_a_value(const SignalMap& given) const {
  return !given.empty() &&
         std::ranges::any_of(target_->consumed, [&](const walk::ConsumedEdge& edge) {
           return given.find(edge.signal) == nullptr;
         });
}

/// What a row has beside the template: inputs that stay as they are, tensors of the step in front, a chunk.
void NodeRunner::fill_continuing_row(const SignalMap& given, RequestHandle handle,
                                     const NodeStep& step) {
  const walk::CompiledWalk& walk = context_.program.walk(step.node.walk);
  const int num_inputs = walk.nodes[*walk.find(node_)].num_inputs();
  if (given.empty() && num_inputs == std::ssize(target_->consumed)) {
    return;
  }
  SignalMap& row = deferred_.row_mut(handle);
  context_.walks.gather_inputs(step.node, handle, row);
  for (const walk::ConsumedEdge& edge : target_->consumed) {
    const TensorList* tensors = given.find(edge.signal);
    row.assign(edge.input, tensors == nullptr ? TensorList{} : *tensors);
  }
  for (const std::uint32_t accepted : continuing_.accepted_offers) {
    if (step.offers[accepted].handle == handle) {
      row.assign(step.offers[accepted].input, step.offered[accepted].tensors);
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
      step.offered.push_back({id, chunk.info, chunk.tensors()});
    }
  }
}

void NodeRunner::return_offers(std::span<const std::uint32_t> indices, NodeStep& step) {
  for (const std::uint32_t index : indices) {
    const OfferedChunk& offered = step.offered[index];
    StreamChunk chunk{.items = {}, .info = offered.info};
    if (!offered.tensors.empty()) {
      chunk.items = offered.tensors.front();
    }
    context_.streams.give_back(step.offers[index].handle, offered.stream, std::move(chunk));
  }
}

/// Nobody continues after all.
void NodeRunner::settle_without(NodeStep& step) {
  if (!step.speculation) {
    return;
  }
  context_.walks.abandon(*step.speculation, step.offers, returned_);
  step.speculation.reset();
  returned_.resize(step.offers.size());
  std::iota(returned_.begin(), returned_.end(), 0U);
  return_offers(returned_, step);
  step.offers.clear();
  step.offered.clear();
  step.dropped.clear();
}

}  // namespace rigel
