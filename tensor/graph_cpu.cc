#include "tensor/cpu_state.h"
#include "tensor/graph.h"

#include <memory>
#include <utility>

namespace rigel {

namespace {

std::vector<std::string> names_in(const simt::CommandGraph& graph) {
  std::vector<std::string> names;
  for (const auto* nodes : {&graph.nodes, &graph.loop}) {
    for (const simt::GraphNode& node : *nodes) {
      if (node.command.run != nullptr) {
        names.emplace_back(node.command.name);
      }
    }
  }
  return names;
}

/// Ends the capture on the stream into `graph`. False: it goes on, because another thread began it.
bool end_capture(StreamRef stream, simt::CommandGraph& graph, simt::DeviceFault& fault) {
  const detail::StreamState& on = stream.state();
  fault = on.virtual_device->end_capture(*on.queue, &graph);
  return fault.code != simt::FaultCode::kStreamCaptureWrongThread;
}

}  // namespace

Graph::Graph(std::unique_ptr<detail::GraphState> state) : state_(std::move(state)) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

int Graph::num_nodes() const {
  return static_cast<int>(node_names().size());
}

std::vector<std::string> Graph::node_names() const {
  return names_in(state_->graph);
}

GraphCapture::GraphCapture(StreamRef stream) : stream_(stream) {
  const detail::StreamState& on = stream.state();
  detail::check(on.virtual_device->begin_capture(*on.queue));
}

GraphCapture::~GraphCapture() {
  if (open_) {
    simt::CommandGraph dropped;
    const detail::StreamState& on = stream_.state();
    static_cast<void>(on.virtual_device->end_capture(*on.queue, &dropped));
  }
}

LoopCondition GraphCapture::begin_loop() {
  RIGEL_CHECK(open_ && head_ == nullptr, "a capture has one loop, got a second call of {}",
              "begin_loop");
  const detail::StreamState& on = stream_.state();
  auto head = std::make_unique<detail::GraphState>(on.virtual_device, simt::CommandGraph());
  simt::DeviceFault fault;
  open_ = !end_capture(stream_, head->graph, fault);
  detail::check(fault);
  detail::check(on.virtual_device->begin_capture(*on.queue));
  open_ = true;
  head->graph.condition = std::make_unique<std::uint32_t>(0);
  head_ = std::move(head);
  return {head_->graph.condition.get()};
}

Graph GraphCapture::end() {
  RIGEL_CHECK(open_, "a capture ends only once, got a second call of {}", "end");
  auto state =
      std::make_unique<detail::GraphState>(stream_.state().virtual_device, simt::CommandGraph());
  simt::DeviceFault fault;
  open_ = !end_capture(stream_, state->graph, fault);
  detail::check(fault);
  if (head_ != nullptr) {
    head_->graph.loop = std::move(state->graph.nodes);
    state = std::move(head_);
  }
  return Graph(std::move(state));
}

GraphExec::GraphExec(Graph graph) {
  detail::GraphState& captured = graph.state();
  std::vector<std::string> names = names_in(captured.graph);
  state_ = std::make_unique<detail::GraphExecState>(detail::GraphExecState{
      captured.device, simt::GraphProgram(std::move(captured.graph), *captured.device),
      std::move(names)});
}

GraphExec::~GraphExec() {
  if (state_ != nullptr) {
    state_->device->wait_quietly(state_->program.last_launch());
  }
}

GraphExec::GraphExec(GraphExec&&) noexcept = default;

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  GraphExec moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

void GraphExec::launch(StreamRef stream) {
  const detail::StreamState& on = stream.state();
  detail::check(on.virtual_device->launch(*on.queue, state_->program));
}

bool GraphExec::update(Graph graph) {
  std::vector<std::string> names = names_in(graph.state().graph);
  if (!state_->program.update(std::move(graph.state().graph)).ok()) {
    return false;
  }
  state_->node_names = std::move(names);
  return true;
}

int GraphExec::num_nodes() const {
  return state_->program.num_commands();
}

const std::vector<std::string>& GraphExec::node_names() const {
  return state_->node_names;
}

std::int64_t GraphExec::num_bytes() const {
  return state_->program.num_bytes();
}

}  // namespace rigel
