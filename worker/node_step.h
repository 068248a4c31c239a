#pragma once

#include "engine/contract/signals.h"
#include "engine/executing_batch.h"
#include "worker/stream_buffer.h"
#include "worker/walk_columns.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rigel {

/// A chunk that a step ahead may take along, or has taken.
struct OfferedChunk {
  RequestHandle handle;
  walk::StreamId stream{};
  StreamChunk chunk;  // the same tensors as the offer's, which the runtime takes
};

/// A lane of a node's step. The request may have ended before the step completes.
struct NodeLane {
  RequestHandle handle;
  WalkId walk{};  // in which the request stands; a row that runs again may be of an earlier one
  bool ends_streams = false;  // takes the last chunk of all streams into the node
  bool ends_row = true;       // false: a part of a row, which goes on with another step
  bool is_undone = false;     // it ran for nothing, and the node has forgotten it
};

/// A request that cannot run at all.
struct NodeFailure {
  RequestHandle handle;
  std::string message;
};

/// A step of one node of a composite model, from its schedule to its completion. Reused.
struct NodeStep {
  NodeId node{};
  std::vector<WalkId> walks;  // of its lanes, each once
  bool is_combined = false;   // its rows are of several walks
  ExecutingBatch batch;
  std::vector<NodeLane>
      lanes;  // in batch order: those that continue from the step in front, then others
  std::vector<SignalMap> outputs;  // by lane, from the launch on; values come in stream order
  std::vector<NodeLane>
      idle;  // declined the step although it ends their streams: nothing is left to compute

  /// Chunks that lanes took ahead of their turn: a lane that turns out to have run for nothing gives its own back.
  std::vector<OfferedChunk> taken;

  std::vector<std::shared_ptr<const NodeInputs>> rows;  // what lanes are cut from
  std::vector<NodeFailure> failed;                      // while the step was built

  Epoch epoch = 0;  // of the node's engine, once it was launched

  // Until the step is launched or put back.
  std::size_t num_continuing = 0;
  std::vector<SpeculationId> speculations;  // one for each walk that continues
  std::vector<RequestHandle> dropped;       // of them
  std::vector<StreamOffer> offers;
  std::vector<OfferedChunk> offered;           // beside `offers`
  std::vector<std::uint32_t> accepted_offers;  // indices

  /// A request's lane; null where it has none. Looks from lane `near` on first, and sets it to the lane found: who asks for
  /// requests in the order of the lanes goes through them once.
  [[nodiscard]] const NodeLane* find_lane(RequestHandle handle, std::size_t& near) const {
    for (std::size_t count = 0; count < lanes.size(); ++count) {
      const std::size_t lane =
          near + count < lanes.size() ? near + count : near + count - lanes.size();
      if (lanes[lane].handle == handle) {
        near = lane;
        return &lanes[lane];
      }
    }
    return nullptr;
  }

  void clear() {
    walks.clear();
    is_combined = false;
    batch.clear();
    lanes.clear();
    outputs.clear();
    idle.clear();
    taken.clear();
    rows.clear();
    failed.clear();
    epoch = 0;
    num_continuing = 0;
    dropped.clear();
    offers.clear();
    offered.clear();
    accepted_offers.clear();
  }
};

}  // namespace rigel
