// A composite model's requests: the walks that they are in, one after the other, and what enters them.

#include "tensor/error.h"
#include "worker/composite.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace rigel {

void Composite::open(RequestState& request) {
  const RequestHandle handle = request.handle();
  const walk::Program& program = model_.program;
  Row& row = row_of(handle);
  row = {.handle = handle, .inputs = {}, .persisted = {}, .walks = {}, .ended_loops = {}};
  for (RequestInput& given : request.spec.inputs) {
    row.inputs.push_back({handle, *program.names.nodes.find(given.node),
                          *program.names.signals.find(given.input), std::move(given.tensors)});
  }
  context_.steps.open_row(handle.row);
  context_.streams.open(handle);
  for (const auto& runner : runners_) {
    runner->open(request.info);
  }
  row.walks.resize(program.partitions.size());
  for (const walk::CompiledPartition& partition : program.partitions) {
    context_.walks.add_request(handle, partition.id, partition.initial_walk);
  }
  for (const walk::CompiledPartition& partition : program.partitions) {
    begin_walk(handle, partition.initial_walk);
  }
  poll_streams(handle);
}

Epoch Composite::remove(RequestHandle handle) {
  ++num_changes_;
  row_of(handle) = {};
  context_.streams.close(handle);
  context_.walks.remove_request(handle);
  for (const auto& runner : runners_) {
    runner->remove(handle);
  }
  return context_.steps.last_touch(handle.row);
}

/// The walk has been set. Where nothing of it is left to run it is over already.
void Composite::begin_walk(RequestHandle handle, WalkId walk) {
  row_of(handle).walks[static_cast<std::size_t>(model_.program.walk(walk).partition)] = walk;
  if (bound_loops(handle, model_.program.walk(walk))) {
    enter_walk(handle, walk);
  } else {
    finish_walk(handle, walk);
  }
}

/// Sets the request's own bounds of the walk's loops; false: the walk is a loop that ends before its first iteration.
bool Composite::bound_loops(RequestHandle handle, const walk::CompiledWalk& walk) {
  for (std::uint16_t index = 1; index < walk.scopes.size(); ++index) {
    const walk::Scope& scope = walk.scopes[index];
    std::optional<LoopBounds> bounds;
    for (std::uint16_t node = scope.nodes.begin; node < scope.nodes.end && !bounds; ++node) {
      NodeRunner& runner = runner_of(walk.nodes[node].id);
      bounds = runner.engine().submodule().loop_bounds(scope.loop, runner.info_of(handle));
    }
    const std::vector<LoopId>& ended = row_of(handle).ended_loops;
    const bool has_ended = std::ranges::find(ended, scope.loop) != ended.end();
    if (has_ended || (bounds && bounds->first_iteration >= bounds->max_iterations)) {
      RIGEL_CHECK(scope.parent == 0 && walk.scopes[0].num_children == 1,
                  "loop '{}' ends before it begins, and its walk '{}' is more than the loop",
                  model_.program.names.loops.name(scope.loop),
                  model_.program.names.walks.name(walk.id));
      return false;
    }
    if (bounds) {
      context_.walks.set_loop(handle, walk.id, scope.loop, bounds->max_iterations,
                              bounds->first_iteration);
    }
  }
  return true;
}

/// What the request brings for the walk goes in.
void Composite::enter_walk(RequestHandle handle, WalkId walk) {
  const walk::CompiledWalk& compiled = model_.program.walk(walk);
  Row& row = row_of(handle);
  std::vector<WalkInput> inputs;
  std::erase_if(row.inputs, [&](WalkInput& given) {
    const auto node = compiled.find(given.node);
    if (!node || !compiled.input_of(*node, given.input)) {
      return false;
    }
    inputs.push_back(std::move(given));
    return true;
  });
  const std::size_t num_given = inputs.size();
  std::erase_if(row.persisted, [&](const auto& persisted) {
    const std::size_t num_before = inputs.size();
    for (std::uint16_t node = 0; node < compiled.nodes.size(); ++node) {
      const auto slot = compiled.input_of(node, persisted.first);
      const auto is_given = [&](const WalkInput& given) {
        return given.node == compiled.nodes[node].id && given.input == persisted.first;
      };
      if (slot && (compiled.nodes[node].streaming >> *slot & 1) == 0 &&
          std::find_if(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(num_given),
                       is_given) == inputs.begin() + static_cast<std::ptrdiff_t>(num_given)) {
        inputs.push_back({handle, compiled.nodes[node].id, persisted.first, persisted.second});
      }
    }
    return inputs.size() > num_before;
  });
  context_.walks.ingest(inputs, /*can_buffer=*/false, /*is_streaming=*/false, refused_);
  // A second value of an input waits for another walk that has it.
  for (const std::uint32_t index : refused_) {
    row.inputs.push_back(std::move(inputs[index]));
  }
}

/// The partition goes on with its next walk, or is done.
void Composite::finish_walk(RequestHandle handle, WalkId walk) {
  const PartitionId id = model_.program.walk(walk).partition;
  const walk::CompiledPartition& partition =
      model_.program.partitions[static_cast<std::size_t>(id)];
  const auto next = std::ranges::find(partition.walks, walk) + 1;
  if (next != partition.walks.end()) {
    context_.walks.set_walk(handle, *next);
    begin_walk(handle, *next);
    return;
  }
  row_of(handle).walks[static_cast<std::size_t>(id)] = std::nullopt;
  context_.walks.mark_partition_done(handle, id);
  context_.streams.producer_done(handle, id);
  if (context_.walks.is_done(handle)) {
    num_wasted_rows_ += num_lanes_in_flight(handle);
    listener_.on_end(handle);
  }
}

/// Chunks that are ready go to nodes that wait for nothing else.
void Composite::poll_streams(RequestHandle handle) {
  if (!context_.streams.streams_possible() || row_of(handle).handle != handle) {
    return;
  }
  for (std::size_t index = 0; index < model_.program.streams.size(); ++index) {
    const auto id = static_cast<walk::StreamId>(index);
    const walk::Stream& stream = model_.program.streams[index];
    if (!context_.streams.find(handle, id)->has_chunk_ready()) {
      continue;
    }
    StreamChunk chunk = context_.streams.pop_chunk(handle, id, context_.stream, allocator_);
    WalkInput input{handle, stream.consumer, stream.input, chunk.tensors()};
    context_.walks.ingest({&input, 1}, /*can_buffer=*/false, /*is_streaming=*/true, refused_);
    if (refused_.empty()) {
      context_.current_chunk(handle, id) = chunk.info;
    } else {
      context_.streams.give_back(handle, id, std::move(chunk));
    }
  }
}

std::string Composite::missing_inputs(const Row& row) const {
  const walk::Names& names = model_.program.names;
  for (const std::optional<WalkId>& id : row.walks) {
    if (!id) {
      continue;
    }
    const walk::CompiledWalk& walk = model_.program.walk(*id);
    for (std::uint16_t node = 0; node < walk.nodes.size(); ++node) {
      SignalMap here;
      context_.walks.gather_inputs({*id, walk.nodes[node].id}, row.handle, here);
      for (int input = 0; input < walk.nodes[node].num_inputs(); ++input) {
        const SignalId signal = walk.input_name(node, input);
        if (here.find(signal) == nullptr) {
          return fmt::format("walk '{}', node '{}': nothing brings input '{}'",
                             names.walks.name(*id), names.nodes.name(walk.nodes[node].id),
                             names.signals.name(signal));
        }
      }
    }
  }
  return "its nodes decline to run";
}

}  // namespace rigel
