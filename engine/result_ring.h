#pragma once

#include "engine/contract/ids.h"
#include "kernels/stop_params.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// What a step gave, by lane. Records of padding lanes hold nothing and must not be read.
struct ResultRows {
  std::span<const RequestHandle> handles;
  std::span<const kernels::StepRecord> records;

  /// The record of a request, whatever has happened to the batch since; null where it did not run. `hint` is a lane to look
  /// at first: walking requests in lane order finds each at once.
  [[nodiscard]] const kernels::StepRecord* find(RequestHandle handle, std::size_t hint = 0) const;
};

/// Pinned memory for the records that stop_copy makes of the last few steps: row, token and stop flags of each lane, where the
/// host can read them as soon as the device has written them. Other row outputs go by HostRowRing. Thread: worker.
class ResultRing {
 public:
  /// Steps whose records are alive at a time: those in flight and the one being processed, with room to spare.
  static constexpr std::uint64_t kNumEntries = 4;

  ResultRing(Device& device, std::int64_t max_lanes);

  /// Opens the entry of a step that is about to be launched. `lanes`: who samples, in order; padding where no record will
  /// come (a padding lane, or a token that is thrown away). Throws CheckError while the step kNumEntries before is still open.
  void open(Epoch step, std::span<const RequestHandle> lanes);

  /// Where the step's stop_copy writes: (kNumEntries, max_lanes, kStepRecordWords) i64. The same for every step, so a
  /// captured launch serves all.
  [[nodiscard]] DeviceView device_records() const;

  /// Whether all records of an open step have arrived. Neither blocks nor calls the driver. Throws CheckError for a record of
  /// another request than the lane's. Cost: a load for each record that has come since the last call.
  [[nodiscard]] bool poll(Epoch step);

  /// The records of a step that has arrived; valid until it is closed.
  [[nodiscard]] ResultRows rows(Epoch step) const;

  /// The reader is done with a step, or its work will never run. Its place may be used again.
  void close(Epoch step);

 private:
  struct Entry {
    Epoch step = 0;
    bool is_open = false;
    std::size_t num_arrived = 0;  // lanes from the first one on
    std::vector<RequestHandle> handles;
  };

  [[nodiscard]] const Entry& entry_of(Epoch step) const;
  [[nodiscard]] Entry& entry_of(Epoch step) {
    return const_cast<Entry&>(static_cast<const ResultRing&>(*this).entry_of(step));
  }
  [[nodiscard]] std::span<kernels::StepRecord> records_of(Epoch step) const;

  std::int64_t max_lanes_;
  PinnedBuffer records_;
  std::array<Entry, kNumEntries> entries_;
};

}  // namespace rigel
