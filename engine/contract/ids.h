#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

// Names are interned to small integers at load; nothing on the step path compares strings.
enum class NodeId : std::uint16_t {};
enum class WalkId : std::uint16_t {};
enum class LoopId : std::uint16_t {};
enum class SignalId : std::uint16_t {};
enum class PartitionId : std::uint16_t {};
enum class ResourceKey : std::uint16_t {};

/// Names of one kind and their integers, in the order in which they were first seen. Filled at load, then read only.
template <class Id>
class NameTable {
 public:
  Id intern(std::string_view name) {
    if (const std::optional<Id> known = find(name)) {
      return *known;
    }
    names_.emplace_back(name);
    return static_cast<Id>(names_.size() - 1);
  }
  [[nodiscard]] std::optional<Id> find(std::string_view name) const {
    for (std::size_t index = 0; index < names_.size(); ++index) {
      if (names_[index] == name) {
        return static_cast<Id>(index);
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] const std::string& name(Id id) const {
    return names_.at(static_cast<std::size_t>(id));
  }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
};

/// A request inside a worker: its row for life, and the generation that tells it from earlier owners of that row. Padding
/// lanes carry negative rows.
struct RequestHandle {
  std::int32_t row = -1;
  std::uint32_t generation = 0;

  [[nodiscard]] bool is_padding() const { return row < 0; }
  /// Both at once: a sweep over lanes compares handles several times a lane.
  friend constexpr bool operator==(RequestHandle a, RequestHandle b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
};

/// The number of a launched step. Memory released at step e is reusable once every step up to e has completed.
using Epoch = std::uint64_t;

}  // namespace rigel
