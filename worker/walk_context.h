#pragma once

#include "engine/lifetime.h"
#include "model/walk/program.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"
#include "worker/request_table.h"
#include "worker/stream_buffer_table.h"
#include "worker/walk_runtime.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// Where the requests of a composite model stand, shared by the runners of its nodes. Thread: worker.
struct WalkContext {
  WalkContext(const walk::Program& model, RequestTable& requests, StreamRef shared,
              TensorAllocator& tensors, std::uint64_t max_in_flight)
      : program(model),
        table(requests),
        walks(model, requests.num_rows()),
        streams(model, requests.num_rows()),
        stream(shared),
        allocator(tensors),
        steps(max_in_flight),
        current_chunks(static_cast<std::size_t>(requests.num_rows()) * model.streams.size()) {}

  /// Of the chunk that waits at a node for its next step.
  [[nodiscard]] StreamChunkInfo& current_chunk(RequestHandle handle, walk::StreamId id) {
    return current_chunks[static_cast<std::size_t>(handle.row) * program.streams.size() +
                          static_cast<std::size_t>(id)];
  }

  const walk::Program& program;
  RequestTable& table;
  WalkRuntime walks;
  StreamBufferTable streams;
  StreamRef stream;
  TensorAllocator& allocator;
  lifetime::Steps<> steps;  // of all nodes
  std::vector<StreamChunkInfo> current_chunks;
};

}  // namespace rigel
