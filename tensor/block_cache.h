#pragma once

#include "tensor/storage.h"

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace rigel::detail {

// Sizes are rounded up to four steps a power of two from 512 bytes on, so a block wastes at most a fifth of itself.
inline constexpr int kNumSizeClasses = 160;
[[nodiscard]] int size_class_of(std::int64_t num_bytes);
[[nodiscard]] std::int64_t bytes_of_size_class(int size_class);

/// Free blocks by size class and stream, and the storages of all blocks. Not locked. Cost: constant for a known stream, no
/// heap unless a block is new.
class BlockCache {
 public:
  /// A free block of the class that was last used in the order of `stream`, or null.
  [[nodiscard]] Storage* take(StreamState* stream, int size_class);
  /// Keeps a free block for `take(storage.stream, ...)`.
  void put(Storage& storage);
  /// A storage for a new block.
  [[nodiscard]] Storage& add(int size_class, std::byte* data, const StorageOwner& owner);
  /// Takes all free blocks out of the cache: calls `visit(Storage&)`, which frees the memory.
  template <class Visit>
  void drain(Visit visit) {
    for (StreamLists& lists : streams_) {
      for (Storage*& first : lists.free) {
        while (first != nullptr) {
          Storage* storage = first;
          first = storage->next;
          cached_bytes_ -= storage->num_bytes;
          visit(*storage);
          storage->data = nullptr;
          storage->next = unused_;
          unused_ = storage;
        }
      }
    }
  }
  [[nodiscard]] std::int64_t cached_bytes() const { return cached_bytes_; }

 private:
  struct StreamLists {
    StreamState* stream;
    std::array<Storage*, kNumSizeClasses> free{};
  };

  StreamLists& lists_of(StreamState* stream);

  std::vector<StreamLists> streams_;
  std::deque<Storage> storages_;
  Storage* unused_ = nullptr;
  std::int64_t cached_bytes_ = 0;
};

}  // namespace rigel::detail
