#include "server/api/prepare.h"

#include "text/text_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace rigel::server {
namespace {

std::string_view prompt_field(const Prompt& prompt, CallKind kind) {
  if (std::holds_alternative<ChatPrompt>(prompt)) {
    return "messages";
  }
  return kind == CallKind::kLine && std::holds_alternative<std::vector<std::int32_t>>(prompt)
             ? "prompt_ids"
             : "prompt";
}

/// What no model without a tokenizer can do.
std::optional<ApiError> find_text_error(const GenerationCall& call, const TextCodec& codec) {
  if (codec.has_tokenizer()) {
    return std::nullopt;
  }
  for (const auto& [is_asked, field] :
       {std::pair(call.echo, "echo"), std::pair(!call.sampling.stop.empty(), "stop")}) {
    if (is_asked) {
      return ApiError{
          .message = fmt::format("{} needs a tokenizer, and this model has none", field),
          .param = field};
    }
  }
  return std::nullopt;
}

}  // namespace

Parsed<std::vector<std::int32_t>> prompt_ids(const Prompt& prompt, bool add_special,
                                             const TextCodec& codec, std::string_view field) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) {
    return *ids;
  }
  const auto* chat = std::get_if<ChatPrompt>(&prompt);
  if (!codec.has_tokenizer()) {
    return ApiError{.message = fmt::format(
                        "{} needs a tokenizer, and this model has none: give token ids", field),
                    .param = std::string(field)};
  }
  if (chat != nullptr && !codec.has_chat_template()) {
    return ApiError{
        .message = fmt::format("{} needs a chat template, and this model has none", field),
        .param = std::string(field)};
  }
  try {
    if (chat != nullptr) {
      return codec.encode(codec.render(*chat), /*add_special=*/false, /*parse_special=*/true);
    }
    return codec.encode(std::get<std::string>(prompt), add_special, /*parse_special=*/false);
  } catch (const text::TextError& problem) {
    return ApiError{.message = problem.what(), .param = std::string(field)};
  }
}

Parsed<std::vector<GenerationRequest>> prepare_requests(const GenerationCall& call,
                                                        const TextCodec& codec,
                                                        const ServiceLimits& limits) {
  if (std::optional<ApiError> error = find_text_error(call, codec)) {
    return std::move(*error);
  }
  std::vector<GenerationRequest> requests;
  requests.reserve(call.prompts.size() * static_cast<std::size_t>(call.num_choices));
  for (const Prompt& prompt : call.prompts) {
    const std::string field(prompt_field(prompt, call.kind));
    Parsed<std::vector<std::int32_t>> ids =
        prompt_ids(prompt, call.add_special_tokens, codec, field);
    if (!ids.ok()) {
      return std::move(ids.error());
    }
    const auto num_tokens = static_cast<std::int64_t>(ids.value().size());
    if (num_tokens == 0) {
      return ApiError{.message = fmt::format("{} must hold at least one token, got 0", field),
                      .param = field};
    }
    if (num_tokens >= limits.max_model_len) {
      return ApiError{.message = fmt::format(
                          "{} has {} tokens, but this model's context is {} tokens and one must be "
                          "left for the answer",
                          field, num_tokens, limits.max_model_len),
                      .param = field};
    }
    GenerationRequest request;
    request.prompt = std::move(ids.value());
    request.sampling = call.sampling;
    const int room = limits.max_model_len - static_cast<int>(num_tokens);
    const bool may_fill_context = call.kind == CallKind::kChat && !call.max_tokens_given;
    request.sampling.max_tokens =
        may_fill_context ? room : std::min(room, call.sampling.max_tokens);
    for (int i = 0; i < call.num_choices; ++i) {
      requests.push_back(request);
      if (call.echo && i == 0) {
        requests.back().prompt_top =
            call.sampling.logprobs;  // the same for all choices of a prompt
      }
      if (call.sampling.seed) {
        requests.back().sampling.seed = *call.sampling.seed + static_cast<std::uint64_t>(i);
      }
    }
  }
  return requests;
}

}  // namespace rigel::server
