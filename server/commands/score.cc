#include "server/api/json_writer.h"
#include "server/api/prepare.h"
#include "server/api/running_call.h"
#include "server/api/text_calls.h"
#include "server/commands/commands.h"
#include "server/commands/json_lines.h"
#include "server/commands/offline_batch.h"
#include "server/model_session.h"
#include "server/unknown_field_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <variant>

namespace rigel::server {
namespace {

static_assert(std::endian::native == std::endian::little, "logit files are little-endian");

constexpr int kNumLastTop = 20;

struct ScoredLine {
  std::vector<std::int32_t> ids;
  std::size_t place = 0;
};

void write_top(JsonWriter& json, const std::vector<TokenLogprob>& top, std::size_t num_shown) {
  json.begin_array();
  for (std::size_t i = 0; i < std::min(num_shown, top.size()); ++i) {
    json.begin_array().value(top[i].id).value(top[i].logprob).end_array();
  }
  json.end_array();
}

/// Writes the logits as DIR/LINE.f32 and returns the path.
std::string dump_logits(const std::string& folder, std::size_t line,
                        const std::vector<float>& logits) {
  const std::filesystem::path path = std::filesystem::path(folder) / fmt::format("{}.f32", line);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  if (!out.flush()) {
    throw std::runtime_error(fmt::format("--dump-logits: cannot write {}", path.string()));
  }
  return path.string();
}

class LineScorer {
 public:
  LineScorer(const ScoreOptions& options, const ModelSession& session, std::size_t num_lines)
      : options_(options), session_(session), batch_(session.service(), num_lines) {}

  std::variant<ApiError, ScoredLine> submit(std::string_view line) {
    if (std::optional<ApiError> error = find_line_error(line)) {
      return std::move(*error);
    }
    const ServiceLimits limits = session_.service().limits();
    Parsed<ScoreCall> call = parse_score_line(line, limits.vocab_size);
    if (!call.ok()) {
      return std::move(call.error());
    }
    unknown_fields_.note("--jsonl", call.value().unknown_fields);
    const Prompt& prompt = call.value().prompt;
    const char* field = std::holds_alternative<std::string>(prompt) ? "text" : "ids";
    Parsed<std::vector<std::int32_t>> ids =
        prompt_ids(prompt, /*add_special=*/true, session_.text(), field);
    if (!ids.ok()) {
      return std::move(ids.error());
    }
    const auto num_tokens = static_cast<std::int64_t>(ids.value().size());
    if (num_tokens < 1 || num_tokens > limits.max_model_len) {
      return ApiError{.message = fmt::format("{} must have between 1 and {} tokens, got {}", field,
                                             limits.max_model_len, num_tokens),
                      .param = field};
    }
    GenerationRequest request;
    request.prompt = ids.value();
    request.sampling.max_tokens = 0;  // the prompt alone
    request.prompt_top = std::max(kNumLastTop, options_.num_top);
    request.keep_last_logits = !options_.dump_folder.empty();
    return ScoredLine{.ids = std::move(ids.value()), .place = batch_.add(std::move(request))};
  }

  Parsed<std::string> finish(std::size_t index, const ScoredLine& line) {
    const FinishedRequest answer = batch_.take(line.place);
    if (answer.refusal) {
      return api_error_of(*answer.refusal);
    }
    if (answer.finish == FinishReason::kError) {
      return ApiError{.status = 500, .message = answer.error};
    }
    const PromptScores& scores = answer.scores;
    JsonWriter json;
    json.begin_object().key("ids").begin_array();
    for (const std::int32_t id : line.ids) {
      json.value(id);
    }
    json.end_array().key("logprobs").begin_array();
    for (const float logprob : scores.logprobs) {
      json.value(logprob);
    }
    json.end_array().key("last_top");
    write_top(json, scores.top.empty() ? std::vector<TokenLogprob>() : scores.top.back(),
              kNumLastTop);
    if (options_.num_top > 0) {
      json.key("top").begin_array();
      for (const auto& top : scores.top) {
        write_top(json, top, static_cast<std::size_t>(options_.num_top));
      }
      json.end_array();
    }
    if (!options_.dump_folder.empty()) {
      json.field("last_logits_file", dump_logits(options_.dump_folder, index, scores.last_logits));
    }
    json.end_object();
    return json.take();
  }

 private:
  const ScoreOptions& options_;
  const ModelSession& session_;
  OfflineBatch batch_;
  UnknownFieldLog unknown_fields_;
};

}  // namespace

int run_score(const ScoreOptions& options) {
  const std::vector<std::string> lines = read_json_lines(options.jsonl);
  if (!options.dump_folder.empty()) {
    std::filesystem::create_directories(options.dump_folder);
  }
  const ModelSession session(options.model, options.worker);
  LineScorer scorer(options, session, lines.size());
  std::vector<std::variant<ApiError, ScoredLine>> submitted;
  for (const std::string& line : lines) {
    submitted.push_back(scorer.submit(line));
  }
  int exit_code = kDone;
  for (std::size_t i = 0; i < submitted.size(); ++i) {
    const auto* line = std::get_if<ScoredLine>(&submitted[i]);
    const Parsed<std::string> answer = line != nullptr
                                           ? scorer.finish(i, *line)
                                           : Parsed<std::string>(std::get<ApiError>(submitted[i]));
    exit_code = answer.ok() ? exit_code : kFailed;
    print_line(answer.ok() ? answer.value() : error_line(answer.error()));
  }
  return exit_code;
}

}  // namespace rigel::server
