#include "engine/graph_catalog.h"

#include "tensor/error.h"

#include <algorithm>
#include <string>

namespace rigel {

namespace {

template <class Size>
void check_sizes(const std::vector<Size>& sizes, const std::string& owner, const char* field) {
  RIGEL_CHECK(!sizes.empty(), "{}: {} is empty", owner, field);
  RIGEL_CHECK(sizes.front() > 0, "{}: {} has {}, must be positive", owner, field, sizes.front());
  RIGEL_CHECK(std::ranges::adjacent_find(sizes, std::greater_equal<>()) == sizes.end(),
              "{}: {} must ascend", owner, field);
}

const GraphConfig& common_part(const CudaGraphConfig& config) {
  return std::visit([](const auto& kind) -> const GraphConfig& { return kind; }, config);
}

void check_step(const CudaGraphConfig& config) {
  const GraphConfig& common = common_part(config);
  const std::string owner =
      fmt::format("graph config of walk {}", static_cast<int>(common.capture_walk));
  check_sizes(common.batch_sizes, owner, "batch_sizes");
  RIGEL_CHECK(common.key.has_bucket(), "{}: key is no_bucket", owner);
  if (const auto* batched = std::get_if<BatchedGraphConfig>(&config)) {
    RIGEL_CHECK(batched->row != nullptr, "{}: row is missing", owner);
  } else {
    const auto& packed = std::get<PackedGraphConfig>(config);
    check_sizes(packed.token_counts, owner, "token_counts");
    RIGEL_CHECK(packed.make_row != nullptr, "{}: make_row is missing", owner);
  }
}

void check_region(const PiecewiseCudaGraphConfig& config) {
  const auto& common =
      std::visit([](const auto& kind) -> const PiecewiseConfig& { return kind; }, config);
  const std::string owner = fmt::format("piecewise graph config '{}'", common.label);
  check_sizes(common.batch_sizes, owner, "batch_sizes");
  RIGEL_CHECK(common.num_parts > 0, "{}: num_parts is {}", owner, common.num_parts);
  RIGEL_CHECK(common.make_static_inputs != nullptr, "{}: make_static_inputs is missing", owner);
  RIGEL_CHECK(common.capture != nullptr, "{}: capture is missing", owner);
  RIGEL_CHECK(!common.lease_before_step || common.declare_step != nullptr,
              "{}: lease_before_step is set, but it has no {}", owner, "declare_step");
  if (const auto* packed = std::get_if<PiecewisePackedConfig>(&config)) {
    check_sizes(packed->token_counts, owner, "token_counts");
  } else {
    const std::int64_t seq_len = std::get<PiecewiseBatchedConfig>(config).seq_len;
    RIGEL_CHECK(seq_len > 0, "{}: seq_len is {}", owner, seq_len);
  }
}

}  // namespace

GraphCatalog::GraphCatalog(std::vector<CudaGraphConfig> steps,
                           std::vector<PiecewiseCudaGraphConfig> regions)
    : steps_(std::move(steps)), regions_(std::move(regions)) {
  for (std::size_t index = 0; index < steps_.size(); ++index) {
    check_step(steps_[index]);
    const GraphConfig& config = common_part(steps_[index]);
    for (std::size_t other = 0; other < index; ++other) {
      // One config may be batched and the other packed: they serve the same walk by different shapes.
      RIGEL_CHECK(steps_[other].index() != steps_[index].index() ||
                      common_part(steps_[other]).capture_walk != config.capture_walk ||
                      common_part(steps_[other]).key != config.key,
                  "two graph configs of walk {} have one key",
                  static_cast<int>(config.capture_walk));
    }
    add(config);
  }
  RIGEL_CHECK(regions_.size() <= PiecewiseLeases::kMaxRegions,
              "{} piecewise graph configs, at most {} can be", regions_.size(),
              PiecewiseLeases::kMaxRegions);
  for (std::size_t index = 0; index < regions_.size(); ++index) {
    check_region(regions_[index]);
    const auto label_of = [&](std::size_t at) {
      return std::visit([](const auto& kind) { return kind.label; }, regions_[at]);
    };
    for (std::size_t other = 0; other < index; ++other) {
      RIGEL_CHECK(label_of(other) != label_of(index), "two piecewise graph configs are called '{}'",
                  label_of(index));
    }
  }
}

void GraphCatalog::add(const GraphConfig& config) {
  std::vector<WalkId> walks = config.replay_walks;
  walks.push_back(config.capture_walk);
  for (const WalkId id : walks) {
    auto walk = std::ranges::find(walks_, id, &Walk::walk);
    if (walk == walks_.end()) {
      walk = walks_.insert(walks_.end(), Walk{id, std::nullopt});
    }
    if (config.caps_eager_batch_size) {
      walk->max_batch_size = std::max(walk->max_batch_size.value_or(0), config.batch_sizes.back());
    }
  }
}

const GraphCatalog::Walk* GraphCatalog::find(WalkId walk) const {
  const auto known = std::ranges::find(walks_, walk, &Walk::walk);
  return known == walks_.end() ? nullptr : &*known;
}

bool GraphCatalog::replays(WalkId walk) const {
  return find(walk) != nullptr;
}

std::optional<std::int32_t> GraphCatalog::max_batch_size(WalkId walk) const {
  const Walk* known = find(walk);
  return known == nullptr ? std::nullopt : known->max_batch_size;
}

}  // namespace rigel
