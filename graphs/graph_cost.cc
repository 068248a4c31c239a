#include "graphs/graph_cost.h"

#include "tensor/error.h"

#include <string_view>

namespace rigel {

namespace {

/// One cost of a launch at one bucket.
struct CostPoint {
  double num_tokens = 0;
  double value = 0;
  double per_context_token = 0;
  double num_context_tokens = 0;

  [[nodiscard]] double without_context() const {
    return value - per_context_token * num_context_tokens;
  }
};

CostFunction line_through(const CostPoint& a, const CostPoint& b) {
  CostFunction line;
  line.per_context_token = b.per_context_token;
  line.per_token = (b.without_context() - a.without_context()) / (b.num_tokens - a.num_tokens);
  line.fixed = a.without_context() - line.per_token * a.num_tokens;
  return line;
}

CostPoint read_bytes_of(const GraphManifest& graph, const simt::Traffic& traffic) {
  return {static_cast<double>(graph.bucket.num_tokens), static_cast<double>(traffic.read_bytes),
          traffic.context.read_bytes, static_cast<double>(traffic.context.num_tokens)};
}

CostPoint written_bytes_of(const GraphManifest& graph, const simt::Traffic& traffic) {
  return {static_cast<double>(graph.bucket.num_tokens), static_cast<double>(traffic.written_bytes),
          0, 0};
}

CostPoint flops_of(const GraphManifest& graph, const simt::Traffic& traffic) {
  return {static_cast<double>(graph.bucket.num_tokens), static_cast<double>(traffic.flops),
          traffic.context.flops, static_cast<double>(traffic.context.num_tokens)};
}

}  // namespace

CostFunction& CostFunction::operator+=(const CostFunction& other) {
  fixed += other.fixed;
  per_token += other.per_token;
  per_context_token += other.per_context_token;
  return *this;
}

std::optional<std::vector<LaunchCost>> launch_costs(const GraphManifest& small,
                                                    const GraphManifest& large) {
  RIGEL_CHECK(small.bucket.num_tokens != large.bucket.num_tokens,
              "two buckets of different sizes tell a cost, got two of {} tokens",
              small.bucket.num_tokens);
  if (small.launches.size() != large.launches.size()) {
    return std::nullopt;
  }
  std::vector<LaunchCost> costs;
  costs.reserve(large.launches.size());
  for (std::size_t i = 0; i < large.launches.size(); ++i) {
    const LaunchRecord& a = small.launches[i];
    const LaunchRecord& b = large.launches[i];
    if (std::string_view(a.name) != b.name || a.layer != b.layer) {
      return std::nullopt;
    }
    costs.push_back(
        {b.name, b.layer,
         line_through(read_bytes_of(small, a.traffic), read_bytes_of(large, b.traffic)),
         line_through(written_bytes_of(small, a.traffic), written_bytes_of(large, b.traffic)),
         line_through(flops_of(small, a.traffic), flops_of(large, b.traffic))});
  }
  return costs;
}

}  // namespace rigel
