#include "worker/request_table.h"

#include "tensor/error.h"

namespace rigel {

RequestState& RequestTable::accept(std::unique_ptr<RequestState> request) {
  const RequestId id = request->id;
  const auto [entry, is_new] = by_id_.emplace(id, std::move(request));
  RIGEL_CHECK(is_new, "request {} was accepted already", static_cast<std::uint64_t>(id));
  return *entry->second;
}

void RequestTable::assign_row(RequestState& request) {
  const std::optional<RequestHandle> handle = rows_.open();
  RIGEL_CHECK(handle.has_value(), "no row is free");
  owners_[static_cast<std::size_t>(handle->row)] = &request;
  request.info.handle = *handle;
}

void RequestTable::release(RequestState& request, Epoch last_touch) {
  if (const RequestHandle handle = request.handle(); !handle.is_padding()) {
    owners_[static_cast<std::size_t>(handle.row)] = nullptr;
    rows_.close(handle, last_touch);
  }
  by_id_.erase(request.id);
}

RequestState* RequestTable::find(RequestId id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : entry->second.get();
}

}  // namespace rigel
