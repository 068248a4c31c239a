#include "tensor/block_cache.h"

#include <algorithm>
#include <bit>

namespace rigel::detail {
namespace {

constexpr int kMinBits = 9;  // 512 bytes

}  // namespace

int size_class_of(std::int64_t num_bytes) {
  const auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(num_bytes, 1 << kMinBits));
  // bytes lies in (4 quarters, 8 quarters] of the power of two below it; the class is the quarter, rounded up.
  const int bits = std::bit_width(bytes - 1) - 1;
  const int floor_bits = std::max(bits, kMinBits - 1);
  const std::uint64_t quarter = std::uint64_t{1} << (floor_bits - 2);
  const auto quarters = static_cast<int>((bytes + quarter - 1) / quarter);  // 5 to 8
  return (floor_bits - (kMinBits - 1)) * 4 + quarters - 8;
}

std::int64_t bytes_of_size_class(int size_class) {
  // Class 0 is 512 = 8 quarters of 256; 1 to 4 are 5 to 8 quarters of 512, and so on.
  const int octave = (size_class + 3) / 4;
  const int quarters = size_class - octave * 4 + 8;
  return static_cast<std::int64_t>(quarters) << (octave + kMinBits - 3);
}

BlockCache::StreamLists& BlockCache::lists_of(StreamState* stream) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const StreamLists& lists) { return lists.stream == stream; });
  return found != streams_.end() ? *found : streams_.emplace_back(StreamLists{stream, {}});
}

Storage* BlockCache::take(StreamState* stream, int size_class) {
  Storage*& first = lists_of(stream).free[static_cast<std::size_t>(size_class)];
  Storage* storage = first;
  if (storage != nullptr) {
    first = storage->next;
    cached_bytes_ -= storage->num_bytes;
  }
  return storage;
}

void BlockCache::put(Storage& storage) {
  Storage*& first = lists_of(storage.stream).free[static_cast<std::size_t>(storage.size_class)];
  storage.next = first;
  first = &storage;
  cached_bytes_ += storage.num_bytes;
}

Storage& BlockCache::add(int size_class, std::byte* data, const StorageOwner& owner) {
  Storage* storage = unused_;
  if (storage != nullptr) {
    unused_ = storage->next;
  } else {
    storage = &storages_.emplace_back();
  }
  storage->data = data;
  storage->num_bytes = bytes_of_size_class(size_class);
  storage->size_class = size_class;
  storage->owner = &owner;
  storage->next = nullptr;
  return *storage;
}

}  // namespace rigel::detail
