#pragma once

#include "worker/service.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace rigel {

/// What the nodes of a composite model have done so far, and the pages of their caches.
struct NodeCounts {
  std::int64_t num_preemptions = 0;  // requests that lost their pages
  std::int64_t num_offloads = 0;     // to the host, of those
  std::int64_t num_steps = 0;
  std::int64_t num_combined_steps = 0;  // with rows of several walks, of those
  std::int64_t pages_total = 0;
  std::int64_t pages_in_use = 0;
  std::array<std::int64_t, kNumSpeculativeRows> speculative_rows{};  // by SpeculativeRow
  std::int64_t num_wasted_rows = 0;  // row-steps that ran ahead of the end of their loop

  void add(SpeculativeRow kind, std::size_t count) {
    speculative_rows[static_cast<std::size_t>(kind)] += static_cast<std::int64_t>(count);
  }
  NodeCounts& operator+=(const NodeCounts& other) {
    num_preemptions += other.num_preemptions;
    num_offloads += other.num_offloads;
    num_steps += other.num_steps;
    num_combined_steps += other.num_combined_steps;
    pages_total += other.pages_total;
    pages_in_use += other.pages_in_use;
    for (std::size_t kind = 0; kind < kNumSpeculativeRows; ++kind) {
      speculative_rows[kind] += other.speculative_rows[kind];
    }
    num_wasted_rows += other.num_wasted_rows;
    return *this;
  }
};

}  // namespace rigel
