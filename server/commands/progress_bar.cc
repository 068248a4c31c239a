#include "server/commands/progress_bar.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace rigel::server {
namespace {

constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kPause{100};
constexpr std::int64_t kMebibyte = 1 << 20;

}  // namespace

ProgressBar::ProgressBar(std::string title, std::string unit)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      next_draw_(std::chrono::steady_clock::now() + kPause) {}

ProgressBar::~ProgressBar() {
  if (is_drawn_) {
    fmt::print(stderr, "\r\033[K");
  }
}

void ProgressBar::show(std::int64_t num_done, std::int64_t num_total) {
  if (!is_terminal_ || num_total <= 0) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) {
    return;
  }
  next_draw_ = now + kPause;
  is_drawn_ = true;
  const bool is_bytes = unit_ == "bytes";
  const std::int64_t scale = is_bytes ? kMebibyte : 1;
  const auto num_filled =
      static_cast<std::size_t>(std::clamp<std::int64_t>(num_done * kWidth / num_total, 0, kWidth));
  fmt::print(stderr, "\r{} [{}{}] {}/{} {}\033[K", title_, std::string(num_filled, '#'),
             std::string(kWidth - num_filled, ' '), num_done / scale, num_total / scale,
             is_bytes ? "MiB" : unit_);
  std::fflush(stderr);
}

}  // namespace rigel::server
