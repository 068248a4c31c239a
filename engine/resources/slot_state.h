#pragma once

#include "engine/resource.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>
#include <vector>

namespace rigel {

struct SlotStateConfig {
  std::int32_t num_rows = 0;
  std::int32_t num_labels = 1;
  Dtype dtype = Dtype::kF32;
  Shape shape;  // of one state
};

/// A state of fixed size for each label of each request, as of a recurrent layer: zero when the request begins, read and
/// written in place by its steps, copied by a fork. Padding has a scratch state. Thread: worker; `pool` is what a forward uses.
class SlotState final : public Resource {
 public:
  SlotState(ResourceKey key, Device& device, const SlotStateConfig& config);

  void ingest_request(const RequestInfo& info) override;
  void restart_request(RequestHandle handle, Epoch last_touch) override;
  /// Steps change a state in place.
  [[nodiscard]] bool can_truncate(RequestHandle /*handle*/) const override { return false; }
  /// Zeroes and copies are enqueued here, in front of the forward; those of a fork behind it at the commit.
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;

  /// (slots, elements of a state): one for each label and row, the scratch last.
  [[nodiscard]] DeviceView pool() const { return pool_view_; }
  [[nodiscard]] std::int32_t slot(RequestHandle handle, LabelId label) const;
  [[nodiscard]] std::int32_t scratch_slot() const {
    return static_cast<std::int32_t>(is_new_.size());
  }

 private:
  [[nodiscard]] DeviceView state(std::int32_t slot) const;
  void clear_if_new(StreamRef stream, std::int32_t slot);
  void fork(const std::vector<Fork>& forks, std::span<const Segment> segments, StreamRef stream);

  SlotStateConfig config_;
  DeviceBuffer pool_;
  DeviceView pool_view_;
  std::vector<bool> is_new_;           // by slot: not zeroed yet
  std::vector<RequestHandle> owners_;  // by row
};

}  // namespace rigel
