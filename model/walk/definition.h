#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rigel::walk {

/// A definition that cannot run. `what()` names walk, node and edge, and says what would be right.
class DefinitionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Destinations that are no node: the client, and nowhere (the value is dropped, unless the edge persists it).
inline constexpr const char* kEmitToClient = "emit_to_client";
inline constexpr const char* kNowhere = "";

/// What a value is to the client that gets it.
enum class Modality : std::uint8_t { kNone, kText, kAudio, kImage, kVideo };

/// One output value of a node or loop and one place that it goes to. A signal with several destinations has several edges.
struct Edge {
  std::string signal{};  // the output's name
  std::string
      next_node{};  // a node of the same walk, kEmitToClient or kNowhere; of a stream: its consumer
  std::string input{};             // the input's name at next_node; empty: the signal's
  bool persist = false;            // handed to the worker, too, to outlive the walk
  bool counts_new_tokens = false;  // the elements are new tokens of the request; once a signal
  bool is_streaming = false;       // to a node of target_partition, through a Connection
  std::string target_partition{};
  Modality modality = Modality::kNone;
};

/// A place where one submodule runs. It is ready when each of its inputs is there.
struct Node {
  std::string name{};
  std::vector<std::string> inputs{};
  std::vector<Edge> outputs{};
  std::vector<std::string> streaming_inputs{};  // those inputs that come out of streams
  bool enable_async_scheduling = true;          // may be scheduled before its inputs exist
};

class Section;

/// Sections in the order of their data: an edge from an earlier to a later one carries this iteration's value, one backward
/// (or to the node itself) the next iteration's, so there must be a loop around both.
struct Sequential {
  std::vector<Section> sections{};
};

/// Sections in no order. Edges between them carry this iteration's values and must not form a cycle.
struct Parallel {
  std::vector<Section> sections{};
};

/// Repeats its sections, which follow each other as in a Sequential. Inputs that nothing inside makes are the same in each
/// iteration.
struct Loop {
  static constexpr std::int32_t kUnbounded =
      0;  // ends only by a stop, or at the request's own bound

  std::string name{};  // by which it is stopped and counted
  std::vector<Section> sections{};
  std::int32_t max_iters = kUnbounded;
  std::vector<Edge> outputs{};              // the last iteration's values leave the loop
  std::vector<Edge> accumulated_outputs{};  // the values of all iterations, one list
};

/// A node or a composition of nodes.
class Section : public std::variant<Node, Sequential, Parallel, Loop> {
 public:
  using variant::variant;
};

/// A named dataflow graph that a partition executes for one pass of one request.
struct Walk {
  std::string name{};
  Section body{};
};

/// Walks that advance as one state machine for one request. Partitions of a request run side by side.
struct PartitionDefinition {
  std::string name{};
  std::vector<std::string> walks{};
  std::string initial_walk{};
  std::vector<std::string> producer_partitions{};  // whose streams it consumes
};

// How a stream's items are cut into the chunks that its consumer takes.
/// `num_items` at a time.
struct FixedChunks {
  std::int32_t num_items = 1;
  bool continue_after_producer_done = false;  // no final chunk: empty ones for ever
};
/// Windows of `window` items, each `stride` items behind the one before.
struct SlidingWindow {
  std::int32_t window = 1;
  std::int32_t stride = 1;
};
/// `chunk` new items with up to `left` earlier ones in front.
struct LeftContext {
  std::int32_t chunk = 1;
  std::int32_t left = 0;
};
using ChunkRule = std::variant<FixedChunks, SlidingWindow, LeftContext>;

/// A stream of one signal from a node of one partition into an input of a node of another.
struct Connection {
  std::string from{};
  std::string to{};
  std::string signal{};
  ChunkRule chunks{};
};

/// Walks that may run in one step of a node, such as prompts beside decode lanes. Walks that no set of the node names run
/// apart, so that without sets every step is of one walk. The node's submodule must agree (NodeSubmodule::combines_walks).
struct CombinedWalks {
  static constexpr std::size_t kMaxWalks = 4;

  std::string node{};
  std::string label{};  // what such a step is called in place of a walk; no walk of its own
  std::vector<std::string> walks{};
};

/// All that a model says about its dataflow.
struct Definition {
  std::vector<Walk> walks{};
  std::vector<PartitionDefinition> partitions{};
  std::vector<Connection> connections{};
  std::vector<CombinedWalks> combined{};
};

}  // namespace rigel::walk
