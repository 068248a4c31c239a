#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// The shape that a graph is captured for. Walk and key are opaque: two are equal or not.
struct GraphBucket {
  std::int32_t walk = 0;
  std::int32_t num_lanes = 0;
  std::int64_t num_tokens = 0;
  std::int32_t key = 0;

  friend bool operator==(const GraphBucket&, const GraphBucket&) = default;
};

enum class BucketKind : std::uint8_t {
  kBatched,  // every lane has the same number of tokens
  kPacked,   // lanes of any lengths that sum up to at most the bucket's tokens
};

/// What a step asks for.
struct GraphDemand {
  std::int32_t walk = 0;
  std::int32_t num_lanes = 0;
  std::optional<std::int64_t> num_tokens = std::nullopt;  // none: not known before its inputs are
  std::int32_t key = 0;
};

/// The shapes of a node and which of them serves a step. Filled at load; only buckets whose captures are all there serve.
/// Thread: one.
class BucketTable {
 public:
  /// Adds a bucket that serves its own walk and `aliases`. Gives its number: 0, 1, ... Throws CheckError where a size is not
  /// positive, a batched bucket's lanes do not share its tokens evenly, or the bucket is there already.
  std::size_t add(const GraphBucket& bucket, BucketKind kind,
                  std::span<const std::int32_t> aliases);
  /// From now on `bucket` may be found.
  void enable(std::size_t bucket) { entries_[bucket].enabled = true; }

  /// The smallest bucket (in tokens, then lanes) of the step's walk and key that holds it; none: the step runs eagerly.
  /// Without a number of tokens only batched buckets are looked at. Cost: O(buckets), no allocation.
  [[nodiscard]] std::optional<std::size_t> find(const GraphDemand& demand) const;

  /// All buckets, largest first: the order in which they are captured.
  [[nodiscard]] std::vector<std::size_t> capture_order() const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const GraphBucket& operator[](std::size_t bucket) const {
    return entries_[bucket].bucket;
  }
  [[nodiscard]] BucketKind kind(std::size_t bucket) const { return entries_[bucket].kind; }
  [[nodiscard]] bool is_enabled(std::size_t bucket) const { return entries_[bucket].enabled; }

 private:
  struct Entry {
    GraphBucket bucket;
    BucketKind kind{};
    std::vector<std::int32_t> walks;
    bool enabled = false;
  };

  [[nodiscard]] static bool holds(const Entry& entry, const GraphDemand& demand);

  std::vector<Entry> entries_;
  std::vector<std::size_t> ascending_;  // by tokens, then lanes
};

}  // namespace rigel
