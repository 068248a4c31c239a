#include "engine/contract/request_state.h"

#include <algorithm>

namespace rigel {

void PerRequestState::add(StateKey key, StateValue value) {
  if (StateValue* known = find(key)) {
    *known = std::move(value);
    return;
  }
  entries_.push_back({key, false, std::move(value)});
}

void PerRequestState::remove(std::span<const StateKey> keys) {
  std::erase_if(entries_, [keys](const Entry& entry) {
    return std::ranges::find(keys, entry.key) != keys.end();
  });
}

const StateValue* PerRequestState::find(StateKey key) const {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  return entry == entries_.end() ? nullptr : &entry->value;
}

void PerRequestState::share(StateKey key) {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  RIGEL_CHECK(entry != entries_.end(), "the request's state has no key {} to share",
              static_cast<int>(key));
  entry->is_shared = true;
}

bool PerRequestState::is_shared(StateKey key) const {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  return entry != entries_.end() && entry->is_shared;
}

RequestStateStore::Slot* RequestStateStore::slot_of(RequestHandle handle) const {
  const Slab& slab = handle.is_padding() ? padding_ : requests_;
  const auto index = static_cast<std::size_t>(handle.is_padding() ? -(handle.row + 1) : handle.row);
  return index < slab.size() ? slab[index].get() : nullptr;
}

PerRequestState& RequestStateStore::open(RequestHandle handle) {
  Slab& slab = handle.is_padding() ? padding_ : requests_;
  const auto index = static_cast<std::size_t>(handle.is_padding() ? -(handle.row + 1) : handle.row);
  if (index >= slab.size()) {
    slab.resize(index + 1);
  }
  if (slab[index] == nullptr) {
    slab[index] = std::make_unique<Slot>();
  }
  Slot& slot = *slab[index];
  if (slot.is_open) {
    RIGEL_CHECK(slot.owner == handle, "row {} is still the row of generation {}, not of {}",
                handle.row, slot.owner.generation, handle.generation);
    return slot.state;
  }
  slot.owner = handle;
  slot.is_open = true;
  ++num_open_;
  return slot.state;
}

PerRequestState* RequestStateStore::find(RequestHandle handle) const {
  Slot* slot = slot_of(handle);
  return slot != nullptr && slot->is_open && slot->owner == handle ? &slot->state : nullptr;
}

PerRequestState& RequestStateStore::at(RequestHandle handle) {
  PerRequestState* state = handle.is_padding() ? &open(handle) : find(handle);
  RIGEL_CHECK(state != nullptr, "row {}, generation {} is not open", handle.row, handle.generation);
  return *state;
}

PerRequestState RequestStateStore::take(RequestHandle handle) {
  Slot* slot = slot_of(handle);
  if (slot == nullptr || !slot->is_open || slot->owner != handle) {
    return {};
  }
  slot->is_open = false;
  --num_open_;
  return std::exchange(slot->state, PerRequestState());
}

bool LazyRequestStates::contains(RequestHandle handle) const {
  return std::ranges::find(handles_, handle) != handles_.end();
}

PerRequestState& LazyRequestStates::at(RequestHandle handle) const {
  RIGEL_CHECK(contains(handle), "row {}, generation {} is not in this step", handle.row,
              handle.generation);
  return store_->at(handle);
}

PerRequestState& LazyRequestStates::lane(std::size_t index) const {
  RIGEL_CHECK(index < handles_.size(), "no lane {} in a step of {}", index, handles_.size());
  return store_->at(handles_[index]);
}

}  // namespace rigel
