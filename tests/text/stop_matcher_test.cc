#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rigel::text {
namespace {

using Chunks = std::vector<std::string>;

TEST(StopMatcher, EmitsNothingOfAStopStringThatComesInParts) {
  StopMatcher matcher({"DEFGHIJ"});
  std::string out;
  for (const char* chunk : {"ABC", "D", "EF", "G", "HI"}) {
    EXPECT_FALSE(matcher.push(chunk, out));
    EXPECT_EQ(out, "ABC");
  }
  EXPECT_TRUE(matcher.push("J", out));
  EXPECT_EQ(out, "ABC");
  EXPECT_EQ(matcher.matched_stop(), 0U);
}

TEST(StopMatcher, EmitsInTheSameChunkWhatCannotBeginAStopString) {
  StopMatcher matcher({"\n\nUser:", "<|end|>"});
  std::string out;
  EXPECT_FALSE(matcher.push("Hello, world", out));
  EXPECT_EQ(out, "Hello, world");
  EXPECT_FALSE(matcher.push("!\n\nUsed", out));
  EXPECT_EQ(out, "Hello, world!\n\nUsed");
  EXPECT_EQ(matcher.num_held_bytes(), 0U);
}

TEST(StopMatcher, CutsAtALineBreakInTheSecondChunk) {
  StopMatcher matcher({"\n"});
  std::string out;
  EXPECT_FALSE(matcher.push("Hello", out));
  EXPECT_EQ(out, "Hello");
  EXPECT_TRUE(matcher.push(" there\nmore", out));
  EXPECT_EQ(out, "Hello there");
}

TEST(StopMatcher, ReleasesOnlyWhatTheNextCharacterRulesOut) {
  StopMatcher matcher({"aab"});
  std::string out;
  matcher.push("aaa", out);
  EXPECT_EQ(out, "a");
  EXPECT_EQ(matcher.num_held_bytes(), 2U);
  EXPECT_TRUE(matcher.push("b", out));
  EXPECT_EQ(out, "a");
}

TEST(StopMatcher, PassesWhatIsCompleteAndKeepsWhatAnotherChunkMayComplete) {
  StopMatcher matcher({"aa", "bcd", "c"});
  std::string out;
  matcher.pass("xaa", out);
  EXPECT_EQ(out, "xa") << "a third letter may still make a stop string of the second";
  matcher.pass("-bc", out);
  EXPECT_EQ(out, "xaa-") << "the c inside is passed, even while it is held back";
  EXPECT_FALSE(matcher.push("e", out));
  EXPECT_EQ(out, "xaa-bce");
  matcher.pass("-bcd", out);
  EXPECT_EQ(out, "xaa-bce-bcd");
  matcher.pass("a", out);
  EXPECT_TRUE(matcher.push("a", out));
  EXPECT_EQ(out, "xaa-bce-bcd");
  EXPECT_EQ(matcher.matched_stop(), 0U);
}

TEST(StopMatcher, PrefersTheMatchThatBeginsFirst) {
  StopMatcher matcher({"bc", "abcd"});
  std::string out;
  EXPECT_FALSE(matcher.push("xabc", out));
  EXPECT_EQ(out, "x");
  EXPECT_TRUE(matcher.push("d", out));
  EXPECT_EQ(out, "x");
  EXPECT_EQ(matcher.matched_stop(), 1U);
}

TEST(StopMatcher, FindsAMatchInsideWhatWasHeldBackAtTheEnd) {
  StopMatcher matcher({"bc", "abcd"});
  std::string out;
  EXPECT_FALSE(matcher.push("xabc", out));
  EXPECT_TRUE(matcher.flush(out));
  EXPECT_EQ(out, "xa");
}

TEST(StopMatcher, FlushGivesBackAnUnfinishedPrefix) {
  StopMatcher matcher({"<|end|>"});
  std::string out;
  EXPECT_FALSE(matcher.push("x<|en", out));
  EXPECT_EQ(out, "x");
  EXPECT_FALSE(matcher.flush(out));
  EXPECT_EQ(out, "x<|en");
}

TEST(StopMatcher, EmitsTheStopStringIfAsked) {
  StopMatcher matcher({"ab", "abc"}, /*include_stop=*/true);
  std::string out;
  EXPECT_TRUE(matcher.push("xabcd", out));
  EXPECT_EQ(out, "xab");
}

TEST(StopMatcher, WithoutStopStringsPassesEverything) {
  StopMatcher matcher({"", ""});
  std::string out;
  EXPECT_FALSE(matcher.push("anything", out));
  EXPECT_EQ(out, "anything");
  EXPECT_FALSE(matcher.flush(out));
}

/// The whole text, cut by searching all of it.
std::string cut_whole_text(const std::string& text, const Chunks& stops, bool include_stop) {
  std::size_t begin = text.size();
  std::size_t num_kept = 0;
  for (const std::string& stop : stops) {
    const std::size_t at = text.find(stop);
    if (at == std::string::npos || at > begin || (at == begin && num_kept <= stop.size())) {
      continue;
    }
    begin = at;
    num_kept = stop.size();
  }
  return text.substr(0, begin + (include_stop ? num_kept : 0));
}

TEST(StopMatcher, EqualsASearchOfTheWholeTextForAnyChunking) {
  std::mt19937 random(7);
  const auto up_to = [&random](std::size_t n) { return random() % (n + 1); };
  const auto letters = [&](std::size_t n) {
    std::string text(n, 'a');
    std::generate(text.begin(), text.end(),
                  [&] { return static_cast<char>('a' + up_to(1 + n % 2)); });
    return text;
  };
  int num_matches = 0;
  for (int round = 0; round < 20000; ++round) {
    Chunks stops(1 + up_to(3));
    std::generate(stops.begin(), stops.end(), [&] { return letters(1 + up_to(5)); });
    const std::string text = letters(up_to(24));
    const bool include_stop = up_to(1) == 1;
    StopMatcher matcher(stops, include_stop);
    std::string out;
    for (std::size_t i = 0; i < text.size() && !matcher.has_matched();) {
      const std::size_t n = std::min(text.size() - i, up_to(4));
      matcher.push(text.substr(i, n), out);
      i += n;
      // Whatever is held must be a proper prefix of a stop string, and the text so far must be out.
      const std::string held = text.substr(i - matcher.num_held_bytes(), matcher.num_held_bytes());
      ASSERT_TRUE(held.empty() ||
                  std::any_of(stops.begin(), stops.end(), [&](const std::string& s) {
                    return s.size() > held.size() && s.starts_with(held);
                  }));
      ASSERT_TRUE(matcher.has_matched() || out + held == text.substr(0, i));
    }
    matcher.flush(out);
    num_matches += matcher.has_matched();
    ASSERT_EQ(out, cut_whole_text(text, stops, include_stop)) << text;
  }
  EXPECT_GT(num_matches, 5000);
}

}  // namespace
}  // namespace rigel::text
