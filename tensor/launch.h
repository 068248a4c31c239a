#pragma once

// Launches as the rest of the engine makes them: on a stream, with declared bytes and FLOPs, checked. The kernel's text is
// bound by simt/launch.h, the only place that knows how.

#include "simt/launch.h"
#include "tensor/device.h"
#include "tensor/stream.h"
#include "tensor/trace.h"

#if defined(RIGEL_DEVICE_CUDA)
#include "tensor/cuda_state.h"
#else
#include "tensor/cpu_state.h"
#endif

#include <type_traits>
#include <utility>

namespace simt {
class Pool;
}

namespace rigel {

using simt::LaunchPlan;
using simt::Traffic;

namespace detail {

inline void note_launch(StreamRef stream, const char* name, const Traffic& traffic) {
  if (LaunchLog* log = stream.device().launch_log(); log != nullptr) [[unlikely]] {
    log->note(name, traffic);
  }
}

#if !defined(RIGEL_DEVICE_CUDA)

template <class Task>
struct KernelWork {
  Task task;

  void operator()(simt::VirtualDevice& device, simt::DeviceFault& fault) const {
    const simt::Status status = task(device.executor());
    if (!status.ok()) [[unlikely]] {
      fault = {simt::FaultCode::kLaunchFailure, status.message()};
    }
  }
};

template <class Params>
struct NativeWork {
  void (*function)(simt::Pool&, const Params&);
  Params params;

  void operator()(simt::VirtualDevice& device, simt::DeviceFault&) const {
    function(device.pool(), params);
  }
};

inline bool wants_device_text(StreamRef stream, const char* name) {
  return simt::wants_device_text(stream.state().virtual_device->options().executor, name);
}

#else

inline bool wants_device_text(StreamRef, const char*) {
  return true;
}

#endif

}  // namespace detail

#if !defined(RIGEL_DEVICE_CUDA) || defined(__CUDACC__)
/// Puts kernel K on the stream. Arguments are converted to the kernel's parameter types and copied at the call; an empty
/// grid launches nothing. Capturable. Throws DeviceError, also for work enqueued earlier that has failed meanwhile.
/// `name` must be a literal. Cost: well below a microsecond on the virtual device, about 2 on CUDA.
template <auto K, class... Args>
void launch(StreamRef stream, const char* name, const LaunchPlan& plan, Args&&... args) {
  if (plan.grid.x == 0 || plan.grid.y == 0 || plan.grid.z == 0) {
    return;
  }
  detail::note_launch(stream, name, plan.traffic);
#if defined(RIGEL_DEVICE_CUDA)
  LaunchPlan allowed = plan;
  allowed.programmatic = plan.programmatic && stream.device().options().programmatic_launches;
  detail::check_launch(
      simt::launch_on_device<K>(stream.state().stream, allowed, std::forward<Args>(args)...), name);
#else
  const detail::StreamState& on = stream.state();
  auto task = simt::bind_kernel<K>(name, plan, std::forward<Args>(args)...);
  detail::check(on.virtual_device->submit(
      *on.queue,
      simt::Command(simt::Command::Kind::kKernel, name, detail::KernelWork<decltype(task)>{task})));
#endif
}

#endif  // A CUDA build launches from .cu files only.

/// CPU device only (false on CUDA): puts `function` on the stream with its share of the device's threads. For work that has
/// no device text, as a library's; a kernel with a native variant uses launch_native. `name` must be a literal.
template <class Params>
[[nodiscard]] bool enqueue_native(StreamRef stream, const char* name, const Traffic& traffic,
                                  void (*function)(simt::Pool&, const Params&),
                                  const Params& params) {
  static_assert(std::is_trivially_copyable_v<Params>, "parameters are copied as bytes");
#if defined(RIGEL_DEVICE_CUDA)
  static_cast<void>(stream);
  static_cast<void>(name);
  static_cast<void>(traffic);
  static_cast<void>(function);
  static_cast<void>(params);
  return false;
#else
  const detail::StreamState& on = stream.state();
  detail::note_launch(stream, name, traffic);
  detail::check(on.virtual_device->submit(
      *on.queue, simt::Command(simt::Command::Kind::kNative, name,
                               detail::NativeWork<Params>{function, params})));
  return true;
#endif
}

/// CPU device only: puts the native variant `function` on the stream, unless the device text is asked for by
/// DeviceOptions::device_texts. False when `function` is null (always so on CUDA) or the text is asked for: then the caller
/// launches the kernel.
template <class Params>
[[nodiscard]] bool launch_native(StreamRef stream, const char* name, const Traffic& traffic,
                                 void (*function)(simt::Pool&, const Params&),
                                 const Params& params) {
  if (function == nullptr || detail::wants_device_text(stream, name)) {
    return false;
  }
  return enqueue_native(stream, name, traffic, function, params);
}

}  // namespace rigel
