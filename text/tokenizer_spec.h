#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rigel::text {

/// What a token stands for. The values are those of GGUF's `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t {
  kNormal = 1,   // produced by merging
  kUnknown,      // stands for what the vocabulary cannot spell
  kControl,      // written by templates and the engine, never by user text
  kUserDefined,  // its text is always matched, before anything else
  kUnused,
  kByte,  // "<0xXX>", one byte
};

enum class TokenizerModel {
  kByteLevelBpe,   // GGUF model "gpt2": pieces cut by `pre`, bytes as letters, ranked merges
  kSentencePiece,  // GGUF model "llama": spaces as U+2581, pairs merged by score
};

/// Everything a tokenizer is made of, as plain data a checkpoint loader fills.
///
/// Shapes: `types` and `scores` are parallel to `tokens` or empty (then: kNormal, 0).
/// Thread: any (a value). `Tokenizer`'s constructor checks it.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::kByteLevelBpe;

  /// How text is cut before merging: smollm, gpt-2, llama-bpe, qwen2 (byte-level) or default
  /// (sentencepiece). Another name is a load error.
  std::string pre = "default";

  std::vector<std::string> tokens;  // by id; byte-level texts are spelt in GPT-2's byte letters
  std::vector<TokenType> types;
  std::vector<float> scores;        // sentencepiece only: higher merges first
  std::vector<std::string> merges;  // byte-level only: "left right", best first

  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> unknown;
  std::optional<int32_t> padding;
  std::vector<int32_t> end_of_generation;  // every id that ends a generation (eos, eot, eom ...)

  bool add_bos = false;          // encode(add_special) begins with `bos`
  bool add_eos = false;          // encode(add_special) ends with `eos`
  bool add_space_prefix = true;  // sentencepiece only

  std::string name;           // GGUF's general.name; "phi-3" in it switches on right-stripping
  std::string chat_template;  // empty if the checkpoint has none
};

}  // namespace rigel::text
