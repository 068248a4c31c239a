#include "server/api/ongoing_calls.h"

#include <utility>

namespace rigel::server {

void OngoingCalls::add(std::weak_ptr<OngoingCall> call) {
  const std::lock_guard lock(mutex_);
  std::erase_if(calls_, [](const auto& known) { return known.expired(); });
  calls_.push_back(std::move(call));
}

void OngoingCalls::cut_off() {
  std::vector<std::weak_ptr<OngoingCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& known : calls) {
    if (const auto call = known.lock()) {
      call->cut_off();
    }
  }
}

}  // namespace rigel::server
