#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/request_info.h"
#include "engine/step.h"
#include "engine/step_context.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rigel {

/// Stateful part of a node: KV cache, positions, attention planning, sampler. The step runner sweeps a node's resources in
/// dependency order: admit all, plan all, and after the launch commit all. Resources change state on the worker thread only;
/// what a forward calls of them is const and reads nothing but the step's plan.
class Resource {
 public:
  explicit Resource(ResourceKey key) : key_(key) {}
  virtual ~Resource() = default;

  [[nodiscard]] ResourceKey key() const { return key_; }
  /// Resources whose plan this one reads.
  [[nodiscard]] virtual std::span<const ResourceKey> depends_on() const { return {}; }

  /// Opens a request's state; a second call changes nothing.
  virtual void ingest_request(const RequestInfo& /*info*/) {}
  /// Drops a request's state. Its memory is reusable once step `last_touch` has completed.
  virtual void remove_request(RequestHandle /*handle*/, Epoch /*last_touch*/) {}
  /// The request loses what it has cached and will start over; it stays open.
  virtual void restart_request(RequestHandle /*handle*/, Epoch /*last_touch*/) {}

  /// Whether a captured step has room for what varies in size, which has a fixed place there. Asked of the padded step,
  /// before it is admitted; where not, it runs eagerly.
  [[nodiscard]] virtual bool fits_capture(const SubmoduleStep& /*step*/,
                                          const StepContext& /*context*/) const {
    return true;
  }
  /// Reserves what the step needs, all or nothing; a refusal leaves nothing to undo.
  [[nodiscard]] virtual AdmitOutcome admit(const SubmoduleStep& /*step*/,
                                           const StepContext& /*context*/) {
    return {};
  }
  /// Writes the step's addressing into its staging and leaves the plan in the context.
  virtual void plan(const SubmoduleStep& step, StepContext& context) = 0;
  /// The step was launched: what it consumes is consumed.
  virtual void commit(const SubmoduleStep& /*step*/, const StepContext& /*context*/) {}
  /// An admitted step will not run: what it held of its requests is let go; what was reserved is found again.
  virtual void abandon(const SubmoduleStep& /*step*/) {}
  /// Steps up to `completed` have completed: memory that waited for them is free.
  virtual void collect(Epoch /*completed*/) {}

  // A step admitted and planned ahead of its turn. From begin_preplan to promote, whatever admit and plan change can be
  // undone by clear_preplan; in between no other step is admitted.
  [[nodiscard]] virtual bool supports_preplan() const { return false; }
  virtual void begin_preplan() {}
  /// The staged step runs, under this epoch.
  virtual void promote(Epoch /*epoch*/) {}
  /// The staged step does not run. Nothing happens where none is staged.
  virtual void clear_preplan() {}

  // Requests that leave the device for the host. `last_touch` is the last launched step.
  [[nodiscard]] virtual bool supports_eviction() const { return false; }
  [[nodiscard]] virtual bool is_offloaded(RequestHandle /*handle*/) const { return false; }
  /// Units (pages) that an offload of the request would free; 0 where it is not possible now.
  [[nodiscard]] virtual std::int32_t reclaimable(RequestHandle /*handle*/) const { return 0; }
  [[nodiscard]] virtual bool can_reload(RequestHandle /*handle*/) const { return true; }
  /// All or nothing; false where nothing was done.
  virtual bool offload(RequestHandle /*handle*/, StreamRef /*stream*/, Epoch /*last_touch*/) {
    return false;
  }
  virtual bool reload(RequestHandle /*handle*/, StreamRef /*stream*/, Epoch /*last_touch*/) {
    return true;
  }

 private:
  ResourceKey key_;
};

/// The resources of one node by name and key, owned by the engine.
class NodeResources {
 public:
  /// Adds `resource` under `name`; its key must be `next_key()`.
  void add(std::string name, std::unique_ptr<Resource> resource);
  [[nodiscard]] ResourceKey next_key() const { return static_cast<ResourceKey>(entries_.size()); }

  /// The resource `name` as an `R`. Throws CheckError naming it and what there is instead.
  template <class R>
  [[nodiscard]] R& get(std::string_view name) const {
    R* typed = dynamic_cast<R*>(&find(name));
    RIGEL_CHECK(typed != nullptr, "resource '{}' is of another kind", name);
    return *typed;
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] Resource& operator[](std::size_t index) const { return *entries_[index].second; }
  [[nodiscard]] const std::string& name(std::size_t index) const { return entries_[index].first; }

 private:
  [[nodiscard]] Resource& find(std::string_view name) const;

  std::vector<std::pair<std::string, std::unique_ptr<Resource>>> entries_;
};

}  // namespace rigel
