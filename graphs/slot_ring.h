#pragma once

#include "tensor/error.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// The double buffers of a node's graphs, taken in turn by its steps. Whoever has a slot writes its staging while the device
/// may still read those of the steps before, so there are at least as many slots as steps in flight. Thread: one.
class SlotRing {
 public:
  /// Requires num_slots >= 1.
  explicit SlotRing(std::int32_t num_slots)
      : is_leased_(static_cast<std::size_t>(num_slots), 0), num_slots_(num_slots) {}

  /// The next slot. Throws CheckError where its last lease was not given back.
  [[nodiscard]] std::int32_t take() {
    const std::int32_t slot = next_;
    RIGEL_CHECK(is_leased_[static_cast<std::size_t>(slot)] == 0, "slot {} of {} is leased already",
                slot, num_slots_);
    is_leased_[static_cast<std::size_t>(slot)] = 1;
    next_ = (slot + 1) % num_slots_;
    return slot;
  }
  /// `used`: work of the slot was launched. Otherwise it is the next one again, lest a later step overtakes the ring and
  /// writes a slot that the device still reads.
  void give_back(std::int32_t slot, bool used) noexcept {
    is_leased_[static_cast<std::size_t>(slot)] = 0;
    if (!used) {
      next_ = slot;
    }
  }
  [[nodiscard]] std::int32_t size() const { return num_slots_; }

 private:
  std::vector<std::uint8_t> is_leased_;  // by slot
  std::int32_t num_slots_;
  std::int32_t next_ = 0;
};

}  // namespace rigel
