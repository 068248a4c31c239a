#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rigel::text {

/// Fixed hash map of 64-bit keys to 64-bit values in one array: built once, then only read.
///
/// Open addressing with linear probing at a load of at most one half; one cache line a lookup, mostly.
/// Preconditions: the key ~0 is never used. Thread: any once built.
class FlatMap {
 public:
  explicit FlatMap(std::size_t max_entries = 0)
      : slots_(std::bit_ceil(2 * max_entries + 2)), mask_(slots_.size() - 1) {}

  /// Adds an entry; false if the key is there already (the first value stays).
  bool insert(uint64_t key, uint64_t value) {
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == key) {
      return false;
    }
    slot = {key, value};
    return true;
  }

  /// The value of `key`, or nullptr.
  const uint64_t* find(uint64_t key) const {
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  struct Slot {
    uint64_t key = kEmpty;
    uint64_t value = 0;
  };

  std::size_t slot_of(uint64_t key) const {
    // Fibonacci hashing, folded so that the low bits depend on all of the key.
    const uint64_t hash = key * 0x9E3779B97F4A7C15U;
    std::size_t i = (hash ^ hash >> 32) & mask_;
    while (slots_[i].key != key && slots_[i].key != kEmpty) {
      i = (i + 1) & mask_;
    }
    return i;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace rigel::text
