#include "engine/contract/batched_output.h"

#include "engine/contract/tensor_copies.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

std::int32_t RequestOutputs::position_of(RequestHandle handle) const {
  const std::size_t slot = slot_of(handle);
  const std::int32_t position = slot < positions_.size() ? positions_[slot] : -1;
  return position >= 0 && entries_[static_cast<std::size_t>(position)].first == handle ? position
                                                                                       : -1;
}

SignalMap& RequestOutputs::operator[](RequestHandle handle) {
  if (SignalMap* known = find(handle)) {
    return *known;
  }
  const std::size_t slot = slot_of(handle);
  if (slot >= positions_.size()) {
    positions_.resize(slot + 1, -1);
  }
  RIGEL_CHECK(positions_[slot] < 0, "row {} has outputs of another request", handle.row);
  positions_[slot] = static_cast<std::int32_t>(entries_.size());
  return entries_.emplace_back(handle, SignalMap{}).second;
}

bool RequestOutputs::erase(RequestHandle handle) {
  const std::int32_t position = position_of(handle);
  if (position < 0) {
    return false;
  }
  positions_[slot_of(handle)] = -1;
  entries_.erase(entries_.begin() + position);
  for (auto index = static_cast<std::size_t>(position); index < entries_.size(); ++index) {
    positions_[slot_of(entries_[index].first)] = static_cast<std::int32_t>(index);
  }
  return true;
}

void RequestOutputs::clear() {
  for (const Entry& entry : entries_) {
    positions_[slot_of(entry.first)] = -1;
  }
  entries_.clear();
}

namespace {

SignalMap clone_signals(const SignalMap& signals, StreamRef stream, TensorAllocator& allocator) {
  SignalMap copies;
  for (const auto& [signal, tensors] : signals) {
    TensorList& list = copies[signal];
    for (const Tensor& tensor : tensors) {
      list.push_back(clone_of(tensor, stream, allocator));
    }
  }
  return copies;
}

}  // namespace

bool BatchedModelOutput::is_packed_name(std::string_view name) {
  return name.size() >= 5 && name.starts_with("__") && name.ends_with("__");
}

void BatchedModelOutput::set_packed(std::string name, Tensor tensor) {
  RIGEL_CHECK(is_packed_name(name), "a packed output is called __name__, got '{}'", name);
  for (auto& [known, value] : packed_) {
    if (known == name) {
      value = std::move(tensor);
      return;
    }
  }
  packed_.emplace_back(std::move(name), std::move(tensor));
}

void BatchedModelOutput::set_stop_buffers(StopBuffers buffers) {
  RIGEL_CHECK(stop_rows_ != StopRows::kConflict, "joined outputs have no rows to stop by, got {}",
              buffers.size());
  stop_buffers_ = std::move(buffers);
  stop_rows_ = StopRows::kSingle;
}

BatchedModelOutput BatchedModelOutput::coerce(RequestOutputs outputs) {
  BatchedModelOutput result;
  result.requests_ = std::move(outputs);
  return result;
}

BatchedModelOutput BatchedModelOutput::coerce(std::vector<MixedEntry> entries) {
  BatchedModelOutput result;
  for (MixedEntry& entry : entries) {
    if (auto* outputs = std::get_if<RequestOutputs::Entry>(&entry)) {
      result.requests_[outputs->first] = std::move(outputs->second);
    } else {
      auto& [name, tensor] = std::get<1>(entry);
      result.set_packed(std::move(name), std::move(tensor));
    }
  }
  return result;
}

const Tensor* BatchedModelOutput::get(std::string_view packed_name) const {
  for (const auto& [name, tensor] : packed_) {
    if (name == packed_name) {
      return &tensor;
    }
  }
  return nullptr;
}

std::optional<SignalMap> BatchedModelOutput::pop(RequestHandle handle) {
  SignalMap* known = requests_.find(handle);
  if (known == nullptr) {
    return std::nullopt;
  }
  std::optional<SignalMap> outputs(std::move(*known));
  requests_.erase(handle);
  return outputs;
}

std::optional<StopBuffers> BatchedModelOutput::clone_check_stop_buffers(
    StreamRef stream, TensorAllocator& allocator) const {
  if (stop_rows_ != StopRows::kSingle) {
    return std::nullopt;
  }
  StopBuffers copies;
  for (const auto& [signal, buffer] : stop_buffers_) {
    if (const auto* tensor = std::get_if<Tensor>(&buffer)) {
      copies.emplace_back(signal, clone_of(*tensor, stream, allocator));
    } else {
      copies.emplace_back(signal, clone_signals(std::get<SignalMap>(buffer), stream, allocator));
    }
  }
  return copies;
}

BatchedModelOutput::RowTensors BatchedModelOutput::clone_row_outputs(
    std::int64_t num_rows, StreamRef stream, TensorAllocator& allocator) const {
  RowTensors copies;
  for (const RowOutput& output : rows_) {
    ConstDeviceView rows = output.rows;
    if (rows.rank() > 0) {
      rows = rows.slice(0, 0, std::min(num_rows, rows.dim(0)));
    }
    Tensor copy = allocator.allocate(stream, rows.dtype(), rows.shape());
    copy_elements(stream, copy.device_view(), rows);
    copies.emplace_back(output.signal, std::move(copy));
  }
  return copies;
}

BatchedModelOutput::CheckStopInput BatchedModelOutput::get_check_stop_input() const {
  if (stop_rows_ == StopRows::kSingle) {
    return &stop_buffers_;
  }
  return &requests_;
}

void BatchedModelOutput::join_rows(const BatchedModelOutput& other) {
  for (const RowOutput& output : other.rows_) {
    const auto known = std::ranges::find(rows_, output.signal, &RowOutput::signal);
    if (known == rows_.end()) {
      rows_.push_back(output);
    } else {
      known->rows = output.rows;
    }
  }
}

void BatchedModelOutput::update(const BatchedModelOutput& other) {
  if (&other == this) {
    return;
  }
  stop_lanes_.reset();
  for (const auto& [handle, signals] : other.requests_) {
    requests_[handle] = signals;
  }
  for (const auto& [name, tensor] : other.packed_) {
    set_packed(name, tensor);
  }

  const bool both_by_row = is_row_addressed() && other.is_row_addressed();
  const bool both_stop = stop_rows_ == StopRows::kSingle && other.stop_rows_ == StopRows::kSingle;
  const bool same_requests = handles_ == other.handles_;
  if (stop_rows_ == StopRows::kConflict || other.stop_rows_ == StopRows::kConflict || both_stop ||
      (both_by_row && !same_requests)) {
    stop_rows_ = StopRows::kConflict;
    stop_buffers_.clear();
    if (same_requests && !handles_.empty()) {
      join_rows(other);
    } else {
      rows_.clear();
      handles_.clear();
    }
    return;
  }
  if (other.is_row_addressed()) {
    handles_ = other.handles_;
    join_rows(other);
  }
  if (other.stop_rows_ == StopRows::kSingle) {
    stop_buffers_ = other.stop_buffers_;
    stop_rows_ = StopRows::kSingle;
  }
}

void BatchedModelOutput::reset() {
  rows_.clear();
  stop_lanes_.reset();
  handles_.clear();
  requests_.clear();
  packed_.clear();
  stop_buffers_.clear();
  stop_rows_ = StopRows::kNone;
}

}  // namespace rigel
