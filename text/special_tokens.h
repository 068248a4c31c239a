#pragma once

#include "text/flat_map.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel::text {

/// Finds the texts of a fixed set of tokens in a text: leftmost first, the longest of those.
///
/// A trie over bytes. Thread: any. Cost of a search: O(bytes passed over x longest token), one table
/// look-up for a byte that begins no token.
class SpecialTokens {
 public:
  struct Match {
    std::size_t begin;  // byte offsets
    std::size_t end;
    int32_t id;
  };

  SpecialTokens() = default;

  /// Empty texts are ignored; of equal texts the first counts.
  explicit SpecialTokens(const std::vector<std::pair<std::string_view, int32_t>>& tokens);

  /// The first match at or after byte `from`.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  static constexpr int32_t kNoToken = -1;

  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;

  FlatMap children_;                // node << 8 | byte -> node
  std::vector<int32_t> token_ids_;  // by node; 0 is the root
  std::array<bool, 256> begins_token_{};
};

}  // namespace rigel::text
