// Nodes whose rows are token sequences: what a request brings runs part by part, under the step's budget of tokens.

#include "tensor/error.h"
#include "worker/node_runner.h"
#include "worker/token_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace rigel {

bool NodeRunner::takes_rows(WalkId walk) const {
  return has_token_rows_ && engine_->submodule().uniform_row_inputs(walk) == nullptr;
}

void NodeRunner::add_sampled(RequestHandle handle, std::span<const std::int32_t> tokens) {
  NodeRow& row = row_of(handle);
  row.info.num_generated += static_cast<std::int32_t>(tokens.size());
  if (has_token_rows_) {
    row.sampled.insert(row.sampled.end(), tokens.begin(), tokens.end());
  }
}

/// Those that bring tokens share what the lanes that decode have left of the budget.
void NodeRunner::add_parts(NodeStep& step) {
  std::ranges::sort(parts_, {}, [](const auto& part) { return part.first.row->number; });
  needs_.clear();
  for (const auto& [waiting, metadata] : parts_) {
    needs_.push_back(static_cast<std::int32_t>(waiting.row->tokens.next_length()));
  }
  fair_shares(needs_, max_step_tokens_ - static_cast<std::int32_t>(step.lanes.size()), grants_);
  for (std::size_t index = 0; index < parts_.size(); ++index) {
    if (grants_[index] > 0) {
      add_part(step, parts_[index].first, grants_[index], std::move(parts_[index].second));
    }
  }
}

/// Makes the row of what the request brings, once; false: it has none for this step.
bool NodeRunner::bring_tokens(NodeStep& step, const Waiting& waiting) {
  NodeRow& row = *waiting.row;
  if (row.has_current) {
    return true;
  }
  const bool is_given = takes_rows(waiting.walk);
  const WalkNode node{waiting.walk, node_};
  row.info.walk = waiting.walk;
  row.info.partition = context_.program.walk(waiting.walk).partition;
  const InputMetadata metadata = metadata_of(waiting);
  const RequestView view(row.info, metadata);
  std::unique_ptr<NodeInputs> inputs;
  if (is_given) {
    const bool ends_streams = has_finite_streams_ && context_.streams.ends(row.handle, node_).node;
    SignalMap signals;
    context_.walks.gather_inputs(node, row.handle, signals);
    inputs = engine_->prepare_whole({waiting.walk, &signals, ends_streams}, view);
    if (inputs == nullptr && ends_streams) {
      std::ignore = context_.walks.pop(node, {&row.handle, 1}, /*check_ready=*/false);
      step.idle.push_back({.handle = row.handle, .walk = waiting.walk});
    }
  } else {
    const std::span<const std::int32_t> sampled = row.sampled;
    inputs = engine_->prepare_replay(view, Tensor::copy_of(sampled.subspan(row.num_replayed)));
  }
  if (inputs == nullptr) {
    return false;
  }
  const std::int64_t length = inputs->input_seq_len;
  const std::int64_t longest = row.info.max_length - (row.info.max_tokens > 0 ? 1 : 0);
  if (length <= 0 || row.tokens.num_tokens() + length > longest) {
    step.failed.push_back(
        {row.handle, fmt::format("its input has {} tokens behind {} others; the context holds {}, "
                                 "input and answer together",
                                 length, row.tokens.num_tokens(), row.info.max_length)});
    return false;
  }
  if (is_given) {
    row.info.num_prompt_tokens += static_cast<std::int32_t>(length);
    row.has_mixed_input = row.info.num_generated > 0;
  } else {
    row.num_replayed = row.sampled.size();
  }
  row.tokens.add(std::move(inputs), is_given ? waiting.walk : row.tokens.next().walk);
  row.has_current = true;
  return true;
}

void NodeRunner::add_part(NodeStep& step, const Waiting& waiting, std::int32_t count,
                          InputMetadata metadata) {
  NodeRow& row = *waiting.row;
  std::ignore = context_.walks.pop({waiting.walk, node_}, {&row.handle, 1}, /*check_ready=*/false);
  const TokenRows::Row& next = row.tokens.next();
  const std::int64_t start = row.tokens.next_start();
  step.batch.add(row.handle, row.info, std::move(metadata),
                 LaneSource{.walk = next.walk,
                            .prepared_row = next.inputs.get(),
                            .start = start,
                            .end = start + count});
  step.rows.push_back(next.inputs);
  const bool ends_row = count == row.tokens.num_left();
  const bool ends_streams =
      ends_row && has_finite_streams_ && context_.streams.ends(row.handle, node_).node;
  step.lanes.push_back({.handle = row.handle,
                        .walk = waiting.walk,
                        .ends_streams = ends_streams,
                        .ends_row = ends_row});
}

/// Parts of rows: what is left waits for the next step at once, since nothing of this one has to be known.
void NodeRunner::after_launch(NodeStep& step) {
  for (const NodeLane& lane : step.lanes) {
    row_of(lane.handle).has_run = true;
  }
  if (step.rows.empty()) {
    return;
  }
  const std::span<const LaneSource> sources = step.batch.sources();
  for (std::size_t lane = 0; lane < step.lanes.size(); ++lane) {
    if (sources[lane].prepared_row == nullptr) {
      continue;
    }
    const RequestHandle handle = step.lanes[lane].handle;
    NodeRow& row = row_of(handle);
    row.tokens.launched(sources[lane].end - sources[lane].start);
    if (step.lanes[lane].ends_row) {
      row.has_current = false;
    } else {
      context_.walks.push_back({step.lanes[lane].walk, node_}, {&handle, 1});
    }
  }
}

}  // namespace rigel
