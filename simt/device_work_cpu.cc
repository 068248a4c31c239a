#include "simt/device_work.h"
#include "simt/virtual_device.h"

#include <chrono>
#include <cstring>

namespace simt {

void CopyWork::operator()(VirtualDevice& device, DeviceFault& fault) const {
  if (device.options().mode == QueueMode::kNull && !device.is_null_mode_name("copy")) {
    std::memset(target, 0, num_bytes);
    return;
  }
  if (direction != CopyDirection::kHostToDevice) {
    fault = device.memory().check_reachable("a copy reads", source, num_bytes);
  }
  if (fault.ok() && direction != CopyDirection::kDeviceToHost) {
    fault = device.memory().check_reachable("a copy writes", target, num_bytes);
  }
  release_host_target();
  if (!fault.ok()) {
    return;
  }
  std::memmove(target, source, num_bytes);
}

void CopyWork::spoil_host_target() const {
  if (direction != CopyDirection::kDeviceToHost) {
    return;
  }
  allow_access(target, num_bytes);
  fill_garbage(target, num_bytes);
  // Whole granules of AddressSanitizer only: neighbours in one granule may belong to another copy that runs meanwhile.
  constexpr std::uintptr_t kGranule = 8;
  const auto begin = (reinterpret_cast<std::uintptr_t>(target) + kGranule - 1) & ~(kGranule - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(target) + num_bytes) & ~(kGranule - 1);
  if (begin < end) {
    forbid_access(reinterpret_cast<void*>(begin), end - begin);
  }
}

void CopyWork::release_host_target() const {
  if (direction == CopyDirection::kDeviceToHost) {
    allow_access(target, num_bytes);
  }
}

void FillWork::operator()(VirtualDevice& device, DeviceFault& fault) const {
  fault = device.memory().check_reachable("a fill writes", target, num_bytes);
  if (fault.ok()) {
    std::memset(target, value, num_bytes);
  }
}

void MarkWork::operator()(VirtualDevice&, DeviceFault&) const {
  *time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now().time_since_epoch())
                 .count();
}

void WaitWork::operator()(VirtualDevice&, DeviceFault&) const {
  queue->wait_for(position);
}

void ReplayWork::operator()(VirtualDevice& device, DeviceFault& fault) const {
  program->replay(device, fault);
}

void RetireWork::operator()(VirtualDevice& device, DeviceFault& fault) const {
  fault = device.memory().retire(address);
}

void ReviveWork::operator()(VirtualDevice& device, DeviceFault& fault) const {
  fault = device.memory().revive(address);
}

}  // namespace simt
