#include "server/api/chat_messages.h"
#include "server/api/generation_call.h"
#include "server/api/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rigel::server {
namespace {

constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxPrompts = 2048;
constexpr std::size_t kMaxBiases = 1024;

// What OpenAI's clients send that has no bearing on the answer here.
constexpr std::string_view kHarmlessFields[] = {"user",
                                                "metadata",
                                                "store",
                                                "service_tier",
                                                "parallel_tool_calls",
                                                "safety_identifier",
                                                "prompt_cache_key",
                                                "reasoning_effort"};

struct IntegerField {
  std::string_view name;
  Range<std::int64_t> range;
  int SamplingParams::*target;
};

struct RealField {
  std::string_view name;
  Range<double> range;
  float SamplingParams::*target;
};

struct BooleanField {
  std::string_view name;
  bool SamplingParams::*target;
};

constexpr IntegerField kIntegerFields[] = {
    {"max_tokens", {.low = 1}, &SamplingParams::max_tokens},
    {"min_tokens", {.low = 0}, &SamplingParams::min_tokens},
    {"top_k", {.low = -1}, &SamplingParams::top_k},
};

constexpr RealField kRealFields[] = {
    {"temperature", {.low = 0, .high = 2}, &SamplingParams::temperature},
    {"top_p", {.low = 0, .high = 1, .above = true}, &SamplingParams::top_p},
    {"min_p", {.low = 0, .high = 1}, &SamplingParams::min_p},
    {"repetition_penalty",
     {.low = 0, .high = 100, .above = true},
     &SamplingParams::repetition_penalty},
    {"presence_penalty", {.low = -2, .high = 2}, &SamplingParams::presence_penalty},
    {"frequency_penalty", {.low = -2, .high = 2}, &SamplingParams::frequency_penalty},
};

constexpr BooleanField kBooleanFields[] = {
    {"ignore_eos", &SamplingParams::ignore_eos},
    {"include_stop_str_in_output", &SamplingParams::include_stop_in_output},
    {"skip_special_tokens", &SamplingParams::skip_special_tokens},
};

void read_logit_bias(JsonFields& fields, int vocab_size, SamplingParams& sampling) {
  const Json* map = fields.find("logit_bias");
  if (map == nullptr) {
    return;
  }
  if (!map->is_object() || map->size() > kMaxBiases) {
    return fields.fail(
        "logit_bias",
        fmt::format("logit_bias must be an object of at most {} token ids and numbers, got {}",
                    kMaxBiases, shown(*map)));
  }
  for (const auto& [key, bias] : map->items()) {
    std::int32_t id = -1;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (problem != std::errc{} || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      return fields.fail("logit_bias",
                         fmt::format("logit_bias keys must be token ids between 0 and {}, got {}",
                                     vocab_size - 1, shown(Json(key))));
    }
    if (!bias.is_number() || std::abs(bias.get<double>()) > 100.0) {
      return fields.fail(
          "logit_bias",
          fmt::format("logit_bias values must be numbers between -100 and 100, got {}",
                      shown(bias)));
    }
    sampling.logit_bias.emplace_back(id, bias.get<float>());
  }
}

/// Completions and lines say how many alternatives; chats say whether, and how many in `top_logprobs`.
void read_logprobs(JsonFields& fields, CallKind kind, int max_logprobs, SamplingParams& sampling) {
  int num_alternatives = 0;
  if (kind != CallKind::kChat) {
    if (fields.integer("logprobs", {.low = 0, .high = max_logprobs}, num_alternatives)) {
      sampling.logprobs = num_alternatives;
    }
    return;
  }
  bool wanted = false;
  fields.boolean("logprobs", wanted);
  const bool counted =
      fields.integer("top_logprobs", {.low = 0, .high = max_logprobs}, num_alternatives);
  if (counted && num_alternatives > 0 && !wanted) {
    return fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  }
  if (wanted) {
    sampling.logprobs = num_alternatives;
  }
}

void read_sampling(JsonFields& fields, CallKind kind, const ServiceLimits& limits,
                   GenerationCall& call) {
  SamplingParams& sampling = call.sampling;
  call.max_tokens_given = fields.integer("max_completion_tokens", {.low = 1}, sampling.max_tokens);
  for (const IntegerField& field : kIntegerFields) {
    const bool given = fields.integer(field.name, field.range, sampling.*field.target);
    call.max_tokens_given |= given && field.target == &SamplingParams::max_tokens;
  }
  for (const RealField& field : kRealFields) {
    fields.real(field.name, field.range, sampling.*field.target);
  }
  for (const BooleanField& field : kBooleanFields) {
    fields.boolean(field.name, sampling.*field.target);
  }
  sampling.top_k = std::max(sampling.top_k, 0);  // -1 is vLLM's "off"
  std::int64_t seed = 0;
  if (fields.integer("seed", {}, seed)) {
    sampling.seed = static_cast<std::uint64_t>(seed);
  }
  fields.strings("stop", kMaxStopStrings, sampling.stop);
  fields.token_ids("stop_token_ids", limits.vocab_size, sampling.stop_token_ids);
  read_logit_bias(fields, limits.vocab_size, sampling);
  read_logprobs(fields, kind, limits.max_logprobs, sampling);
  const bool bounded = kind != CallKind::kChat || call.max_tokens_given;
  if (bounded && sampling.min_tokens > sampling.max_tokens) {
    fields.fail("min_tokens",
                fmt::format("min_tokens must be between 0 and max_tokens ({}), got {}",
                            sampling.max_tokens, sampling.min_tokens));
  }
  fields.integer("n", {.low = 1, .high = 128}, call.num_choices);
}

/// Answers are not ranked: as many are made as are given.
void check_best_of(JsonFields& fields, int num_choices) {
  int best_of = num_choices;
  if (fields.integer("best_of", {.low = 1}, best_of) && best_of != num_choices) {
    fields.fail("best_of",
                fmt::format("best_of must be equal to n ({}), got {}", num_choices, best_of));
  }
}

/// The prompt's log-probabilities come before the answer, and are complete only with it.
void check_echo(JsonFields& fields, const GenerationCall& call) {
  if (call.echo && call.stream && call.sampling.logprobs) {
    fields.fail("echo", "echo with logprobs needs stream to be false, got true");
  }
}

/// Fields that ask for something this build cannot do: silence would be a wrong answer.
void refuse_unavailable(JsonFields& fields) {
  if (const Json* format = fields.find("response_format")) {
    if (!format->is_object() || !format->contains("type") || (*format)["type"] != "text") {
      fields.fail(
          "response_format",
          fmt::format("response_format must be {{\"type\": \"text\"}}, got {}", shown(*format)));
    }
  }
  if (const Json* suffix = fields.find("suffix")) {
    fields.fail("suffix", fmt::format("suffix is not available, got {}", shown(*suffix)));
  }
  if (const Json* choice = fields.find("tool_choice")) {
    if (*choice != "none" && *choice != "auto") {
      fields.fail("tool_choice",
                  fmt::format("tool_choice must be \"none\" or \"auto\", got {}", shown(*choice)));
    }
  }
  bool continue_final = false;
  if (fields.boolean("continue_final_message", continue_final) && continue_final) {
    fields.fail("continue_final_message", "continue_final_message must be false, got true");
  }
}

void read_delivery(JsonFields& fields, GenerationCall& call) {
  fields.boolean("stream", call.stream);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) {
    return;
  }
  if (!options->is_object()) {
    return fields.fail("stream_options",
                       fmt::format("stream_options must be an object, got {}", shown(*options)));
  }
  if (!call.stream) {
    return fields.fail("stream_options", "stream_options needs stream to be true");
  }
  JsonFields inner(*options);
  inner.boolean("include_usage", call.include_usage);
  for (const std::string& name : inner.unknown_fields()) {
    call.unknown_fields.push_back("stream_options." + name);
  }
  if (inner.error()) {
    fields.fail("stream_options", "stream_options." + inner.error()->message);
  }
}

/// `prompt`: a string, a list of strings, token ids, or a list of lists of token ids.
void read_prompts(JsonFields& fields, int vocab_size, std::vector<Prompt>& out) {
  const Json* value = fields.find("prompt");
  const auto wrong = [&](std::string_view what) {
    fields.fail("prompt",
                fmt::format("prompt {}, got {}", what, value == nullptr ? "null" : shown(*value)));
  };
  if (value == nullptr) {
    return wrong("is required");
  }
  if (value->is_string()) {
    out.emplace_back(value->get<std::string>());
    return;
  }
  if (!value->is_array() || value->empty()) {
    return wrong(
        "must be a string, a list of strings, token ids or a list of lists of token ids, not "
        "empty");
  }
  const bool one_prompt = value->front().is_number();
  if (one_prompt) {
    std::vector<std::int32_t> ids;
    if (const auto problem = read_token_ids(*value, vocab_size, ids)) {
      return fields.fail("prompt", "prompt " + *problem);
    }
    out.emplace_back(std::move(ids));
    return;
  }
  if (value->size() > kMaxPrompts) {
    return fields.fail("prompt", fmt::format("prompt may hold at most {} prompts, got {}",
                                             kMaxPrompts, value->size()));
  }
  for (const Json& item : *value) {
    if (item.is_string() && value->front().is_string()) {
      out.emplace_back(item.get<std::string>());
    } else if (item.is_array() && !item.empty() && value->front().is_array()) {
      std::vector<std::int32_t> ids;
      if (const auto problem = read_token_ids(item, vocab_size, ids)) {
        return fields.fail("prompt", "prompt " + *problem);
      }
      out.emplace_back(std::move(ids));
    } else {
      return wrong("must hold strings alone or lists of token ids alone");
    }
  }
}

/// A line holds exactly one of `prompt` (one string), `prompt_ids` and `messages`.
void read_line_prompt(JsonFields& fields, int vocab_size, std::vector<Prompt>& out) {
  const bool has_text = fields.find("prompt") != nullptr;
  const bool has_ids = fields.find("prompt_ids") != nullptr;
  const bool has_messages = fields.find("messages") != nullptr;
  if (has_text + has_ids + has_messages != 1) {
    return fields.fail(
        "prompt", fmt::format("exactly one of prompt, prompt_ids and messages is required, got {}",
                              has_text + has_ids + has_messages));
  }
  std::string text;
  std::vector<std::int32_t> ids;
  if (fields.string("prompt", text)) {
    out.emplace_back(std::move(text));
  } else if (fields.token_ids("prompt_ids", vocab_size, ids)) {
    if (ids.empty()) {
      return fields.fail("prompt_ids", "prompt_ids must hold at least one token id, got []");
    }
    out.emplace_back(std::move(ids));
  } else if (has_messages) {
    out.emplace_back(read_chat_prompt(fields));
  }
}

}  // namespace

Parsed<GenerationCall> parse_generation_call(CallKind kind, std::string_view text,
                                             const ServiceLimits& limits) {
  Parsed<Json> document = parse_object(text);
  if (!document.ok()) {
    return std::move(document.error());
  }
  JsonFields fields(document.value());
  GenerationCall call;
  call.kind = kind;
  fields.string("model", call.model);
  switch (kind) {
    case CallKind::kCompletion:
      read_prompts(fields, limits.vocab_size, call.prompts);
      fields.boolean("echo", call.echo);
      fields.boolean("add_special_tokens", call.add_special_tokens);
      break;
    case CallKind::kChat:
      call.prompts.emplace_back(read_chat_prompt(fields));
      break;
    case CallKind::kLine:
      read_line_prompt(fields, limits.vocab_size, call.prompts);
      fields.boolean("add_special_tokens", call.add_special_tokens);
      break;
  }
  if (kind != CallKind::kLine) {
    read_delivery(fields, call);
  }
  refuse_unavailable(fields);
  read_sampling(fields, kind, limits, call);
  check_best_of(fields, call.num_choices);
  check_echo(fields, call);
  fields.accept(kHarmlessFields);
  if (fields.error()) {
    return *fields.error();
  }
  const std::vector<std::string> unknown = fields.unknown_fields();
  call.unknown_fields.insert(call.unknown_fields.end(), unknown.begin(), unknown.end());
  return call;
}

}  // namespace rigel::server
