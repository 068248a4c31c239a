#include "worker/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Mailbox, LettersComeOutInTheOrderTheyWentIn) {
  Sleeper sleeper;
  Mailbox<int> mailbox(sleeper);
  std::vector<int> letters;
  mailbox.take(letters);
  EXPECT_THAT(letters, IsEmpty());
  for (const int letter : {3, 1, 2}) {
    mailbox.put(letter);
  }
  mailbox.take(letters);
  EXPECT_THAT(letters, ElementsAre(3, 1, 2));
  mailbox.put(4);
  mailbox.wait_and_take(letters);
  EXPECT_THAT(letters, ElementsAre(4));
}

TEST(Mailbox, UnreadLettersAreFreedWithIt) {
  Sleeper sleeper;
  const auto letter = std::make_shared<int>(7);
  {
    Mailbox<std::shared_ptr<int>> mailbox(sleeper);
    mailbox.put(letter);
    EXPECT_EQ(letter.use_count(), 2);
  }
  EXPECT_EQ(letter.use_count(), 1);
}

TEST(Mailbox, B_40_a_burst_from_many_senders_arrives_whole_and_blocks_nobody) {
  constexpr int kNumSenders = 4;
  constexpr int kPerSender = 5000;
  Sleeper sleeper;
  Mailbox<std::pair<int, int>> mailbox(sleeper);
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kNumSenders; ++sender) {
    senders.emplace_back([&, sender] {
      for (int index = 0; index < kPerSender; ++index) {
        mailbox.put({sender, index});
      }
    });
  }
  std::array<int, kNumSenders> next{};
  std::vector<std::pair<int, int>> letters;
  for (int num_read = 0; num_read < kNumSenders * kPerSender;) {
    mailbox.wait_and_take(letters);
    ASSERT_FALSE(letters.empty());
    for (const auto& [sender, index] : letters) {
      ASSERT_EQ(index, next[static_cast<std::size_t>(sender)]++) << "of sender " << sender;
    }
    num_read += static_cast<int>(letters.size());
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
}

TEST(Mailbox, C_12_no_wake_up_is_lost) {
  constexpr int kNumRounds = 3000;
  Sleeper here;
  Sleeper there;
  Mailbox<int> to_here(here);
  Mailbox<int> to_there(there);
  std::thread echo([&] {
    std::vector<int> letters;
    for (int round = 0; round < kNumRounds; ++round) {
      to_there.wait_and_take(letters);
      to_here.put(letters.front() + 1);
    }
  });
  std::vector<int> letters;
  for (int round = 0; round < kNumRounds; ++round) {
    to_there.put(
        round);  // each side sleeps until the other answers: one lost wake-up and this never ends
    to_here.wait_and_take(letters);
    ASSERT_THAT(letters, ElementsAre(round + 1));
  }
  echo.join();
}

}  // namespace
}  // namespace rigel
