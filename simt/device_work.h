#pragma once

#include "simt/device_fault.h"

#include <cstddef>
#include <cstdint>

namespace simt {

class GraphProgram;
class Queue;
class VirtualDevice;

/// From where to where a copy goes. The host's side is pinned or pageable memory.
enum class CopyDirection : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

// The closures of the commands that are no kernels.

struct CopyWork {
  void* target;
  const void* source;
  std::size_t num_bytes;
  CopyDirection direction;

  void operator()(VirtualDevice& device, DeviceFault& fault) const;
  /// Fills a host target with 0xFF and forbids access to it until the copy runs: whoever reads it before the copy's event
  /// sees garbage, or a report of AddressSanitizer.
  void spoil_host_target() const;
  /// Allows access again when the copy will not run.
  void release_host_target() const;
};

struct FillWork {
  void* target;
  std::size_t num_bytes;
  std::uint8_t value;

  void operator()(VirtualDevice& device, DeviceFault& fault) const;
};

struct HostWork {
  void (*function)(void*);
  void* data;

  void operator()(VirtualDevice&, DeviceFault&) const { function(data); }
};

/// Stores the time, in nanoseconds of the steady clock.
struct MarkWork {
  std::int64_t* time_ns;

  void operator()(VirtualDevice&, DeviceFault&) const;
};

struct WaitWork {
  Queue* queue;
  std::uint64_t position;

  void operator()(VirtualDevice&, DeviceFault&) const;
};

struct ReplayWork {
  GraphProgram* program;

  void operator()(VirtualDevice& device, DeviceFault& fault) const;
};

/// The block at `address` goes back to its allocator: nobody may use it until the matching ReviveWork.
struct RetireWork {
  void* address;

  void operator()(VirtualDevice& device, DeviceFault& fault) const;
};

struct ReviveWork {
  void* address;

  void operator()(VirtualDevice& device, DeviceFault& fault) const;
};

}  // namespace simt
