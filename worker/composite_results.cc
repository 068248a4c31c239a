// From a completed step of a node to its requests: who stops, where values go, which walks are over.

#include "engine/contract/tensor_copies.h"
#include "tensor/copy.h"
#include "worker/composite.h"

#include <algorithm>
#include <utility>

namespace rigel {

void Composite::complete_step() {
  NodeStep& step = step_of(last_completed() + 1);
  NodeRunner& runner = runner_of(step.node.node);
  HostRows rows;
  try {
    rows = runner.engine().complete();
  } catch (const DeviceError&) {
    context_.table.collect(context_.steps.complete());
    throw;
  }
  context_.table.collect(context_.steps.complete());
  land(step);
  stop_loops(step, rows);
  route(step, rows);
}

/// Keeps the lanes whose values count: not those of requests that are gone, nor steps that a loop's end has overtaken.
void Composite::land(const NodeStep& step) {
  handles_.clear();
  for (const NodeLane& lane : step.lanes) {
    handles_.push_back(lane.handle);
  }
  context_.walks.land(step.node, handles_, wasted_);
  landed_.clear();
  auto wasted = wasted_.begin();
  for (std::size_t lane = 0; lane < step.lanes.size(); ++lane) {
    if (wasted != wasted_.end() && *wasted == lane) {
      ++wasted;
    } else {
      landed_.push_back(lane);
    }
  }
}

void Composite::stop_loops(const NodeStep& step, const HostRows& rows) {
  NodeRunner& runner = runner_of(step.node.node);
  views_.clear();
  for (const std::size_t lane : landed_) {
    views_.emplace_back(context_.table.find(step.lanes[lane].handle)->info,
                        step.batch.metadata()[lane]);
  }
  const std::span<const LoopStop> stops = runner.engine().check_stop(views_, rows);
  stops_.assign(stops.begin(), stops.end());
  take_failures(runner);
  std::erase_if(landed_, [&](std::size_t lane) {
    return context_.table.find(step.lanes[lane].handle) == nullptr;
  });
  const auto loop = model_.program.innermost_loop(step.node.walk, step.node.node);
  for (const std::size_t lane : landed_) {
    if (loop && step.lanes[lane].ends_streams) {
      stops_.push_back({step.lanes[lane].handle, *loop});
    }
  }
  context_.walks.stop_loops(step.node, stops_, stopped_);
}

void Composite::route(NodeStep& step, const HostRows& rows) {
  handles_.clear();
  outputs_.clear();
  values_.clear();
  for (const std::size_t lane : landed_) {
    handles_.push_back(step.lanes[lane].handle);
    outputs_.push_back(&step.outputs[lane]);
    inlined_.clear();
    runner_of(step.node.node)
        .engine()
        .append_inline_values(step.node.walk, rows, handles_.back(), inlined_);
    for (const InlineValue& inlined : inlined_) {
      values_.push_back(
          {handles_.back(),
           {model_.program.names.signals.name(inlined.signal), Tensor::copy_of(inlined.value)}});
    }
  }
  context_.walks.route({step.node, handles_, outputs_}, routed_);
  follow_routes(step.node.walk);
  for (const RequestHandle handle : handles_) {
    poll_streams(handle);
  }
}

/// Values leave the walks; requests whose walk is over go on.
void Composite::follow_routes(WalkId walk) {
  for (RouteOutput::ToStream& items : routed_.to_stream) {
    StreamBuffer* buffer = context_.streams.find(items.handle, items.stream);
    for (Tensor& item : items.tensors) {
      buffer->append(std::move(item));
    }
  }
  for (RouteOutput::ToPersist& value : routed_.to_persist) {
    row_of(value.handle).persisted.emplace_back(value.signal, std::move(value.tensors));
  }
  for (const RouteOutput::NewTokens& count : routed_.new_tokens) {
    context_.table.find(count.handle)->info.num_generated +=
        static_cast<std::int32_t>(count.num_tokens);
  }
  deliver_values();
  for (const RequestHandle handle : routed_.finished_walks) {
    finish_walk(handle, walk);
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
  const auto loop = model_.program.innermost_loop(step.node.walk, step.node.node);
  context_.walks.land(step.node, step.idle, wasted_);
  stops_.clear();
  for (const RequestHandle handle : step.idle) {
    if (loop) {
      stops_.push_back({handle, *loop});
    }
  }
  context_.walks.stop_loops(step.node, stops_, stopped_);
  values_.clear();
  context_.walks.route({step.node, step.idle, {}}, routed_);
  follow_routes(step.node.walk);
  step.idle.clear();
}

}  // namespace rigel
