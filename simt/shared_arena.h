#pragma once

#include <cstddef>

namespace simt::detail {

/// The shared memory of one block after the other on one OS thread: the dynamic part first, then one slot for each
/// SIMT_SHARED of the kernel, found by the address of a static that the macro defines. Slots keep their place for a launch.
class SharedArena {
 public:
  static constexpr std::size_t kMaxStaticBytes = 48 * 1024;
  static constexpr std::size_t kMaxTotalBytes = 227 * 1024;

  SharedArena();
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  /// Forgets all slots. With `poison`, every byte reads as 0xFF (NaN) until it is written, in each block anew.
  void begin_launch(std::size_t dynamic_bytes, bool poison);
  void begin_block();
  /// Gives the arena new pages, so that ThreadSanitizer forgets who used them.
  void forget();

  [[nodiscard]] std::byte* dynamic() const { return memory_; }
  [[nodiscard]] std::size_t dynamic_bytes() const { return dynamic_bytes_; }
  [[nodiscard]] std::size_t static_bytes() const { return static_bytes_; }
  /// The slot of `key`, made at its first use; null when shared memory (or the table of slots) is full.
  [[nodiscard]] std::byte* slot(const void* key, std::size_t num_bytes) {
    for (int index = 0; index < num_slots_; ++index) {
      if (slots_[index].key == key) {
        return slots_[index].memory;
      }
    }
    return make_slot(key, num_bytes);
  }

 private:
  static constexpr int kMaxSlots = 32;
  struct Slot {
    const void* key;
    std::byte* memory;
    std::size_t num_bytes;
  };

  std::byte* make_slot(const void* key, std::size_t num_bytes);
  [[nodiscard]] std::byte* after(const std::byte* end) const;

  std::byte* memory_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;
  bool poison_ = true;
  int num_slots_ = 0;
  Slot slots_[kMaxSlots];
};

}  // namespace simt::detail
