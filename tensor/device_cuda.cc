#include "tensor/cuda_state.h"
#include "tensor/device.h"

#include <utility>

namespace rigel {
namespace {

// Without a driver cudaGetDeviceCount fails and leaves its argument alone; without a GPU it may succeed with zero.
cudaError_t count_devices(int* count) {
  *count = 0;
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error != cudaSuccess) {
    *count = 0;
    static_cast<void>(cudaGetLastError());
  }
  return error;
}

std::string name_of_device(int index) {
  int count = 0;
  const cudaError_t error = count_devices(&count);
  if (count == 0) {
    throw DeviceError(fmt::format("no CUDA device: {}", error == cudaSuccess
                                                            ? "the driver sees no GPU"
                                                            : cudaGetErrorString(error)));
  }
  if (index < 0 || index >= count) {
    throw DeviceError(
        fmt::format("no CUDA device: index {} of {} GPUs; give an index below", index, count));
  }
  cudaDeviceProp properties;
  RIGEL_CUDA(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

}  // namespace

detail::MemoryInfo detail::memory_info() {
  MemoryInfo info;
  RIGEL_CUDA(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

std::unique_ptr<Device> Device::open(const DeviceOptions& options) {
  return std::unique_ptr<Device>(new Device(options));
}

bool Device::available() {
  int count = 0;
  static_cast<void>(count_devices(&count));
  return count > 0;
}

Device::Device(const DeviceOptions& options)
    : options_(options),
      name_(name_of_device(options.index)),
      state_(std::make_unique<detail::DeviceState>()) {
  state_->index = options.index;
  make_current();
  RIGEL_CUDA(cudaDeviceGetAttribute(&state_->num_multiprocessors, cudaDevAttrMultiProcessorCount,
                                    options.index));
}

Device::~Device() = default;

bool Device::is_cuda() const {
  return true;
}

void Device::make_current() {
  RIGEL_CUDA(cudaSetDevice(state_->index));
}

std::int64_t Device::total_memory_bytes() const {
  return static_cast<std::int64_t>(detail::memory_info().total_bytes);
}

std::int64_t Device::free_memory_bytes() const {
  return static_cast<std::int64_t>(detail::memory_info().free_bytes);
}

int Device::num_processors() const {
  return state_->num_multiprocessors;
}

void Device::synchronize() {
  RIGEL_CUDA(cudaDeviceSynchronize());
}

void* Device::allocate(std::int64_t num_bytes) {
  void* address = nullptr;
  if (num_bytes > 0) {
    RIGEL_CUDA(cudaMalloc(&address, static_cast<std::size_t>(num_bytes)));
  }
  return address;
}

void* Device::try_allocate(std::int64_t num_bytes) {
  void* address = nullptr;
  if (num_bytes > 0) {
    const cudaError_t error = cudaMalloc(&address, static_cast<std::size_t>(num_bytes));
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    RIGEL_CUDA(error);
  }
  return address;
}

void* Device::allocate_pinned(std::int64_t num_bytes) {
  void* address = nullptr;
  if (num_bytes > 0) {
    // Portable and mapped: all threads may copy from it, and kernels address it by the same pointer.
    RIGEL_CUDA(cudaHostAlloc(&address, static_cast<std::size_t>(num_bytes),
                             cudaHostAllocPortable | cudaHostAllocMapped));
  }
  return address;
}

void Device::free(void* address) noexcept {
  if (address != nullptr && cudaFree(address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

void Device::free_pinned(void* address) noexcept {
  if (address != nullptr && cudaFreeHost(address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace rigel
