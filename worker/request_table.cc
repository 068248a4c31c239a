#include "worker/request_table.h"

#include "tensor/error.h"

#include <utility>

namespace rigel {

RequestState& RequestTable::accept(std::unique_ptr<RequestState> request) {
  const RequestId id = request->id;
  RIGEL_CHECK(!by_id_.contains(id), "request {} was accepted already",
              static_cast<std::uint64_t>(id));
  if (free_.empty()) {
    RequestState* const block =
        blocks_.emplace_back(std::make_unique<RequestState[]>(kBlockSize)).get();
    for (std::size_t index = kBlockSize; index-- > 0;) {
      free_.push_back(&block[index]);
    }
  }
  RequestState& place = *free_.back();
  by_id_.emplace(id, &place);
  free_.pop_back();
  place = std::move(*request);
  return place;
}

void RequestTable::assign_row(RequestState& request) {
  const std::optional<RequestHandle> handle = rows_.open();
  RIGEL_CHECK(handle.has_value(), "no row is free");
  owners_[static_cast<std::size_t>(handle->row)] = &request;
  num_pending(*handle) = 0;
  request.info.handle = *handle;
}

void RequestTable::release(RequestState& request, Epoch last_touch) {
  if (const RequestHandle handle = request.handle(); !handle.is_padding()) {
    owners_[static_cast<std::size_t>(handle.row)] = nullptr;
    rows_.close(handle, last_touch);
  }
  ++num_released_;
  by_id_.erase(request.id);
  request = RequestState();
  free_.push_back(&request);
}

RequestState* RequestTable::find(RequestId id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : entry->second;
}

}  // namespace rigel
