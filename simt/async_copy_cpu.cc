#include "simt/multiprocessor.h"
#include "simt/sanitizer.h"

#include <cstring>

namespace simt::detail {

namespace {

constexpr unsigned kCopyBytes = 16;

// In the issuing thread's name: it is the one that the hardware orders the copy with.
void land(void* to, const void* from) {
  race_write(to, kCopyBytes);
  if (from == nullptr) {
    std::memset(to, 0, kCopyBytes);
  } else {
    race_read(from, kCopyBytes);
    std::memcpy(to, from, kCopyBytes);
  }
}

}  // namespace

void Multiprocessor::issue_async_copy(void* to, const void* from, Site site) {
  check_alignment(to, kCopyBytes, site);
  check_alignment(from, kCopyBytes, site);
  if (!options_->cp_async_late) {
    land(to, from);
  } else if (!copies_->issue(thread_, to, from)) [[unlikely]] {
    fail({.kind = FaultKind::kTooManyCopies, .site = site, .other = AsyncCopies::kMaxPending});
  }
}

void Multiprocessor::wait_async_copies(int num_newest_groups) {
  copies_->wait(thread_, num_newest_groups,
                [](const AsyncCopies::Copy& copy) { land(copy.to, copy.from); });
}

}  // namespace simt::detail
