// Scoring: log-probabilities of given tokens, in blocks of rows so that the logits of a long prompt are never all there.

#include "engine/step_context.h"
#include "kernels/log_probs.h"
#include "model/language_model.h"
#include "tensor/copy.h"

#include <algorithm>

namespace rigel {

using Names = LanguageModelNames;

namespace {

/// Scored tokens of each lane, and which of them are a prompt's last with logits to keep.
struct ScoredRows {
  std::int32_t num_top = 0;
  std::vector<std::int64_t> last_rows;  // by scored row, ascending
};

ScoredRows scored_rows(const BatchColumns& batch) {
  ScoredRows result;
  std::int64_t row = 0;
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    const RequestInfo& info = *batch.infos[lane];
    const NodeInputs& inputs = *batch.inputs[lane];
    if (!info.scoring || inputs.tensor_inputs.empty()) {
      continue;
    }
    row += inputs.input_seq_len;
    result.num_top = std::max(result.num_top, info.scoring->num_top);
    if (info.scoring->keep_last_logits && inputs.is_final_chunk()) {
      result.last_rows.push_back(row - 1);
    }
  }
  return result;
}

}  // namespace

void LanguageModel::enqueue_scores(const Step& step, const BatchColumns& batch,
                                   BatchedModelOutput& outputs) {
  const ConstDeviceView tokens = step.context.staged(Names::kScoreTokens);
  const std::int64_t num_rows = tokens.dim(0);
  if (num_rows == 0) {
    return;
  }
  const ScoredRows scored = scored_rows(batch);
  const std::int64_t width = std::max(scored.num_top, 1);
  const DeviceView chosen = buffers_.score_logprobs.view(Dtype::kF32, {num_rows});
  const DeviceView ids = buffers_.score_top_ids.view(Dtype::kI32, {num_rows, width});
  const DeviceView values = buffers_.score_top_logprobs.view(Dtype::kF32, {num_rows, width});
  const DeviceView last_logits = last_logits_view(scored.last_rows.size());
  std::size_t next_last = 0;
  for (std::int64_t first = 0; first < num_rows; first += kHeadRows) {
    const std::int64_t count = std::min<std::int64_t>(kHeadRows, num_rows - first);
    const DeviceView logits = enqueue_head(step, tokens.slice(0, first, count));
    kernels::log_probs(
        step.stream,
        {chosen.slice(0, first, count), ids.slice(0, first, count), values.slice(0, first, count)},
        logits, step.context.staged(Names::kScoreTargets).slice(0, first, count),
        step.context.staged(Names::kScoreTopCounts).slice(0, first, count));
    for (; next_last < scored.last_rows.size() && scored.last_rows[next_last] < first + count;
         ++next_last) {
      copy(step.stream, last_logits.select(0, static_cast<std::int64_t>(next_last)),
           ConstDeviceView(logits.select(0, scored.last_rows[next_last] - first)));
    }
  }
  outputs.add_rows(Names::kScoreLogprob, chosen);
  outputs.add_rows(Names::kScoreTopIds, ids);
  outputs.add_rows(Names::kScoreTopLogprobs, values);
  if (!scored.last_rows.empty()) {
    outputs.add_rows(Names::kLastLogits, last_logits);
  }
}

DeviceView LanguageModel::last_logits_view(std::size_t num_prompts) {
  const Shape shape{static_cast<std::int64_t>(num_prompts), config_.vocab_size};
  if (shape.num_elements() * 4 > last_logits_.num_bytes()) {
    last_logits_ = DeviceBuffer(device_, Dtype::kF32, shape);
  }
  return last_logits_.view(Dtype::kF32, shape);
}

}  // namespace rigel
