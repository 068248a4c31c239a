#pragma once

#include <cstdint>

namespace simt {

/// What an event holds: a position of a queue, or a node of a capture. One word, so that an event can be an atomic.
/// The default moment is always past.
class Moment {
 public:
  Moment() = default;
  [[nodiscard]] static Moment of_queue(int queue_id, std::uint64_t position) {
    return Moment((static_cast<std::uint64_t>(queue_id) << kPositionBits) | position);
  }
  [[nodiscard]] static Moment of_capture(std::uint32_t serial, int node) {
    return Moment(kCaptured | (static_cast<std::uint64_t>(serial & 0x7FFFFFFFu) << 32) |
                  static_cast<std::uint32_t>(node));
  }
  [[nodiscard]] static Moment from_word(std::uint64_t word) { return Moment(word); }
  [[nodiscard]] std::uint64_t word() const { return word_; }

  [[nodiscard]] bool captured() const { return (word_ & kCaptured) != 0; }
  [[nodiscard]] int queue_id() const { return static_cast<int>(word_ >> kPositionBits); }
  [[nodiscard]] std::uint64_t position() const {
    return word_ & ((std::uint64_t{1} << kPositionBits) - 1);
  }
  [[nodiscard]] std::uint32_t capture_serial() const {
    return static_cast<std::uint32_t>(word_ >> 32) & 0x7FFFFFFFu;
  }
  [[nodiscard]] int node() const { return static_cast<int>(word_ & 0xFFFFFFFFu); }

 private:
  static constexpr int kPositionBits = 48;
  static constexpr std::uint64_t kCaptured = std::uint64_t{1} << 63;

  explicit Moment(std::uint64_t word) : word_(word) {}
  std::uint64_t word_ = 0;
};

}  // namespace simt
