#include "server/commands/generate_lines.h"

#include "server/api/json_writer.h"
#include "server/api/prepare.h"
#include "server/api/running_call.h"
#include "server/commands/commands.h"
#include "server/commands/json_lines.h"
#include "server/commands/offline_batch.h"
#include "server/unknown_field_log.h"

#include <variant>
#include <vector>

namespace rigel::server {
namespace {

/// A line under way.
struct SubmittedLine {
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::size_t> places;  // of its choices
};

void write_choice(JsonWriter& json, const FinishedRequest& choice, bool with_logprobs) {
  json.begin_object().key("ids").begin_array();
  for (const GeneratedToken& token : choice.tokens) {
    json.value(token.id);
  }
  json.end_array().field("text", choice.text).field("finish_reason", name_of(choice.finish));
  if (with_logprobs) {
    json.key("logprobs").begin_array();
    for (const GeneratedToken& token : choice.tokens) {
      json.begin_array();
      for (const TokenLogprob& entry : token.logprobs) {
        json.begin_array().value(entry.id).value(entry.logprob).end_array();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.end_object();
}

class LineGenerator {
 public:
  LineGenerator(const TextCodec& codec, InferenceService& service, std::size_t num_lines)
      : codec_(codec), service_(service), batch_(service, num_lines) {}

  void submit(std::string_view line) {
    if (std::optional<ApiError> error = find_line_error(line)) {
      lines_.push_back({.state = std::move(*error)});
      return;
    }
    Parsed<GenerationCall> call = parse_generation_call(CallKind::kLine, line, service_.limits());
    if (!call.ok()) {
      lines_.push_back({.state = std::move(call.error())});
      return;
    }
    unknown_fields_.note("--jsonl", call.value().unknown_fields);
    Parsed<std::vector<GenerationRequest>> requests =
        prepare_requests(call.value(), codec_, service_.limits());
    if (!requests.ok()) {
      lines_.push_back({.state = std::move(requests.error())});
      return;
    }
    SubmittedLine submitted{.prompt_ids = requests.value().front().prompt, .places = {}};
    for (GenerationRequest& request : requests.value()) {
      submitted.places.push_back(batch_.add(std::move(request)));
    }
    lines_.push_back({.state = std::move(submitted),
                      .with_logprobs = call.value().sampling.logprobs.has_value()});
  }

  /// Prints all answers; returns the exit code.
  int print() {
    int exit_code = kDone;
    for (Line& line : lines_) {
      const auto* submitted = std::get_if<SubmittedLine>(&line.state);
      const Parsed<std::string> answer = submitted != nullptr
                                             ? finish(*submitted, line.with_logprobs)
                                             : Parsed<std::string>(std::get<ApiError>(line.state));
      exit_code = answer.ok() ? exit_code : kFailed;
      print_line(answer.ok() ? answer.value() : error_line(answer.error()));
    }
    return exit_code;
  }

 private:
  struct Line {
    std::variant<ApiError, SubmittedLine> state;
    bool with_logprobs = false;
  };

  Parsed<std::string> finish(const SubmittedLine& line, bool with_logprobs) {
    JsonWriter json;
    json.begin_object().key("prompt_ids").begin_array();
    for (const std::int32_t id : line.prompt_ids) {
      json.value(id);
    }
    json.end_array().key("choices").begin_array();
    for (const std::size_t place : line.places) {
      const FinishedRequest choice = batch_.take(place);
      if (choice.refusal) {
        return api_error_of(*choice.refusal);
      }
      if (choice.finish == FinishReason::kError) {
        return ApiError{.status = 500, .message = choice.error};
      }
      write_choice(json, choice, with_logprobs);
    }
    json.end_array().end_object();
    return json.take();
  }

  const TextCodec& codec_;
  InferenceService& service_;
  OfflineBatch batch_;
  std::vector<Line> lines_;
  UnknownFieldLog unknown_fields_;
};

}  // namespace

int generate_lines(const std::vector<std::string>& lines, const TextCodec& codec,
                   InferenceService& service) {
  LineGenerator generator(codec, service, lines.size());
  for (const std::string& line : lines) {
    generator.submit(line);
  }
  return generator.print();
}

}  // namespace rigel::server
