#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rigel::text {

/// The ways to cut text into pieces before byte-level BPE. Merges never cross a piece's edge.
enum class PreTokenizer {
  kGpt2,      // letters, numbers and the rest apart, one space in front of each
  kSmolLm,    // every number alone, then kGpt2 inside what is left
  kLlamaBpe,  // numbers by threes, line breaks end a piece
  kQwen2,     // kLlamaBpe with numbers one by one
};

/// The pre-tokenizer a GGUF file calls `name` (`tokenizer.ggml.pre`), if it is one of ours.
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name);

/// All names find_pre_tokenizer knows, for messages.
std::string_view known_pre_tokenizers();

/// One character of a text being cut.
struct Character {
  enum class Class : uint8_t { kOther, kLetter, kNumber, kSpace, kLineBreak };  // the last two: \s

  uint32_t begin;  // byte offset
  Class cls;
};

/// Cuts `text` into pieces that, joined, are `text`, and puts them into `pieces` (cleared first).
///
/// The patterns are those of text/pre_tokenizer.cc, hand-written over Unicode classes. A byte that belongs
/// to no UTF-8 character counts as a character that is neither letter, number nor white space.
/// `characters` is scratch. Preconditions: text.size() < 2^32. Thread: any. Cost: O(bytes).
void cut_into_pieces(PreTokenizer kind, std::string_view text, std::vector<Character>& characters,
                     std::vector<std::string_view>& pieces);

}  // namespace rigel::text
