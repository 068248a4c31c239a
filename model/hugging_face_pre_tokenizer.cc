#include "model/hugging_face_pre_tokenizer.h"

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace rigel {
namespace {

namespace json = simdjson::dom;

/// What a known pre-tokenizer looks like, step by step.
struct Definition {
  std::string_view name;
  std::string_view split_pattern;  // a Split by this expression, if not empty
  bool splits_digits;              // Digits, each alone
  bool byte_level_splits;          // ByteLevel with GPT-2's own expression
  bool normalizes_nfc;
  bool ignores_merges;  // a piece that is a token is that token
};

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kDefinitions = {
    Definition{.name = "gpt-2",
               .split_pattern = "",
               .splits_digits = false,
               .byte_level_splits = true,
               .normalizes_nfc = false,
               .ignores_merges = false},
    Definition{.name = "smollm",
               .split_pattern = "",
               .splits_digits = true,
               .byte_level_splits = true,
               .normalizes_nfc = false,
               .ignores_merges = false},
    Definition{.name = "llama-bpe",
               .split_pattern = kLlama3Pattern,
               .splits_digits = false,
               .byte_level_splits = false,
               .normalizes_nfc = false,
               .ignores_merges = true},
    Definition{.name = "qwen2",
               .split_pattern = kQwen2Pattern,
               .splits_digits = false,
               .byte_level_splits = false,
               .normalizes_nfc = true,
               .ignores_merges = false},
};

/// The steps of a pre-tokenizer or normalizer: those of a Sequence, or the one it is.
std::vector<JsonFields> steps_of(const JsonFields& root, std::string_view name,
                                 std::string_view list) {
  const auto whole = root.object(name);
  if (!whole) {
    return {};
  }
  if (whole->string("type").value_or("") != "Sequence") {
    return {*whole};
  }
  const auto parts = whole->array(list);
  if (!parts) {
    whole->fail(list, "a list");
  }
  std::vector<JsonFields> steps;
  for (const json::element part : *parts) {
    json::object object;
    if (part.get(object) != simdjson::SUCCESS) {
      whole->fail(list, "a list of objects");
    }
    steps.emplace_back(object, root.source(), root.path_of(name) + ": ");
  }
  return steps;
}

bool is_nfc_alone(const std::vector<JsonFields>& normalizer) {
  return normalizer.size() == 1 && normalizer[0].string("type").value_or("") == "NFC";
}

bool is_digits(const JsonFields& step) {
  return step.string("type").value_or("") == "Digits" &&
         step.boolean("individual_digits").value_or(false);
}

bool is_split(const JsonFields& step, std::string_view pattern) {
  const auto found = step.object("pattern");
  return step.string("type").value_or("") == "Split" && found &&
         found->string("Regex").value_or("") == pattern &&
         step.string("behavior").value_or("") == "Isolated" &&
         !step.boolean("invert").value_or(false);
}

bool is_byte_level(const JsonFields& step, bool splits) {
  return step.string("type").value_or("") == "ByteLevel" &&
         !step.boolean("add_prefix_space").value_or(true) &&
         step.boolean("use_regex").value_or(true) == splits;
}

bool matches(const Definition& definition, const std::vector<JsonFields>& steps) {
  std::size_t next = 0;
  if (definition.splits_digits) {
    if (next >= steps.size() || !is_digits(steps[next])) {
      return false;
    }
    ++next;
  }
  if (!definition.split_pattern.empty()) {
    if (next >= steps.size() || !is_split(steps[next], definition.split_pattern)) {
      return false;
    }
    ++next;
  }
  return next + 1 == steps.size() && is_byte_level(steps[next], definition.byte_level_splits);
}

}  // namespace

std::string recognise_pre_tokenizer(const JsonFields& root) {
  const auto steps = steps_of(root, "pre_tokenizer", "pretokenizers");
  const auto normalizer = steps_of(root, "normalizer", "normalizers");
  const auto model = root.object("model");
  const bool ignores_merges = model && model->boolean("ignore_merges").value_or(false);
  for (const Definition& definition : kDefinitions) {
    if (!matches(definition, steps)) {
      continue;
    }
    if (definition.normalizes_nfc ? !is_nfc_alone(normalizer) : !normalizer.empty()) {
      root.fail("normalizer",
                fmt::format("{} for pre-tokenizer {}", definition.normalizes_nfc ? "NFC" : "null",
                            definition.name));
    }
    if (ignores_merges != definition.ignores_merges) {
      model->fail("ignore_merges", fmt::format("{} for pre-tokenizer {}", definition.ignores_merges,
                                               definition.name));
    }
    return std::string(definition.name);
  }
  root.fail("pre_tokenizer", "that of smollm, gpt-2, llama-bpe or qwen2");
}

}  // namespace rigel
