#include "tensor/cuda_state.h"
#include "tensor/graph.h"

#include <utility>

namespace rigel {
namespace {

std::string name_of_node(cudaGraphNode_t node, cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel: {
      cudaKernelNodeParams parameters{};
      const char* name = nullptr;
      if (cudaGraphKernelNodeGetParams(node, &parameters) != cudaSuccess ||
          cudaFuncGetName(&name, parameters.func) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // a library's kernel: its name is not told
        return "kernel";
      }
      return name;
    }
    case cudaGraphNodeTypeMemcpy:
      return "copy";
    case cudaGraphNodeTypeMemset:
      return "fill";
    case cudaGraphNodeTypeHost:
      return "host function";
    default:
      return "node";
  }
}

std::vector<std::string> names_in(cudaGraph_t graph) {
  std::size_t num_nodes = 0;
  RIGEL_CUDA(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  if (num_nodes > 0) {
    RIGEL_CUDA(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
  }
  std::vector<std::string> names;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    RIGEL_CUDA(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeEmpty && type != cudaGraphNodeTypeConditional) {
      names.push_back(name_of_node(node, type));
    }
  }
  return names;
}

/// Adds a WHILE node behind everything in `graph`. Returns its body, which the graph owns.
cudaGraph_t add_loop(cudaGraph_t graph, LoopCondition& condition) {
  std::size_t num_nodes = 0;
  RIGEL_CUDA(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> last(num_nodes);
  if (num_nodes > 0) {
    RIGEL_CUDA(cudaGraphGetNodes(graph, last.data(), &num_nodes));
  }
  RIGEL_CUDA(
      cudaGraphConditionalHandleCreate(&condition.handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop{};
  loop.type = cudaGraphNodeTypeConditional;
  loop.conditional.handle = condition.handle;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  RIGEL_CUDA(cudaGraphAddNode(&node, graph, last.data(), nullptr, last.size(), &loop));
  return loop.conditional.phGraph_out[0];
}

}  // namespace

Graph::Graph(std::unique_ptr<detail::GraphState> state) : state_(std::move(state)) {}

Graph::~Graph() {
  if (state_ != nullptr) {
    static_cast<void>(cudaGraphDestroy(state_->graph));
  }
}

Graph::Graph(Graph&&) noexcept = default;

Graph& Graph::operator=(Graph&& other) noexcept {
  Graph moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

int Graph::num_nodes() const {
  return static_cast<int>(node_names().size());
}

std::vector<std::string> Graph::node_names() const {
  std::vector<std::string> names = names_in(state_->graph);
  if (state_->loop != nullptr) {
    const std::vector<std::string> repeated = names_in(state_->loop);
    names.insert(names.end(), repeated.begin(), repeated.end());
  }
  return names;
}

GraphCapture::GraphCapture(StreamRef stream) : stream_(stream) {
  RIGEL_CUDA(cudaStreamBeginCapture(stream.state().stream, cudaStreamCaptureModeThreadLocal));
}

GraphCapture::~GraphCapture() {
  if (open_) {
    cudaGraph_t dropped = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream_.state().stream, &dropped));
    // The body of a loop belongs to the graph that the loop is in.
    if (dropped != nullptr && head_ == nullptr) {
      static_cast<void>(cudaGraphDestroy(dropped));
    }
    static_cast<void>(cudaGetLastError());
  }
  if (head_ != nullptr) {
    static_cast<void>(cudaGraphDestroy(head_->graph));
  }
}

/// Ends the capture here and goes on with another, into the body of the loop.
LoopCondition GraphCapture::begin_loop() {
  RIGEL_CHECK(open_ && head_ == nullptr, "a capture has one loop, got a second call of {}",
              "begin_loop");
  head_ = std::make_unique<detail::GraphState>();
  const cudaStream_t stream = stream_.state().stream;
  const cudaError_t error = cudaStreamEndCapture(stream, &head_->graph);
  open_ = error == cudaErrorStreamCaptureWrongThread;
  if (error != cudaSuccess) {
    head_.reset();
  }
  RIGEL_CUDA(error);
  LoopCondition condition;
  head_->loop = add_loop(head_->graph, condition);
  RIGEL_CUDA(cudaStreamBeginCaptureToGraph(stream, head_->loop, nullptr, nullptr, 0,
                                           cudaStreamCaptureModeThreadLocal));
  open_ = true;
  return condition;
}

Graph GraphCapture::end() {
  RIGEL_CHECK(open_, "a capture ends only once, got a second call of {}", "end");
  auto state = std::make_unique<detail::GraphState>();
  const cudaError_t error = cudaStreamEndCapture(stream_.state().stream, &state->graph);
  open_ = error == cudaErrorStreamCaptureWrongThread;
  RIGEL_CUDA(error);
  return Graph(head_ != nullptr ? std::move(head_) : std::move(state));
}

GraphExec::GraphExec(Graph graph) : state_(std::make_unique<detail::GraphExecState>()) {
  state_->node_names = graph.node_names();
  const std::size_t before = detail::memory_info().free_bytes;
  RIGEL_CUDA(cudaGraphInstantiate(&state_->exec, graph.state().graph, 0));
  const std::size_t after = detail::memory_info().free_bytes;
  state_->num_bytes = before > after ? static_cast<std::int64_t>(before - after) : 0;
}

GraphExec::~GraphExec() {
  // CUDA itself defers the destruction until pending launches are done.
  if (state_ != nullptr && state_->exec != nullptr) {
    static_cast<void>(cudaGraphExecDestroy(state_->exec));
  }
}

GraphExec::GraphExec(GraphExec&&) noexcept = default;

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  GraphExec moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

void GraphExec::launch(StreamRef stream) {
  RIGEL_CUDA(cudaGraphLaunch(state_->exec, stream.state().stream));
}

bool GraphExec::update(Graph graph) {
  cudaGraphExecUpdateResultInfo result{};
  const cudaError_t error = cudaGraphExecUpdate(state_->exec, graph.state().graph, &result);
  if (error == cudaErrorGraphExecUpdateFailure) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  RIGEL_CUDA(error);
  state_->node_names = graph.node_names();
  return true;
}

int GraphExec::num_nodes() const {
  return static_cast<int>(state_->node_names.size());
}

const std::vector<std::string>& GraphExec::node_names() const {
  return state_->node_names;
}

std::int64_t GraphExec::num_bytes() const {
  return state_->num_bytes;
}

}  // namespace rigel
