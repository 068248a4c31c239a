#pragma once

#include "engine/contract/ids.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace rigel {

/// A request that failed alone: one of its own hooks threw.
struct RequestFailure {
  RequestHandle handle;
  std::string message;
};

/// The requests of a node that failed and were not removed yet. Each failure is told once, whatever else the request's steps
/// in flight run into. Thread: worker. Cost: one branch where nothing failed.
class RequestFailures {
 public:
  void record(RequestHandle handle, std::string message) {
    if (!contains(handle)) {
      failed_.push_back(handle);
      untold_.push_back({handle, std::move(message)});
    }
  }
  [[nodiscard]] bool contains(RequestHandle handle) const {
    return std::ranges::find(failed_, handle) != failed_.end();
  }
  /// Moves what was not told yet to the end of `failures`.
  void take(std::vector<RequestFailure>& failures) {
    std::ranges::move(untold_, std::back_inserter(failures));
    untold_.clear();
  }
  /// The request was removed.
  void forget(RequestHandle handle) {
    std::erase(failed_, handle);
    std::erase_if(untold_,
                  [handle](const RequestFailure& failure) { return failure.handle == handle; });
  }
  [[nodiscard]] bool empty() const { return failed_.empty(); }

 private:
  std::vector<RequestHandle> failed_;
  std::vector<RequestFailure> untold_;
};

}  // namespace rigel
