#include "model/model_file_error.h"
#include "model/tokenizer_loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel {
namespace {

using text::TokenizerModel;
using text::TokenizerSpec;
using text::TokenType;

/// Names in files -> ours: converters gave some pre-tokenizers several names.
struct PreName {
  std::string_view in_file;
  std::string_view ours;
};
constexpr std::array kPreNames = {
    PreName{"smollm", "smollm"},          PreName{"gpt-2", "gpt-2"},
    PreName{"llama-bpe", "llama-bpe"},    PreName{"llama3", "llama-bpe"},
    PreName{"llama-v3", "llama-bpe"},     PreName{"qwen2", "qwen2"},
    PreName{"deepseek-r1-qwen", "qwen2"},
};

[[noreturn]] void fail(const GgufMetadata& metadata, std::string_view key,
                       std::string_view expected, std::string_view found) {
  throw ModelFileError(fmt::format("{}: metadata key '{}' must be {}, got {}", metadata.source(),
                                   key, expected, found));
}

std::string read_pre(const GgufMetadata& metadata, TokenizerModel model) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  if (model == TokenizerModel::kSentencePiece) {
    return "default";
  }
  const std::string name = metadata.string(kKey).value_or("nothing");
  for (const PreName& known : kPreNames) {
    if (known.in_file == name) {
      return std::string(known.ours);
    }
  }
  fail(metadata, kKey, "smollm, gpt-2, llama-bpe or qwen2 for model gpt2", name);
}

void require_one_per_token(const GgufMetadata& metadata, std::string_view key, std::size_t count,
                           std::size_t num_tokens) {
  if (count != num_tokens) {
    fail(metadata, key, fmt::format("a list of {} entries, one a token", num_tokens),
         fmt::format("{}", count));
  }
}

void read_vocabulary(const GgufMetadata& metadata, TokenizerSpec& spec) {
  spec.tokens = metadata.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string>{});
  if (spec.tokens.empty()) {
    fail(metadata, "tokenizer.ggml.tokens", "a list of tokens", "nothing");
  }
  constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  if (const auto types = metadata.integers(kTypes)) {
    require_one_per_token(metadata, kTypes, types->size(), spec.tokens.size());
    for (const std::int64_t type : *types) {
      if (type < static_cast<int>(TokenType::kNormal) ||
          type > static_cast<int>(TokenType::kByte)) {
        fail(metadata, kTypes, "a list of types between 1 and 6", fmt::format("{}", type));
      }
      spec.types.push_back(static_cast<TokenType>(type));
    }
  }
  if (spec.model == TokenizerModel::kSentencePiece) {
    constexpr std::string_view kScores = "tokenizer.ggml.scores";
    const auto scores = metadata.numbers(kScores).value_or(std::vector<double>{});
    require_one_per_token(metadata, kScores, scores.size(), spec.tokens.size());
    spec.scores.assign(scores.begin(), scores.end());
    return;
  }
  constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  auto merges = metadata.strings(kMerges);
  if (!merges) {
    fail(metadata, kMerges, "a list of merges for model gpt2", "nothing");
  }
  spec.merges = std::move(*merges);
}

std::optional<std::int32_t> read_id(const GgufMetadata& metadata, std::string_view name,
                                    const TokenizerSpec& spec) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const auto id = metadata.integer(key);
  if (!id) {
    return std::nullopt;
  }
  if (*id < 0 || *id >= static_cast<std::int64_t>(spec.tokens.size())) {
    fail(metadata, key, fmt::format("a token id below {}", spec.tokens.size()),
         fmt::format("{}", *id));
  }
  return static_cast<std::int32_t>(*id);
}

void read_special_tokens(const GgufMetadata& metadata, TokenizerSpec& spec) {
  spec.bos = read_id(metadata, "bos", spec);
  spec.eos = read_id(metadata, "eos", spec);
  spec.unknown = read_id(metadata, "unknown", spec);
  spec.padding = read_id(metadata, "padding", spec);
  for (const auto& id :
       {spec.eos, read_id(metadata, "eot", spec), read_id(metadata, "eom", spec)}) {
    if (id && std::find(spec.end_of_generation.begin(), spec.end_of_generation.end(), *id) ==
                  spec.end_of_generation.end()) {
      spec.end_of_generation.push_back(*id);
    }
  }
}

/// Where a file leaves it open, llama.cpp's defaults hold: these files are tested with it.
void read_flags(const GgufMetadata& metadata, TokenizerSpec& spec) {
  constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
  const auto add_bos = metadata.boolean(kAddBos);
  const bool adds_by_default =
      spec.model == TokenizerModel::kSentencePiece || spec.pre == "llama-bpe";
  spec.add_bos = add_bos.value_or(adds_by_default && spec.bos.has_value());
  if (spec.add_bos && !spec.bos) {
    fail(metadata, kAddBos, "false where tokenizer.ggml.bos_token_id is missing", "true");
  }
  constexpr std::string_view kAddEos = "tokenizer.ggml.add_eos_token";
  spec.add_eos = metadata.boolean(kAddEos).value_or(false);
  if (spec.add_eos && !spec.eos) {
    fail(metadata, kAddEos, "false where tokenizer.ggml.eos_token_id is missing", "true");
  }
  spec.add_space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
}

}  // namespace

std::optional<TokenizerSpec> load_tokenizer(const GgufMetadata& metadata) {
  constexpr std::string_view kModel = "tokenizer.ggml.model";
  const std::string model = metadata.string(kModel).value_or("none");
  if (model == "none" || model == "no_vocab") {
    return std::nullopt;
  }
  if (model != "gpt2" && model != "llama") {
    fail(metadata, kModel, "gpt2 or llama", model);
  }
  TokenizerSpec spec;
  spec.model = model == "gpt2" ? TokenizerModel::kByteLevelBpe : TokenizerModel::kSentencePiece;
  spec.pre = read_pre(metadata, spec.model);
  read_vocabulary(metadata, spec);
  read_special_tokens(metadata, spec);
  read_flags(metadata, spec);
  spec.name = metadata.string("general.name").value_or("");
  spec.chat_template = metadata.string("tokenizer.chat_template").value_or("");
  return spec;
}

}  // namespace rigel
