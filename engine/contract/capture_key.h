#pragma once

#include "engine/contract/ids.h"

#include <cstddef>
#include <cstdint>

namespace rigel {

/// Which of a walk's captures a batch belongs to, where its shape does not say it all (guidance on or off). Interned by the
/// model: the key of a graph config, what cg_key_info answers and what declare_step puts on the step come from one place.
class CgKey {
 public:
  /// The walk has a single capture.
  constexpr CgKey() = default;
  [[nodiscard]] static constexpr CgKey interned(std::uint16_t key) { return CgKey(key); }
  /// The batch spans two groups and matches no capture.
  [[nodiscard]] static constexpr CgKey no_bucket() { return CgKey(kNoBucket); }

  [[nodiscard]] constexpr bool has_bucket() const { return value_ != kNoBucket; }
  /// Equal where the keys are.
  [[nodiscard]] constexpr std::int32_t number() const { return value_; }
  friend constexpr bool operator==(CgKey, CgKey) = default;

 private:
  static constexpr std::int32_t kSingle = -1;
  static constexpr std::int32_t kNoBucket = -2;

  explicit constexpr CgKey(std::int32_t value) : value_(value) {}

  std::int32_t value_ = kSingle;
};

/// The shape of a captured step. The walk is the one that it was captured for, also when another walk replays it.
struct BucketKey {
  WalkId walk{};
  std::int32_t num_lanes = 0;
  std::int64_t num_tokens = 0;
  CgKey key;
  bool is_packed = false;  // its lanes share the tokens as they like; padding stands behind them

  friend bool operator==(const BucketKey&, const BucketKey&) = default;
};

/// The right to replay one slot of a bucket for one step.
struct SlotLease {
  std::int32_t slot = 0;
  BucketKey bucket;
  std::int32_t max_turns = 1;  // that one replay may run of the step
};

/// Regions that a step has leased before it is declared, by their places among the submodule's piecewise configs.
class PiecewiseLeases {
 public:
  static constexpr std::size_t kMaxRegions = 64;

  void add(std::size_t region) { regions_ |= std::uint64_t{1} << region; }
  [[nodiscard]] bool contains(std::size_t region) const { return (regions_ >> region & 1) != 0; }

 private:
  std::uint64_t regions_ = 0;
};

/// Whether a step that replays `lease` (null: it runs eagerly) has the fixed places of a packed capture.
[[nodiscard]] constexpr bool is_packed(const SlotLease* lease) {
  return lease != nullptr && lease->bucket.is_packed;
}

}  // namespace rigel
