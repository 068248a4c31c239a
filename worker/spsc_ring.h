#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rigel {

/// A ring of values that one thread fills and another reads, in place, so that their memory is used again and again. The
/// ring never allocates and takes no lock. `N` is a power of two.
template <class T, std::size_t N>
class SpscRing {
  static_assert(N > 0 && (N & (N - 1)) == 0);

 public:
  // Thread: the one that fills.
  [[nodiscard]] bool full() const { return num_pending() >= N; }
  /// Values that were handed over and not read yet.
  [[nodiscard]] std::uint64_t num_pending() const {
    return filled_.load(std::memory_order_relaxed) - read_.load(std::memory_order_seq_cst);
  }
  /// The value to be filled next. Requires !full().
  [[nodiscard]] T& back() { return slots_[filled_.load(std::memory_order_relaxed) % N]; }
  /// Hands it over.
  void publish() {
    filled_.store(filled_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }

  // Thread: the one that reads.
  [[nodiscard]] std::uint64_t num_filled() const { return filled_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::uint64_t num_read() const { return read_.load(std::memory_order_relaxed); }
  /// The oldest value that was handed over. Requires num_read() < num_filled().
  [[nodiscard]] T& front() { return slots_[num_read() % N]; }
  /// Gives its place back.
  void pop() { read_.store(num_read() + 1, std::memory_order_seq_cst); }

  /// All places, while nobody fills or reads.
  [[nodiscard]] std::array<T, N>& slots() { return slots_; }

 private:
  std::array<T, N> slots_;
  alignas(64) std::atomic<std::uint64_t> filled_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

}  // namespace rigel
