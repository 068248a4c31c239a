#include "model/checkpoint/mapped_file.h"
#include "model/hugging_face_pre_tokenizer.h"
#include "model/json_fields.h"
#include "model/tokenizer_loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel {
namespace {

namespace json = simdjson::dom;
namespace fs = std::filesystem;
using text::TokenizerModel;
using text::TokenizerSpec;
using text::TokenType;

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;  // far above any vocabulary

std::size_t token_index(const JsonFields& fields, std::string_view name, json::element element) {
  std::int64_t id = -1;
  if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxTokens) {
    fields.fail(name, "a token id");
  }
  return static_cast<std::size_t>(id);
}

/// Sets token `index`, growing the vocabulary; ids that nobody sets stay unused, with no text.
void set_token(TokenizerSpec& spec, std::size_t index, std::string_view text, TokenType type) {
  if (index >= spec.tokens.size()) {
    spec.tokens.resize(index + 1);
    spec.types.resize(index + 1, TokenType::kUnused);
  }
  spec.tokens[index] = text;
  spec.types[index] = type;
}

void read_vocabulary(const JsonFields& model, TokenizerSpec& spec) {
  const auto vocabulary = model.object("vocab");
  if (!vocabulary) {
    model.fail("vocab", "an object of tokens and ids");
  }
  for (const auto& [token, id] : vocabulary->raw()) {
    set_token(spec, token_index(*vocabulary, token, id), token, TokenType::kNormal);
  }
}

/// Merges are "left right", or ["left", "right"] in newer files; byte-level tokens hold no space, so both are the same here.
void read_merges(const JsonFields& model, TokenizerSpec& spec) {
  const auto merges = model.array("merges");
  if (!merges) {
    model.fail("merges", "a list of merges");
  }
  spec.merges.reserve(merges->size());
  for (const json::element merge : *merges) {
    json::array pair;
    std::string_view left;
    std::string_view right;
    if (merge.get(left) == simdjson::SUCCESS) {
      spec.merges.emplace_back(left);
    } else if (merge.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
               pair.at(0).get(left) == simdjson::SUCCESS &&
               pair.at(1).get(right) == simdjson::SUCCESS) {
      spec.merges.push_back(fmt::format("{} {}", left, right));
    } else {
      model.fail("merges", "a list of pairs of tokens");
    }
  }
}

/// Special tokens are control tokens, other added ones user-defined: that is how converters to GGUF see them, too.
void read_added_tokens(const JsonFields& root, TokenizerSpec& spec) {
  const auto added = root.array("added_tokens");
  if (!added) {
    return;
  }
  for (const json::element element : *added) {
    json::object object;
    if (element.get(object) != simdjson::SUCCESS) {
      root.fail("added_tokens", "a list of objects");
    }
    const JsonFields token(object, root.source(), "added_tokens: ");
    const auto id = token.find("id");
    const auto content = token.string("content");
    if (!id || !content || content->empty()) {
      token.fail(id ? "content" : "id", "given");
    }
    for (const std::string_view flag : {"lstrip", "rstrip", "single_word"}) {
      if (token.boolean(flag).value_or(false)) {
        token.fail(flag, fmt::format("false for token '{}'", *content));
      }
    }
    const bool is_special = token.boolean("special").value_or(false);
    set_token(spec, token_index(token, "id", *id), *content,
              is_special ? TokenType::kControl : TokenType::kUserDefined);
  }
}

void require_absent(const JsonFields& fields, std::string_view name) {
  const auto element = fields.find(name);
  if (element && !(element->is_string() && std::string_view(*element).empty())) {
    fields.fail(name, "null");
  }
}

void read_model(const JsonFields& root, TokenizerSpec& spec) {
  const auto model = root.object("model");
  if (!model) {
    root.fail("model", "an object");
  }
  // Files of the first versions have no type; they are BPE if they have merges.
  if (model->string("type").value_or("BPE") != "BPE") {
    model->fail("type", "BPE");
  }
  if (model->boolean("byte_fallback").value_or(false)) {
    model->fail("byte_fallback",
                "false (of sentencepiece tokenizers only GGUF files can be read; byte-level BPE is "
                "supported)");
  }
  require_absent(*model, "dropout");
  require_absent(*model, "continuing_subword_prefix");
  require_absent(*model, "end_of_word_suffix");
  spec.model = TokenizerModel::kByteLevelBpe;
  spec.pre = recognise_pre_tokenizer(root);
  read_vocabulary(*model, spec);
  read_merges(*model, spec);
}

std::optional<std::int32_t> find_token(const TokenizerSpec& spec, std::string_view text) {
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return found == spec.tokens.end() || text.empty()
             ? std::nullopt
             : std::optional(static_cast<std::int32_t>(found - spec.tokens.begin()));
}

/// A special token of tokenizer_config.json: its text, or an object with the text as "content".
std::optional<std::int32_t> read_special_token(const JsonFields& fields, std::string_view name,
                                               const TokenizerSpec& spec) {
  const auto element = fields.find(name);
  if (!element) {
    return std::nullopt;
  }
  const std::string text = element->is_object()
                               ? fields.object(name)->string("content").value_or("")
                               : fields.string(name).value_or("");
  const auto id = find_token(spec, text);
  if (!id) {
    fields.fail(name, "a token of tokenizer.json");
  }
  return id;
}

/// One template, or a list of named ones, of which "default" is for plain chats.
std::string read_chat_template(const JsonFields& fields) {
  const auto element = fields.find("chat_template");
  if (!element || !element->is_array()) {
    return fields.string("chat_template").value_or("");
  }
  for (const json::element entry : json::array(*element)) {
    json::object object;
    if (entry.get(object) == simdjson::SUCCESS) {
      const JsonFields named(object, fields.source(), "chat_template: ");
      if (named.string("name").value_or("") == "default") {
        return named.string("template").value_or("");
      }
    }
  }
  return "";
}

void read_tokenizer_config(const fs::path& path, TokenizerSpec& spec) {
  const JsonDocument document(read_text_file(path), path.string());
  const JsonFields fields = document.fields();
  spec.bos = read_special_token(fields, "bos_token", spec);
  spec.eos = read_special_token(fields, "eos_token", spec);
  spec.unknown = read_special_token(fields, "unk_token", spec);
  spec.padding = read_special_token(fields, "pad_token", spec);
  if (spec.eos) {
    spec.end_of_generation = {*spec.eos};
  }
  spec.add_bos = fields.boolean("add_bos_token").value_or(false) && spec.bos;
  spec.add_eos = fields.boolean("add_eos_token").value_or(false) && spec.eos;
  spec.chat_template = read_chat_template(fields);
}

/// The id that a TemplateProcessing puts first (or last) around a single text.
std::optional<std::int32_t> framing_token(const JsonFields& processor, json::element piece,
                                          const TokenizerSpec& spec) {
  json::object outer;
  json::object inner;
  std::string_view text;
  if (piece.get(outer) != simdjson::SUCCESS ||
      outer.at_key("SpecialToken").get(inner) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  if (inner.at_key("id").get(text) != simdjson::SUCCESS || !find_token(spec, text)) {
    processor.fail("single", "a template of known tokens");
  }
  return find_token(spec, text);
}

/// A TemplateProcessing says itself whether texts are framed by bos and eos; it overrules tokenizer_config.json, as in
/// transformers.
void read_template_processing(const JsonFields& processor, TokenizerSpec& spec) {
  const auto single = processor.array("single");
  if (!single || single->size() == 0) {
    processor.fail("single", "a template");
  }
  const auto first = framing_token(processor, single->at(0), spec);
  const auto last = framing_token(processor, single->at(single->size() - 1), spec);
  const std::size_t num_framing = std::size_t{first.has_value()} + std::size_t{last.has_value()};
  if (single->size() != num_framing + 1) {
    processor.fail("single", "at most one token in front of the text and one behind it");
  }
  spec.add_bos = first.has_value();
  spec.add_eos = last.has_value();
  spec.bos = first ? first : spec.bos;
  spec.eos = last ? last : spec.eos;
}

void read_post_processor(const JsonFields& root, TokenizerSpec& spec) {
  const auto processor = root.object("post_processor");
  if (!processor) {
    return;
  }
  const std::string type = processor->string("type").value_or("");
  if (type == "TemplateProcessing") {
    read_template_processing(*processor, spec);
  } else if (type == "Sequence") {
    const auto parts = processor->array("processors");
    if (!parts) {
      processor->fail("processors", "a list");
    }
    for (const json::element part : *parts) {
      json::object object;
      if (part.get(object) != simdjson::SUCCESS) {
        processor->fail("processors", "a list of objects");
      }
      const JsonFields fields(object, root.source(), "post_processor: ");
      if (fields.string("type").value_or("") == "TemplateProcessing") {
        read_template_processing(fields, spec);
      }
    }
  } else if (type != "ByteLevel") {
    processor->fail("type", "ByteLevel, TemplateProcessing or Sequence");
  }
}

}  // namespace

std::optional<TokenizerSpec> load_tokenizer(const fs::path& directory) {
  const fs::path path = directory / "tokenizer.json";
  if (!fs::exists(path)) {
    if (fs::exists(directory / "tokenizer.model")) {
      throw ModelFileError(
          fmt::format("{}: tokenizer.model without tokenizer.json is not supported; save the "
                      "tokenizer with transformers' AutoTokenizer, or use a GGUF file",
                      directory.string()));
    }
    return std::nullopt;
  }
  TokenizerSpec spec;
  const JsonDocument document(read_text_file(path), path.string());
  read_model(document.fields(), spec);
  read_added_tokens(document.fields(), spec);
  const fs::path config_path = directory / "tokenizer_config.json";
  if (fs::exists(config_path)) {
    read_tokenizer_config(config_path, spec);
  }
  read_post_processor(document.fields(), spec);
  const fs::path template_path = directory / "chat_template.jinja";
  if (fs::exists(template_path)) {
    spec.chat_template = read_text_file(template_path);
  }
  spec.add_space_prefix = false;
  return spec;
}

}  // namespace rigel
