#pragma once

// What the handles of tensor/ point to on the virtual device. For this folder's own sources and tensor/launch.h.

#include "simt/virtual_device.h"
#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/stream.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rigel::detail {

struct DeviceState {
  explicit DeviceState(const simt::VirtualDeviceOptions& options) : device(options) {}
  simt::VirtualDevice device;
};

struct StreamState {
  Device* device;
  simt::VirtualDevice* virtual_device;
  simt::Queue* queue;
};

struct EventState {
  simt::VirtualDevice* device;
  std::atomic<std::uint64_t> moment{0};
  bool timed = false;
  std::int64_t time_ns = 0;
};

struct GraphState {
  simt::VirtualDevice* device;
  simt::CommandGraph graph;
};

struct GraphExecState {
  simt::VirtualDevice* device;
  simt::GraphProgram program;
  std::vector<std::string> node_names;
};

[[noreturn, gnu::cold]] void throw_fault(const simt::DeviceFault& fault);

/// Throws DeviceError "cudaErrorName (number): message" unless all is well.
inline void check(const simt::DeviceFault& fault) {
  if (!fault.ok()) [[unlikely]] {
    throw_fault(fault);
  }
}

}  // namespace rigel::detail
