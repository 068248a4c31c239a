#include "text/tokenizer.h"

#include "text/byte_letters.h"
#include "text/normalization.h"
#include "text/text_error.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <algorithm>
#include <limits>

namespace rigel::text {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// `text` with every space as U+2581.
std::string mark_spaces(std::string_view text) {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked.push_back(c);
    }
  }
  return marked;
}

/// The offset of the first byte at or after `from` that is no white space.
std::size_t skip_white_space(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const DecodedCharacter character = decode_character(text, from);
    const bool is_marked_space = text.substr(from).starts_with(kSpaceMark);
    if (!character.is_valid || !(is_space(character.code_point) || is_marked_space)) {
      break;
    }
    from += character.num_bytes;
  }
  return from;
}

void check_id(const std::optional<int32_t>& id, std::size_t num_tokens, std::string_view field) {
  if (id && (*id < 0 || static_cast<std::size_t>(*id) >= num_tokens)) {
    throw TextError("tokenizer: " + std::string(field) + " is " + std::to_string(*id) +
                    ", but there are " + std::to_string(num_tokens) + " tokens");
  }
}

}  // namespace

/// Memory of one call of encode().
struct Tokenizer::Scratch {
  std::vector<Character> characters;
  std::vector<std::string_view> pieces;
  ByteLevelBpe::Scratch byte_level;
  SentencePiece::Scratch sentence_piece;
};

Tokenizer::Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {
  check_spec();
  choose_model();
  collect_special_tokens();
  spell_tokens();
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::check_spec() const {
  const std::size_t num_tokens = spec_.tokens.size();
  if (num_tokens == 0 || num_tokens > std::numeric_limits<int32_t>::max()) {
    throw TextError("tokenizer: the vocabulary has " + std::to_string(num_tokens) + " tokens");
  }
  if (!spec_.types.empty() && spec_.types.size() != num_tokens) {
    throw TextError("tokenizer: types must be as many as tokens, got " +
                    std::to_string(spec_.types.size()) + " for " + std::to_string(num_tokens));
  }
  check_id(spec_.bos, num_tokens, "bos");
  check_id(spec_.eos, num_tokens, "eos");
  check_id(spec_.unknown, num_tokens, "unknown");
  check_id(spec_.padding, num_tokens, "padding");
  for (const int32_t id : spec_.end_of_generation) {
    check_id(id, num_tokens, "end_of_generation");
  }
  if ((spec_.add_bos && !spec_.bos) || (spec_.add_eos && !spec_.eos)) {
    throw TextError("tokenizer: add_bos needs bos and add_eos needs eos, and one is missing");
  }
}

void Tokenizer::choose_model() {
  if (spec_.model == TokenizerModel::kSentencePiece) {
    if (spec_.pre != "default" && !spec_.pre.empty()) {
      throw TextError("tokenizer: a sentencepiece model cuts no pieces, but pre is '" + spec_.pre +
                      "'; must be 'default'");
    }
    sentence_piece_ = std::make_unique<SentencePiece>(spec_);
    return;
  }
  const std::optional<PreTokenizer> pre_tokenizer = find_pre_tokenizer(spec_.pre);
  if (!pre_tokenizer) {
    throw TextError("tokenizer: unknown pre-tokenizer '" + spec_.pre + "'; known are " +
                    std::string(known_pre_tokenizers()));
  }
  pre_tokenizer_ = *pre_tokenizer;
  const bool whole_pieces = pre_tokenizer_ == PreTokenizer::kLlamaBpe;
  byte_level_ = std::make_unique<ByteLevelBpe>(spec_, whole_pieces);
}

void Tokenizer::collect_special_tokens() {
  // sentencepiece sees spaces only as marks, also in the texts of user-defined tokens.
  std::vector<std::string> marked;
  if (sentence_piece_) {
    marked.reserve(spec_.tokens.size());
  }
  std::vector<std::pair<std::string_view, int32_t>> always;
  std::vector<std::pair<std::string_view, int32_t>> in_templates;
  for (int32_t id = 0; id < num_tokens(); ++id) {
    const TokenType kind = type(id);
    if (kind != TokenType::kUserDefined && kind != TokenType::kControl &&
        kind != TokenType::kUnknown) {
      continue;
    }
    std::string_view token = spec_.tokens[static_cast<std::size_t>(id)];
    if (sentence_piece_) {
      token = marked.emplace_back(mark_spaces(token));
    }
    in_templates.emplace_back(token, id);
    if (kind == TokenType::kUserDefined) {
      always.emplace_back(token, id);
    }
  }
  always_matched_ = SpecialTokens(always);
  matched_in_templates_ = SpecialTokens(in_templates);

  // Phi-3's published tokenizer.json strips white space after these; no field of a GGUF file says so.
  const std::string name = to_lower(spec_.name);
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) {
    return;
  }
  swallows_white_space_.resize(spec_.tokens.size());
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& token = spec_.tokens[id];
    swallows_white_space_[id] =
        token == "</s>" ||
        (token.starts_with("<|") && token.ends_with("|>") && token != "<|endoftext|>");
  }
}

void Tokenizer::spell_tokens() {
  bytes_ends_.reserve(spec_.tokens.size());
  for (int32_t id = 0; id < num_tokens(); ++id) {
    bytes_ += bytes_of(id);
    bytes_ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
}

std::string Tokenizer::bytes_of(int32_t id) const {
  const std::string& token = spec_.tokens[static_cast<std::size_t>(id)];
  const TokenType kind = type(id);
  if (kind == TokenType::kControl || kind == TokenType::kUnknown ||
      kind == TokenType::kUserDefined) {
    return token;
  }
  if (kind == TokenType::kByte) {
    if (const int byte = byte_of_token(token); byte >= 0) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  if (byte_level_) {
    return bytes_of_letters(token);
  }
  std::string text = token;
  replace_all(text, kSpaceMark, " ");
  return text;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    throw TextError("tokenizer: the text has " + std::to_string(text.size()) +
                    " bytes; must be less than 2 GiB");
  }
  std::string marked;
  if (sentence_piece_) {
    marked = mark_spaces(text);
    text = marked;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  if (options.add_special && spec_.add_bos) {
    ids.push_back(*spec_.bos);
  }
  const SpecialTokens& special = options.parse_special ? matched_in_templates_ : always_matched_;
  Scratch scratch;
  std::size_t from = 0;
  while (const auto match = special.find(text, from)) {
    encode_stretch(text.substr(from, match->begin - from), scratch, ids);
    ids.push_back(match->id);
    from = swallows_white_space(match->id) ? skip_white_space(text, match->end) : match->end;
  }
  encode_stretch(text.substr(from), scratch, ids);
  if (options.add_special && spec_.add_eos) {
    ids.push_back(*spec_.eos);
  }
  return ids;
}

void Tokenizer::encode_stretch(std::string_view stretch, Scratch& scratch,
                               std::vector<int32_t>& ids) const {
  if (stretch.empty()) {
    return;
  }
  if (sentence_piece_) {
    const std::string prefixed =
        spec_.add_space_prefix ? std::string(kSpaceMark).append(stretch) : "";
    sentence_piece_->encode(spec_.add_space_prefix ? prefixed : stretch, scratch.sentence_piece,
                            ids);
    return;
  }
  std::optional<std::string> composed;
  if (pre_tokenizer_ == PreTokenizer::kQwen2) {
    composed = to_nfc(stretch);
  }
  cut_into_pieces(pre_tokenizer_, composed ? *composed : stretch, scratch.characters,
                  scratch.pieces);
  for (const std::string_view piece : scratch.pieces) {
    byte_level_->encode(piece, scratch.byte_level, ids);
  }
}

bool Tokenizer::swallows_white_space(int32_t id) const {
  return !swallows_white_space_.empty() && swallows_white_space_[static_cast<std::size_t>(id)];
}

std::string_view Tokenizer::token_bytes(int32_t id, bool skip_special) const {
  if (id < 0 || id >= num_tokens()) {
    return {};
  }
  if (skip_special && (type(id) == TokenType::kControl || type(id) == TokenType::kUnknown)) {
    return {};
  }
  const auto i = static_cast<std::size_t>(id);
  const std::size_t begin = i == 0 ? 0 : bytes_ends_[i - 1];
  return std::string_view(bytes_).substr(begin, bytes_ends_[i] - begin);
}

std::optional<int32_t> Tokenizer::find_token(std::string_view token) const {
  const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), token);
  if (found == spec_.tokens.end()) {
    return std::nullopt;
  }
  return static_cast<int32_t>(found - spec_.tokens.begin());
}

TokenType Tokenizer::type(int32_t id) const {
  if (id < 0 || id >= num_tokens()) {
    return TokenType::kUnused;
  }
  return spec_.types.empty() ? TokenType::kNormal : spec_.types[static_cast<std::size_t>(id)];
}

}  // namespace rigel::text
