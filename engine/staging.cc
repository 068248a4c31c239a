#include "engine/staging.h"

#include "tensor/copy.h"
#include "tensor/error.h"

namespace rigel {

namespace {
constexpr std::int64_t kColumnAlignment = 16;
}

StepStaging::StepStaging(Device& device, std::int64_t capacity_bytes)
    : host_(device, capacity_bytes),
      device_(device, capacity_bytes),
      capacity_bytes_(capacity_bytes),
      written_(host_.raw()) {}

std::int64_t StepStaging::carve(std::int64_t num_bytes) {
  const std::int64_t offset = used_bytes_;
  const std::int64_t end =
      (offset + num_bytes + kColumnAlignment - 1) / kColumnAlignment * kColumnAlignment;
  RIGEL_CHECK(end <= capacity_bytes_, "a step's columns need {} bytes, the staging block has {}",
              end, capacity_bytes_);
  used_bytes_ = end;
  layout_ = (layout_ ^ static_cast<std::uint64_t>(num_bytes)) * 0x9E3779B97F4A7C15u + 1;
  return offset;
}

void StepStaging::upload(StreamRef stream) {
  const std::int64_t num_bytes = used_bytes_ - sent_bytes_;
  if (num_bytes == 0) {
    return;
  }
  copy(stream, DeviceView(device_.raw() + sent_bytes_, Dtype::kU8, {num_bytes}),
       ConstHostView(host_.raw() + sent_bytes_, Dtype::kU8, {num_bytes}));
  sent_bytes_ = used_bytes_;
}

void StepStaging::upload_written(StreamRef stream) const {
  copy(stream, DeviceView(device_.raw(), Dtype::kU8, {used_bytes_}),
       ConstHostView(written_, Dtype::kU8, {used_bytes_}));
}

}  // namespace rigel
