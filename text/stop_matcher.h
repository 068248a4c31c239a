#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::text {

/// Cuts generated text at the first of a list of stop strings, however the text is cut into chunks.
///
/// The match that begins first wins; of those that begin there, the one that is complete first. So the
/// text emitted is that of a search in the whole text. What cannot be the beginning of a stop string is
/// emitted in the chunk it came in; only a true proper prefix of one is held back.
/// Thread: one owner. Cost: O(bytes x stop strings) where texts rarely begin like a stop string.
class StopMatcher {
 public:
  /// Empty stop strings are ignored. `include_stop`: the stop string itself is emitted, too.
  explicit StopMatcher(std::vector<std::string> stop_strings, bool include_stop = false);

  /// Takes the next chunk and appends to `out` what is known to be no part of a stop string.
  /// True once a stop string has matched: then the text is over and later chunks are ignored.
  bool push(std::string_view chunk, std::string& out);

  /// The same for a chunk that may not end the text: a stop string that is complete in it is text like any other. One that
  /// begins in it and is completed by a later push() counts.
  void pass(std::string_view chunk, std::string& out);

  /// The text is over: appends what was held back to `out`, and clears it. True if a stop string has
  /// matched: one may lie inside what was held back for a longer one.
  bool flush(std::string& out);

  bool has_matched() const { return matched_stop_ != kNone; }

  /// Which stop string matched, as an index into the constructor's list; kNone before.
  std::size_t matched_stop() const { return matched_stop_; }
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// Bytes held back now; less than the longest stop string has.
  std::size_t num_held_bytes() const { return held_.size(); }

 private:
  /// What a position of the text can be.
  enum class Begins { kNothing, kPrefix, kMatch };

  Begins classify(std::size_t begin);
  bool take(bool is_end, std::string& out);

  std::vector<std::string> stop_strings_;
  std::string first_bytes_;  // of all stop strings
  std::string held_;
  std::size_t num_passed_bytes_ = 0;  // of held_: no stop string that ends in them counts
  bool include_stop_;
  std::size_t matched_stop_ = kNone;
};

}  // namespace rigel::text
