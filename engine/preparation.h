#pragma once

#include "engine/contract/submodule.h"
#include "engine/executing_batch.h"
#include "engine/request_failures.h"

namespace rigel {

/// Gives every lane that has none its row: the walk's uniform row, where there is one and the lane brings nothing of its own,
/// or what prepare_inputs makes, cut where the lane's source says so. Lanes that decline, whose hook throws or whose request
/// failed before leave the batch; the others keep their order. A DeviceError is everybody's and passes.
void prepare_lanes(NodeSubmodule& submodule, ExecutingBatch& batch, RequestFailures& failures);

}  // namespace rigel
