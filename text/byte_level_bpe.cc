#include "text/byte_level_bpe.h"

#include "text/byte_letters.h"
#include "text/text_error.h"
#include "text/utf8.h"

#include <algorithm>

namespace rigel::text {
namespace {

constexpr uint64_t kNoMerge = ~uint64_t{0};

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

int32_t merged_of(uint64_t merge) {
  return static_cast<int32_t>(merge & 0xFFFFFFFF);
}

bool is_written_by_text(const TokenizerSpec& spec, std::size_t id) {
  if (spec.types.empty()) {
    return true;
  }
  return spec.types[id] != TokenType::kControl && spec.types[id] != TokenType::kUnknown;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const TokenizerSpec& spec, bool whole_pieces)
    : merges_(spec.merges.size()), whole_pieces_(whole_pieces ? spec.tokens.size() : 0) {
  TokenTable by_letters(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    by_letters.insert(spec.tokens[id], static_cast<int32_t>(id));
  }
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    add_merge(by_letters, spec.merges[rank], static_cast<uint32_t>(rank));
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string letter;
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), letter);
    byte_ids_[byte] = by_letters.find(letter);
  }
  if (!whole_pieces) {
    return;
  }
  piece_texts_.reserve(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (is_written_by_text(spec, id)) {
      piece_texts_.push_back(bytes_of_letters(spec.tokens[id]));
      whole_pieces_.insert(piece_texts_.back(), static_cast<int32_t>(id));
    }
  }
}

void ByteLevelBpe::add_merge(const TokenTable& by_letters, const std::string& merge,
                             uint32_t rank) {
  const std::size_t space = merge.find(' ');
  if (space == std::string::npos) {
    throw TextError("tokenizer: merge " + std::to_string(rank) + " is '" + merge +
                    "'; must be two tokens with a space between them");
  }
  const std::string_view left = std::string_view(merge).substr(0, space);
  const std::string_view right = std::string_view(merge).substr(space + 1);
  const int32_t left_id = by_letters.find(left);
  const int32_t right_id = by_letters.find(right);
  const int32_t merged_id = by_letters.find(std::string(left) + std::string(right));
  if (left_id < 0 || right_id < 0 || merged_id < 0) {
    throw TextError("tokenizer: merge " + std::to_string(rank) + " is '" + merge +
                    "', but the vocabulary lacks one of its parts or their join");
  }
  merges_.insert(pair_key(left_id, right_id),
                 static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(merged_id));
}

uint64_t ByteLevelBpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t* merge = merges_.find(pair_key(left, right));
  return merge != nullptr ? *merge : kNoMerge;
}

void ByteLevelBpe::encode(std::string_view piece, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  if (const int32_t id = whole_pieces_.find(piece); id != TokenTable::kNone) {
    ids.push_back(id);
  } else if (piece.size() <= kMaxScannedBytes) {
    merge_by_scanning(piece, scratch, ids);
  } else {
    merge_by_queue(piece, scratch, ids);
  }
}

void ByteLevelBpe::merge_by_scanning(std::string_view piece, Scratch& scratch,
                                     std::vector<int32_t>& out) const {
  std::vector<int32_t>& ids = scratch.ids;
  ids.clear();
  for (const char byte : piece) {
    if (const int32_t id = byte_ids_[static_cast<uint8_t>(byte)]; id != TokenTable::kNone) {
      ids.push_back(id);
    }
  }
  // merges[i] joins ids[i] and ids[i + 1]; comparing whole values compares ranks, which are distinct.
  std::vector<uint64_t>& merges = scratch.merges;
  merges.clear();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    merges.push_back(find_merge(ids[i], ids[i + 1]));
  }
  while (!merges.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end());
    if (*best == kNoMerge) {
      break;
    }
    const auto i = static_cast<std::size_t>(best - merges.begin());
    ids[i] = merged_of(*best);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    merges.erase(best);
    if (i > 0) {
      merges[i - 1] = find_merge(ids[i - 1], ids[i]);
    }
    if (i < merges.size()) {
      merges[i] = find_merge(ids[i], ids[i + 1]);
    }
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

namespace {

/// Orders the heap so that its top is the lowest rank, the leftmost of equals.
bool ranks_higher(const ByteLevelBpe::Scratch::Candidate& a,
                  const ByteLevelBpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void ByteLevelBpe::push_candidate(int32_t position, Scratch& scratch) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) {
    return;
  }
  const int32_t right_id = scratch.symbols[static_cast<std::size_t>(left.next)].id;
  const uint64_t merge = find_merge(left.id, right_id);
  if (merge != kNoMerge) {
    scratch.queue.push_back({static_cast<uint32_t>(merge >> 32), position,
                             pair_key(left.id, right_id), merged_of(merge)});
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), ranks_higher);
  }
}

void ByteLevelBpe::merge_by_queue(std::string_view piece, Scratch& scratch,
                                  std::vector<int32_t>& out) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  symbols.clear();
  queue.clear();
  for (const char byte : piece) {
    if (const int32_t id = byte_ids_[static_cast<uint8_t>(byte)]; id != TokenTable::kNone) {
      const auto i = static_cast<int32_t>(symbols.size());
      symbols.push_back({id, i - 1, i + 1});
    }
  }
  if (symbols.empty()) {
    return;
  }
  symbols.back().next = -1;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    push_candidate(static_cast<int32_t>(i), scratch);
  }
  constexpr int32_t kMergedAway = -1;
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), ranks_higher);
    const Scratch::Candidate candidate = queue.back();
    queue.pop_back();
    Scratch::Symbol& left = symbols[static_cast<std::size_t>(candidate.position)];
    if (left.id == kMergedAway || left.next < 0) {
      continue;
    }
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (pair_key(left.id, right.id) != candidate.pair) {
      continue;
    }
    left.id = candidate.merged;
    left.next = right.next;
    right.id = kMergedAway;
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous = candidate.position;
    }
    push_candidate(candidate.position, scratch);
    if (left.previous >= 0) {
      push_candidate(left.previous, scratch);
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace rigel::text
