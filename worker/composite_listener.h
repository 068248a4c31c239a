#pragma once

#include "engine/contract/ids.h"
#include "worker/request.h"

#include <string>

namespace rigel {

/// What a composite model's steps do to requests. Called during launch_step and complete_step, in the order of the lanes.
class CompositeListener {
 public:
  virtual ~CompositeListener() = default;
  virtual void on_value(RequestHandle handle, OutputValue value) = 0;
  /// All partitions of the request are done. It is to be removed.
  virtual void on_end(RequestHandle handle) = 0;
  /// It is to be removed.
  virtual void on_failure(RequestHandle handle, const std::string& error) = 0;
};

}  // namespace rigel
