#include "engine/step_runner.h"

#include "tensor/error.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace rigel {

namespace {

bool is_placed(const std::vector<Resource*>& order, ResourceKey key) {
  return std::ranges::any_of(order, [key](const Resource* placed) { return placed->key() == key; });
}

}  // namespace

StepRunner::StepRunner(const NodeResources& resources) : resources_(resources) {
  sort(resources);
  check_preplans(resources);
  for (std::size_t index = 0; index < resources.size(); ++index) {
    names_ += (names_.empty() ? "" : ", ") + resources.name(index);
  }
  staged_plans_.resize(order_.size());
}

void StepRunner::sort(const NodeResources& resources) {
  std::vector<std::size_t> by_name(resources.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::ranges::sort(by_name, {}, [&](std::size_t index) {
    return std::pair(!resources[index].supports_preplan(), std::string_view(resources.name(index)));
  });
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

void StepRunner::check_preplans(const NodeResources& resources) const {
  for (std::size_t index = 0; index < resources.size(); ++index) {
    if (!resources[index].supports_preplan()) {
      continue;
    }
    for (const ResourceKey key : resources[index].depends_on()) {
      const auto needed = static_cast<std::size_t>(key);
      RIGEL_CHECK(resources[needed].supports_preplan(),
                  "resource '{}' pre-plans, but '{}', which it depends on, does not",
                  resources.name(index), resources.name(needed));
    }
  }
}

void StepRunner::check_keys(const SubmoduleStep& step) const {
  step.for_each_key([&](ResourceKey key) {
    RIGEL_CHECK(static_cast<std::size_t>(key) < order_.size(),
                "a step declares resource {}; this node has: {}", static_cast<int>(key), names_);
  });
}

bool StepRunner::fits_capture(const SubmoduleStep& step, const StepContext& context) const {
  return std::ranges::all_of(order_, [&](const Resource* resource) {
    return step.find(resource->key()) == nullptr || resource->fits_capture(step, context);
  });
}

AdmitOutcome StepRunner::admit(const SubmoduleStep& step, const StepContext& context) {
  check_keys(step);
  const bool is_ahead = keep_staged(step, context);
  for (Resource* resource : order_) {
    if (step.find(resource->key()) == nullptr || (is_ahead && resource->supports_preplan())) {
      continue;
    }
    if (AdmitOutcome outcome = resource->admit(step, context); !outcome.ok()) {
      outcome.resource = resource->key();
      return outcome;
    }
  }
  return {};
}

void StepRunner::plan(const SubmoduleStep& step, StepContext& context) {
  const bool is_ahead = keep_staged(step, context);
  if (is_ahead) {
    promote(context);
  }
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr && !(is_ahead && resource->supports_preplan())) {
      resource->plan(step, context);
    }
  }
}

std::int32_t StepRunner::admit_turns(const SubmoduleStep& step, const StepContext& context,
                                     std::int32_t num_turns) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      num_turns = resource->admit_turns(step, context, num_turns);
    }
  }
  return num_turns;
}

void StepRunner::add_counting_columns(const SubmoduleStep& step, const StepContext& context,
                                      std::vector<ConstDeviceView>& columns) const {
  for (const Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      resource->add_counting_columns(context, columns);
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

void StepRunner::abandon(const SubmoduleStep& step) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      resource->abandon(step);
    }
  }
}

bool StepRunner::can_truncate(RequestHandle handle) const {
  return std::ranges::all_of(
      order_, [&](const Resource* resource) { return resource->can_truncate(handle); });
}

void StepRunner::truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                                  Epoch last_touch) const {
  for (Resource* resource : order_) {
    if (step.find(resource->key()) != nullptr) {
      resource->truncate_request(step, accepted, last_touch);
    }
  }
}

bool StepRunner::is_resident(RequestHandle handle) const {
  return std::ranges::none_of(
      order_, [&](const Resource* resource) { return resource->is_offloaded(handle); });
}

std::int32_t StepRunner::reclaimable(RequestHandle handle) const {
  std::int32_t total = 0;
  for (const Resource* resource : order_) {
    total += resource->reclaimable(handle);
  }
  return total;
}

bool StepRunner::offload(RequestHandle handle, StreamRef stream, Epoch last_touch) const {
  bool any = false;
  for (Resource* resource : order_) {
    any = (resource->supports_eviction() && resource->offload(handle, stream, last_touch)) || any;
  }
  return any;
}

bool StepRunner::reload(RequestHandle handle, StreamRef stream, Epoch last_touch) const {
  if (!std::ranges::all_of(
          order_, [&](const Resource* resource) { return resource->can_reload(handle); })) {
    return false;
  }
  for (std::size_t index = 0; index < order_.size(); ++index) {
    if (!order_[index]->reload(handle, stream, last_touch)) {
      for (std::size_t done = 0; done < index; ++done) {
        order_[done]->offload(handle, stream, last_touch);
      }
      return false;
    }
  }
  return true;
}

}  // namespace rigel
