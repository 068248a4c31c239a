#pragma once

#include "graphs/graph_runner.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace rigel {

/// A cost as a function of a step's shape: fixed + per_token * tokens + per_context_token * context tokens. The latter are
/// what requests have cached, over all of them, as far as a window lets a token see it.
struct CostFunction {
  double fixed = 0;
  double per_token = 0;
  double per_context_token = 0;

  [[nodiscard]] double operator()(std::int64_t num_tokens, std::int64_t num_context_tokens) const {
    return fixed + per_token * static_cast<double>(num_tokens) +
           per_context_token * static_cast<double>(num_context_tokens);
  }
  CostFunction& operator+=(const CostFunction& other);
};

/// One launch of a captured step: the operation, its layer (-1: none) and what it moves and computes.
struct LaunchCost {
  const char* operation = nullptr;
  int layer = -1;
  CostFunction read_bytes;
  CostFunction written_bytes;
  CostFunction flops;
};

/// The launches of a walk's captured steps, from two of its buckets that differ in tokens: declared traffic is affine in the
/// number of tokens, and launches say themselves what their context costs. None where the buckets launch different things.
[[nodiscard]] std::optional<std::vector<LaunchCost>> launch_costs(const GraphManifest& small,
                                                                  const GraphManifest& large);

}  // namespace rigel
