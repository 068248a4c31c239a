#pragma once

#include "kernels/stop.h"
#include "tensor/graph.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>

// Several turns of a step in one launch: between two of them the device does what the host does between two steps.

namespace rigel::kernels {

/// What the host has staged once for all turns.
struct TurnColumns {
  std::span<const DeviceView>
      counting;     // (S) i32 each, at most kMaxCountingColumns: what grows by one a turn, by lane
  DeviceView step;  // (1) i64: the number of the turn's results, see ResultPlace
  ConstDeviceView last_step;  // (1) i64: of the last turn that there may be
};

/// The end of a turn, behind its stop_copy: counting columns of lanes with a row, and the step's number, go one up. The loop
/// that this is captured in goes on unless that was the last turn, or the host must see a lane: it has stopped, its sample has
/// failed, or it has more stop ids than the device knows.
///   test: that of the stop_copy, one lane for each element of a counting column
/// Stream-ordered; for the loop of a capture alone. Cost: one launch of one block; 72 + 4 c bytes read and 4 c written a lane.
void end_turn(StreamRef stream, const TurnColumns& columns, const StopTest& test,
              LoopCondition condition);

}  // namespace rigel::kernels
