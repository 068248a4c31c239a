#pragma once

// The one place where kernels are launched. tensor/launch.h adds the stream, the error type and the trace.

#include "simt/launch_plan.h"

#include <utility>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <atomic>

namespace simt {

namespace detail {

/// Static shared memory and up to this much dynamic need no permission.
inline constexpr unsigned kFreeSharedBytes = 48 * 1024;
inline constexpr unsigned kMaxSharedBytes = 227 * 1024;

/// Allows kernel K its dynamic shared memory, once a kernel and device.
template <auto K>
cudaError_t allow_shared_bytes(unsigned shared_bytes) {
  if (shared_bytes <= kFreeSharedBytes) {
    return cudaSuccess;
  }
  // Bit = device. A write-once cache of what the driver already knows; two threads may both ask, which is harmless.
  static std::atomic<unsigned long long> allowed{0};
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) {
    return error;
  }
  const unsigned long long bit = 1ull << (device & 63);
  if ((allowed.load(std::memory_order_relaxed) & bit) != 0) {
    return cudaSuccess;
  }
  const cudaError_t error = cudaFuncSetAttribute(K, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(kMaxSharedBytes));
  if (error == cudaSuccess) {
    allowed.fetch_or(bit, std::memory_order_relaxed);
  }
  return error;
}

template <auto K, class... P, class... A>
cudaError_t launch_converted(void (*)(P...), cudaStream_t stream, const LaunchPlan& plan,
                             A&&... arguments) {
  if (const cudaError_t error = allow_shared_bytes<K>(plan.shared_bytes); error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute programmatic{};
  programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  programmatic.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = plan.grid;
  config.blockDim = plan.block;
  config.dynamicSmemBytes = plan.shared_bytes;
  config.stream = stream;
  config.attrs = &programmatic;
  config.numAttrs = plan.programmatic ? 1 : 0;
  return cudaLaunchKernelEx(&config, K, static_cast<P>(std::forward<A>(arguments))...);
}

}  // namespace detail

/// Puts kernel K on a stream of the current device. Arguments are converted to the kernel's parameter types. Capturable
/// (after a first launch of the kernel, when it needs more than 48 KB of dynamic shared memory).
template <auto K, class... A>
[[nodiscard]] cudaError_t launch_on_device(cudaStream_t stream, const LaunchPlan& plan,
                                           A&&... arguments) {
  return detail::launch_converted<K>(K, stream, plan, std::forward<A>(arguments)...);
}

}  // namespace simt

#else

#include "simt/executor.h"
#include "simt/kernel_call.h"

#include <type_traits>

namespace simt {

/// A kernel bound to a plan and arguments, ready to be queued: trivially copyable, no heap.
template <class Body>
class KernelTask {
 public:
  KernelTask(const char* name, const LaunchPlan& plan, const Body& body)
      : name_(name), plan_(plan), body_(body) {
    static_assert(std::is_trivially_copyable_v<Body> && std::is_trivially_destructible_v<Body>,
                  "kernel parameters must be trivially copyable");
  }

  /// Runs the grid to its end.
  Status operator()(Executor& executor) const {
    const auto run_thread = [](const void* body) { (*static_cast<const Body*>(body))(); };
    return executor.run({name_, &plan_, run_thread, &body_});
  }
  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] const LaunchPlan& plan() const { return plan_; }

 private:
  const char* name_;
  LaunchPlan plan_;
  Body body_;
};

namespace detail {

template <auto K, class... P, class... A>
auto bind_converted(void (*)(P...), const char* name, const LaunchPlan& plan, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
  // K is a constant, so its text is inlined into the body.
  return KernelTask(name, plan,
                    [... values = static_cast<P>(std::forward<A>(arguments))] { K(values...); });
}

}  // namespace detail

/// Binds kernel K. Arguments are converted to the kernel's parameter types and copied now. `name` must outlive the task.
template <auto K, class... A>
[[nodiscard]] auto bind_kernel(const char* name, const LaunchPlan& plan, A&&... arguments) {
  return detail::bind_converted<K>(K, name, plan, std::forward<A>(arguments)...);
}

}  // namespace simt

#endif
