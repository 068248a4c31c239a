#pragma once

#include <span>

#include "engine/contract/ids.h"
#include "engine/contract/request_info.h"

namespace rigel {

class StepContext;
class SubmoduleStep;
class NodeInputs;

/// What a forward is given by the engine. Columns are positional: lane i of each belongs to the same request.
struct ModelInputsFromEngine {
  std::span<const RequestHandle> handles;
  std::span<const RequestInfo* const> infos;
  std::span<const InputMetadata> metadata;
  std::span<const NodeInputs* const> inputs;
  const SubmoduleStep* step = nullptr;      // this step's declaration; null where the submodule declares none
  const StepContext* context = nullptr;     // the stream, and what the resources planned
  bool captured = false;  // during capture and for replayed steps
};

}  // namespace rigel
