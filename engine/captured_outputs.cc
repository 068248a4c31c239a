#include "engine/captured_outputs.h"

#include "engine/step.h"
#include "tensor/error.h"

#include <algorithm>
#include <ranges>

namespace rigel {

namespace {

/// Lane i of a capture is padding of row -1 - i.
std::int32_t lane_of_padding(RequestHandle handle) {
  return -1 - handle.row;
}

void check_place(const Tensor& tensor) {
  RIGEL_CHECK(tensor.space() == Space::kDevice,
              "a captured forward gives a tensor of shape {} on the host, which no replay writes",
              to_string(tensor.shape()));
}

SignalMap clone_of(const SignalMap& signals, StreamRef stream, TensorAllocator& allocator) {
  SignalMap clones;
  for (const auto& [signal, tensors] : signals) {
    TensorList& list = clones[signal];
    list.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
      list.push_back(tensor.clone(stream, allocator));
    }
  }
  return clones;
}

}  // namespace

void CapturedOutputs::take(std::int32_t slot, const ModelInputsFromEngine& inputs,
                           const BatchedModelOutput& outputs) {
  const std::size_t num_lanes = inputs.handles.size();
  RIGEL_CHECK(outputs.stop_rows() == StopRows::kNone,
              "a captured forward of {} lanes gives stop buffers; its stop check reads row outputs",
              num_lanes);
  RIGEL_CHECK(inputs.step == nullptr || inputs.step->row_handles.empty() ||
                  std::ranges::equal(inputs.step->row_handles, outputs.row_handles()),
              "a captured forward of {} lanes gives {} rows, its step declares {}", num_lanes,
              outputs.row_handles().size(), inputs.step->row_handles.size());
  take_rows(slot, outputs);
  slots_.resize(static_cast<std::size_t>(slot) + 1);
  Slot& own = slots_.back();
  own.requests.clear();
  for (const auto& [handle, signals] : outputs.requests()) {
    for (const auto& [signal, tensors] : signals) {
      std::ranges::for_each(tensors, check_place);
    }
    own.requests.emplace_back(lane_of_padding(handle), signals);
  }
  for (const auto& [name, tensor] : outputs.packed()) {
    check_place(tensor);
  }
  own.packed = outputs.packed();
}

/// A step that says whose its rows are has as many in every step.
void CapturedOutputs::take_rows(std::int32_t slot, const BatchedModelOutput& outputs) {
  std::vector<std::int32_t> lanes;
  for (const RequestHandle handle : outputs.row_handles()) {
    lanes.push_back(lane_of_padding(handle));
  }
  RIGEL_CHECK(std::ranges::is_sorted(lanes),
              "the {} rows of a captured forward are not in the order of its lanes", lanes.size());
  if (slot == 0) {
    rows_.assign(outputs.row_outputs().begin(), outputs.row_outputs().end());
    if (const StopLanes* const stop_lanes = outputs.stop_lanes()) {
      stop_lanes_ = *stop_lanes;
    }
    row_lanes_ = std::move(lanes);
    const auto num_rows = static_cast<std::int32_t>(row_lanes_.size());
    has_row_of_each_lane_ = std::ranges::equal(row_lanes_, std::views::iota(0, num_rows));
    return;
  }
  const bool same_places =
      std::ranges::equal(rows_, outputs.row_outputs(), {}, &BatchedModelOutput::RowOutput::place,
                         &BatchedModelOutput::RowOutput::place);
  RIGEL_CHECK(row_lanes_ == lanes && same_places,
              "slot {} was captured with {} rows that are not those of slot 0, which are {}", slot,
              lanes.size(), row_lanes_.size());
}

void CapturedOutputs::give(std::int32_t slot, const ModelInputsFromEngine& inputs, StreamRef stream,
                           TensorAllocator& allocator, BatchedModelOutput& outputs) const {
  give_rows(give_row_handles(inputs, outputs), outputs);
  const Slot& own = slots_[static_cast<std::size_t>(slot)];
  for (const auto& [lane, signals] : own.requests) {
    const RequestHandle handle = inputs.handles[static_cast<std::size_t>(lane)];
    if (!handle.is_padding()) {
      outputs.requests()[handle] = clone_of(signals, stream, allocator);
    }
  }
  for (const auto& [name, tensor] : own.packed) {
    outputs.set_packed(name, tensor.clone(stream, allocator));
  }
}

/// What belongs to padding stands at the end and never leaves the device. Returns how many rows are real.
std::int64_t CapturedOutputs::give_row_handles(const ModelInputsFromEngine& inputs,
                                               BatchedModelOutput& outputs) const {
  std::span<const RequestHandle> rows =
      inputs.step == nullptr ? std::span<const RequestHandle>() : inputs.step->row_handles;
  if (rows.empty() && has_row_of_each_lane_) {
    rows = inputs.handles;
  }
  if (!rows.empty()) {
    rows = rows.first(row_lanes_.size());
    const auto padding = std::ranges::partition_point(
        rows, [](RequestHandle handle) { return !handle.is_padding(); });
    outputs.set_row_handles({rows.begin(), padding});
    return padding - rows.begin();
  }
  std::int64_t num_rows = 0;
  for (std::size_t row = 0; row < row_lanes_.size(); ++row) {
    const RequestHandle handle = inputs.handles[static_cast<std::size_t>(row_lanes_[row])];
    if (handle.is_padding()) {
      break;
    }
    outputs.push_row_handle(handle);
    ++num_rows;
  }
  return num_rows;
}

void CapturedOutputs::give_rows(std::int64_t num_rows, BatchedModelOutput& outputs) const {
  const auto all_rows = static_cast<std::int64_t>(row_lanes_.size());
  if (num_rows == 0 && all_rows > 0) {
    return;  // a step of parts of prompts, none of which ends
  }
  for (const BatchedModelOutput::RowOutput& output : rows_) {
    const bool is_by_row = output.rows.rank() > 0 && output.rows.dim(0) == all_rows;
    outputs.add_rows(output.signal, is_by_row ? output.rows.slice(0, 0, num_rows) : output.rows,
                     output.place);
  }
  if (stop_lanes_) {
    StopLanes lanes = *stop_lanes_;
    lanes.test.rows = lanes.test.rows.slice(0, 0, num_rows);
    lanes.test.tokens = lanes.test.tokens.slice(0, 0, num_rows);
    outputs.set_stop_lanes(lanes);
  }
}

}  // namespace rigel
