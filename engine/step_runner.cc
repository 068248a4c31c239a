#include "engine/step_runner.h"

#include "tensor/error.h"

#include <algorithm>
#include <numeric>

namespace rigel {

namespace {

bool is_placed(const std::vector<Resource*>& order, ResourceKey key) {
  return std::ranges::any_of(order, [key](const Resource* placed) { return placed->key() == key; });
}

}  // namespace

StepRunner::StepRunner(const NodeResources& resources) {
  std::vector<std::size_t> by_name(resources.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::ranges::sort(by_name, {}, [&](std::size_t index) { return resources.name(index); });
  for (std::size_t index : by_name) {
    for (const ResourceKey key : resources[index].depends_on()) {
      RIGEL_CHECK(static_cast<std::size_t>(key) < resources.size(),
                  "resource '{}' depends on an unknown resource", resources.name(index));
    }
  }
  while (order_.size() < resources.size()) {
    const auto next = std::ranges::find_if(by_name, [&](std::size_t index) {
      const Resource& resource = resources[index];
      return !is_placed(order_, resource.key()) &&
             std::ranges::all_of(resource.depends_on(),
                                 [&](ResourceKey key) { return is_placed(order_, key); });
    });
    RIGEL_CHECK(next != by_name.end(), "the resources of a node depend on each other in a cycle");
    order_.push_back(&resources[*next]);
  }
}

AdmitOutcome StepRunner::admit(const SubmoduleStep& step, const StepContext& context) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) == nullptr) {
      continue;
    }
    if (const AdmitOutcome outcome = resource->admit(step, context); !outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

void StepRunner::plan(const SubmoduleStep& step, StepContext& context) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      resource->plan(step, context);
    }
  }
}

void StepRunner::commit(const SubmoduleStep& step, const StepContext& context) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      resource->commit(step, context);
    }
  }
}

}  // namespace rigel
