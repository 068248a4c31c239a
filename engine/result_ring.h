#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/host_rows.h"
#include "kernels/stop.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// Pinned memory for what the last few steps gave by row: their row outputs, stop buffers and the records of their stop
/// tests, where the host reads them once the step has completed. A step's rows stay intact while later steps bring theirs.
///
/// One launch behind the forward (kernels::stop_copy) brings all that is narrow and fits the step's entry; the rest is copied
/// by itself. That launch finds the entry by the step's number, so a captured one serves every step. A step of several turns
/// has an entry for each: the turns of step e are numbered from e * max_turns. Thread: worker.
class ResultRing {
 public:
  /// Steps whose rows are alive at a time: those in flight and the one being processed, with room to spare.
  static constexpr std::uint64_t kNumEntries = 4;

  /// `entry_bytes`: of one turn's rows that go by the launch. `max_turns`: of a step.
  ResultRing(Device& device, std::int64_t entry_bytes, std::int32_t max_turns = 1);

  [[nodiscard]] std::int32_t max_turns() const { return max_turns_; }
  /// Starts the rows of step `epoch`, which runs `num_forwards` forwards; those of step `epoch - kNumEntries` are gone.
  void begin(Epoch epoch, std::int64_t num_forwards);
  /// Enqueues the way to the host of a forward's row outputs, stop buffers and records, right behind it: what lies at one
  /// address travels once, and what a replayed forward has taken there itself (it has a place) not at all. The rows are valid
  /// once an event recorded after this has fired. `step`: see kernels::ResultPlace.
  ///
  /// Several forwards of a step have one lane each, and their rows follow each other; a forward that gives no row under a
  /// signal leaves a row that must not be read. Throws CheckError, naming the signal, where their rows differ in type or
  /// shape. Grows its memory where the step needs more.
  void stage(StreamRef stream, const BatchedModelOutput& outputs, const ConstDeviceView& step);
  /// Enqueues the launch alone, for a forward that is being captured, and notes in `outputs` the places where each replay's
  /// rows will lie in its step's entry.
  void capture(StreamRef stream, BatchedModelOutput& outputs, const ConstDeviceView& step);

  /// The rows of a turn of step `epoch`, which has completed, until the next call. Throws CheckError where they were
  /// overwritten, and where the device recorded another step's or another request's results.
  [[nodiscard]] HostRows rows(Epoch epoch, std::int32_t turn = 0);
  /// How many of the `most` turns that step `epoch` might have it has had. Requires that it has completed.
  [[nodiscard]] std::int32_t num_turns(Epoch epoch, std::int32_t most) const;

 private:
  /// Memory beside the ring that is handed out from its begin; full blocks stay, so that copies in flight keep their target.
  struct Block {
    PinnedBuffer memory;
    std::int64_t used = 0;
  };
  /// Where rows of a signal go.
  struct Target {
    HostView rows;
    std::int64_t place = kNoPlace;      // in the entry; kNoPlace: they are copied
    const std::byte* source = nullptr;  // what the forward being staged has there
  };
  struct Entry {
    Epoch epoch = 0;
    std::int64_t num_forwards = 0;
    std::int64_t used = 0;
    std::vector<Block> blocks;
    std::vector<RequestHandle> handles;
    std::vector<HostRows::Buffer> buffers;         // of the first turn
    std::vector<Target> targets;                   // of the buffers
    std::span<const kernels::StepRecord> records;  // by handle; empty where nothing was tested
  };

  void stage_rows(StreamRef stream, Entry& entry, SignalId signal, const ConstDeviceView& rows,
                  std::int64_t first_row);
  [[nodiscard]] std::int64_t stage_records(Entry& entry, const StopLanes& lanes,
                                           std::int64_t first_row);
  void add_buffer(Entry& entry, SignalId signal, const Target& target);
  [[nodiscard]] Target take(Entry& entry, const ConstDeviceView& rows, const Shape& shape);
  [[nodiscard]] std::int64_t take_place(std::int64_t& used, std::int64_t num_bytes) const;
  [[nodiscard]] bool can_launch(const ConstDeviceView& rows) const;
  [[nodiscard]] HostView view(const Entry& entry, Dtype dtype, const Shape& shape,
                              std::int64_t place) const;
  [[nodiscard]] kernels::ResultPlace place_of(const ConstDeviceView& step) const;
  [[nodiscard]] const kernels::StepRecord& record(const Entry& entry, std::size_t lane,
                                                  std::int32_t turn) const;
  [[nodiscard]] std::uint64_t number_of(Epoch epoch, std::int32_t turn) const {
    return epoch * static_cast<std::uint64_t>(max_turns_) + static_cast<std::uint64_t>(turn);
  }

  Device* device_;
  std::int64_t entry_bytes_;
  std::int32_t max_turns_;
  PinnedBuffer memory_;  // (kNumEntries, max_turns, entry_bytes)
  std::array<Entry, kNumEntries> entries_;
  Epoch epoch_ = 0;                            // of the step whose rows are being staged
  std::vector<kernels::StopBuffer> launched_;  // buffers of the launch that is being made
  std::vector<HostRows::Buffer> turn_buffers_;
};

}  // namespace rigel
