#pragma once

#include "engine/resource.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rigel {

/// Drives a declared step through the resources of one node, in dependency order (among equals those that pre-plan first, so
/// that a step's columns lie alike whether it was planned ahead or not, then by name, so that every rank sweeps alike). Thread:
/// worker. A steady step allocates nothing.
///
/// One step may be staged: admitted and planned while the device runs the one before. `admit` and `plan` of the same step
/// then take over what is staged; of any other step they drop it first. Same means: walk, requests in order, slot, capture
/// key and whatever the pre-planning resources were declared.
class StepRunner {
 public:
  /// Throws CheckError for an unknown key, a resource that depends on itself, a cycle, or a resource that pre-plans although
  /// one that it depends on does not.
  /// `resources` outlive it.
  explicit StepRunner(const NodeResources& resources);

  /// Whether every resource of the step has room for it in a captured step.
  [[nodiscard]] bool fits_capture(const SubmoduleStep& step, const StepContext& context) const;
  /// Reserves for the step; stops at the first refusal and names the resource in it. Reservations made before it stay and are
  /// found again at the retry. Throws CheckError for a declared key that is not a resource of the node.
  [[nodiscard]] AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context);
  /// See Resource::admit_turns: the fewest that any of them has enough for.
  [[nodiscard]] std::int32_t admit_turns(const SubmoduleStep& step, const StepContext& context,
                                         std::int32_t num_turns) const;
  void plan(const SubmoduleStep& step, StepContext& context);
  /// See Resource::add_counting_columns.
  void add_counting_columns(const SubmoduleStep& step, const StepContext& context,
                            std::vector<ConstDeviceView>& columns) const;
  void commit(const SubmoduleStep& step, const StepContext& context) const;
  /// The admitted step will not run.
  void abandon(const SubmoduleStep& step) const;
  /// Whether every resource of the node can truncate the request.
  [[nodiscard]] bool can_truncate(RequestHandle handle) const;
  /// The request's lane of the committed step ran for nothing (Resource::truncate_request).
  void truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                        Epoch last_touch) const;

  /// Whether some resource of the node can pre-plan.
  [[nodiscard]] bool can_preplan() const;
  /// `admit` ahead of its turn, by the resources that pre-plan; a refusal leaves nothing behind.
  [[nodiscard]] AdmitOutcome pre_admit(const SubmoduleStep& step, const StepContext& context);
  /// `plan` of the step that pre_admit took. Its columns must stay in the staging until the step is planned or dropped.
  void pre_plan(const SubmoduleStep& step, StepContext& context);
  /// Whether what is staged serves this step; it is dropped where not.
  [[nodiscard]] bool keep_staged(const SubmoduleStep& step, const StepContext& context);
  [[nodiscard]] bool is_staged() const { return stage_ == Stage::kPlanned; }
  /// Drops what is staged, if anything is.
  void clear_preplan();
  /// The same where the staged step has a segment of this request: call it before the request is removed or changed.
  void clear_preplan_of(RequestHandle handle);

  // Requests on the host. Only this node's resources are asked: what another node keeps does not hold a request back here.

  [[nodiscard]] bool is_resident(RequestHandle handle) const;
  [[nodiscard]] std::int32_t reclaimable(RequestHandle handle) const;
  /// Every resource that can sends the request to the host; false where none did.
  bool offload(RequestHandle handle, StreamRef stream, Epoch last_touch) const;
  /// Brings all of it back, or nothing.
  [[nodiscard]] bool reload(RequestHandle handle, StreamRef stream, Epoch last_touch) const;

  [[nodiscard]] std::span<Resource* const> order() const { return order_; }
  [[nodiscard]] const NodeResources& resources() const { return resources_; }

 private:
  enum class Stage : std::uint8_t { kNone, kBegun, kPlanned };

  void sort(const NodeResources& resources);
  void check_preplans(const NodeResources& resources) const;
  void check_keys(const SubmoduleStep& step) const;
  [[nodiscard]] bool is_staged_step(const SubmoduleStep& step, const StepContext& context) const;
  void promote(StepContext& context);

  const NodeResources& resources_;
  std::vector<Resource*> order_;
  std::string names_;  // of all resources, for messages

  Stage stage_ = Stage::kNone;
  WalkId staged_walk_{};
  std::vector<RequestHandle> staged_handles_;
  std::int32_t staged_slot_ = 0;
  SubmoduleStep staged_step_;
  std::vector<PlanOutput> staged_plans_;  // by position in order_
};

}  // namespace rigel
