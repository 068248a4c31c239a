#pragma once

#include "text/flat_map.h"
#include "text/token_table.h"
#include "text/tokenizer_spec.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rigel::text {

/// Byte-pair encoding over bytes: the pair of the lowest rank merges first, the leftmost of equals.
///
/// Source: Sennrich, Haddow, Birch (2016), "Neural Machine Translation of Rare Words with Subword Units";
/// over bytes as in GPT-2. Bytes without a token are dropped before merging, as Hugging Face's library does.
/// Thread: any.
class ByteLevelBpe {
 public:
  /// Memory a call needs; reuse it over calls. One owner.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      uint64_t pair;  // the ids it was made for: stale once a neighbour has changed
      int32_t merged;
    };
    std::vector<int32_t> ids;
    std::vector<uint64_t> merges;
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  /// Pieces of at most this many bytes are merged by scanning; longer ones through a priority queue.
  static constexpr std::size_t kMaxScannedBytes = 48;

  /// Throws TextError if a merge names a token that does not exist. Takes nothing of `spec` along.
  /// `whole_pieces`: a piece that is a token as a whole is that token, merges or not.
  ByteLevelBpe(const TokenizerSpec& spec, bool whole_pieces);

  /// Appends the tokens of `piece` to `ids`.
  /// Cost: O(n^2) up to kMaxScannedBytes with tiny constants, O(n log n) above.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  /// The two ways of encode(), for tests: both give the same tokens for every piece.
  void merge_by_scanning(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void merge_by_queue(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  void add_merge(const TokenTable& by_letters, const std::string& merge, uint32_t rank);
  uint64_t find_merge(int32_t left, int32_t right) const;
  void push_candidate(int32_t position, Scratch& scratch) const;

  FlatMap merges_;                        // (left, right) -> rank << 32 | merged
  std::array<int32_t, 256> byte_ids_;     // TokenTable::kNone where the vocabulary lacks the byte
  std::vector<std::string> piece_texts_;  // owns what whole_pieces_ points to
  TokenTable whole_pieces_;
};

}  // namespace rigel::text
