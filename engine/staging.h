#pragma once

#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace rigel {

/// A column of a step that the host writes and the device reads.
template <class T>
struct StagedColumn {
  std::span<T> host;
  ConstDeviceView device;
};

/// Everything a step hands to the device: one pinned block, mirrored on the device, sent by one copy a forward.
///
/// Columns are carved off in order. The block may be written again once the step that used it has completed.
/// Thread: the step's owner.
class StepStaging {
 public:
  StepStaging(Device& device, std::int64_t capacity_bytes);

  /// Starts a new step.
  void reset() { reset(host_.raw()); }
  /// Starts a step that is captured and not run: its columns have the places that they will have, but the host writes them
  /// to `scratch`, of the same capacity, because a step in flight may still be reading the block itself.
  void reset(std::byte* scratch) {
    used_bytes_ = 0;
    sent_bytes_ = 0;
    layout_ = 0;
    written_ = scratch;
    ++num_resets_;
  }

  /// A column of `count` elements, 16-byte aligned, with undefined contents: what the steps before wrote there, whatever that
  /// was. Throws CheckError when the block is full.
  template <class T>
  [[nodiscard]] StagedColumn<T> column(std::int64_t count) {
    const std::int64_t offset = carve(count * static_cast<std::int64_t>(sizeof(T)));
    return {std::span<T>(reinterpret_cast<T*>(written_ + offset), static_cast<std::size_t>(count)),
            ConstDeviceView(device_.raw() + offset, dtype_of<T>, {count})};
  }

  /// A column as a launch may write it that counts it on for the next turn of its step.
  [[nodiscard]] DeviceView writable(const ConstDeviceView& column) const {
    return device_.view(column.dtype(), column.shape(), column.raw() - device_.raw());
  }

  /// Enqueues one copy of the columns carved since the last one; a step whose lanes run one after the other makes several.
  void upload(StreamRef stream);
  /// The same, once a step, of what the host has written to the memory that `reset` was given, which is pinned then.
  void upload_written(StreamRef stream) const;

  [[nodiscard]] std::int64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes() const { return capacity_bytes_; }
  /// Steps started so far: tells a writer that nobody has used the block since its own last step.
  [[nodiscard]] std::uint64_t num_resets() const { return num_resets_; }
  /// A fingerprint of the columns' sizes in their order: two steps with the same one have their columns at the same places.
  [[nodiscard]] std::uint64_t layout() const { return layout_; }

 private:
  std::int64_t carve(std::int64_t num_bytes);

  PinnedBuffer host_;
  DeviceBuffer device_;
  std::int64_t capacity_bytes_;
  std::int64_t used_bytes_ = 0;
  std::int64_t sent_bytes_ = 0;
  std::uint64_t layout_ = 0;
  std::uint64_t num_resets_ = 0;
  std::byte* written_ = nullptr;  // where the host writes
};

}  // namespace rigel
