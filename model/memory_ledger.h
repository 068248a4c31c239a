#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel {

/// Device memory by part. All parts but the KV cache are entered before the cache is sized: it gets what they leave, so that
/// nothing that comes later, like captured steps, runs out of memory that the cache has taken.
class MemoryLedger {
 public:
  using Part = std::pair<std::string, std::int64_t>;  // name, bytes

  /// `budget`: bytes that all parts may take together.
  explicit MemoryLedger(std::int64_t budget) : budget_(budget) {}

  /// Enters a part that is there, or whose size is certain.
  void take(std::string part, std::int64_t num_bytes);

  /// A part entered by an estimate turned out to take `num_bytes`. Throws std::invalid_argument that names the parts if all
  /// of them exceed the budget now.
  void settle(std::string_view part, std::int64_t num_bytes);

  /// Bytes that no part has taken; 0 where they took more.
  [[nodiscard]] std::int64_t left() const;
  [[nodiscard]] std::int64_t total() const;
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }

 private:
  std::int64_t budget_;
  std::vector<Part> parts_;
};

}  // namespace rigel
