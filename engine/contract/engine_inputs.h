#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/request_info.h"
#include "engine/contract/request_state.h"

#include <span>

namespace rigel {

class StepContext;
class SubmoduleStep;
class NodeInputs;
class NodeResources;
class PiecewiseRunners;

/// What a forward is given by the engine. Columns are positional: lane i of each belongs to the same request.
struct ModelInputsFromEngine {
  std::span<const RequestHandle> handles;
  std::span<const RequestInfo* const> infos;
  std::span<const InputMetadata> metadata;
  std::span<const NodeInputs* const> inputs;
  const SubmoduleStep* step =
      nullptr;  // this step's declaration; null where the submodule declares none
  const StepContext* context = nullptr;      // the stream, and what the resources planned
  const NodeResources* resources = nullptr;  // the node's, for a forward that did not bind its own
  /// The node's captured regions; null where there are none, or the forward itself is captured: it then calls what it would
  /// have them run.
  PiecewiseRunners* piecewise_runners = nullptr;
  LazyRequestStates states;  // of the lanes; empty during capture
  bool captured = false;     // during capture and for replayed steps

  /// The info of the one real request; padding does not count. Throws CheckError where there is none or more than one.
  [[nodiscard]] const RequestInfo& single_request_info() const;
  /// The info of lane 0, however many there are. Throws CheckError where there is none.
  [[nodiscard]] const RequestInfo& first_request_info() const;
};

}  // namespace rigel
