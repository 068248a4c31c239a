#pragma once

#include "engine/contract/submodule.h"
#include "engine/executing_batch.h"
#include "engine/request_failures.h"

namespace rigel {

/// Gives every lane that has none its row: the walk's uniform row, where there is one and the lane brings nothing of its own,
/// or what prepare_inputs makes, cut where the lane's source says so. Lanes that decline, whose hook throws or whose request
/// failed before leave the batch; the others keep their order. A DeviceError is everybody's and passes.
void prepare_lanes(NodeSubmodule& submodule, ExecutingBatch& batch, RequestFailures& failures);

/// The whole row of a request, to be cut for its steps; null where it declines or has failed.
[[nodiscard]] std::unique_ptr<NodeInputs> prepare_whole_row(NodeSubmodule& submodule,
                                                            const PrepareContext& context,
                                                            const RequestView& request,
                                                            RequestFailures& failures);
/// The row of what a request has sampled, to be run again; null where it has failed.
[[nodiscard]] std::unique_ptr<NodeInputs> prepare_replayed_row(ArNodeSubmodule& submodule,
                                                               const RequestView& request,
                                                               const Tensor& tokens,
                                                               RequestFailures& failures);

}  // namespace rigel
