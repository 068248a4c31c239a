#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rigel::server {

/// A progress bar on stderr; silent where stderr is not a terminal. Thread: one at a time.
class ProgressBar {
 public:
  /// `unit`: "bytes" are shown as MiB.
  ProgressBar(std::string title, std::string unit);

  /// Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws at most ten times a second. Cheap otherwise.
  void show(std::int64_t num_done, std::int64_t num_total);

 private:
  const std::string title_;
  const std::string unit_;
  const bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_;
};

}  // namespace rigel::server
