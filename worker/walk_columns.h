#pragma once

#include "engine/contract/signals.h"
#include "model/walk/program.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rigel {

// What goes into and comes out of WalkRuntime: columns that the caller keeps and the calls clear, so that a steady step
// allocates nothing.

/// A node of a walk.
struct WalkNode {
  WalkId walk{};
  NodeId node{};

  friend bool operator==(WalkNode, WalkNode) = default;
};

/// A value on its way to an input of one request. No tensors: the signal alone.
struct WalkInput {
  RequestHandle handle;
  NodeId node{};
  SignalId input{};
  TensorList tensors;
};

/// Nodes that could run now, and for which requests (by ascending row).
struct ReadyNodes {
  struct Entry {
    WalkNode node;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  std::vector<Entry> entries;
  std::vector<RequestHandle> handles;

  [[nodiscard]] std::span<const RequestHandle> handles_of(const Entry& entry) const {
    return std::span(handles).subspan(entry.begin, entry.end - entry.begin);
  }
  void clear() {
    entries.clear();
    handles.clear();
  }
};

/// A node that could run one step ahead of another.
struct SpeculationTarget {
  NodeId node{};
  bool is_new_iteration = false;
  std::optional<LoopId> loop;                    // of the new iteration
  std::span<const walk::ConsumedEdge> consumed;  // what it takes from the step in flight
};

/// A stream chunk offered to a step ahead. Its tensors are taken where the offer is accepted, and put back where the
/// speculation is undone.
struct StreamOffer {
  RequestHandle handle;
  SignalId input{};
  TensorList tensors;
};

enum class SpeculationId : std::uint32_t {};

/// The continuing rows of a step ahead, in the order of the step in flight.
struct SpeculatedRows {
  SpeculationId id{};
  std::vector<RequestHandle> handles;
  std::vector<std::uint32_t> lanes;  // of `handles`: their places in the step in flight
  std::vector<std::int32_t>
      iterations;  // of `handles`: of the target's innermost loop, at which they will run
  std::vector<std::uint32_t> accepted_offers;  // indices; the others go back to their buffers

  void resize(std::size_t num_rows) {
    handles.resize(num_rows);
    lanes.resize(num_rows);
    iterations.resize(num_rows);
  }
};

/// A loop of one request at one time: which pass, and at which iteration of each loop around it, outer first.
struct LoopTime {
  RequestHandle handle;
  LoopId loop{};
  std::uint32_t pass = 0;
  std::int32_t depth = 0;
  std::array<std::int32_t, walk::kMaxDepth> iterations{};
};

/// One step's outputs on their way out of the nodes. Lane i of `outputs` belongs to handles[i]; null (or an empty span) where
/// every value stayed on the device.
struct RouteInput {
  WalkNode node;
  std::span<const RequestHandle> handles;
  std::span<const SignalMap* const> outputs;
};

/// What leaves the walks with one step.
struct RouteOutput {
  struct ToClient {
    RequestHandle handle;
    SignalId signal{};
    walk::Modality modality{};
    TensorList tensors;
  };
  struct ToStream {
    RequestHandle handle;
    walk::StreamId stream{};
    TensorList tensors;  // items, in order
  };
  struct ToPersist {
    RequestHandle handle;
    SignalId signal{};
    TensorList tensors;
  };
  struct NewTokens {
    RequestHandle handle;
    std::int64_t num_tokens = 0;  // elements of the edges that count new tokens
  };

  // Values without tensors do not appear: who wants them reads the step's host rows.
  std::vector<ToClient> to_client;
  std::vector<ToStream> to_stream;
  std::vector<ToPersist> to_persist;
  std::vector<NewTokens> new_tokens;
  std::vector<std::pair<RequestHandle, LoopId>> ended_loops;
  std::vector<RequestHandle> finished_walks;  // requests whose pass through the walk is over

  void clear();
};

}  // namespace rigel
