#include "engine/preparation.h"

#include "tensor/error.h"

#include <exception>

namespace rigel {

namespace {

/// Whether a row that is the same for everybody may serve this lane: a chunk or the end of a stream is the lane's own.
bool may_be_uniform(const LaneSource& source, const InputMetadata& metadata) {
  return source.whole_row == nullptr && source.prepared_row == nullptr &&
         !source.is_final_stream_chunk && metadata.stream_chunks.empty();
}

/// Whether the lane runs all of a row that was prepared: nothing needs to be cut, which not every row could be.
bool is_uncut(const LaneSource& source) {
  return source.prepared_row != nullptr && source.start == 0 &&
         source.end == source.prepared_row->input_seq_len;
}

/// The row of a lane; null: its request declines the step.
std::unique_ptr<NodeInputs> prepare_lane(NodeSubmodule& submodule, const LaneSource& source,
                                         const RequestView& request) {
  if (source.prepared_row != nullptr) {
    return submodule.split_inputs(request, *source.prepared_row, source.start, source.end);
  }
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

/// What `make` makes; null where the request has failed, now or before.
template <class Make>
std::unique_ptr<NodeInputs> prepare_guarded(const RequestView& request, RequestFailures& failures,
                                            const Make& make) {
  if (failures.contains(request.info().handle)) {
    return nullptr;
  }
  try {
    return make();
  } catch (const DeviceError&) {
    throw;  // concerns everybody
  } catch (const std::exception& error) {
    failures.record(request.info().handle, error.what());
    return nullptr;
  }
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
    if (is_uncut(source)) {
      batch.set_inputs(lane, *source.prepared_row);
      continue;
    }
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

std::unique_ptr<NodeInputs> prepare_whole_row(NodeSubmodule& submodule,
                                              const PrepareContext& context,
                                              const RequestView& request,
                                              RequestFailures& failures) {
  return prepare_guarded(request, failures,
                         [&] { return submodule.prepare_inputs(context, request); });
}

std::unique_ptr<NodeInputs> prepare_replayed_row(ArNodeSubmodule& submodule,
                                                 const RequestView& request, const Tensor& tokens,
                                                 RequestFailures& failures) {
  return prepare_guarded(request, failures,
                         [&] { return submodule.replay_inputs(request, tokens); });
}

}  // namespace rigel
