#pragma once

#include "text/byte_level_bpe.h"
#include "text/pre_tokenizer.h"
#include "text/sentence_piece.h"
#include "text/special_tokens.h"
#include "text/tokenizer_spec.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::text {

struct EncodeOptions {
  /// Begin with BOS and end with EOS where the spec says so. A BOS written in the text comes on top.
  bool add_special = true;

  /// Control and unknown tokens are recognised by their text, too. Off for what users write, on for
  /// rendered chat templates. (User-defined tokens are always recognised.)
  bool parse_special = false;
};

/// Text to token ids and back to bytes, as Hugging Face's `tokenizers` does it.
///
/// Ill-formed UTF-8 is no error: its bytes are kept and tokenized one by one.
/// Thread: any; all methods are const and share nothing that changes.
class Tokenizer {
 public:
  /// Throws TextError, naming field and value, if `spec` is inconsistent or names an unknown pre-tokenizer.
  explicit Tokenizer(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of `text`. Throws TextError if it has 2 GiB or more. Cost: O(n log n), about linear.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;

  /// The bytes a token stands for in decoded text. `skip_special`: none for control and unknown tokens.
  /// Ids outside the vocabulary (rows that pad a model's embedding) have none.
  std::string_view token_bytes(int32_t id, bool skip_special) const;

  /// The id whose text in the vocabulary is exactly `token`. Cost: O(tokens); for load time.
  std::optional<int32_t> find_token(std::string_view token) const;

  const TokenizerSpec& spec() const { return spec_; }
  int32_t num_tokens() const { return static_cast<int32_t>(spec_.tokens.size()); }
  TokenType type(int32_t id) const;  // kUnused outside the vocabulary

 private:
  struct Scratch;

  void check_spec() const;
  void choose_model();
  void collect_special_tokens();
  void spell_tokens();
  std::string bytes_of(int32_t id) const;
  void encode_stretch(std::string_view stretch, Scratch& scratch, std::vector<int32_t>& ids) const;
  bool swallows_white_space(int32_t id) const;

  TokenizerSpec spec_;
  PreTokenizer pre_tokenizer_ = PreTokenizer::kGpt2;
  std::unique_ptr<const ByteLevelBpe> byte_level_;  // one of the two models is set
  std::unique_ptr<const SentencePiece> sentence_piece_;
  SpecialTokens always_matched_;
  SpecialTokens matched_in_templates_;
  std::vector<bool> swallows_white_space_;  // empty if no token does
  std::string bytes_;                       // of all tokens, one after the other
  std::vector<uint32_t> bytes_ends_;
};

}  // namespace rigel::text
