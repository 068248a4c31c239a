#pragma once

#include "engine/resource.h"

#include <span>
#include <vector>

namespace rigel {

/// Drives a declared step through the resources of a node, in dependency order (alphabetical by name among equals, so that
/// every rank sweeps alike).
class StepRunner {
 public:
  /// Throws CheckError for an unknown key, a resource that depends on itself, or a cycle.
  explicit StepRunner(const NodeResources& resources);

  /// Reserves for the step; stops at the first refusal. Reservations made before it stay and are found again at the retry.
  [[nodiscard]] AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) const;
  void plan(const SubmoduleStep& step, StepContext& context) const;
  void commit(const SubmoduleStep& step, const StepContext& context) const;

  [[nodiscard]] std::span<Resource* const> order() const { return order_; }

 private:
  std::vector<Resource*> order_;
};

}  // namespace rigel
