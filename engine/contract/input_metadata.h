#pragma once

#include "engine/contract/ids.h"
#include "tensor/error.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace rigel {

/// How often each loop around a node has run in the current pass of one request. A fixed array: walks nest a few loops at
/// most (more is an error when the model is loaded), and a snapshot of it must be a plain copy.
class LoopCounters {
 public:
  static constexpr int kMaxLoops = 4;

  /// Iterations of `loop`; 0 where it has not run.
  [[nodiscard]] std::int32_t count(LoopId loop) const {
    for (int index = 0; index < size_; ++index) {
      if (entries_[static_cast<std::size_t>(index)].loop == loop) {
        return entries_[static_cast<std::size_t>(index)].count;
      }
    }
    return 0;
  }
  void set(LoopId loop, std::int32_t count) {
    for (int index = 0; index < size_; ++index) {
      if (entries_[static_cast<std::size_t>(index)].loop == loop) {
        entries_[static_cast<std::size_t>(index)].count = count;
        return;
      }
    }
    RIGEL_CHECK(size_ < kMaxLoops, "a request counts at most {} loops", kMaxLoops);
    entries_[static_cast<std::size_t>(size_++)] = {loop, count};
  }
  void increment(LoopId loop) { set(loop, count(loop) + 1); }
  [[nodiscard]] int size() const { return size_; }

 private:
  struct Entry {
    LoopId loop{};
    std::int32_t count = 0;
  };
  std::array<Entry, kMaxLoops> entries_{};
  std::int32_t size_ = 0;
};

/// Where a consumed chunk sits in its stream, in items.
struct StreamChunkInfo {
  std::int64_t start_offset = 0;
  std::int64_t context_items = 0;  // leading items that an earlier chunk already held
  std::int64_t num_items = 0;
  bool is_final = false;
};

/// What the worker knows about one request's inputs to one step. Unlike RequestInfo it belongs to the step: hooks read loop
/// counters here, because the shared ones move while the step is prepared.
struct InputMetadata {
  LoopCounters loop_counters;
  std::vector<std::pair<SignalId, StreamChunkInfo>> stream_chunks;

  [[nodiscard]] const StreamChunkInfo* stream_chunk(SignalId input) const {
    for (const auto& [signal, chunk] : stream_chunks) {
      if (signal == input) {
        return &chunk;
      }
    }
    return nullptr;
  }
};

}  // namespace rigel
