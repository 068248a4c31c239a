// RIGEL_EXPLORE=all in the environment makes the worlds of the exhaustive searches larger: a minute and some GB.

#include "engine/lifetime.h"

#include "tests/engine/lifetime_explorer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>
#include <tuple>

namespace rigel {
namespace {

using testing::CopyOrder;
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
constexpr std::string_view kHostPageReused = "a host page has a new owner while a copy uses it";
constexpr std::string_view kRowReused = "a row has a new request while a step may write it";

/// Two rows, and all that there is.
using Whole = LifetimeProtocol<2, 3>;

/// Steps that replay no graphs.
template <std::int32_t kRows, std::int32_t kPages>
struct Eager : LifetimeProtocol<kRows, kPages, 1> {
  static constexpr bool kHasGraphs = false;
};

/// Requests that stay on the device.
template <std::int32_t kRows, std::int32_t kPages>
struct Resident : Eager<kRows, kPages> {
  static constexpr bool kHasCopies = false;
};

/// Copies that the device may run in front of steps that were enqueued before.
struct EarlyCopies : Eager<2, 2> {
  static constexpr CopyOrder kCopyOrder = CopyOrder::kMayOvertake;
};

/// Eight rows of the very classes that the engine, the caches and the request table have.
struct ManyRows : LifetimeProtocol<8, 11, 6> {
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

TEST(Lifetime, EveryHistoryOfTwoRowsHolds) {
  if (explores_all()) {
    return expect_holds<Whole>();
  }
  expect_holds<Eager<2, kNumPages>>();
}

TEST(Lifetime, EveryHistoryOfTwoRowsWithGraphsHolds) {
  expect_holds<LifetimeProtocol<2, 2, kNumPages - 1>>();
}

TEST(Lifetime, EveryHistoryOfThreeRowsHolds) {
  if (explores_all()) {
    return expect_holds<Eager<3, 3>>();
  }
  expect_holds<Eager<3, 2>>();
}

TEST(Lifetime, EveryHistoryOfThreeRowsOnTheDeviceHolds) {
  expect_holds<Resident<3, kNumPages>>();
}

TEST(Lifetime, ACopyNeedsNothingOfTheStepsInFrontButTheirEpochs) {
  expect_holds<EarlyCopies>();
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
  expect_found<OneSlot>("a slot is written while a step that reads it is in flight");
}

/// A slot that only a refused step had is passed over, so the ring comes round too soon.
struct RingThatMovesUnused : Whole {
  struct Ring : SlotRing {
    using SlotRing::SlotRing;
    void give_back(std::int32_t slot, bool /*used*/) { SlotRing::give_back(slot, true); }
  };
};
TEST(Lifetime, ASlotWrittenWhileAGraphReadsItIsFound) {
  expect_found<RingThatMovesUnused>("a slot is written while a step that reads it is in flight");
}

struct RingThatMovesUnusedUnchecked : RingThatMovesUnused {
  static constexpr bool kReuseIsChecked = false;
};
TEST(Lifetime, AGraphThatReadsTheColumnsOfAnotherStepIsFound) {
  expect_found<RingThatMovesUnusedUnchecked>("a step reads the columns of another step");
}

/// Planted faults of lifetime::Residency.

struct LeavesDuringItsStep : Whole {
  struct Residency : Whole::Residency {
    [[nodiscard]] bool can_leave(Epoch /*completed*/) const { return !is_on_host(); }
  };
};
TEST(Lifetime, T_KV_7_AnOffloadDuringAStepOfTheRequestIsFound) {
  expect_found<LeavesDuringItsStep>("a request is copied while a step of it is in flight");
}

struct LeavesWithItsLastStep : Whole {
  struct Residency : Whole::Residency {
    [[nodiscard]] Epoch leave(Epoch last_launched) {
      std::ignore = Whole::Residency::leave(last_launched);
      return 0;
    }
  };
};
TEST(Lifetime, APageThatAnOffloadFreesTooEarlyIsFound) {
  expect_found<LeavesWithItsLastStep>(kPageReused);
}

struct ComesBackWithItsLastStep : Whole {
  struct Residency : Whole::Residency {
    [[nodiscard]] Epoch come_back(Epoch last_launched) {
      std::ignore = Whole::Residency::come_back(last_launched);
      return 0;
    }
  };
};
TEST(Lifetime, AHostPageThatAReloadFreesTooEarlyIsFound) {
  expect_found<ComesBackWithItsLastStep>(kHostPageReused);
}

struct EndsBeforeItsCopy : Whole {
  struct Residency : Whole::Residency {
    [[nodiscard]] Epoch empty(Epoch last_touch) {
      std::ignore = Whole::Residency::empty(last_touch);
      return last_touch;
    }
  };
};
TEST(Lifetime, AReloadThatOutlivesItsRequestIsFound) {
  expect_found<EndsBeforeItsCopy>(kPageReused);
}

/// Shows with three requests: one leaves and ends, the next leaves, behind a step of the third.
struct EndsBeforeItsCopyOut : Eager<3, 3> {
  struct Residency : lifetime::Residency {
    [[nodiscard]] Epoch empty(Epoch last_touch) {
      const bool was_on_host = is_on_host();
      const Epoch last_use = lifetime::Residency::empty(last_touch);
      return was_on_host ? last_touch : last_use;
    }
  };
};
TEST(Lifetime, ACopyOutThatOutlivesItsRequestIsFound) {
  expect_found<EndsBeforeItsCopyOut>(kHostPageReused);
}

/// Planted faults of the device's order.

template <class Protocol>
struct Overtaking : Protocol {
  static constexpr CopyOrder kCopyOrder = CopyOrder::kMayOvertake;
  static constexpr bool kReuseIsChecked = false;
};
TEST(Lifetime, ACopyOutThatOvertakesAWriteIsFound) {
  expect_found<Overtaking<LeavesDuringItsStep>>(
      "a copy out overtakes the write it copies, or reads a recycled page");
}

/// A page that a step in flight still writes is free: a reload may land in it before that write.
struct ReloadIntoAWrittenPage : Overtaking<Whole> {
  struct Pages : Whole::Pages {
    using Whole::Pages::Pages;
    void release(std::int32_t page, Epoch /*last_touch*/) { Whole::Pages::release(page, 0); }
  };
};
TEST(Lifetime, AReloadThatOvertakesAWriteIsFound) {
  expect_found<ReloadIntoAWrittenPage>(
      "a step reads a page whose content is another's, or not there yet");
}

struct CopyThatIsOvertaken : Whole {
  static constexpr CopyOrder kCopyOrder = CopyOrder::kMayBeOvertaken;
};
TEST(Lifetime, AStepThatOvertakesItsReloadIsFound) {
  expect_found<CopyThatIsOvertaken>(
      "a step reads a page whose content is another's, or not there yet");
}

}  // namespace
}  // namespace rigel
