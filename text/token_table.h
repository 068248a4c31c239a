#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace rigel::text {

/// Token texts to ids: open addressing over (hash, id), the texts stay where they are.
///
/// Thread: any once built. Texts given to insert() must outlive the table.
class TokenTable {
 public:
  static constexpr int32_t kNone = -1;

  explicit TokenTable(std::size_t max_entries = 0);

  /// Adds `text`; the first id of equal texts stays.
  void insert(std::string_view text, int32_t id);

  /// The id of `text`, or kNone. Cost: one hash of `text`; none if it is longer than any token.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    std::string_view text;
    uint32_t hash = 0;
    int32_t id = kNone;
  };

  std::size_t slot_of(std::string_view text, uint32_t hash) const;

  std::vector<Slot> slots_;
  std::size_t mask_;
  std::size_t max_token_bytes_ = 0;
};

}  // namespace rigel::text
