#pragma once

#include "tensor/device.h"

#include <cstdint>
#include <memory>

namespace rigel::testing {

/// A device that runs nothing and never runs out of memory; null where there is no device.
[[nodiscard]] inline std::unique_ptr<Device> open_null_device() {
  if (!Device::available()) {
    return nullptr;
  }
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  options.memory_bytes = std::int64_t{1} << 40;
  options.fill_garbage = false;
  return Device::open(options);
}

}  // namespace rigel::testing
