#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace rigel::server {

/// A call whose answer is not complete yet.
class OngoingCall {
 public:
  virtual ~OngoingCall() = default;

  /// Its time is over: its requests are cancelled and its client is told so. Thread: any.
  virtual void cut_off() = 0;
};

/// Knows the calls under way without keeping them alive. Thread: any.
class OngoingCalls {
 public:
  void add(std::weak_ptr<OngoingCall> call);

  /// Cuts off every call that is still there.
  void cut_off();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<OngoingCall>> calls_;
};

}  // namespace rigel::server
