#include "engine/preparation.h"

#include "tensor/error.h"

#include <exception>

namespace rigel {

namespace {

/// Whether a row that is the same for everybody may serve this lane: a chunk or the end of a stream is the lane's own.
bool may_be_uniform(const LaneSource& source, const InputMetadata& metadata) {
  return source.whole_row == nullptr && !source.is_final_stream_chunk &&
         metadata.stream_chunks.empty();
}

/// The row of a lane; null: its request declines the step.
std::unique_ptr<NodeInputs> prepare_lane(NodeSubmodule& submodule, const LaneSource& source,
                                         const RequestView& request) {
  const PrepareContext context{source.walk, source.signals, source.is_final_stream_chunk};
  if (source.whole_row == nullptr) {
    return submodule.prepare_inputs(context, request);
  }
  if (*source.whole_row == nullptr) {
    *source.whole_row = submodule.prepare_inputs(context, request);
  }
  return *source.whole_row == nullptr
             ? nullptr
             : submodule.split_inputs(request, **source.whole_row, source.start, source.end);
}

}  // namespace

void prepare_lanes(NodeSubmodule& submodule, ExecutingBatch& batch, RequestFailures& failures) {
  bool anybody_leaves = false;
  std::optional<WalkId> uniform_walk;  // of the walk asked last
  const NodeInputs* uniform = nullptr;
  for (std::size_t lane = 0; lane < batch.size(); ++lane) {
    const RequestHandle handle = batch.handles()[lane];
    if (failures.contains(handle)) {
      batch.clear_inputs(lane);
      anybody_leaves = true;
      continue;
    }
    if (batch.inputs()[lane] != nullptr) {
      continue;
    }
    const LaneSource& source = batch.sources()[lane];
    const InputMetadata& metadata = batch.metadata()[lane];
    if (uniform_walk != source.walk) {
      uniform_walk = source.walk;
      uniform = submodule.uniform_row_inputs(source.walk);
    }
    if (uniform != nullptr && may_be_uniform(source, metadata)) {
      batch.set_inputs(lane, *uniform);
      continue;
    }
    try {
      const RequestView request(*batch.infos()[lane], metadata);
      if (std::unique_ptr<NodeInputs> row = prepare_lane(submodule, source, request)) {
        batch.set_inputs(lane, std::move(row));
        continue;
      }
      batch.add_skipped(handle);
    } catch (const DeviceError&) {
      throw;  // concerns everybody
    } catch (const std::exception& error) {
      failures.record(handle, error.what());
    }
    anybody_leaves = true;
  }
  if (anybody_leaves) {
    batch.drop_if([&](std::size_t lane) { return batch.inputs()[lane] == nullptr; });
  }
}

}  // namespace rigel
