#pragma once

#include "tensor/buffer.h"
#include "tensor/view.h"

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace rigel {

class Device;

/// Host memory of one step: allocations bump a pointer, and all of them end at `reset`. Use it directly or as the memory
/// resource of std::pmr containers, which must be gone before the reset.
///
/// A step that needs more than the arena holds gets it from the heap, and the next reset makes the arena large enough, so a
/// steady state never leaves it. Thread: one. Cost: a few instructions an allocation.
class StepArena final : public std::pmr::memory_resource {
 public:
  explicit StepArena(std::int64_t num_bytes);
  ~StepArena() override;
  StepArena(const StepArena&) = delete;
  StepArena& operator=(const StepArena&) = delete;

  /// `num_elements` uninitialised elements that live until the reset.
  template <class T>
  [[nodiscard]] std::span<T> span(std::int64_t num_elements) {
    static_assert(std::is_trivially_destructible_v<T>, "nobody destroys what lies in the arena");
    const auto count = static_cast<std::size_t>(num_elements);
    return {static_cast<T*>(allocate(count * sizeof(T), alignof(T))), count};
  }
  void reset();

  [[nodiscard]] std::int64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::int64_t used_bytes() const { return used_bytes_ + overflow_bytes_; }

 private:
  struct Overflow {
    void* memory;
    std::size_t alignment;
  };

  void* do_allocate(std::size_t num_bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
  void free_overflow();

  std::byte* memory_ = nullptr;
  std::int64_t capacity_bytes_ = 0;
  std::int64_t used_bytes_ = 0;
  std::int64_t overflow_bytes_ = 0;
  std::vector<Overflow> overflow_;
};

/// One device buffer cut into views: each begins at a multiple of 256 bytes. For the buffers of a component that are sized
/// together at load, and, as GraphPool, for what captured work needs. Thread: one.
class DeviceArena {
 public:
  DeviceArena() = default;
  DeviceArena(Device& device, std::int64_t num_bytes);

  /// The next view. Pure arithmetic, so it is allowed in a capture. Throws CheckError, which says what is held, when it
  /// does not fit. `name` must be a literal.
  [[nodiscard]] DeviceView take(const char* name, Dtype dtype, const Shape& shape);
  /// What `take` adds to the used bytes at most: to size an arena before it is made.
  [[nodiscard]] static std::int64_t bytes_for(Dtype dtype, const Shape& shape);

  /// Everything taken after `used_bytes()` was `used_bytes` is given up.
  void rewind(std::int64_t used_bytes);
  [[nodiscard]] std::int64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes() const { return buffer_.num_bytes(); }

  struct Piece {
    const char* name;
    std::int64_t offset_bytes;
    std::int64_t num_bytes;
  };
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  DeviceBuffer buffer_;
  std::int64_t used_bytes_ = 0;
  std::vector<Piece> pieces_;
};

/// Device memory of captured graphs. Graphs that never run at the same time share it: each capture begins at the start, so
/// the pool is as large as the largest of them, and addresses stay what the graphs baked in. What one graph leaves for a
/// later one to read must not lie here.
class GraphPool {
 public:
  GraphPool(Device& device, std::int64_t num_bytes) : arena_(device, num_bytes) {}

  /// Call before each capture.
  void begin() { arena_.rewind(0); }
  [[nodiscard]] DeviceView take(const char* name, Dtype dtype, const Shape& shape);
  /// The most that any capture took so far.
  [[nodiscard]] std::int64_t high_water_bytes() const { return high_water_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes() const { return arena_.capacity_bytes(); }

 private:
  DeviceArena arena_;
  std::int64_t high_water_bytes_ = 0;
};

}  // namespace rigel
