// RIGEL_EXPLORE=all in the environment makes the worlds of the exhaustive searches one page larger: some 10 s and 600 MB.

#include "engine/lifetime.h"

#include "tests/engine/lifetime_explorer.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace rigel {
namespace {

using testing::explore_lifetimes;
using testing::LifetimeProtocol;
using testing::LifetimeReport;
using testing::run_random_lifetimes;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kNumRandomRuns = 2;
constexpr std::int32_t kNumPages = 2;
#else
constexpr std::uint32_t kNumRandomRuns = 20;
constexpr std::int32_t kNumPages = 3;
#endif

constexpr std::string_view kPageReused =
    "a page has a new owner while work that nobody has seen end uses it";
constexpr std::string_view kRowReused = "a row has a new request while a step may write it";

/// Two rows, copies both ways, two steps in flight.
using Whole = LifetimeProtocol<2, 3>;

/// Three rows, without copies.
template <std::int32_t kPages>
struct ThreeRows : LifetimeProtocol<3, kPages> {
  static constexpr bool kHasCopies = false;
};

/// Eight rows of the very classes that the engine, the caches and the request table have.
struct ManyRows : LifetimeProtocol<8, 11> {
  using Rows = lifetime::Rows<>;
  using Pages = lifetime::Pages<>;
  using HostPages = lifetime::Pages<>;
  using Steps = lifetime::Steps<>;
};

bool explores_all() {
  const char* wanted = std::getenv("RIGEL_EXPLORE");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

template <class Protocol>
void expect_holds() {
  const LifetimeReport report = explore_lifetimes<Protocol>();
  EXPECT_EQ(report.violation, "") << report.history;
  EXPECT_GT(report.num_states, 1'000U) << "the world hardly moves";
}

template <class Protocol>
void expect_found(std::string_view violation) {
  const LifetimeReport report = explore_lifetimes<Protocol>();
  EXPECT_EQ(report.violation, violation) << report.history;
}

TEST(Lifetime, EveryHistoryOfTwoRowsWithCopiesHolds) {
  if (explores_all()) {
    return expect_holds<LifetimeProtocol<2, kNumPages + 1>>();
  }
  expect_holds<LifetimeProtocol<2, kNumPages>>();
}

TEST(Lifetime, EveryHistoryOfThreeRowsHolds) {
  if (explores_all()) {
    return expect_holds<ThreeRows<kNumPages + 1>>();
  }
  expect_holds<ThreeRows<kNumPages>>();
}

TEST(Lifetime, LongRandomHistoriesOfManyRowsHold) {
  for (std::uint32_t seed = 1; seed <= kNumRandomRuns; ++seed) {
    const LifetimeReport report = run_random_lifetimes<ManyRows>(seed, 50'000);
    EXPECT_EQ(report.violation, "") << "seed " << seed << ", last events: " << report.history;
  }
}

// Planted faults: each leaves one rule of the protocol out.

struct PageFreedOneEpochEarly : Whole {
  struct Pages : Whole::Pages {
    using Whole::Pages::Pages;
    void collect(Epoch completed) { Whole::Pages::collect(completed + 1); }
  };
};
TEST(Lifetime, APageFreedOneEpochEarlyIsFound) {
  expect_found<PageFreedOneEpochEarly>(kPageReused);
}

struct RowReusedBeforeItsLastWrite : Whole {
  struct Rows : Whole::Rows {
    using Whole::Rows::Rows;
    void close(RequestHandle handle, Epoch /*last_touch*/) { Whole::Rows::close(handle, 0); }
  };
};
TEST(Lifetime, ARowReusedBeforeItsLastWriteIsFound) {
  expect_found<RowReusedBeforeItsLastWrite>(kRowReused);
}

struct LaunchThatStampsNothing : Whole {
  struct Steps : Whole::Steps {
    using Whole::Steps::Steps;
    Epoch launch(std::span<const RequestHandle> /*lanes*/) { return Whole::Steps::launch({}); }
  };
};
TEST(Lifetime, AStepThatForgetsItsLanesIsFound) {
  expect_found<LaunchThatStampsNothing>(kRowReused);
}

struct GenerationsIgnored : RowReusedBeforeItsLastWrite {
  struct Rows : RowReusedBeforeItsLastWrite::Rows {
    using RowReusedBeforeItsLastWrite::Rows::Rows;
    [[nodiscard]] bool is_open(RequestHandle handle) const {
      const auto& free = queue();
      for (std::int32_t place = 0; place < free.num_free() + free.num_retiring(); ++place) {
        if (free.at(place) == handle.row) {
          return false;
        }
      }
      return true;
    }
  };
  static constexpr bool kReuseIsChecked = false;
};
TEST(Lifetime, C_7_ATokenOfAnEarlierOwnerIsFoundWhereGenerationsAreIgnored) {
  expect_found<GenerationsIgnored>("a token reaches another request");
}

struct OneSlot : Whole {
  struct Steps : Whole::Steps {
    using Whole::Steps::Steps;
    [[nodiscard]] std::size_t slot_of(Epoch /*epoch*/) const { return 0; }
  };
};
TEST(Lifetime, ASlotSharedByTwoStepsInFlightIsFound) {
  expect_found<OneSlot>("a step reads the columns of another step");
}

struct CopyOutDuringItsStep : Whole {
  static constexpr bool kCopyOutWaits = false;
};
TEST(Lifetime, ACopyOutThatOvertakesAWriteIsFound) {
  expect_found<CopyOutDuringItsStep>(
      "a copy out overtakes the write it copies, or reads a recycled page");
}

struct ReloadNobodyWaitsFor : Whole {
  static constexpr bool kCopyEndIsSeen = false;
};
TEST(Lifetime, AStepThatOvertakesItsReloadIsFound) {
  expect_found<ReloadNobodyWaitsFor>(
      "a step reads a page whose content is another's, or not there yet");
}

/// A page that a step in flight still writes is free: a reload may land in it before that write.
struct ReloadIntoAWrittenPage : Whole {
  struct Pages : Whole::Pages {
    using Whole::Pages::Pages;
    void release(std::int32_t page, Epoch /*last_touch*/) { Whole::Pages::release(page, 0); }
  };
  static constexpr bool kReuseIsChecked = false;
};
TEST(Lifetime, AReloadThatOvertakesAWriteIsFound) {
  expect_found<ReloadIntoAWrittenPage>(
      "a step reads a page whose content is another's, or not there yet");
}

struct CopyThatOwnsNothing : Whole {
  static constexpr bool kCopyOwns = false;
};
TEST(Lifetime, ACopyThatOutlivesItsRequestIsFound) {
  expect_found<CopyThatOwnsNothing>(kPageReused);
}

}  // namespace
}  // namespace rigel
