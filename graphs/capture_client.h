#pragma once

#include "graphs/bucket_table.h"
#include "tensor/graph.h"

#include <cstdint>

namespace rigel {

/// Who knows what a graph does. For each (bucket, slot): prepare, enqueue (and enqueue_turn) within the capture, reset. There is
/// no warm-up run: algorithms, workspaces and kernel attributes are settled when the work is prepared at load. What these
/// throw, but for reset, costs the bucket and nothing else. Thread: the runner's.
class CaptureClient {
 public:
  virtual ~CaptureClient() = default;

  /// Plans and stages a step of this shape that consists of padding, at the addresses that replays of the slot will use.
  virtual void prepare(std::size_t bucket, std::int32_t slot) = 0;
  /// Enqueues that step on the runner's stream: a capture takes it down. Must not allocate, wait or copy pageable memory.
  virtual void enqueue() = 0;
  /// Whether what was prepared goes on with a loop.
  [[nodiscard]] virtual bool repeats() const { return false; }
  /// Enqueues a turn of the loop, behind what `enqueue` has enqueued: see GraphCapture::begin_loop.
  virtual void enqueue_turn(LoopCondition /*condition*/) {}
  /// Whether all ranks of a tensor-parallel group have captured the bucket, given whether this one has. Called once a bucket,
  /// captured or not, in the order of the captures, which is the same on every rank. Alone, this rank's word counts.
  [[nodiscard]] virtual bool everywhere(bool captured) { return captured; }
  /// Lets go of what `prepare` took, whether the capture succeeded or not.
  virtual void reset() noexcept = 0;
};

}  // namespace rigel
