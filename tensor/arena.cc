#include "tensor/arena.h"

#include "tensor/device.h"

#include <algorithm>
#include <new>

namespace rigel {
namespace {

constexpr std::size_t kHostAlignmentBytes = 64;
constexpr std::int64_t kDeviceAlignmentBytes = 256;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::byte* new_bytes(std::int64_t num_bytes) {
  return static_cast<std::byte*>(
      ::operator new (static_cast<std::size_t>(num_bytes), std::align_val_t{kHostAlignmentBytes}));
}

void delete_bytes(std::byte* memory) {
  ::operator delete (memory, std::align_val_t{kHostAlignmentBytes});
}

}  // namespace

StepArena::StepArena(std::int64_t num_bytes)
    : memory_(new_bytes(num_bytes)), capacity_bytes_(num_bytes) {}

StepArena::~StepArena() {
  free_overflow();
  delete_bytes(memory_);
}

void* StepArena::do_allocate(std::size_t num_bytes, std::size_t alignment) {
  const std::int64_t begin = round_up(used_bytes_, static_cast<std::int64_t>(alignment));
  const std::int64_t end = begin + static_cast<std::int64_t>(num_bytes);
  if (end <= capacity_bytes_ && alignment <= kHostAlignmentBytes) {
    used_bytes_ = end;
    return memory_ + begin;
  }
  void* memory = ::operator new (num_bytes, std::align_val_t{alignment});
  overflow_.push_back({memory, alignment});
  overflow_bytes_ += round_up(static_cast<std::int64_t>(num_bytes + alignment),
                              static_cast<std::int64_t>(kHostAlignmentBytes));
  return memory;
}

void StepArena::free_overflow() {
  for (const Overflow& block : overflow_) {
    ::operator delete (block.memory, std::align_val_t{block.alignment});
  }
  overflow_.clear();
}

void StepArena::reset() {
  if (overflow_bytes_ > 0) {
    const std::int64_t wanted = used_bytes_ + overflow_bytes_;
    free_overflow();
    std::byte* larger = new_bytes(wanted);
    delete_bytes(memory_);
    memory_ = larger;
    capacity_bytes_ = wanted;
    overflow_bytes_ = 0;
  }
  used_bytes_ = 0;
}

DeviceArena::DeviceArena(Device& device, std::int64_t num_bytes) : buffer_(device, num_bytes) {}

std::int64_t DeviceArena::bytes_for(Dtype dtype, const Shape& shape) {
  return round_up(bytes_of(dtype, shape), kDeviceAlignmentBytes);
}

DeviceView DeviceArena::take(const char* name, Dtype dtype, const Shape& shape) {
  const std::int64_t num_bytes = bytes_for(dtype, shape);
  RIGEL_CHECK(used_bytes_ + num_bytes <= buffer_.num_bytes(),
              "the device arena is too small: {} needs {} bytes, {} of {} are used", name,
              num_bytes, used_bytes_, buffer_.num_bytes());
  const DeviceView view = buffer_.view(dtype, shape, used_bytes_);
  pieces_.push_back({name, used_bytes_, num_bytes});
  used_bytes_ += num_bytes;
  return view;
}

void DeviceArena::rewind(std::int64_t used_bytes) {
  RIGEL_CHECK(used_bytes >= 0 && used_bytes <= used_bytes_,
              "an arena only rewinds to where it was: {} is not within {}", used_bytes,
              used_bytes_);
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.offset_bytes >= used_bytes; });
  used_bytes_ = used_bytes;
}

DeviceView GraphPool::take(const char* name, Dtype dtype, const Shape& shape) {
  const DeviceView view = arena_.take(name, dtype, shape);
  high_water_bytes_ = std::max(high_water_bytes_, arena_.used_bytes());
  return view;
}

}  // namespace rigel
