#pragma once

#include "tensor/error.h"

#include <cstdint>

namespace rigel {

/// The double buffers of a node's graphs, taken in turn by its steps. Whoever has a slot writes its staging while the device
/// may still read those of the steps before: no step in flight may have it. So slots are at least as many as steps in flight,
/// and only a slot that work was launched with moves the ring. The explorer of tests/engine/lifetime_explorer.h tries this
/// class together with those of engine/lifetime.h. Thread: one.
class SlotRing {
 public:
  /// Requires 1 <= num_slots <= 64.
  explicit SlotRing(std::int32_t num_slots) : num_slots_(num_slots) {
    RIGEL_CHECK(num_slots >= 1 && num_slots <= 64, "num_slots must be 1 to 64, got {}", num_slots);
  }

  /// The next slot. Throws CheckError where its last lease was not given back.
  [[nodiscard]] std::int32_t take() {
    const std::int32_t slot = next_;
    RIGEL_CHECK((leased_ & bit(slot)) == 0, "slot {} of {} is leased already", slot, num_slots_);
    leased_ |= bit(slot);
    next_ = (slot + 1) % num_slots_;
    return slot;
  }
  /// `used`: work of the slot was launched. Otherwise it is the next one again, lest a later step overtakes the ring and
  /// writes a slot that the device still reads.
  void give_back(std::int32_t slot, bool used) noexcept {
    leased_ &= ~bit(slot);
    if (!used) {
      next_ = slot;
    }
  }
  [[nodiscard]] std::int32_t size() const { return num_slots_; }

 private:
  static std::uint64_t bit(std::int32_t slot) { return std::uint64_t{1} << slot; }

  std::uint64_t leased_ = 0;  // a bit a slot
  std::int32_t num_slots_;
  std::int32_t next_ = 0;
};

}  // namespace rigel
