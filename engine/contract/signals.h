#pragma once

#include "engine/contract/ids.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace rigel {

using TensorList = std::vector<Tensor>;

/// Signals by id, in insertion order. A handful of entries: looked up by a linear scan.
class SignalMap {
 public:
  using Entry = std::pair<SignalId, TensorList>;

  [[nodiscard]] const TensorList* find(SignalId signal) const {
    for (const Entry& entry : entries_) {
      if (entry.first == signal) {
        return &entry.second;
      }
    }
    return nullptr;
  }
  [[nodiscard]] TensorList* find(SignalId signal) {
    return const_cast<TensorList*>(std::as_const(*this).find(signal));
  }
  /// The list of `signal`, made empty if it was not there.
  TensorList& operator[](SignalId signal) {
    if (TensorList* known = find(signal)) {
      return *known;
    }
    return entries_.emplace_back(signal, TensorList{}).second;
  }
  void assign(SignalId signal, TensorList tensors) { (*this)[signal] = std::move(tensors); }
  bool erase(SignalId signal) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first == signal) {
        entries_.erase(entry);
        return true;
      }
    }
    return false;
  }
  void clear() { entries_.clear(); }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() const { return entries_.end(); }
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace rigel
