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
  out.push_back({token, rows.find(Names::kChosenLogprob).span<float>()[row]});
  append_top(rows.find(Names::kTopIds), rows.find(Names::kTopLogprobs),
             static_cast<std::int64_t>(row), num_top, out);
}

void append_scores(const HostRows& rows, const ScoredChunk& chunk, PromptScores& scores) {
  const auto chosen = rows.find(Names::kScoreLogprob).span<float>();
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
