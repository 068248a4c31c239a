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

/// Pinned memory for the row outputs and stop buffers of the last few steps, so that a step's rows stay intact while later
/// steps stage theirs. Thread: worker.
class HostRowRing {
 public:
  /// Steps whose rows are alive at a time: those in flight and the one being processed, with room to spare.
  static constexpr std::uint64_t kNumEntries = 4;

  explicit HostRowRing(Device& device) : device_(&device) {}

  /// Starts the rows of step `epoch`, which runs `num_forwards` forwards; those of step `epoch - kNumEntries` are gone.
  void begin(Epoch epoch, std::int64_t num_forwards);
  /// Enqueues the copies of a forward's row outputs and stop buffers to the host, right behind it: what lies at one address
  /// travels once. The rows are valid once an event recorded after this has fired.
  ///
  /// Several forwards of a step have one lane each, and their rows follow each other; a forward that gives no row under a
  /// signal leaves a row that must not be read. Throws CheckError, naming the signal, where their rows differ in type or
  /// shape. Grows its memory where the step needs more.
  void stage(StreamRef stream, const BatchedModelOutput& outputs);

  /// Step `epoch` has completed: rows that its forward took to the host itself are taken out of its memory, which a later
  /// step will use.
  void settle(Epoch epoch);
  /// The rows of step `epoch`.
  [[nodiscard]] HostRows rows(Epoch epoch) const;

 private:
  /// Memory that is handed out from its begin; full blocks stay, so that copies in flight keep their target.
  struct Block {
    PinnedBuffer memory;
    std::int64_t used = 0;
  };
  struct Target {
    HostView rows;
    const std::byte* source = nullptr;  // what the forward being staged copies there
  };
  /// Rows of a forward that takes them to the host itself.
  struct Arrival {
    HostView target;
    ConstHostView source;
  };
  struct Entry {
    Epoch epoch = 0;
    std::int64_t num_forwards = 0;
    std::vector<Block> blocks;
    std::vector<RequestHandle> handles;
    std::vector<HostRows::Buffer> buffers;
    std::vector<Target> targets;  // of the buffers
    std::vector<Arrival> arrivals;
  };

  void stage_rows(StreamRef stream, Entry& entry, SignalId signal, const ConstDeviceView& rows,
                  std::int64_t first_row);
  [[nodiscard]] HostView take(Entry& entry, Dtype dtype, const Shape& shape);

  Device* device_;
  std::array<Entry, kNumEntries> entries_;
  Epoch epoch_ = 0;  // of the step whose rows are being staged
};

}  // namespace rigel
