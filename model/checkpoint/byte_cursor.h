#pragma once

#include "model/model_file_error.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace rigel {

/// Reads little-endian values from a file's bytes, front to back. Every read is bounds-checked; `what` names the thing being
/// read in the error of a file that ends too early.
class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, std::string_view source)
      : bytes_(bytes), source_(source) {}

  [[nodiscard]] std::size_t offset() const { return offset_; }
  [[nodiscard]] std::size_t num_remaining() const { return bytes_.size() - offset_; }

  std::span<const std::byte> take(std::uint64_t num_bytes, std::string_view what) {
    if (num_bytes > num_remaining()) {
      fail(fmt::format("the file ends inside {}: {} bytes needed, {} left", what, num_bytes,
                       num_remaining()));
    }
    const auto taken = bytes_.subspan(offset_, static_cast<std::size_t>(num_bytes));
    offset_ += taken.size();
    return taken;
  }

  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  /// Throws ModelFileError with source and offset.
  [[noreturn]] void fail(std::string_view message) const {
    throw ModelFileError(fmt::format("{}: at byte {}: {}", source_, offset_, message));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string source_;
  std::size_t offset_ = 0;
};

}  // namespace rigel
