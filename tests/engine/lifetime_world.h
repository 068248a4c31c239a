#pragma once

// A scheduler, its caches and a device, as small as they can be: what the explorer drives through every order of events.
//
// The host side calls the transitions of engine/lifetime.h exactly as the engine and the caches do. The device side is two
// queues, steps and copies, each in its own order and otherwise free: what was enqueued may run at any later moment. Memory
// holds values: each write makes a new one, and whoever reads knows which one it must find. So a page that was recycled too
// early, or a copy that ran before the write it wanted, shows as a wrong value; reuse while work is still unseen is refused
// besides, even in orders in which no value is lost.

#include "engine/lifetime.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace rigel::testing {

/// Sizes of a world, and the protocol whole. A planted fault overrides one member.
template <std::int32_t kNumRows, std::int32_t kNumPages>
struct LifetimeProtocol {
  static constexpr std::int32_t kRows = kNumRows;
  static constexpr std::int32_t kPages = kNumPages;
  static constexpr std::int32_t kHostPages = 2;
  static constexpr std::int32_t kPagesPerRow = 2;
  static constexpr std::uint64_t kMaxInFlight = 2;
  static constexpr bool kHasCopies = true;  // offload and reload

  using Rows = lifetime::Rows<kNumRows>;
  using Pages = lifetime::Pages<kNumPages>;
  using HostPages = lifetime::Pages<2>;
  using Steps = lifetime::Steps<kNumRows>;

  /// A copy out begins only when the host has seen every step complete that writes its pages.
  static constexpr bool kCopyOutWaits = true;
  /// A copied row is used again only when the host has seen the end of the copy.
  static constexpr bool kCopyEndIsSeen = true;
  /// A copy owns its pages while it is under way.
  static constexpr bool kCopyOwns = true;
  /// Reuse while work is unseen is a violation by itself. Off: only a wrong value or a token gone astray is.
  static constexpr bool kReuseIsChecked = true;
};

struct LifetimeAction {
  enum class Kind : std::uint8_t {
    kAdmit,        // row of `lanes`: its first page is shared; none: a prompt of its own
    kLaunch,       // `lanes`, of which `growing` take a new page
    kReserve,      // row `lanes` takes a page for a step that then fails before its launch
    kRunStep,      // the device runs the next step
    kComplete,     // the host sees the oldest step complete
    kFinish,       // row `lanes`: stop, abort or failure
    kPreempt,      // row `lanes` loses its pages and starts over
    kOffload,      // row `lanes`
    kReload,       // row `lanes`
    kRunCopy,      // the device runs the next copy
    kCompleteCopy  // the host sees the oldest copy complete
  };
  static constexpr int kNumKinds = 11;
  Kind kind{};
  std::uint8_t lanes = 0;  // a set of rows, as bits
  std::uint8_t growing = 0;
};

constexpr std::string_view name_of(LifetimeAction::Kind kind) {
  constexpr std::array<std::string_view, LifetimeAction::kNumKinds> kNames = {
      "admit",   "launch",  "reserve", "run step", "complete",     "finish",
      "preempt", "offload", "reload",  "run copy", "complete copy"};
  return kNames[static_cast<std::size_t>(kind)];
}

template <class Protocol>
class LifetimeWorld {
 public:
  static constexpr std::int32_t kRows = Protocol::kRows;
  static constexpr std::int32_t kPages = Protocol::kPages;
  static constexpr std::int32_t kHostPages = Protocol::kHostPages;
  static constexpr std::int32_t kPerRow = Protocol::kPagesPerRow;
  static constexpr std::size_t kDepth = Protocol::kMaxInFlight;
  static constexpr std::size_t kMaxCopies = 2;
  using Action = LifetimeAction;
  using Kind = Action::Kind;
  using Value = std::uint32_t;  // 0: nothing that anybody wants

  /// What went wrong so far; empty: nothing.
  [[nodiscard]] std::string_view violation() const { return violation_; }

  [[nodiscard]] bool enabled(const Action& action) const;
  void apply(const Action& action);
  /// Lets everything end, then expects that nothing is owned.
  void drain();
  /// Calls `visit` with each number that decides what can happen from here on, in a canonical order: two worlds that differ
  /// only in the names of pages, values, epochs and generations give the same numbers.
  template <class Visit>
  void encode(Visit visit) const;

 private:
  struct Held {
    std::int32_t page = -1;
    Value value = 0;  // what its content must be by then; 0: nothing was written yet
    bool shared = false;
  };
  using HeldPages = std::array<Held, static_cast<std::size_t>(kPerRow)>;
  enum class Phase : std::uint8_t { kNone, kRunning, kCopyingOut, kOffloaded, kCopyingIn };
  struct Request {
    Phase phase = Phase::kNone;
    std::uint32_t id = 0;
    RequestHandle handle;
    std::int32_t num_pages = 0;  // on the device, or on the host while offloaded
    HeldPages pages;
    HeldPages host;
    Value state = 0;  // of the row's own device state: last token, counts, page table
  };
  struct Lane {
    std::uint32_t request = 0;
    RequestHandle handle;
    std::int32_t num_pages = 0;
    HeldPages pages;  // as read; the last one is written, too
    Value writes = 0;
    Value state_read = 0;
    Value state_written = 0;
  };
  struct Step {
    std::int32_t num_lanes = 0;
    std::array<Lane, static_cast<std::size_t>(kRows)> lanes;
    Value slot = 0;
    std::size_t slot_index = 0;
  };
  struct Copy {
    bool to_host = false;
    std::uint32_t request = 0;
    std::int32_t row = 0;
    std::int32_t num_pages = 0;
    HeldPages pages;
    HeldPages host;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  static std::int32_t row_of(const Action& action) { return std::countr_zero(action.lanes); }
  void expect(bool holds, std::string_view what) {
    if (!holds && violation_.empty()) {
      violation_ = what;
    }
  }

  [[nodiscard]] bool must_grow(const Request& request) const;
  [[nodiscard]] bool can_grow(const Request& request) const;
  [[nodiscard]] bool has_lane_in_flight(std::int32_t row) const;
  [[nodiscard]] bool written_in_flight(const Request& request) const;
  [[nodiscard]] bool page_in_use(std::int32_t page) const;
  [[nodiscard]] bool host_page_in_use(std::int32_t page) const;

  [[nodiscard]] std::uint64_t doing(std::int32_t row) const;
  std::int32_t take_page();
  std::int32_t take_host_page();
  bool grow(Request& request);
  void release_pages(Request& request);
  void release_host_pages(Request& request);
  void admit(const Action& action);
  void launch(const Action& action);
  void run_step();
  void complete();
  void finish(Request& request);
  void begin_copy(Request& request, bool to_host);
  void run_copy();
  void complete_copy();
  void end_copy_of(Request& request, bool to_host);
  void check_owners();

  typename Protocol::Rows rows_{kRows};
  typename Protocol::Pages pages_{kPages};
  typename Protocol::HostPages host_pages_{kHostPages};
  typename Protocol::Steps steps_{kDepth};

  std::array<Request, static_cast<std::size_t>(kRows)> requests_;
  std::array<Step, kDepth> flying_;  // oldest first
  std::size_t num_flying_ = 0;
  std::size_t num_run_ = 0;  // of the flying ones, by the device
  std::array<Copy, kMaxCopies> copies_;
  std::size_t num_copies_ = 0;
  std::size_t num_copies_run_ = 0;

  std::array<Value, static_cast<std::size_t>(kPages)> page_memory_{};
  std::array<Value, static_cast<std::size_t>(kHostPages)> host_memory_{};
  std::array<Value, static_cast<std::size_t>(kRows)> row_memory_{};
  std::array<Value, kDepth> slot_memory_{};

  Value last_value_ = 0;
  std::uint32_t last_request_ = 0;
  std::string_view violation_;
};

}  // namespace rigel::testing

#include "tests/engine/lifetime_world_encoding.h"
#include "tests/engine/lifetime_world_events.h"
