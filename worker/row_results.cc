#include "worker/row_results.h"

#include "model/language_model_names.h"
#include "tensor/error.h"

namespace rigel {

namespace {

using Names = LanguageModelNames;

/// The best `num_top` of row `row`; ids and values are (rows, K), K >= num_top.
void append_top(const ConstHostView& ids, const ConstHostView& values, std::int64_t row,
                int num_top, std::vector<TokenLogprob>& out) {
  if (num_top <= 0) {
    return;
  }
  const std::int64_t width = ids.dim(1);
  RIGEL_CHECK(num_top <= width, "{} best tokens were asked for, the step has {}", num_top, width);
  const auto* id = ids.data<std::int32_t>() + row * width;
  const auto* value = values.data<float>() + row * width;
  for (int rank = 0; rank < num_top; ++rank) {
    if (id[rank] < 0) {
      break;  // the vocabulary is smaller
    }
    out.push_back({id[rank], value[rank]});
  }
}

}  // namespace

void append_logprobs(const HostRows& rows, std::size_t row, std::int32_t token, int num_top,
                     std::vector<TokenLogprob>& out) {
  const ConstHostView chosen = rows.find(Names::kChosenLogprob);
  RIGEL_CHECK(chosen.defined(), "{} rows came without log-probabilities", rows.handles.size());
  out.push_back({token, chosen.span<float>()[row]});
  append_top(rows.find(Names::kTopIds), rows.find(Names::kTopLogprobs),
             static_cast<std::int64_t>(row), num_top, out);
}

void append_scores(const HostRows& rows, const ScoredChunk& chunk, PromptScores& scores) {
  const ConstHostView scores_of_rows = rows.find(Names::kScoreLogprob);
  RIGEL_CHECK(scores_of_rows.defined(), "{} rows came without scores", chunk.num_rows);
  const auto chosen = scores_of_rows.span<float>();
  for (std::int64_t offset = 0; offset < chunk.num_rows; ++offset) {
    const std::int64_t row = chunk.first_row + offset;
    if (!chunk.ends_prompt || offset + 1 < chunk.num_rows) {
      scores.logprobs.push_back(chosen[static_cast<std::size_t>(row)]);
    }
    append_top(rows.find(Names::kScoreTopIds), rows.find(Names::kScoreTopLogprobs), row,
               chunk.num_top, scores.top.emplace_back());
  }
}

}  // namespace rigel
