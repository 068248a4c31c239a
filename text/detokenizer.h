#pragma once

#include "text/tokenizer.h"
#include "text/utf8.h"

#include <cstdint>
#include <span>
#include <string>

namespace rigel::text {

/// Tokens in, text out, one token at a time: what is emitted is always valid UTF-8, final, and as early as
/// it can be.
///
/// A character whose bytes lie in several tokens comes with its last byte; one UTF-8 decoder runs over all
/// tokens, so the parts joined equal decoding all bytes at once, however the tokens are grouped.
/// Thread: one owner. `tokenizer` must outlive it.
class Detokenizer {
 public:
  /// `skip_special`: control and unknown tokens are not shown.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// Appends to `out` the text that `id` completes. Ids outside the vocabulary emit nothing.
  void push(int32_t id, std::string& out);

  /// Appends the rest to `out`: U+FFFD if the tokens end inside a character. Then starts over.
  void finish(std::string& out) { decoder_.finish(out); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Decoder decoder_;
  bool skip_special_;
};

/// The text of `ids` as a whole.
std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special);

}  // namespace rigel::text
