#pragma once

#include "graphs/bucket_table.h"
#include "graphs/capture_client.h"
#include "graphs/slot_ring.h"
#include "tensor/device.h"
#include "tensor/graph.h"
#include "tensor/stream.h"
#include "tensor/trace.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rigel {

/// The right to replay one slot of a bucket once.
struct GraphLease {
  std::size_t bucket = 0;
  std::int32_t slot = 0;
};

/// Why a bucket is not there.
struct CaptureFailure {
  GraphBucket bucket;
  std::int32_t slot = 0;
  std::string message;
};

/// What a bucket's graph consists of and costs: every slot's is the same but for addresses.
struct GraphManifest {
  GraphBucket bucket;
  BucketKind kind{};
  int num_nodes = 0;
  std::int64_t num_bytes = 0;  // of all slots together, beside what the graphs read and write
  std::vector<LaunchRecord> launches;  // kernels and library calls in the order of their calls
  std::uint64_t num_replays = 0;
  std::chrono::nanoseconds capture_time{};  // of the slot that took longest
};

/// The captured graphs of one node: a graph for each bucket and slot. Buckets are captured largest first; a bucket serves
/// once all its slots are there, on every rank. Thread: one, the one that launches.
class GraphRunner {
 public:
  /// `stream` is what work is captured from and replayed on; it outlives the runner. Throws CheckError where SlotRing does not
  /// take num_slots.
  GraphRunner(StreamRef stream, std::int32_t num_slots);

  /// See BucketTable::add. Before the first capture.
  std::size_t add(const GraphBucket& bucket, BucketKind kind,
                  std::span<const std::int32_t> aliases);
  /// Captures what is left.
  void capture_all(CaptureClient& client);
  /// Captures the largest bucket that is left, in all slots; false where none was. What the client or the device refuses is a
  /// failure of that bucket, noted in `failures`; DeviceError: the device itself has failed.
  bool capture_next(CaptureClient& client);
  /// Buckets that are not captured yet.
  [[nodiscard]] std::size_t num_pending() const { return pending_.size(); }
  [[nodiscard]] std::span<const CaptureFailure> failures() const { return failures_; }

  /// The next slot of the bucket that serves the step; none: it runs eagerly. Every lease is given back.
  [[nodiscard]] std::optional<GraphLease> lease(const GraphDemand& demand);
  /// Puts a replay on the stream. Cost: one driver call.
  void replay(const GraphLease& lease);
  /// `used`: it was replayed.
  void give_back(const GraphLease& lease, bool used) noexcept {
    slots_.give_back(lease.slot, used);
  }

  [[nodiscard]] const BucketTable& buckets() const { return table_; }
  [[nodiscard]] std::int32_t num_slots() const { return slots_.size(); }
  [[nodiscard]] std::uint64_t num_replays(std::size_t bucket) const {
    return captures_[bucket].num_replays;
  }
  [[nodiscard]] GraphManifest manifest(std::size_t bucket) const;
  /// Memory of all graphs.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  struct Capture {
    std::vector<GraphExec> slots;  // all of them or none
    std::vector<LaunchRecord> launches;
    std::string name;  // of its replays in a trace
    std::uint64_t num_replays = 0;
    std::chrono::nanoseconds slowest{};  // to capture
  };

  [[nodiscard]] GraphExec capture(CaptureClient& client, std::size_t bucket, std::int32_t slot,
                                  std::vector<LaunchRecord>& launches);
  void check_recovered() const;

  StreamRef stream_;
  BucketTable table_;
  SlotRing slots_;
  std::vector<Capture> captures_;     // by bucket
  std::vector<std::size_t> pending_;  // smallest first
  std::vector<CaptureFailure> failures_;
};

}  // namespace rigel
