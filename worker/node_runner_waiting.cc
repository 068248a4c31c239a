// Rows that wait for a node: who could run, in which walks the next step runs, and who joins it.

#include "worker/node_runner.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rigel {

/// Rows that are ready; the order in which they last ran is that in which they have waited.
void NodeRunner::find_waiting(const walk::StepWalks& walks, NodeStep& step) {
  waiting_.clear();
  for (const WalkId walk : walks.walks) {
    context_.walks.ready_nodes(&parked_, WalkNode{walk, node_}, std::nullopt, ready_);
    for (const RequestHandle handle : ready_.handles) {
      waiting_.push_back({&row_of(handle), walk, walk, context_.steps.last_touch(handle.row)});
    }
  }
  admit_waiting(step);
  const auto order = [](const Waiting& waiting) {
    return std::pair(waiting.last_touch, waiting.row->number);
  };
  if (!std::ranges::is_sorted(waiting_, {}, order)) {
    std::ranges::sort(waiting_, {}, order);
  }
}

/// Those with tokens to bring make their rows and get their pages, first come, first served: nobody overtakes one that waits for
/// its own. Whoever cannot run leaves.
void NodeRunner::admit_waiting(NodeStep& step) {
  arriving_.clear();
  for (Waiting& waiting : waiting_) {
    if (takes_rows(waiting.walk) || waiting.row->brings_tokens()) {
      arriving_.push_back(&waiting);
    }
  }
  if (arriving_.empty()) {
    return;
  }
  std::ranges::sort(arriving_, {}, [](const Waiting* waiting) { return waiting->row->number; });
  bool anybody_waits = false;
  for (Waiting* const waiting : arriving_) {
    NodeRow& row = *waiting->row;
    if (!bring_tokens(step, *waiting)) {
      waiting->row = nullptr;
    } else if ((anybody_waits && row.phase != NodeRow::Phase::kRunning) || !begin(row)) {
      anybody_waits = true;
      waiting->row = nullptr;
    } else {
      waiting->row_walk = row.tokens.next().walk;
    }
  }
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.row == nullptr; });
}

/// The walks of the step; rows of others go on waiting. Returns the lanes that it may have.
std::int32_t NodeRunner::choose(const walk::StepWalks& walks, const NodeStep* in_front) {
  demands_.clear();
  const auto demand_of = [&](WalkId walk) -> WalkDemand& {
    const auto known = std::ranges::find(demands_, walk, &WalkDemand::walk);
    return known != demands_.end() ? *known
                                   : demands_.emplace_back(WalkDemand{
                                         .walk = walk,
                                         .max_lanes = max_lanes(walk),
                                         .combines = walks.walks.size() > 1 && walks.has(walk)});
  };
  for (const Waiting& waiting : waiting_) {
    ++demand_of(waiting.row_walk).num_rows;
  }
  for (const WalkId front : fronts_) {
    demand_of(front).num_rows += std::ranges::count(in_front->lanes, front, &NodeLane::walk);
  }
  const std::int32_t most_lanes = choose_walks(demands_, max_lanes(walks.label));
  const auto is_left_out = [this](WalkId walk) {
    return !std::ranges::find(demands_, walk, &WalkDemand::walk)->is_chosen;
  };
  std::erase_if(waiting_, [&](const Waiting& waiting) { return is_left_out(waiting.row_walk); });
  std::erase_if(fronts_, is_left_out);
  return most_lanes;
}

/// What the request's next step is told of it.
InputMetadata NodeRunner::metadata_of(const Waiting& waiting) {
  const RequestHandle handle = waiting.row->handle;
  show_counters(waiting.walk, {&handle, 1});
  InputMetadata metadata{.loop_counters = waiting.row->info.loop_counters, .stream_chunks = {}};
  add_chunk_info(waiting.walk, handle, metadata);
  return metadata;
}

void NodeRunner::add_waiting(const walk::StepWalks& walks, std::int32_t most_lanes,
                             NodeStep& step) {
  parts_.clear();
  for (const Waiting& waiting : waiting_) {
    if (step.lanes.size() + parts_.size() >= static_cast<std::size_t>(most_lanes)) {
      break;
    }
    const RequestHandle handle = waiting.row->handle;
    InputMetadata metadata = metadata_of(waiting);
    const StepGroups::Groups groups = groups_of(walks, waiting.row_walk, handle, metadata);
    if (!groups_.admits(groups) || !begin(*waiting.row)) {
      continue;
    }
    groups_.add(groups);
    if (waiting.row->brings_tokens()) {
      parts_.emplace_back(waiting, std::move(metadata));
      continue;
    }
    const WalkNode node{waiting.walk, node_};
    std::ignore = context_.walks.pop(node, {&handle, 1}, /*check_ready=*/false);
    SignalMap& signals = waiting_rows_.assign(handle);
    context_.walks.gather_inputs(node, handle, signals);
    add_lane(step, waiting.walk, handle, std::move(metadata), signals);
  }
  if (!parts_.empty()) {
    add_parts(step);
  }
}

}  // namespace rigel
