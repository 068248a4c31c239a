#pragma once

#include "simt/capture.h"
#include "simt/command.h"
#include "simt/device_fault.h"
#include "simt/device_memory.h"
#include "simt/device_work.h"
#include "simt/executor.h"
#include "simt/graph_program.h"
#include "simt/moment.h"
#include "simt/options.h"
#include "simt/pool.h"
#include "simt/queue.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simt {

struct VirtualDeviceOptions {
  QueueMode mode = QueueMode::kThreaded;
  Options executor;
  /// Threads of the pool that kernels and native variants share, the queue's own included.
  int num_threads = 1;
  std::size_t memory_bytes = std::size_t{4} << 30;
  /// Allocations start as 0xFF, and so do host targets of copies until the copy has run.
  bool fill_garbage = true;
  /// Null mode runs only the commands with these names. What it copies to the host are zeros, so that the host sees valid
  /// values (token 0, no flag) although nothing was computed.
  std::vector<std::string> null_mode_names;
  std::size_t num_queue_slots = 1024;
};

/// A device that is not there: memory, queues, events and graphs with the rules of CUDA's runtime, on threads.
///
/// What CUDA forbids during a capture is refused with its code, and the capture is lost. A failed command is seen at the
/// next call that enqueues to its queue or waits for it. Thread: any. No call throws.
class VirtualDevice {
 public:
  explicit VirtualDevice(const VirtualDeviceOptions& options);
  ~VirtualDevice();
  VirtualDevice(const VirtualDevice&) = delete;
  VirtualDevice& operator=(const VirtualDevice&) = delete;

  [[nodiscard]] const VirtualDeviceOptions& options() const { return options_; }
  [[nodiscard]] Pool& pool() { return pool_; }
  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] DeviceMemory& memory() { return memory_; }

  // Memory. Both refuse to work in a capture; `free` waits for all queues, as cudaFree does.
  DeviceFault allocate(std::size_t num_bytes, void** address);
  DeviceFault allocate_pinned(std::size_t num_bytes, void** address);
  DeviceFault free(void* address);

  /// A queue for exclusive use until `return_queue`, which waits for its commands. Null when 255 are in use.
  [[nodiscard]] Queue* take_queue();
  void return_queue(Queue& queue);

  /// Puts a command on the queue, or into the capture that the queue is part of.
  DeviceFault submit(Queue& queue, const Command& command);
  /// Asynchronous for pinned host memory. With pageable memory it returns when the copy is done, and a capture refuses it.
  DeviceFault copy(Queue& queue, const CopyWork& work);
  DeviceFault fill(Queue& queue, const FillWork& work);

  DeviceFault record(Queue& queue, Moment* moment);
  DeviceFault wait(Queue& queue, Moment moment);
  DeviceFault query(Moment moment, bool* reached);
  DeviceFault query(Queue& queue, bool* reached);
  DeviceFault synchronize(Moment moment);
  DeviceFault synchronize(Queue& queue);
  DeviceFault synchronize_all();
  /// For destructors: waits whatever the calling thread is capturing, and leaves faults where they are.
  void wait_quietly(Moment moment);

  /// Thread-local capture mode: what is forbidden is forbidden to the calling thread.
  DeviceFault begin_capture(Queue& queue);
  /// Ends what `begin_capture(queue)` began, lost or not.
  DeviceFault end_capture(Queue& queue, CommandGraph* graph);
  DeviceFault launch(Queue& queue, GraphProgram& program);

  /// Whether null mode runs this command.
  [[nodiscard]] bool runs_in_null_mode(const Command& command) const;
  /// Whether null mode was told to run commands of this name as they are.
  [[nodiscard]] bool is_null_mode_name(const char* name) const;
  /// Runs a command now, in the calling thread. For queues and programs.
  void run(Command& command, DeviceFault& fault);
  /// Instead of `run`, after an earlier command failed.
  void skip(Command& command);

 private:
  static constexpr int kMaxQueues = 255;

  DeviceFault refuse_in_capture(const char* call, Queue* queue = nullptr);
  DeviceFault lose(Capture& capture, FaultCode code, std::string message);
  DeviceFault submit_captured(Queue& queue, const Command& command);
  DeviceFault wait_captured(Queue& queue, Moment moment);
  Capture* find_capture(std::uint32_t serial);
  Queue& queue_at(int id) { return *queues_[static_cast<std::size_t>(id)]; }

  const VirtualDeviceOptions options_;
  DeviceMemory memory_;
  Pool pool_;
  Executor executor_;

  std::mutex queues_mutex_;
  std::array<std::unique_ptr<Queue>, kMaxQueues> queues_;
  int num_queues_ = 0;
  std::vector<Queue*> idle_queues_;

  std::atomic<int> num_captures_{0};
  std::mutex captures_mutex_;
  std::vector<std::unique_ptr<Capture>> captures_;
  std::uint32_t next_capture_serial_ = 1;
};

}  // namespace simt
