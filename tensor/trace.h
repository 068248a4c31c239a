#pragma once

#include "simt/launch_plan.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace rigel {

class Device;

/// One launch as it was enqueued: what it is called, the layer of its model that it belongs to (-1: none) and what it moves and
/// computes.
struct LaunchRecord {
  const char* name;
  simt::Traffic traffic;
  int layer = -1;
};

/// Collects launches for a test, a profiler or a roofline table; see Device::set_launch_log. Thread: any. A launch that is
/// captured is noted once, at its capture.
class LaunchLog {
 public:
  void note(const char* name, const simt::Traffic& traffic);
  void append(std::span<const LaunchRecord> records);
  /// Launches that are noted from now on belong to this layer.
  void set_layer(int layer);
  [[nodiscard]] std::vector<LaunchRecord> take();

 private:
  std::mutex mutex_;
  std::vector<LaunchRecord> records_;
  int layer_ = -1;
};

/// Names the layer that the launches of a scope belong to. Cost: one comparison where nobody listens.
class LayerScope {
 public:
  LayerScope(const Device& device, int layer);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  LaunchLog* log_;
};

/// A stretch of host time with a name.
struct TraceSpan {
  const char* name = nullptr;
  std::int64_t begin_ns = 0;  // of the steady clock
  std::int64_t end_ns = 0;
};

/// The latest spans of host time; see Device::set_trace. Older ones are overwritten. Thread: any writes; `snapshot` while
/// nobody does. Cost of a span: two clock reads, no lock, no heap.
class TraceRing {
 public:
  /// `num_spans` is rounded up to a power of two.
  explicit TraceRing(int num_spans);

  void note(const TraceSpan& span);
  /// The spans kept, oldest first.
  [[nodiscard]] std::vector<TraceSpan> snapshot() const;

 private:
  std::vector<TraceSpan> spans_;
  std::atomic<std::uint64_t> num_noted_{0};
};

/// Names the host time of a scope: an NVTX range on CUDA, and a span of the device's trace ring where one is set.
/// `name` outlives the ring.
class TraceRange {
 public:
  TraceRange(const Device& device, const char* name);
  /// The NVTX range alone, where no device is at hand.
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  TraceRing* ring_ = nullptr;
  TraceSpan span_;
};

}  // namespace rigel
