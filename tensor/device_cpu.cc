#include "tensor/cpu_state.h"
#include "tensor/device.h"

#include <utility>

namespace rigel {
namespace {

simt::QueueMode to_queue_mode(DeviceMode mode) {
  switch (mode) {
    case DeviceMode::kThreaded:
      return simt::QueueMode::kThreaded;
    case DeviceMode::kEager:
      return simt::QueueMode::kEager;
    case DeviceMode::kLazy:
      return simt::QueueMode::kLazy;
    case DeviceMode::kNull:
      return simt::QueueMode::kNull;
  }
  return simt::QueueMode::kThreaded;
}

simt::Order to_order(DeviceOrder order) {
  switch (order) {
    case DeviceOrder::kAscending:
      return simt::Order::kAscending;
    case DeviceOrder::kDescending:
      return simt::Order::kDescending;
    case DeviceOrder::kRandom:
      return simt::Order::kRandom;
  }
  return simt::Order::kAscending;
}

simt::VirtualDeviceOptions to_virtual(const DeviceOptions& options) {
  RIGEL_CHECK(options.num_threads >= 1, "a device needs at least one thread, got {}",
              options.num_threads);
  simt::VirtualDeviceOptions result;
  result.mode = to_queue_mode(options.mode);
  result.executor.order = to_order(options.order);
  result.executor.seed = options.seed;
  result.executor.poison = options.fill_garbage;
  result.executor.cp_async_late = options.cp_async_late;
  result.executor.device_texts = options.device_texts;
  result.num_threads = options.num_threads;
  result.memory_bytes = static_cast<std::size_t>(options.memory_bytes);
  result.fill_garbage = options.fill_garbage;
  result.null_mode_names = options.null_mode_names;
  return result;
}

}  // namespace

namespace detail {

void throw_fault(const simt::DeviceFault& fault) {
  throw DeviceError(fault.text());
}

}  // namespace detail

std::unique_ptr<Device> Device::open(const DeviceOptions& options) {
  return std::unique_ptr<Device>(new Device(options));
}

bool Device::available() {
  return true;
}

Device::Device(const DeviceOptions& options)
    : options_(options),
      name_("cpu"),
      state_(std::make_unique<detail::DeviceState>(to_virtual(options))) {}

Device::~Device() = default;

bool Device::is_cuda() const {
  return false;
}

void Device::make_current() {}

std::int64_t Device::total_memory_bytes() const {
  return static_cast<std::int64_t>(state_->device.memory().total_bytes());
}

std::int64_t Device::free_memory_bytes() const {
  return static_cast<std::int64_t>(state_->device.memory().free_bytes());
}

int Device::num_processors() const {
  return options_.num_threads;
}

void Device::synchronize() {
  detail::check(state_->device.synchronize_all());
}

void* Device::allocate(std::int64_t num_bytes) {
  void* address = nullptr;
  detail::check(state_->device.allocate(static_cast<std::size_t>(num_bytes), &address));
  return address;
}

void* Device::try_allocate(std::int64_t num_bytes) {
  void* address = nullptr;
  const simt::DeviceFault fault =
      state_->device.allocate(static_cast<std::size_t>(num_bytes), &address);
  if (fault.code != simt::FaultCode::kMemoryAllocation) {
    detail::check(fault);
  }
  return address;
}

void* Device::allocate_pinned(std::int64_t num_bytes) {
  void* address = nullptr;
  detail::check(state_->device.allocate_pinned(static_cast<std::size_t>(num_bytes), &address));
  return address;
}

void Device::free(void* address) noexcept {
  static_cast<void>(state_->device.free(address));
}

void Device::free_pinned(void* address) noexcept {
  static_cast<void>(state_->device.free(address));
}

}  // namespace rigel
