#include "text/token_table.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace rigel::text {
namespace {

uint32_t hash_of(std::string_view text) {
  const std::size_t hash = std::hash<std::string_view>{}(text);
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

TokenTable::TokenTable(std::size_t max_entries)
    : slots_(std::bit_ceil(2 * max_entries + 2)), mask_(slots_.size() - 1) {}

std::size_t TokenTable::slot_of(std::string_view text, uint32_t hash) const {
  std::size_t i = hash & mask_;
  while (slots_[i].id != kNone && (slots_[i].hash != hash || slots_[i].text != text)) {
    i = (i + 1) & mask_;
  }
  return i;
}

void TokenTable::insert(std::string_view text, int32_t id) {
  const uint32_t hash = hash_of(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id == kNone) {
    slot = {text, hash, id};
    max_token_bytes_ = std::max(max_token_bytes_, text.size());
  }
}

int32_t TokenTable::find(std::string_view text) const {
  return text.size() > max_token_bytes_ ? kNone : slots_[slot_of(text, hash_of(text))].id;
}

}  // namespace rigel::text
