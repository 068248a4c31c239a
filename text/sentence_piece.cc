#include "text/sentence_piece.h"

#include "text/text_error.h"
#include "text/utf8.h"

#include <algorithm>

namespace rigel::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// Orders the heap so that its top is the best score, the leftmost of equals.
bool scores_lower(const SentencePiece::Scratch::Candidate& a,
                  const SentencePiece::Scratch::Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return -1;
  }
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

SentencePiece::SentencePiece(const TokenizerSpec& spec) : spec_(spec), pieces_(spec.tokens.size()) {
  if (spec.scores.size() != spec.tokens.size()) {
    throw TextError("tokenizer: a sentencepiece model needs a score a token, got " +
                    std::to_string(spec.scores.size()) + " for " +
                    std::to_string(spec.tokens.size()) + " tokens");
  }
  byte_ids_.fill(TokenTable::kNone);
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[i];
    const auto id = static_cast<int32_t>(i);
    if (type == TokenType::kNormal || type == TokenType::kUnused) {
      pieces_.insert(spec.tokens[i], id);
    } else if (const int byte = byte_of_token(spec.tokens[i]);
               type == TokenType::kByte && byte >= 0) {
      byte_ids_[static_cast<std::size_t>(byte)] = id;
    }
  }
  unknown_ = spec.unknown.value_or(TokenTable::kNone);
  const bool has_all_bytes =
      std::find(byte_ids_.begin(), byte_ids_.end(), TokenTable::kNone) == byte_ids_.end();
  if (!has_all_bytes && unknown_ == TokenTable::kNone) {
    throw TextError("tokenizer: the vocabulary has neither all byte tokens nor an unknown token");
  }
}

void SentencePiece::split(std::string_view text, Scratch& scratch) const {
  scratch.symbols.clear();
  for (uint32_t begin = 0; begin < text.size();) {
    const auto i = static_cast<int32_t>(scratch.symbols.size());
    const uint32_t num_bytes = decode_character(text, begin).num_bytes;
    scratch.symbols.push_back({begin, num_bytes, i - 1, i + 1});
    begin += num_bytes;
  }
  if (!scratch.symbols.empty()) {
    scratch.symbols.back().next = -1;
  }
}

void SentencePiece::push_candidate(std::string_view text, int32_t left, Scratch& scratch) const {
  if (left < 0 || scratch.symbols[static_cast<std::size_t>(left)].next < 0) {
    return;
  }
  const Scratch::Symbol& first = scratch.symbols[static_cast<std::size_t>(left)];
  const Scratch::Symbol& second = scratch.symbols[static_cast<std::size_t>(first.next)];
  const uint32_t num_bytes = first.num_bytes + second.num_bytes;
  const int32_t id = pieces_.find(text.substr(first.begin, num_bytes));
  if (id != TokenTable::kNone) {
    scratch.queue.push_back(
        {spec_.scores[static_cast<std::size_t>(id)], left, first.next, num_bytes});
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), scores_lower);
  }
}

void SentencePiece::append_symbol(std::string_view symbol, std::vector<int32_t>& ids) const {
  if (const int32_t id = pieces_.find(symbol); id != TokenTable::kNone) {
    ids.push_back(id);
    return;
  }
  const bool has_bytes = std::all_of(symbol.begin(), symbol.end(), [this](char byte) {
    return byte_ids_[static_cast<uint8_t>(byte)] != TokenTable::kNone;
  });
  if (!has_bytes) {
    ids.push_back(unknown_);
    return;
  }
  for (const char byte : symbol) {
    ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  }
}

void SentencePiece::encode(std::string_view text, Scratch& scratch,
                           std::vector<int32_t>& ids) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  split(text, scratch);
  queue.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    push_candidate(text, static_cast<int32_t>(i), scratch);
  }
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), scores_lower);
    const Scratch::Candidate candidate = queue.back();
    queue.pop_back();
    Scratch::Symbol& left = symbols[static_cast<std::size_t>(candidate.left)];
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(candidate.right)];
    const bool is_stale = left.num_bytes == 0 || right.num_bytes == 0 ||
                          left.num_bytes + right.num_bytes != candidate.num_bytes;
    if (is_stale) {
      continue;
    }
    left.num_bytes = candidate.num_bytes;
    left.next = right.next;
    right.num_bytes = 0;
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous = candidate.left;
    }
    push_candidate(text, left.previous, scratch);
    push_candidate(text, candidate.left, scratch);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0;
       i = symbols[static_cast<std::size_t>(i)].next) {
    const Scratch::Symbol& symbol = symbols[static_cast<std::size_t>(i)];
    append_symbol(text.substr(symbol.begin, symbol.num_bytes), ids);
  }
}

}  // namespace rigel::text
