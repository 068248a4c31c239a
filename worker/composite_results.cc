// From a completed step of a node to its requests: who stops, where values go, which walks are over.

#include "engine/contract/tensor_copies.h"
#include "tensor/copy.h"
#include "tensor/error.h"
#include "worker/composite.h"

#include <algorithm>
#include <utility>

namespace rigel {

void Composite::complete_step() {
  NodeStep& step = step_of(last_completed() + 1);
  NodeRunner& runner = runner_of(step.node);
  const Epoch epoch = last_completed() + 1;
  const auto end = [&] {
    if (last_completed() < epoch) {
      context_.table.collect(context_.steps.complete());
    }
  };
  try {
    const HostRows rows = runner.engine().complete();
    end();
    land(step);
    stop_loops(step, rows);
    route(step, rows);
  } catch (const DeviceError&) {
    end();
    throw;
  } catch (const std::exception& error) {
    end();
    for (const NodeLane& lane : step.lanes) {
      fail(lane.handle, error.what());
    }
  }
  step.taken.clear();
  step.rows.clear();
}

/// Keeps the lanes whose values count: not those of requests that are gone, nor steps that a loop's end has overtaken, nor parts
/// of rows that have more.
void Composite::land(const NodeStep& step) {
  landed_.clear();
  for (const WalkId walk : step.walks) {
    land_walk(step, walk);
  }
  if (step.walks.size() > 1) {
    std::ranges::sort(landed_);
  }
}

void Composite::land_walk(const NodeStep& step, WalkId walk) {
  handles_.clear();
  landing_.clear();
  for (std::size_t lane = 0; lane < step.lanes.size(); ++lane) {
    if (step.lanes[lane].walk == walk && step.lanes[lane].ends_row) {
      handles_.push_back(step.lanes[lane].handle);
      landing_.push_back(lane);
    }
  }
  context_.walks.land({walk, step.node}, handles_, wasted_);
  auto wasted = wasted_.begin();
  for (std::size_t index = 0; index < landing_.size(); ++index) {
    if (wasted != wasted_.end() && *wasted == index) {
      ++wasted;
      num_wasted_rows_ += context_.table.find(handles_[index]) != nullptr ? 1 : 0;
    } else {
      landed_.push_back(landing_[index]);
    }
  }
}

void Composite::stop_loops(const NodeStep& step, const HostRows& rows) {
  NodeRunner& runner = runner_of(step.node);
  views_.clear();
  for (const std::size_t lane : landed_) {
    views_.emplace_back(runner.info_of(step.lanes[lane].handle), step.batch.metadata()[lane]);
  }
  const std::span<const LoopStop> stops = runner.engine().check_stop(views_, rows);
  stops_.assign(stops.begin(), stops.end());
  take_failures(runner);
  std::erase_if(landed_, [&](std::size_t lane) {
    return context_.table.find(step.lanes[lane].handle) == nullptr;
  });
  for (const std::size_t lane : landed_) {
    const NodeLane& ending = step.lanes[lane];
    const auto loop = model_.program.innermost_loop(ending.walk, step.node);
    if (loop && ending.ends_streams) {
      stops_.push_back({ending.handle, *loop});
    }
  }
  if (!stops_.empty()) {
    for (const WalkId walk : step.walks) {
      end_loops(step, walk);
    }
  }
}

/// Of the stops those whose lanes are of this walk; a loop that the walk does not have ends before it begins.
void Composite::end_loops(const NodeStep& step, WalkId walk) {
  walk_stops_.clear();
  const walk::CompiledWalk& compiled = model_.program.walk(walk);
  std::size_t near = 0;
  for (const LoopStop& stop : stops_) {
    const NodeLane* const lane = step.find_lane(stop.handle, near);
    if (lane == nullptr || lane->walk != walk) {
      continue;
    }
    walk_stops_.push_back(stop);
    std::vector<LoopId>& ended = row_of(stop.handle).ended_loops;
    if (!compiled.find(stop.loop) && std::ranges::find(ended, stop.loop) == ended.end()) {
      ended.push_back(stop.loop);
    }
  }
  context_.walks.stop_loops({walk, step.node}, walk_stops_, stopped_);
}

void Composite::route(NodeStep& step, const HostRows& rows) {
  for (const WalkId walk : step.walks) {
    route_walk(step, walk, rows);
  }
}

void Composite::route_walk(NodeStep& step, WalkId walk, const HostRows& rows) {
  const WalkNode node{walk, step.node};
  handles_.clear();
  outputs_.clear();
  values_.clear();
  for (const std::size_t lane : landed_) {
    if (step.lanes[lane].walk == walk) {
      handles_.push_back(step.lanes[lane].handle);
      outputs_.push_back(&step.outputs[lane]);
      append_inline_values(step, rows, lane);
    }
  }
  context_.walks.route({node, handles_, outputs_}, routed_);
  // What goes to the client by value does not go there as a tensor, too.
  const auto inlined = runner_of(step.node).engine().submodule().inline_client_signals(walk);
  std::erase_if(routed_.to_client, [&](const RouteOutput::ToClient& value) {
    return std::ranges::find(inlined, value.signal, &InlineSignal::signal) != inlined.end();
  });
  follow_routes(node);
  for (const RequestHandle handle : handles_) {
    poll_streams(handle);
  }
}

void Composite::append_inline_values(const NodeStep& step, const HostRows& rows, std::size_t lane) {
  const auto [handle, walk] = std::pair(step.lanes[lane].handle, step.lanes[lane].walk);
  NodeRunner& runner = runner_of(step.node);
  inlined_.clear();
  runner.engine().append_inline_values(walk, rows, handle, lane, inlined_);
  for (const InlineValue& inlined : inlined_) {
    if (counts_new_tokens({walk, step.node}, inlined.signal)) {
      runner.add_sampled(handle, inlined.value.span<const std::int32_t>());
    }
    values_.push_back(
        {handle,
         {model_.program.names.signals.name(inlined.signal), Tensor::copy_of(inlined.value)}});
  }
}

bool Composite::counts_new_tokens(WalkNode node, SignalId signal) const {
  const walk::CompiledWalk& walk = model_.program.walk(node.walk);
  const walk::Range outputs = walk.nodes[*walk.find(node.node)].outputs;
  return std::any_of(walk.outputs.begin() + outputs.begin, walk.outputs.begin() + outputs.end,
                     [signal](const walk::Output& output) {
                       return output.signal == signal && output.counts_new_tokens;
                     });
}

/// Values leave the walks; requests whose walk is over go on.
void Composite::follow_routes(WalkNode node) {
  undo_overtaken(node.walk);
  for (RouteOutput::ToStream& items : routed_.to_stream) {
    StreamBuffer* buffer = context_.streams.find(items.handle, items.stream);
    for (Tensor& item : items.tensors) {
      buffer->append(std::move(item));
    }
  }
  for (RouteOutput::ToPersist& value : routed_.to_persist) {
    row_of(value.handle).persisted.emplace_back(value.signal, std::move(value.tensors));
  }
  NodeRunner& runner = runner_of(node.node);
  if (runner.engine()
          .submodule()
          .inline_client_signals(node.walk)
          .empty()) {  // else they are counted
    for (const RouteOutput::NewTokens& count : routed_.new_tokens) {
      runner.info_of(count.handle).num_generated += static_cast<std::int32_t>(count.num_tokens);
    }
  }
  deliver_values();
  for (const RequestHandle handle : routed_.finished_walks) {
    finish_walk(handle, node.walk);
  }
}

/// Where a loop has ended, steps of it in flight run ahead of its end, for nothing; what they took of streams is for whoever
/// consumes them next, what they added to caches is in the way of the next walk, and that may be now.
void Composite::undo_overtaken(WalkId walk) {
  const walk::CompiledWalk& compiled = model_.program.walk(walk);
  for (const auto& [handle, loop] : routed_.ended_loops) {
    const walk::Range inside = compiled.scopes[*compiled.find(loop)].nodes;
    for (Epoch epoch = last_completed() + 1; epoch <= last_launched(); ++epoch) {
      NodeStep& flying = step_of(epoch);
      const auto node = compiled.find(flying.node);
      if (node && *node >= inside.begin && *node < inside.end) {
        runner_of(flying.node).undo_lane(flying, walk, handle);
      }
    }
  }
}

void Composite::deliver_values() {
  for (RouteOutput::ToClient& value : routed_.to_client) {
    for (const Tensor& tensor : value.tensors) {
      values_.push_back(
          {value.handle, {model_.program.names.signals.name(value.signal), to_host(tensor)}});
    }
  }
  if (values_.empty()) {
    return;
  }
  // The values are there: the step has completed, and only the copies themselves are waited for.
  copies_.synchronize();
  for (auto& [handle, value] : values_) {
    listener_.on_value(handle, std::move(value));
  }
  values_.clear();
}

/// The tensor where clients can read it, once `copies_` is done.
Tensor Composite::to_host(const Tensor& tensor) {
  if (tensor.space() == Space::kHost) {
    return tensor;
  }
  const Tensor whole = tensor.is_contiguous() ? tensor : clone_of(tensor, copies_, allocator_);
  Tensor host = pinned_.allocate(whole.dtype(), whole.shape());
  copy(copies_, host.host_view(), whole.device_view());
  whole.used_on(copies_);
  return host;
}

/// Requests that had nothing left to compute at the end of their streams: the node has run, without a step.
void Composite::run_idle(NodeStep& step) {
  if (step.idle.empty()) {
    return;
  }
  ++num_changes_;
  for (const NodeLane& idle : std::exchange(step.idle, {})) {
    try {
      route_idle({idle.walk, step.node}, idle.handle);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception& error) {
      fail(idle.handle, error.what());
    }
  }
}

void Composite::route_idle(WalkNode node, RequestHandle idle) {
  const std::span<const RequestHandle> only(&idle, 1);
  const auto loop = model_.program.innermost_loop(node.walk, node.node);
  context_.walks.land(node, only, wasted_);
  stops_.clear();
  if (loop) {
    stops_.push_back({idle, *loop});
  }
  context_.walks.stop_loops(node, stops_, stopped_);
  values_.clear();
  context_.walks.route({node, only, {}}, routed_);
  follow_routes(node);
}

}  // namespace rigel
