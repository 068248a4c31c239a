#include "worker/spec_rows.h"

#include "tensor/error.h"

#include <utility>

namespace rigel {

namespace {

void fill(SignalMap& row, std::span<const SignalId> signals) {
  row.clear();
  for (const SignalId signal : signals) {
    row[signal];
  }
}

}  // namespace

void DeferredRowInputs::reset(std::span<const RequestHandle> handles,
                              std::span<const SignalId> signals) {
  for (const Entry& entry : entries_) {
    positions_[static_cast<std::size_t>(entry.handle.row)] = -1;
  }
  entries_.clear();
  num_live_ = 0;
  for (std::size_t index = 0; index < num_owned_; ++index) {
    owned_[index].inputs.clear();
  }
  num_owned_ = 0;
  for (const RequestHandle handle : handles) {
    RIGEL_CHECK(!contains(handle), "row {} comes twice", handle.row);
    append(handle);
  }
  set_signals(signals);
}

void DeferredRowInputs::append(RequestHandle handle) {
  RIGEL_CHECK(!handle.is_padding(), "handle {} is padding", handle.row);
  const auto row = static_cast<std::size_t>(handle.row);
  if (positions_.size() <= row) {
    positions_.resize(row + 1, -1);
  }
  const std::int32_t earlier = positions_[row];
  RIGEL_CHECK(earlier < 0 || !entries_[static_cast<std::size_t>(earlier)].live,
              "row {} comes twice", handle.row);
  positions_[row] = static_cast<std::int32_t>(entries_.size());
  entries_.push_back({.handle = handle});
  ++num_live_;
}

std::int32_t DeferredRowInputs::position_of(RequestHandle handle) const {
  const auto row = static_cast<std::size_t>(handle.row);
  if (handle.is_padding() || row >= positions_.size() || positions_[row] < 0) {
    return -1;
  }
  const Entry& entry = entries_[static_cast<std::size_t>(positions_[row])];
  return entry.live && entry.handle == handle ? positions_[row] : -1;
}

DeferredRowInputs::Entry& DeferredRowInputs::entry_of(RequestHandle handle) {
  const std::int32_t position = position_of(handle);
  RIGEL_CHECK(position >= 0, "the step has no row {} of generation {}", handle.row,
              handle.generation);
  return entries_[static_cast<std::size_t>(position)];
}

const SignalMap& DeferredRowInputs::resolve(RequestHandle handle) const {
  const Entry& entry = const_cast<DeferredRowInputs*>(this)->entry_of(handle);
  return entry.owned == kTemplate ? template_
                                  : owned_[static_cast<std::size_t>(entry.owned)].inputs;
}

DeferredRowInputs::RowView DeferredRowInputs::row(RequestHandle handle) const {
  static_cast<void>(resolve(handle));
  return {*this, handle};
}

DeferredRowInputs::OwnedRow& DeferredRowInputs::own(Entry& entry) {
  if (entry.owned == kTemplate) {
    if (num_owned_ == owned_.size()) {
      owned_.emplace_back();
    }
    entry.owned = static_cast<std::int32_t>(num_owned_++);
    owned_[static_cast<std::size_t>(entry.owned)].assigned = false;
  }
  return owned_[static_cast<std::size_t>(entry.owned)];
}

SignalMap& DeferredRowInputs::row_mut(RequestHandle handle) {
  Entry& entry = entry_of(handle);
  const bool is_new = entry.owned == kTemplate;
  OwnedRow& row = own(entry);
  if (is_new) {
    row.inputs.clear();
    for (const auto& [signal, none] : template_) {
      row.inputs[signal];
    }
  }
  return row.inputs;
}

SignalMap& DeferredRowInputs::assign(RequestHandle handle) {
  if (!contains(handle)) {
    append(handle);
  }
  OwnedRow& row = own(entry_of(handle));
  row.inputs.clear();
  row.assigned = true;
  return row.inputs;
}

void DeferredRowInputs::erase(RequestHandle handle) {
  Entry& entry = entry_of(handle);
  entry.live = false;
  --num_live_;
  if (entry.owned != kTemplate) {
    // Its tensors go now. An assigned, empty row: set_signals passes over it.
    OwnedRow& row = owned_[static_cast<std::size_t>(entry.owned)];
    row.inputs.clear();
    row.assigned = true;
  }
}

bool DeferredRowInputs::try_erase(RequestHandle handle) {
  if (!contains(handle)) {
    return false;
  }
  erase(handle);
  return true;
}

void DeferredRowInputs::set_signals(std::span<const SignalId> signals) {
  fill(template_, signals);
  RIGEL_CHECK(template_.size() == signals.size(), "a signal comes twice among {}", signals.size());
  for (std::size_t index = 0; index < num_owned_; ++index) {
    if (!owned_[index].assigned) {
      fill(owned_[index].inputs, signals);
    }
  }
}

void DeferredRowInputs::materialize(RequestOutputs& rows) const {
  rows.clear();
  for_each([&](RequestHandle handle) { rows[handle] = resolve(handle); });
}

void loop_counter_snapshots(std::span<const RequestInfo* const> infos, std::optional<LoopId> loop,
                            std::int64_t num_next_iteration,
                            std::vector<InputMetadata>& snapshots) {
  RIGEL_CHECK(num_next_iteration >= 0, "num_next_iteration is {}", num_next_iteration);
  snapshots.resize(infos.size());
  for (std::size_t index = 0; index < infos.size(); ++index) {
    InputMetadata& snapshot = snapshots[index];
    snapshot.loop_counters = infos[index]->loop_counters;
    snapshot.stream_chunks.clear();
    if (loop && static_cast<std::int64_t>(index) < num_next_iteration) {
      snapshot.loop_counters.increment(*loop);
    }
  }
}

}  // namespace rigel
