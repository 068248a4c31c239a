#pragma once

#include "engine/resource.h"
#include "kernels/stop.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// What decides on the device when a request stops: its stop ids, its limits and how many tokens it has, by row, and the
/// model's end tokens. A row is written with the first step after its request came, unless that is a captured decode step, which
/// has no place for it; and advanced by each stop test. It follows the sampler, whose lanes are tested. Thread: worker.
class StopTable final : public Resource {
 public:
  /// `eos_ids`: ids that end every request whose own stop_token_ids hold all of them, as the worker adds them to those of a
  /// request that does not ignore them.
  StopTable(ResourceKey key, Device& device, std::int32_t num_rows,
            std::span<const std::int32_t> eos_ids, ResourceKey sampler);

  [[nodiscard]] std::span<const ResourceKey> depends_on() const override { return {&sampler_, 1}; }
  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  /// The device counts the request's tokens: it is told again how many there are.
  void truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                        Epoch last_touch) override;
  /// A captured step of decode lanes has no room for rows that are new to the device; a packed one has it for every lane.
  [[nodiscard]] bool fits_capture(const SubmoduleStep& step,
                                  const StepContext& context) const override;
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;

  /// Enqueues the rows that begin with this step, in front of its stop test.
  void enqueue_new_rows(const StepContext& context) const;
  /// The test of the step's sampling lanes.  tokens (S) i32: what they sampled, -1 where that failed
  [[nodiscard]] kernels::StopTest test(const StepContext& context,
                                       const ConstDeviceView& tokens) const;
  /// Device memory of a table.
  [[nodiscard]] static std::int64_t bytes_of(std::int32_t num_rows, std::size_t num_eos_ids) {
    return num_rows * static_cast<std::int64_t>(sizeof(kernels::StopRow)) +
           static_cast<std::int64_t>(num_eos_ids) * 4;
  }

 private:
  struct Row {
    RequestHandle owner;
    kernels::StopRow value{};  // at its start
    bool is_new = false;       // the device does not know it yet
  };

  [[nodiscard]] kernels::StopRow row_of(const RequestInfo& info) const;
  [[nodiscard]] bool is_new(RequestHandle handle) const;
  void renew(Row& row, const RequestInfo& info);
  void plan_rows(std::int64_t num_places, StepContext& context);
  [[nodiscard]] DeviceView table() const;

  ResourceKey sampler_;
  std::vector<std::int32_t> end_ids_;  // sorted
  DeviceBuffer eos_ids_;               // (E) i32: end_ids_
  DeviceBuffer table_;                 // (R, kStopRowWords) i32
  std::vector<Row> rows_;
  std::vector<std::int32_t> new_rows_;      // that the device does not know yet
  std::vector<std::int32_t> planned_rows_;  // those of them that the step being planned brings
};

}  // namespace rigel
