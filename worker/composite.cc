// A composite model's requests: their walks, their streams, and which node is next. composite_results.cc completes steps.

#include "worker/composite.h"

#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace rigel {

Composite::Composite(CompositeModel model, RequestTable& table, CompositeListener& listener)
    : model_(std::move(model)),
      allocator_(model_.stream->device()),
      pinned_(model_.stream->device()),
      copies_(model_.stream->device()),
      context_(model_.program, table, *model_.stream, allocator_, kMaxInFlight),
      listener_(listener),
      rows_(static_cast<std::size_t>(table.num_rows())) {
  const walk::Program& program = model_.program;
  RIGEL_CHECK(model_.engines.size() == program.names.nodes.size(), "{} engines for {} nodes",
              model_.engines.size(), program.names.nodes.size());
  for (std::size_t index = 0; index < model_.engines.size(); ++index) {
    const auto node = static_cast<NodeId>(index);
    RIGEL_CHECK(model_.engines[index] != nullptr && model_.engines[index]->stream() == stream(),
                "node '{}' has no engine on the model's stream", program.names.nodes.name(node));
    runners_.push_back(
        std::make_unique<NodeRunner>(context_, node, std::move(model_.engines[index])));
  }
  for (const walk::CompiledWalk& walk : program.walks) {
    for (const walk::CompiledNode& node : walk.nodes) {
      keys_.push_back({.node = {walk.id, node.id}});
    }
  }
}

Composite::~Composite() = default;

std::string Composite::find_error(const GenerationRequest& request) const {
  const walk::Program& program = model_.program;
  for (const RequestInput& given : request.inputs) {
    const auto node = program.names.nodes.find(given.node);
    const auto input = program.names.signals.find(given.input);
    const bool known =
        node && input && std::ranges::any_of(program.walks, [&](const walk::CompiledWalk& walk) {
          const auto index = walk.find(*node);
          const auto slot = index ? walk.input_of(*index, *input) : std::nullopt;
          return slot && (walk.nodes[*index].streaming >> *slot & 1) == 0;
        });
    if (!known) {
      return fmt::format("inputs: no walk has a node '{}' with an input '{}' from outside",
                         given.node, given.input);
    }
  }
  return {};
}

void Composite::open(RequestState& request) {
  const RequestHandle handle = request.handle();
  const walk::Program& program = model_.program;
  Row& row = row_of(handle);
  row = {.handle = handle, .inputs = {}, .persisted = {}, .walks = {}};
  for (RequestInput& given : request.spec.inputs) {
    row.inputs.push_back({handle, *program.names.nodes.find(given.node),
                          *program.names.signals.find(given.input), std::move(given.tensors)});
  }
  context_.steps.open_row(handle.row);
  context_.streams.open(handle);
  for (const auto& runner : runners_) {
    runner->engine().add_request(request.info);
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
    runner->engine().remove_request(handle);
  }
  return context_.steps.last_touch(handle.row);
}

/// The walk has been set: what the request brings for it goes in.
void Composite::begin_walk(RequestHandle handle, WalkId walk) {
  const walk::CompiledWalk& compiled = model_.program.walk(walk);
  Row& row = row_of(handle);
  row.walks[static_cast<std::size_t>(compiled.partition)] = walk;
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

/// Whoever could run, the one that has waited longest first; a chain that goes on was launched last.
void Composite::find_keys() {
  context_.walks.ready_nodes(nullptr, std::nullopt, std::nullopt, ready_);
  const NodeStep* in_front = num_in_flight() > 0 ? &step_of(last_launched()) : nullptr;
  order_.clear();
  for (Key& key : keys_) {
    key.continues = in_front != nullptr && in_front->node.walk == key.node.walk &&
                    runner_of(key.node.node).follows(*in_front);
    if (key.continues || std::ranges::find(ready_.entries, key.node, &ReadyNodes::Entry::node) !=
                             ready_.entries.end()) {
      order_.push_back(&key);
    }
  }
  std::ranges::stable_sort(order_, {}, &Key::last_launch);
}

bool Composite::launch_step() {
  const std::uint64_t num_changes = num_changes_;
  find_keys();
  for (Key* key : order_) {
    if (try_launch(*key)) {
      return true;
    }
  }
  if (num_in_flight() == 0 && num_changes_ == num_changes) {
    fail_stuck();
  }
  return false;
}

bool Composite::try_launch(Key& key) {
  NodeRunner& runner = runner_of(key.node.node);
  NodeStep& step = step_of(last_launched() + 1);
  const NodeStep* in_front = key.continues ? &step_of(last_launched()) : nullptr;
  const Epoch before = runner.engine().last_launched();
  AdmitOutcome outcome;
  bool built = false;
  std::optional<std::string> error;
  try {
    built = runner.build(key.node.walk, in_front, step);
    if (built) {
      outcome = runner.launch(step);
    }
  } catch (const DeviceError&) {
    runner.settle_without(step);
    throw;
  } catch (const std::exception& thrown) {
    runner.settle_without(step);
    error = thrown.what();
  }
  const bool launched = runner.engine().last_launched() != before;
  if (launched) {
    // Also a step whose launch failed on the way completes like any other.
    key.last_launch = context_.steps.launch(step.batch.handles());
  } else if (built && !error) {
    runner.put_back(step);
  }
  if (error) {
    for (const NodeLane& lane : step.lanes) {
      fail(lane.handle, *error);
    }
  } else if (!outcome.ok() &&
             (num_in_flight() == 0 || outcome.reason == AdmitOutcome::Reason::kNeverFits)) {
    fail(outcome.handle, fmt::format("node '{}' has no room for this request",
                                     model_.program.names.nodes.name(key.node.node)));
  }
  take_failures(runner);
  run_idle(step);
  return launched;
}

void Composite::take_failures(NodeRunner& runner) {
  failures_.clear();
  runner.engine().take_failures(failures_);
  for (const RequestFailure& failure : failures_) {
    fail(failure.handle, failure.message);
  }
}

void Composite::fail(RequestHandle handle, const std::string& error) {
  if (context_.table.find(handle) != nullptr) {
    listener_.on_failure(handle, error);
  }
}

/// Nothing is in flight and nobody can run: what the requests wait for will never come.
void Composite::fail_stuck() {
  for (const Row& row : rows_) {
    if (const RequestHandle handle = row.handle; !handle.is_padding()) {
      fail(handle, missing_inputs(row));
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

std::size_t Composite::num_tensors() const {
  return context_.walks.num_tensors() + context_.streams.num_tensors();
}

}  // namespace rigel
