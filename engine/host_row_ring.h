#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/host_rows.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <array>
#include <cstdint>
#include <vector>

namespace rigel {

/// Pinned memory for the row outputs of the last few steps, so that a step's rows stay intact while later steps stage
/// theirs. Thread: worker.
class HostRowRing {
 public:
  /// Steps whose rows are alive at a time: those in flight and the one being processed, with room to spare.
  static constexpr std::uint64_t kNumEntries = 4;

  explicit HostRowRing(Device& device) : device_(&device) {}

  /// Enqueues the copies of `outputs` to the host behind the step's forward. The rows are valid once an event recorded
  /// after this has fired, and until step `epoch + kNumEntries` stages. Grows its memory where the step needs more.
  void stage(StreamRef stream, Epoch epoch, const BatchedModelOutput& outputs);

  /// The rows of step `epoch`.
  [[nodiscard]] HostRows rows(Epoch epoch) const;

 private:
  struct Entry {
    Epoch epoch = 0;
    PinnedBuffer memory;
    std::vector<RequestHandle> handles;
    std::vector<HostRows::Buffer> buffers;
  };

  Device* device_;
  std::array<Entry, kNumEntries> entries_;
};

}  // namespace rigel
