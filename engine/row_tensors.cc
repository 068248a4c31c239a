#include "engine/row_tensors.h"

#include "tensor/copy.h"

#include <algorithm>

namespace rigel {

void RowTensors::set(WalkId walk, std::vector<SignalId> signals, TensorAllocator& allocator) {
  std::erase_if(signals_, [walk](const auto& entry) { return entry.first == walk; });
  if (!signals.empty()) {
    signals_.emplace_back(walk, std::move(signals));
  }
  allocator_ = &allocator;
}

void RowTensors::give(StreamRef stream, WalkId walk, BatchedModelOutput& outputs) const {
  const auto entry =
      std::ranges::find(signals_, walk, &std::pair<WalkId, std::vector<SignalId>>::first);
  if (entry == signals_.end()) {
    return;
  }
  // Padding stands at the end, and nobody wants its rows.
  const std::span<const RequestHandle> handles = outputs.row_handles();
  const auto num_rows = static_cast<std::size_t>(
      std::ranges::find_if(handles, &RequestHandle::is_padding) - handles.begin());
  for (const SignalId signal : entry->second) {
    const ConstDeviceView rows = outputs.rows(signal);
    if (!rows.defined() || num_rows == 0) {
      continue;
    }
    const ConstDeviceView real = rows.slice(0, 0, static_cast<std::int64_t>(num_rows));
    const Tensor own = allocator_->allocate(stream, real.dtype(), real.shape());
    copy(stream, own.device_view(), real);
    for (std::size_t row = 0; row < num_rows; ++row) {
      outputs.requests()[handles[row]].assign(signal,
                                              {own.slice(0, static_cast<std::int64_t>(row), 1)});
    }
  }
}

}  // namespace rigel
