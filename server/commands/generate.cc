#include "server/commands/commands.h"
#include "server/commands/generate_lines.h"
#include "server/commands/json_lines.h"
#include "server/commands/terminal_chat.h"
#include "server/model_session.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace rigel::server {
namespace {

/// The option's value, else the model's, else the interface's default that is there already.
template <typename T, typename U>
void choose(T& target, const std::optional<T>& option, const std::optional<U>& of_model) {
  if (option) {
    target = *option;
  } else if (of_model) {
    target = static_cast<T>(*of_model);
  }
}

SamplingParams sampling_of(const GenerateOptions& options, const GenerationDefaults& defaults) {
  SamplingParams sampling;
  sampling.max_tokens = options.max_tokens;
  choose(sampling.temperature, options.temperature, defaults.temperature);
  choose(sampling.top_p, options.top_p, defaults.top_p);
  choose(sampling.top_k, options.top_k, defaults.top_k);
  choose(sampling.min_p, options.min_p, defaults.min_p);
  choose(sampling.repetition_penalty, options.repetition_penalty, defaults.repetition_penalty);
  sampling.stop = options.stop;
  sampling.ignore_eos = options.ignore_eos;
  return sampling;
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  std::vector<std::string> lines;
  if (!options.jsonl.empty()) {
    lines = read_json_lines(
        options.jsonl);  // what is wrong with the file is said before the model loads
  }
  const ModelSession session(options.model, options.worker);
  if (!options.jsonl.empty()) {
    return generate_lines(lines, session.text(), session.service());
  }
  if (!session.text().has_tokenizer()) {
    throw std::runtime_error(
        "this model has no tokenizer: only generate --jsonl with prompt_ids is possible");
  }
  TerminalChat chat(session.text(), session.service(),
                    sampling_of(options, session.files().config.generation), options.raw);
  return options.prompt ? chat.answer(*options.prompt) : chat.answer_lines();
}

}  // namespace rigel::server
