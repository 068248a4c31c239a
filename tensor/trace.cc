#include "tensor/trace.h"

#if defined(RIGEL_DEVICE_CUDA)
#include <nvtx3/nvToolsExt.h>
#endif

#include "tensor/device.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace rigel {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void LaunchLog::note(const char* name, const simt::Traffic& traffic) {
  const std::lock_guard lock(mutex_);
  records_.push_back({name, traffic, layer_});
}

void LaunchLog::append(std::span<const LaunchRecord> records) {
  const std::lock_guard lock(mutex_);
  records_.insert(records_.end(), records.begin(), records.end());
}

void LaunchLog::set_layer(int layer) {
  const std::lock_guard lock(mutex_);
  layer_ = layer;
}

LayerScope::LayerScope(const Device& device, int layer) : log_(device.launch_log()) {
  if (log_ != nullptr) {
    log_->set_layer(layer);
  }
}

LayerScope::~LayerScope() {
  if (log_ != nullptr) {
    log_->set_layer(-1);
  }
}

std::vector<LaunchRecord> LaunchLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(records_, {});
}

TraceRing::TraceRing(int num_spans)
    : spans_(std::bit_ceil(static_cast<std::size_t>(std::max(1, num_spans)))) {}

void TraceRing::note(const TraceSpan& span) {
  const std::uint64_t index = num_noted_.fetch_add(1, std::memory_order_relaxed);
  spans_[index & (spans_.size() - 1)] = span;
}

std::vector<TraceSpan> TraceRing::snapshot() const {
  const std::uint64_t end = num_noted_.load(std::memory_order_acquire);
  const std::uint64_t begin = end - std::min<std::uint64_t>(end, spans_.size());
  std::vector<TraceSpan> result;
  for (std::uint64_t index = begin; index < end; ++index) {
    result.push_back(spans_[index & (spans_.size() - 1)]);
  }
  return result;
}

TraceRange::TraceRange([[maybe_unused]] const char* name) {
#if defined(RIGEL_DEVICE_CUDA)
  nvtxRangePushA(name);
#endif
}

TraceRange::TraceRange(const Device& device, const char* name) : TraceRange(name) {
  ring_ = device.trace();
  if (ring_ != nullptr) {
    span_ = {name, now_ns(), 0};
  }
}

TraceRange::~TraceRange() {
  if (ring_ != nullptr) {
    span_.end_ns = now_ns();
    ring_->note(span_);
  }
#if defined(RIGEL_DEVICE_CUDA)
  nvtxRangePop();
#endif
}

}  // namespace rigel
