#pragma once

#include "engine/contract/signals.h"
#include "engine/executing_batch.h"
#include "worker/stream_buffer.h"
#include "worker/walk_columns.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace rigel {

/// A chunk that a step ahead may take along, as long as the step is not settled.
struct OfferedChunk {
  walk::StreamId stream{};
  StreamChunkInfo info;
  TensorList tensors;  // the same as the offer's, which the runtime takes
};

/// A lane of a node's step. The request may have ended before the step completes.
struct NodeLane {
  RequestHandle handle;
  bool ends_streams = false;  // takes the last chunk of all streams into the node
};

/// A step of one node of a composite model, from its schedule to its completion. Reused.
struct NodeStep {
  WalkNode node;
  ExecutingBatch batch;
  std::vector<NodeLane>
      lanes;  // in batch order: those that continue from the step in front, then others
  std::vector<SignalMap> outputs;  // by lane, from the launch on; values come in stream order
  std::vector<RequestHandle>
      idle;  // declined the step although it ends their streams: nothing is left to compute

  // Until the step is launched or put back.
  std::size_t num_continuing = 0;
  std::optional<SpeculationId> speculation;
  std::vector<RequestHandle> dropped;  // of the speculation
  std::vector<StreamOffer> offers;
  std::vector<OfferedChunk> offered;  // beside `offers`

  void clear() {
    batch.clear();
    lanes.clear();
    outputs.clear();
    idle.clear();
    num_continuing = 0;
    dropped.clear();
    offers.clear();
    offered.clear();
  }
};

}  // namespace rigel
