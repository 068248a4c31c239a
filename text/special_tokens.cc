#include "text/special_tokens.h"

namespace rigel::text {
namespace {

uint64_t edge(uint64_t node, char byte) {
  return node << 8 | static_cast<uint8_t>(byte);
}

std::size_t total_bytes(const std::vector<std::pair<std::string_view, int32_t>>& tokens) {
  std::size_t total = 0;
  for (const auto& [text, id] : tokens) {
    total += text.size();
  }
  return total;
}

}  // namespace

SpecialTokens::SpecialTokens(const std::vector<std::pair<std::string_view, int32_t>>& tokens)
    : children_(total_bytes(tokens)), token_ids_{kNoToken} {
  for (const auto& [text, id] : tokens) {
    if (text.empty()) {
      continue;
    }
    begins_token_[static_cast<uint8_t>(text[0])] = true;
    uint64_t node = 0;
    for (const char byte : text) {
      if (children_.insert(edge(node, byte), token_ids_.size())) {
        token_ids_.push_back(kNoToken);
      }
      node = *children_.find(edge(node, byte));
    }
    if (token_ids_[node] == kNoToken) {
      token_ids_[node] = id;
    }
  }
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text,
                                                        std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (begins_token_[static_cast<uint8_t>(text[begin])]) {
      if (const auto match = match_at(text, begin)) {
        return match;
      }
    }
  }
  return std::nullopt;
}

std::optional<SpecialTokens::Match> SpecialTokens::match_at(std::string_view text,
                                                            std::size_t begin) const {
  std::optional<Match> longest;
  uint64_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const uint64_t* child = children_.find(edge(node, text[i]));
    if (child == nullptr) {
      break;
    }
    node = *child;
    if (token_ids_[node] != kNoToken) {
      longest = Match{begin, i + 1, token_ids_[node]};
    }
  }
  return longest;
}

}  // namespace rigel::text
