#include "model/memory_ledger.h"

#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

namespace rigel {

void MemoryLedger::take(std::string part, std::int64_t num_bytes) {
  parts_.emplace_back(std::move(part), num_bytes);
}

void MemoryLedger::settle(std::string_view part, std::int64_t num_bytes) {
  const auto entry = std::ranges::find(parts_, part, &Part::first);
  RIGEL_CHECK(entry != parts_.end(), "no part '{}' was entered", part);
  const std::int64_t expected = std::exchange(entry->second, num_bytes);
  if (total() <= budget_) {
    return;
  }
  std::string listing;
  for (const auto& [name, bytes] : parts_) {
    listing += fmt::format("{}{} {}", listing.empty() ? "" : ", ", name, bytes);
  }
  throw std::invalid_argument(
      fmt::format("{} take {} bytes, {} were expected, and now all of {} bytes are exceeded ({}): "
                  "lower kv_cache_memory_bytes",
                  part, num_bytes, expected, budget_, listing));
}

std::int64_t MemoryLedger::left() const {
  return std::max(budget_ - total(), std::int64_t{0});
}

std::int64_t MemoryLedger::total() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) {
    sum += part.second;
  }
  return sum;
}

}  // namespace rigel
