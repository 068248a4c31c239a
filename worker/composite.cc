// A composite model: which node is next, and what becomes of its step. composite_walks.cc has the requests' walks,
// composite_results.cc completes steps.

#include "worker/composite.h"

#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace rigel {

Composite::Composite(CompositeModel model, RequestTable& table, CompositeListener& listener,
                     std::int32_t max_step_tokens)
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
    runners_.push_back(std::make_unique<NodeRunner>(
        context_, node, std::move(model_.engines[index]), max_step_tokens));
  }
  for (std::size_t node = 0; node < runners_.size(); ++node) {
    give_row_tensors(static_cast<NodeId>(node));
  }
  for (const walk::StepWalks& walks : program.step_walks) {
    check_combined(walks);
    keys_.push_back({.walks = &walks});
  }
}

Composite::~Composite() = default;

void Composite::check_combined(const walk::StepWalks& walks) {
  if (walks.walks.size() < 2) {
    return;
  }
  const walk::Names& names = model_.program.names;
  RIGEL_CHECK(runner_of(walks.node).engine().submodule().combines_walks(walks.label),
              "the submodule of node '{}' does not run walks together as '{}'",
              names.nodes.name(walks.node), names.walks.name(walks.label));
}

/// Signals that somebody takes as tensors, where the node gives them as rows of its batch. Whichever walk takes them, all have
/// them: a request that lost its cache runs rows of an earlier walk in a later one.
void Composite::give_row_tensors(NodeId node) {
  std::vector<SignalId> signals;
  std::vector<WalkId> walks;
  for (const walk::CompiledWalk& walk : model_.program.walks) {
    if (const auto index = walk.find(node)) {
      walks.push_back(walk.id);
      add_taken_signals(walk, walk.nodes[*index], signals);
    }
  }
  for (const walk::StepWalks& combined : model_.program.step_walks) {
    if (combined.node == node && combined.walks.size() > 1) {
      walks.push_back(combined.label);
    }
  }
  for (const WalkId walk : walks) {
    runner_of(node).engine().set_row_tensors(walk, signals, allocator_);
  }
}

void Composite::add_taken_signals(const walk::CompiledWalk& walk, const walk::CompiledNode& node,
                                  std::vector<SignalId>& signals) {
  using Kind = walk::Target::Kind;
  const NodeSubmodule& submodule = runner_of(node.id).engine().submodule();
  const auto stays = submodule.device_loopback_signals(walk.id);
  const auto inlined = submodule.inline_client_signals(walk.id);
  for (std::uint16_t index = node.outputs.begin; index < node.outputs.end; ++index) {
    const walk::Output& output = walk.outputs[index];
    bool is_taken = output.remembered_in >= 0;
    for (std::uint16_t at = output.targets.begin; at < output.targets.end; ++at) {
      const walk::Target& target = walk.targets[at];
      const bool to_node = target.kind == Kind::kForward || target.kind == Kind::kLoopBack;
      is_taken =
          is_taken || target.persist || target.kind == Kind::kStream ||
          (to_node && std::ranges::find(stays, output.signal) == stays.end()) ||
          (target.kind == Kind::kClient &&
           std::ranges::find(inlined, output.signal, &InlineSignal::signal) == inlined.end());
    }
    if (is_taken && std::ranges::find(signals, output.signal) == signals.end()) {
      signals.push_back(output.signal);
    }
  }
}

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

/// Whoever could run, the one that has waited longest first; a chain that goes on was launched last.
void Composite::find_keys() {
  context_.walks.ready_nodes(nullptr, std::nullopt, std::nullopt, ready_);
  const NodeStep* in_front = num_in_flight() > 0 ? &step_of(last_launched()) : nullptr;
  order_.clear();
  for (Key& key : keys_) {
    key.continues =
        in_front != nullptr && runner_of(key.walks->node).follows(*in_front, *key.walks);
    const auto waits = [&](const ReadyNodes::Entry& entry) {
      return entry.node.node == key.walks->node && key.walks->has(entry.node.walk);
    };
    if (key.continues || std::ranges::any_of(ready_.entries, waits)) {
      order_.push_back(&key);
    }
  }
  std::ranges::stable_sort(order_, {}, &Key::last_launch);
}

bool Composite::launch_step() {
  const std::uint64_t num_changes = num_changes_;
  find_keys();
  for (Key* key : order_) {
    // Not before a refused step is tried again: whoever made room for it would take that room back.
    runner_of(key->walks->node).resume();
    Attempt attempt;
    do {
      attempt = try_launch(*key);
    } while (attempt == Attempt::kMadeRoom);
    if (attempt == Attempt::kLaunched) {
      return true;
    }
  }
  if (num_in_flight() == 0 && num_changes_ == num_changes) {
    fail_stuck();
  }
  return false;
}

Composite::Attempt Composite::try_launch(Key& key) {
  NodeRunner& runner = runner_of(key.walks->node);
  NodeStep& step = step_of(last_launched() + 1);
  const NodeStep* in_front = key.continues ? &step_of(last_launched()) : nullptr;
  const Epoch before = runner.engine().last_launched();
  AdmitOutcome outcome;
  bool built = false;
  std::optional<std::string> error;
  try {
    built = runner.build(*key.walks, in_front, step);
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
  }
  const bool has_room = !outcome.ok() && make_room(runner, outcome, step);
  take_failures(runner);
  for (const NodeFailure& failed : step.failed) {
    fail(failed.handle, failed.message);
  }
  run_idle(step);
  if (launched) {
    return Attempt::kLaunched;
  }
  return has_room ? Attempt::kMadeRoom : Attempt::kNothing;
}

/// A step was refused. True: there is room for it now, or for what is left of it.
bool Composite::make_room(NodeRunner& runner, const AdmitOutcome& refusal, NodeStep& step) {
  using Reason = AdmitOutcome::Reason;
  if (refusal.reason != Reason::kNeverFits && num_in_flight() > 0) {
    return false;  // what the steps in flight give back may do; and nobody loses pages that they still fill
  }
  if (refusal.reason != Reason::kAllocationFailed || !runner.make_room(step)) {
    step.failed.push_back(
        {refusal.handle, fmt::format("node '{}' has no room for this request",
                                     model_.program.names.nodes.name(step.node))});
  }
  ++num_changes_;
  return true;
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

/// Nothing is in flight and nobody can run: what the requests wait for will never come. Those that wait for pages get another
/// chance when the others have left.
void Composite::fail_stuck() {
  const auto is_stuck = [this](const Row& row) {
    return !row.handle.is_padding() && std::ranges::none_of(runners_, [&](const auto& runner) {
      return runner->waits_for_pages(row.handle);
    });
  };
  const bool anybody_is = std::ranges::any_of(rows_, is_stuck);
  for (const Row& row : rows_) {
    if (const RequestHandle handle = row.handle;
        !handle.is_padding() && (!anybody_is || is_stuck(row))) {
      fail(handle, missing_inputs(row));
    }
  }
}

NodeCounts Composite::counts() const {
  NodeCounts counts;
  for (const auto& runner : runners_) {
    counts += runner->counts();
  }
  counts.num_wasted_rows = num_wasted_rows_;
  return counts;
}

std::int64_t Composite::num_lanes_in_flight(RequestHandle handle) const {
  std::int64_t count = 0;
  for (Epoch epoch = last_completed() + 1; epoch <= last_launched(); ++epoch) {
    count += std::ranges::count(step_of(epoch).lanes, handle, &NodeLane::handle);
  }
  return count;
}

bool Composite::has_captures_left() const {
  return std::ranges::any_of(runners_, [](const auto& runner) {
    const StepCaptures* const captures = std::as_const(*runner).engine().captures();
    return captures != nullptr && captures->num_pending() > 0;
  });
}

void Composite::capture_next() {
  for (const auto& runner : runners_) {
    if (StepCaptures* const captures = runner->engine().captures();
        captures != nullptr && captures->capture_next()) {
      return;
    }
  }
}

std::size_t Composite::num_tensors() const {
  return context_.walks.num_tensors() + context_.streams.num_tensors();
}

}  // namespace rigel
