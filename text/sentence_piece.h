#pragma once

#include "text/token_table.h"
#include "text/tokenizer_spec.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::text {

/// What sentencepiece writes for a space (U+2581).
inline constexpr std::string_view kSpaceMark = "\u2581";

/// sentencepiece's BPE: of all neighbours that join to a token, the best score first, the leftmost of equals.
///
/// A character that is no token becomes its bytes' tokens. Source: google/sentencepiece, src/bpe_model.cc.
/// Only normal and unused tokens are made by merging. Thread: any.
class SentencePiece {
 public:
  /// Memory a call needs; reuse it over calls. One owner.
  struct Scratch {
    struct Symbol {
      uint32_t begin;
      uint32_t num_bytes;  // 0: merged away
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      float score;
      int32_t left;
      int32_t right;
      uint32_t num_bytes;  // of both when it was made: stale if one of them has grown
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  /// Throws TextError without scores, or if neither the 256 byte tokens nor an unknown token exist.
  /// `spec` must outlive this object.
  explicit SentencePiece(const TokenizerSpec& spec);

  /// Appends the tokens of `text`, in which spaces are kSpaceMark already. Cost: O(n log n).
  /// Preconditions: text.size() < 2^31.
  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  void split(std::string_view text, Scratch& scratch) const;
  void push_candidate(std::string_view text, int32_t left, Scratch& scratch) const;
  void append_symbol(std::string_view symbol, std::vector<int32_t>& ids) const;

  const TokenizerSpec& spec_;
  TokenTable pieces_;
  std::array<int32_t, 256> byte_ids_;
  int32_t unknown_ = TokenTable::kNone;
};

/// The byte a token text of the form "<0xXX>" stands for, or -1.
int byte_of_token(std::string_view token);

}  // namespace rigel::text
