#include "graphs/bucket_table.h"

#include "tensor/error.h"

#include <algorithm>
#include <utility>

namespace rigel {

std::size_t BucketTable::add(const GraphBucket& bucket, BucketKind kind,
                             std::span<const std::int32_t> aliases) {
  RIGEL_CHECK(bucket.num_lanes > 0 && bucket.num_tokens > 0,
              "a bucket of walk {} has {} lanes and {} tokens, both must be positive", bucket.walk,
              bucket.num_lanes, bucket.num_tokens);
  RIGEL_CHECK(kind == BucketKind::kPacked || bucket.num_tokens % bucket.num_lanes == 0,
              "a batched bucket of walk {} has {} tokens for {} lanes, which do not share them "
              "evenly",
              bucket.walk, bucket.num_tokens, bucket.num_lanes);
  for (const Entry& entry : entries_) {
    RIGEL_CHECK(entry.bucket != bucket,
                "walk {} has two buckets of {} lanes and {} tokens under one key", bucket.walk,
                bucket.num_lanes, bucket.num_tokens);
  }
  const std::size_t added = entries_.size();
  Entry& entry = entries_.emplace_back(Entry{bucket, kind, {bucket.walk}});
  entry.walks.insert(entry.walks.end(), aliases.begin(), aliases.end());
  ascending_.push_back(added);
  std::ranges::stable_sort(ascending_, {}, [this](std::size_t index) {
    const GraphBucket& known = entries_[index].bucket;
    return std::pair(known.num_tokens, known.num_lanes);
  });
  return added;
}

/// Whoever brings as many tokens as lanes of a batched bucket would, but shared unevenly, is another walk's step.
bool BucketTable::holds(const Entry& entry, const GraphDemand& demand) {
  const GraphBucket& bucket = entry.bucket;
  if (!entry.enabled || bucket.key != demand.key || bucket.num_lanes < demand.num_lanes ||
      std::ranges::find(entry.walks, demand.walk) == entry.walks.end()) {
    return false;
  }
  if (entry.kind == BucketKind::kBatched) {
    const std::int64_t tokens_a_lane = bucket.num_tokens / bucket.num_lanes;
    return !demand.num_tokens || *demand.num_tokens == tokens_a_lane * demand.num_lanes;
  }
  return demand.num_tokens && *demand.num_tokens <= bucket.num_tokens;
}

std::optional<std::size_t> BucketTable::find(const GraphDemand& demand) const {
  for (const std::size_t index : ascending_) {
    if (holds(entries_[index], demand)) {
      return index;
    }
  }
  return std::nullopt;
}

std::vector<std::size_t> BucketTable::capture_order() const {
  return {ascending_.rbegin(), ascending_.rend()};
}

}  // namespace rigel
