#include "worker/request_table.h"

#include "tensor/error.h"

namespace rigel {

RequestTable::RequestTable(std::int32_t num_rows) : rows_(static_cast<std::size_t>(num_rows)) {
  for (std::int32_t row = 0; row < num_rows; ++row) {
    free_rows_.push_back(row);
  }
}

RequestState& RequestTable::accept(std::unique_ptr<RequestState> request) {
  const RequestId id = request->id;
  const auto [entry, is_new] = by_id_.emplace(id, std::move(request));
  RIGEL_CHECK(is_new, "request {} was accepted already", static_cast<std::uint64_t>(id));
  return *entry->second;
}

void RequestTable::assign_row(RequestState& request) {
  RIGEL_CHECK(has_free_row(), "no row is free");
  const std::int32_t index = free_rows_.front();
  free_rows_.pop_front();
  Row& row = rows_[static_cast<std::size_t>(index)];
  row.owner = &request;
  request.info.handle = {index, ++row.generation};
}

void RequestTable::release(RequestState& request) {
  const RequestHandle handle = request.handle();
  if (!handle.is_padding()) {
    rows_.at(static_cast<std::size_t>(handle.row)).owner = nullptr;
    free_rows_.push_back(handle.row);
  }
  by_id_.erase(request.id);
}

RequestState* RequestTable::find(RequestId id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : entry->second.get();
}

RequestState* RequestTable::find(RequestHandle handle) const {
  if (handle.is_padding() || handle.row >= num_rows()) {
    return nullptr;
  }
  const Row& row = rows_[static_cast<std::size_t>(handle.row)];
  return row.generation == handle.generation ? row.owner : nullptr;
}

}  // namespace rigel
