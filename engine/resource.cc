#include "engine/resource.h"

#include "tensor/error.h"

namespace rigel {

void NodeResources::add(std::string name, std::unique_ptr<Resource> resource) {
  RIGEL_CHECK(resource->key() == next_key(), "resource '{}' has key {}, expected {}", name,
              static_cast<int>(resource->key()), static_cast<int>(next_key()));
  for (const auto& [known, unused] : entries_) {
    RIGEL_CHECK(known != name, "there is a resource '{}' already", name);
  }
  entries_.emplace_back(std::move(name), std::move(resource));
}

Resource& NodeResources::find(std::string_view name) const {
  std::string available;
  for (const auto& [known, resource] : entries_) {
    if (known == name) {
      return *resource;
    }
    available += (available.empty() ? "" : ", ") + known;
  }
  RIGEL_CHECK(false, "no resource '{}' at this node; there are: {}", name, available);
  return *entries_.front().second;
}

}  // namespace rigel
