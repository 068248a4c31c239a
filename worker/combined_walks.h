#pragma once

#include "engine/contract/capture_key.h"
#include "engine/contract/ids.h"
#include "model/walk/definition.h"
#include "tensor/error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rigel {

/// Rows that one walk has for a node's next step.
struct WalkDemand {
  WalkId walk{};
  std::int64_t num_rows = 0;
  std::int32_t max_lanes = 0;  // of a step with rows of this walk
  bool combines = false;       // may share a step with other walks that do
  bool is_chosen = false;
};

/// Chooses the walks of a step out of those that somebody waits for, in the order of their first rows. The first, that of the
/// oldest row, always runs; the others join one by one, where the step has no fewer rows with them, as it may because each walk
/// caps all. `max_together`: lanes of a step of several walks. Returns the lanes that the step may have. Requires a demand.
inline std::int32_t choose_walks(std::span<WalkDemand> demands, std::int32_t max_together) {
  std::int64_t num_rows = 0;
  std::int32_t max_lanes = demands.front().max_lanes;
  for (WalkDemand& demand : demands) {
    const bool is_first = &demand == &demands.front();
    if (!is_first && !(demand.combines && demands.front().combines)) {
      continue;
    }
    const std::int32_t with =
        is_first ? max_lanes : std::min({max_lanes, demand.max_lanes, max_together});
    if (std::min<std::int64_t>(num_rows + demand.num_rows, with) >=
        std::min<std::int64_t>(num_rows, max_lanes)) {
      demand.is_chosen = true;
      num_rows += demand.num_rows;
      max_lanes = with;
    }
  }
  return max_lanes;
}

/// The capture groups of a step's rows: one for the rows of each walk, and one for all in a step of several.
class StepGroups {
 public:
  /// Of one row: in a step of its own walk, and in one that its walk shares.
  struct Groups {
    WalkId walk{};
    CgKey own;
    CgKey shared;
  };

  void clear() { size_ = 0; }
  [[nodiscard]] bool admits(const Groups& row) const {
    return size_ == 0 ||
           (groups_[0].shared == row.shared &&
            std::ranges::all_of(std::span(groups_).first(size_), [&](const Groups& other) {
              return other.walk != row.walk || other.own == row.own;
            }));
  }
  /// Requires that it is admitted.
  void add(const Groups& row) {
    const auto end = groups_.begin() + static_cast<std::ptrdiff_t>(size_);
    if (std::find_if(groups_.begin(), end,
                     [&](const Groups& other) { return other.walk == row.walk; }) == end) {
      RIGEL_CHECK(size_ < groups_.size(), "a step has rows of at most {} walks", groups_.size());
      groups_[size_++] = row;
    }
  }

 private:
  std::array<Groups, walk::CombinedWalks::kMaxWalks> groups_{};
  std::size_t size_ = 0;
};

}  // namespace rigel
