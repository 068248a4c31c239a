#pragma once

#include "engine/contract/ids.h"
#include "tensor/view.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rigel {

/// A step's row-addressed outputs on the host. Row i of every buffer belongs to handles[i], the order in which the forward
/// ran the requests; buffers may hold more rows than there are handles (a padded replay), and those must not be read.
///
/// Consumers look a row up by its handle: the worker's own batch may have changed since. Valid until the step's outputs
/// have been processed; the pinned memory behind it is then used by a later step.
struct HostRows {
  struct Buffer {
    SignalId signal{};
    ConstHostView rows;
  };

  std::span<const RequestHandle> handles;
  std::span<const Buffer> buffers;

  /// The buffer of `signal`; undefined view where the step has none.
  [[nodiscard]] ConstHostView find(SignalId signal) const {
    for (const Buffer& buffer : buffers) {
      if (buffer.signal == signal) {
        return buffer.rows;
      }
    }
    return {};
  }
  /// The row of a request; -1 where it did not run. Rows come in the order of the step's lanes and leave some out: who knows
  /// the lane looks no further than that many rows before it.
  [[nodiscard]] std::int64_t row_of(RequestHandle handle, std::size_t lane = 0) const {
    const std::size_t near = std::min(lane + 1, handles.size());
    for (std::size_t index = near; index-- > 0;) {
      if (handles[index] == handle) {
        return static_cast<std::int64_t>(index);
      }
    }
    for (std::size_t index = near; index < handles.size(); ++index) {
      if (handles[index] == handle) {
        return static_cast<std::int64_t>(index);
      }
    }
    return -1;
  }
};

}  // namespace rigel
