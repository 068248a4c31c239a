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

  /// Whether truncate_request undoes what a step does to this request. Where not, nobody runs the request ahead of the end of a
  /// loop that it would outlive.
  [[nodiscard]] virtual bool can_truncate(RequestHandle /*handle*/) const { return true; }
  /// The request's lane of `step`, the last one with it that was launched, ran for nothing: a loop has ended before it, and the
  /// request goes on. What the step appended is forgotten, so that the next one follows what was accepted. A stream that a fork
  /// has replaced stays a copy of its source. `accepted`: the request's facts; `last_touch`: the step's epoch.
  virtual void truncate_request(const SubmoduleStep& /*step*/, const RequestInfo& /*accepted*/,
                                Epoch /*last_touch*/) {}

  /// Whether a captured step has room for what varies in size, which has a fixed place there. Asked of the padded step,
  /// once it is admitted; where not, it runs eagerly.
  [[nodiscard]] virtual bool fits_capture(const SubmoduleStep& /*step*/,
                                          const StepContext& /*context*/) const {
    return true;
  }
  /// Reserves what the step needs, all or nothing; a refusal leaves nothing to undo.
  [[nodiscard]] virtual AdmitOutcome admit(const SubmoduleStep& /*step*/,
                                           const StepContext& /*context*/) {
    return {};
  }
  /// The step was admitted and may have several turns in one launch: reserves what the others need and gives for how many there
  /// is enough, from 1, the turn that was admitted, to `num_turns`.
  [[nodiscard]] virtual std::int32_t admit_turns(const SubmoduleStep& /*step*/,
                                                 const StepContext& /*context*/,
                                                 std::int32_t num_turns) {
    return num_turns;
  }
  /// Adds the columns of its plan that are one higher for a lane's next token, where a step has one token a lane: a launch of
  /// several turns counts them up on the device.
  virtual void add_counting_columns(const StepContext& /*context*/,
                                    std::vector<ConstDeviceView>& /*columns*/) const {}
  /// Writes the step's addressing into its staging and leaves the plan in the context.
  virtual void plan(const SubmoduleStep& step, StepContext& context) = 0;
  /// The step was launched: what it consumes is consumed. Of a launch of several turns the first; the others follow one by one
  /// when it has completed.
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
