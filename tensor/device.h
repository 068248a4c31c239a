#pragma once

#include "tensor/device_options.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace rigel {

class LaunchLog;
class TraceRing;
namespace detail {
struct DeviceState;
}

/// One device, opened once and given to everything that works on it: a GPU, or the virtual device of a CPU build.
/// Streams, events, buffers and graphs must be gone before it is.
///
/// Thread: any. Errors: DeviceError; a failure of earlier asynchronous work may surface at any call.
class Device {
 public:
  /// Opens a device. Throws DeviceError "no CUDA device: ..." where a CUDA build finds no GPU or no driver.
  [[nodiscard]] static std::unique_ptr<Device> open(const DeviceOptions& options);
  /// Whether `open` has a chance: false in a CUDA build without GPU or driver.
  [[nodiscard]] static bool available();

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] bool is_cuda() const;
  /// Makes the calling thread work on this GPU. `open` does it for its own thread; each other thread that launches or
  /// allocates calls it once. Nothing on the virtual device.
  void make_current();
  /// "cpu", or the GPU's own name.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const DeviceOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t total_memory_bytes() const;
  [[nodiscard]] std::int64_t free_memory_bytes() const;
  /// Multiprocessors of the GPU; threads of the virtual device.
  [[nodiscard]] int num_processors() const;

  /// Waits for all streams. For start-up and tests, never in a step.
  void synchronize();

  /// Device memory, 256-byte aligned; null for zero bytes. Prefer DeviceBuffer. Throws DeviceError when memory runs out.
  [[nodiscard]] void* allocate(std::int64_t num_bytes);
  /// The same, but null when memory runs out.
  [[nodiscard]] void* try_allocate(std::int64_t num_bytes);
  [[nodiscard]] void* allocate_pinned(std::int64_t num_bytes);
  /// Free what was allocated above, after all work on the device is done. In a capture the capture is lost and the memory
  /// stays allocated until the device closes.
  void free(void* address) noexcept;
  void free_pinned(void* address) noexcept;

  /// Where launches and trace ranges are noted from now on; null: nowhere. Both must outlive their use.
  void set_launch_log(LaunchLog* log) { launch_log_.store(log, std::memory_order_release); }
  [[nodiscard]] LaunchLog* launch_log() const {
    return launch_log_.load(std::memory_order_acquire);
  }
  void set_trace(TraceRing* trace) { trace_.store(trace, std::memory_order_release); }
  [[nodiscard]] TraceRing* trace() const { return trace_.load(std::memory_order_acquire); }

  [[nodiscard]] detail::DeviceState& state() { return *state_; }

 private:
  explicit Device(const DeviceOptions& options);

  const DeviceOptions options_;
  std::string name_;
  std::unique_ptr<detail::DeviceState> state_;
  std::atomic<LaunchLog*> launch_log_{nullptr};
  std::atomic<TraceRing*> trace_{nullptr};
};

}  // namespace rigel
