#include "graphs/graph_runner.h"

#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

namespace rigel {

namespace {

/// Notes the launches of a capture, also for whoever listens already.
class LaunchNotes {
 public:
  explicit LaunchNotes(Device& device) : device_(device), listener_(device.launch_log()) {
    device_.set_launch_log(&log_);
  }
  ~LaunchNotes() { device_.set_launch_log(listener_); }
  LaunchNotes(const LaunchNotes&) = delete;
  LaunchNotes& operator=(const LaunchNotes&) = delete;

  [[nodiscard]] std::vector<LaunchRecord> take() {
    std::vector<LaunchRecord> records = log_.take();
    if (listener_ != nullptr) {
      listener_->append(records);
    }
    return records;
  }

 private:
  Device& device_;
  LaunchLog* listener_;
  LaunchLog log_;
};

/// Resets the client on every way out.
class ResetAtEnd {
 public:
  explicit ResetAtEnd(CaptureClient& client) : client_(client) {}
  ~ResetAtEnd() { client_.reset(); }
  ResetAtEnd(const ResetAtEnd&) = delete;
  ResetAtEnd& operator=(const ResetAtEnd&) = delete;

 private:
  CaptureClient& client_;
};

}  // namespace

GraphRunner::GraphRunner(StreamRef stream, std::int32_t num_slots)
    : stream_(stream), slots_(num_slots) {}

std::size_t GraphRunner::add(const GraphBucket& bucket, BucketKind kind,
                             std::span<const std::int32_t> aliases) {
  RIGEL_CHECK(pending_.size() == table_.size(), "bucket of {} lanes: captures have begun already",
              bucket.num_lanes);
  const std::size_t added = table_.add(bucket, kind, aliases);
  captures_.emplace_back();
  pending_ = table_.capture_order();
  std::ranges::reverse(pending_);
  return added;
}

void GraphRunner::capture_all(CaptureClient& client) {
  while (capture_next(client)) {
  }
}

bool GraphRunner::capture_next(CaptureClient& client) {
  if (pending_.empty()) {
    return false;
  }
  const std::size_t bucket = pending_.back();
  pending_.pop_back();
  Capture made;
  std::int32_t slot = 0;
  try {
    for (; slot < slots_.size(); ++slot) {
      const auto begin = std::chrono::steady_clock::now();
      made.slots.push_back(capture(client, bucket, slot, made.launches));
      made.slowest = std::max<std::chrono::nanoseconds>(made.slowest,
                                                        std::chrono::steady_clock::now() - begin);
    }
  } catch (const std::exception& error) {
    check_recovered();
    failures_.push_back({table_[bucket], slot, error.what()});
    std::ignore = client.everywhere(false);
    return true;
  }
  if (!client.everywhere(true)) {
    failures_.push_back({table_[bucket], 0, "another rank could not capture it"});
    return true;
  }
  made.name = fmt::format("replay of {} launches for {} tokens", made.launches.size(),
                          table_[bucket].num_tokens);
  captures_[bucket] = std::move(made);
  table_.enable(bucket);
  return true;
}

GraphExec GraphRunner::capture(CaptureClient& client, std::size_t bucket, std::int32_t slot,
                               std::vector<LaunchRecord>& launches) {
  const ResetAtEnd reset(client);
  client.prepare(bucket, slot);
  LaunchNotes notes(stream_.device());
  GraphCapture capture(stream_);
  client.enqueue();
  if (client.repeats()) {
    client.enqueue_turn(capture.begin_loop());
  }
  GraphExec exec(capture.end());
  launches = notes.take();
  return exec;
}

/// A lost capture must not spoil those that follow. Throws DeviceError where it was the device that failed.
void GraphRunner::check_recovered() const {
  RIGEL_CHECK(!stream_.is_capturing(), "a failed capture has left its stream {}", "capturing");
  stream_.synchronize();
}

std::optional<GraphLease> GraphRunner::lease(const GraphDemand& demand) {
  const std::optional<std::size_t> bucket = table_.find(demand);
  if (!bucket) {
    return std::nullopt;
  }
  return GraphLease{*bucket, slots_.take()};
}

void GraphRunner::replay(const GraphLease& lease) {
  Capture& captured = captures_[lease.bucket];
  const TraceRange range(stream_.device(), captured.name.c_str());
  captured.slots[static_cast<std::size_t>(lease.slot)].launch(stream_);
  ++captured.num_replays;
}

GraphManifest GraphRunner::manifest(std::size_t bucket) const {
  const Capture& captured = captures_[bucket];
  GraphManifest manifest{.bucket = table_[bucket],
                         .kind = table_.kind(bucket),
                         .num_nodes = 0,
                         .num_bytes = 0,
                         .launches = captured.launches,
                         .num_replays = captured.num_replays,
                         .capture_time = captured.slowest};
  for (const GraphExec& exec : captured.slots) {
    manifest.num_nodes = exec.num_nodes();
    manifest.num_bytes += exec.num_bytes();
  }
  return manifest;
}

std::int64_t GraphRunner::num_bytes() const {
  std::int64_t total = 0;
  for (const Capture& captured : captures_) {
    for (const GraphExec& exec : captured.slots) {
      total += exec.num_bytes();
    }
  }
  return total;
}

}  // namespace rigel
