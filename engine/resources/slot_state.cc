#include "engine/resources/slot_state.h"

#include "tensor/copy.h"
#include "tensor/error.h"

namespace rigel {

namespace {

Shape pool_shape(const SlotStateConfig& config) {
  RIGEL_CHECK(config.num_labels >= 1 && config.num_labels <= kMaxLabels && config.num_rows >= 1,
              "a state pool needs rows and 1 to {} labels, got {} and {}", kMaxLabels,
              config.num_rows, config.num_labels);
  return {std::int64_t{config.num_rows} * config.num_labels + 1, config.shape.num_elements()};
}

}  // namespace

SlotState::SlotState(ResourceKey key, Device& device, const SlotStateConfig& config)
    : Resource(key),
      config_(config),
      pool_(device, config.dtype, pool_shape(config)),
      pool_view_(pool_.view(config.dtype, pool_shape(config))),
      is_new_(
          static_cast<std::size_t>(config.num_rows) * static_cast<std::size_t>(config.num_labels),
          true),
      owners_(static_cast<std::size_t>(config.num_rows)) {}

void SlotState::ingest_request(const RequestInfo& info) {
  RequestHandle& owner = owners_.at(static_cast<std::size_t>(info.handle.row));
  if (owner != info.handle) {
    owner = info.handle;
    restart_request(info.handle, 0);
  }
}

void SlotState::restart_request(RequestHandle handle, Epoch /*last_touch*/) {
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    is_new_[static_cast<std::size_t>(slot(handle, LabelId(static_cast<std::uint8_t>(label))))] =
        true;
  }
}

std::int32_t SlotState::slot(RequestHandle handle, LabelId label) const {
  RIGEL_CHECK(handle.row >= 0 && handle.row < config_.num_rows &&
                  static_cast<std::int32_t>(label) < config_.num_labels &&
                  owners_[static_cast<std::size_t>(handle.row)] == handle,
              "no state of row {}, label {} for this request", handle.row, static_cast<int>(label));
  return static_cast<std::int32_t>(label) * config_.num_rows + handle.row;
}

DeviceView SlotState::state(std::int32_t slot) const {
  return pool_view_.slice(0, slot, 1);
}

void SlotState::clear_if_new(StreamRef stream, std::int32_t slot) {
  if (is_new_[static_cast<std::size_t>(slot)]) {
    fill_bytes(stream, state(slot), 0);
    is_new_[static_cast<std::size_t>(slot)] = false;
  }
}

void SlotState::fork(const std::vector<Fork>& forks, std::span<const Segment> segments,
                     StreamRef stream) {
  for (const Fork& fork : forks) {
    for (const Segment& segment : segments) {
      if (segment.handle.is_padding()) {
        continue;  // a request that comes twice is copied twice, to the same
      }
      const std::int32_t source = slot(segment.handle, fork.source);
      const std::int32_t target = slot(segment.handle, fork.destination);
      RIGEL_CHECK(source != target, "a fork of label {} into itself",
                  static_cast<int>(fork.source));
      clear_if_new(stream, source);
      copy(stream, state(target), ConstDeviceView(state(source)));
      is_new_[static_cast<std::size_t>(target)] = false;
    }
  }
}

void SlotState::plan(const SubmoduleStep& step, StepContext& context) {
  const std::span<const Segment> segments = step.segments_of(key());
  fork(std::get<SlotStateStep>(*step.find(key())).pre_forks, segments, context.stream());
  const auto slots =
      context.staging->column<std::int32_t>(static_cast<std::int64_t>(segments.size()));
  for (std::size_t index = 0; index < segments.size(); ++index) {
    const Segment& segment = segments[index];
    const std::int32_t slot =
        segment.handle.is_padding() ? scratch_slot() : this->slot(segment.handle, segment.label);
    if (slot != scratch_slot()) {
      clear_if_new(context.stream(), slot);
    }
    slots.host[index] = slot;
  }
  context.set_plan(key(), SlotStatePlan{slots.device});
}

void SlotState::commit(const SubmoduleStep& step, const StepContext& context) {
  fork(std::get<SlotStateStep>(*step.find(key())).post_forks, step.segments_of(key()),
       context.stream());
}

}  // namespace rigel
