#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/signals.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace rigel {

/// Signals by request, in the order in which requests were added. Found by row in constant time; a handle of another
/// generation finds nothing. Keeps its memory over `clear`.
class RequestOutputs {
 public:
  using Entry = std::pair<RequestHandle, SignalMap>;

  [[nodiscard]] const SignalMap* find(RequestHandle handle) const {
    const std::int32_t position = position_of(handle);
    return position < 0 ? nullptr : &entries_[static_cast<std::size_t>(position)].second;
  }
  [[nodiscard]] SignalMap* find(RequestHandle handle) {
    return const_cast<SignalMap*>(std::as_const(*this).find(handle));
  }
  /// The signals of a request, made empty if it was not there.
  SignalMap& operator[](RequestHandle handle);
  /// Takes a request's signals out; the others keep their order. Cost: linear.
  bool erase(RequestHandle handle);
  void clear();

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() const { return entries_.end(); }
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

 private:
  /// Real rows and padding rows interleave, so that both index one column.
  [[nodiscard]] static std::size_t slot_of(RequestHandle handle) {
    return handle.row >= 0 ? static_cast<std::size_t>(handle.row) * 2
                           : static_cast<std::size_t>(-(handle.row + 1)) * 2 + 1;
  }
  [[nodiscard]] std::int32_t position_of(RequestHandle handle) const;

  std::vector<Entry> entries_;
  std::vector<std::int32_t> positions_;  // by slot: index of the entry; -1: none
};

}  // namespace rigel
