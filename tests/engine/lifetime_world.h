#pragma once

// A scheduler, its caches and a device, as small as they can be: what the explorer drives through every order of events.
//
// The host side calls the transitions of engine/lifetime.h, of engine/lifetime_residency.h and of graphs/slot_ring.h exactly as
// the engine, the caches and the graphs do. The device side is one queue of steps and of copies to and from the host: what
// was enqueued runs in its order, at any later moment. Memory holds values: each write makes a new one, and whoever reads
// knows which one it must find. So a page that was recycled too early, or a copy that ran before the write it wanted, shows as
// a wrong value; reuse while work is still unseen is refused besides, even in orders in which no value is lost.

#include "engine/lifetime.h"
#include "engine/lifetime_residency.h"
#include "graphs/slot_ring.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

namespace rigel::testing {

/// Where the device may run a copy.
enum class CopyOrder : std::uint8_t {
  kOfTheStream,    // behind what was enqueued before, in front of what was enqueued after
  kMayOvertake,    // in front of steps that were enqueued before, too
  kMayBeOvertaken  // behind work that was enqueued after, too
};

/// Sizes of a world, and the protocol whole. A planted fault overrides one member.
template <std::int32_t kNumRows, std::int32_t kNumPages, std::int32_t kNumHostPages = 2>
struct LifetimeProtocol {
  static constexpr std::int32_t kRows = kNumRows;
  static constexpr std::int32_t kPages = kNumPages;
  static constexpr std::int32_t kHostPages = kNumHostPages;
  static constexpr std::int32_t kPagesPerRow = 2;
  static constexpr std::uint64_t kMaxInFlight = 2;
  static constexpr std::int32_t kGraphSlots = 2;
  static constexpr bool kHasGraphs = true;  // some steps replay a graph
  static constexpr bool kHasCopies = true;  // some requests go to the host

  using Rows = lifetime::Rows<kNumRows>;
  using Pages = lifetime::Pages<kNumPages>;
  using HostPages = lifetime::Pages<kNumHostPages>;
  using Steps = lifetime::Steps<kNumRows>;
  using Residency = lifetime::Residency;
  using Ring = SlotRing;

  static constexpr CopyOrder kCopyOrder = CopyOrder::kOfTheStream;
  /// Reuse or a copy while work is unseen is a violation by itself. Off: only a wrong value or a token gone astray is.
  static constexpr bool kReuseIsChecked = true;
};

struct LifetimeAction {
  enum class Kind : std::uint8_t {
    kAdmit,     // row of `lanes`: its first page is shared; none: a prompt of its own
    kLaunch,    // `lanes`, of which `growing` take a new page; `replays` a graph or not
    kFail,      // the same, but it throws once it has its number, and its requests end
    kRefuse,    // a step has its slots, writes their columns and is refused
    kReserve,   // row `lanes` takes a page for a step that then fails before its launch
    kRun,       // the device runs what is next in its queue
    kRunCopy,   // the device runs a copy out of its order
    kRunOther,  // the device runs what is behind a copy
    kComplete,  // the host sees the oldest step complete
    kFinish,    // row `lanes`: stop, abort or failure
    kPreempt,   // row `lanes` loses its pages, wherever they are, and starts over
    kOffload,   // row `lanes`
    kReload     // row `lanes`
  };
  static constexpr int kNumKinds = 13;
  Kind kind{};
  std::uint8_t lanes = 0;  // a set of rows, as bits
  std::uint8_t growing = 0;
  bool replays = false;
};

constexpr std::string_view name_of(LifetimeAction::Kind kind) {
  constexpr std::array<std::string_view, LifetimeAction::kNumKinds> kNames = {
      "admit",    "launch",   "fail",   "refuse",  "reserve", "run",   "run copy first",
      "run past", "complete", "finish", "preempt", "offload", "reload"};
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
  static constexpr std::size_t kMaxCopies = 2;  // in the queue at a time
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
  /// only in the names of pages, values, epochs, slots and generations give the same numbers.
  template <class Visit>
  void encode(Visit visit) const;

 private:
  struct Held {
    std::int16_t page = -1;
    bool shared = false;
    Value value = 0;  // what its content must be by then; 0: nothing was written yet
  };
  using HeldPages = std::array<Held, static_cast<std::size_t>(kPerRow)>;
  struct Request {
    bool is_open = false;
    std::uint32_t id = 0;
    RequestHandle handle;
    typename Protocol::Residency residency;
    std::int32_t num_pages = 0;  // on the device or on the host
    HeldPages pages;             // where it is now
    Value state = 0;             // of the row's own device state: last token, counts, page table
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
  /// A double buffer whose columns the host wrote for a step.
  struct Columns {
    std::int32_t graph_slot = -1;  // -1: the step's own slot
    std::size_t slot = 0;
    Value value = 0;  // 0: the step does not read them
  };
  enum class WorkKind : std::uint8_t { kStep, kCopyOut, kCopyIn };
  /// An entry of the device's queue.
  struct Work {
    WorkKind kind = WorkKind::kStep;
    std::int32_t num_lanes = 0;  // of a step; a copy's pages are those of the first
    std::array<Lane, static_cast<std::size_t>(kRows)> lanes;
    Columns columns;
    HeldPages host;  // of a copy
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
  [[nodiscard]] bool can_launch(const Action& action) const;
  [[nodiscard]] std::size_t num_copies() const;
  [[nodiscard]] std::size_t first_in_queue(bool is_copy) const;
  [[nodiscard]] std::int32_t num_flying() const;
  [[nodiscard]] bool has_lane_in_flight(std::int32_t row) const;
  [[nodiscard]] bool page_in_use(std::int32_t page) const;
  [[nodiscard]] bool host_page_in_use(std::int32_t page) const;

  [[nodiscard]] std::uint64_t doing(std::int32_t row) const;
  std::int16_t take_page();
  std::int16_t take_host_page();
  bool grow(Request& request);
  void release_pages(Request& request, bool on_host, Epoch last_use);
  void admit(const Action& action);
  void launch(const Action& action);
  [[nodiscard]] Columns write_columns(bool replays);
  void run_at(std::size_t index);
  void run_step(const Work& step);
  void run_copy(const Work& copy);
  void run_ready_copies();
  void pop_front();
  void drop_copies_in_front();
  void complete();
  void finish(Request& request);
  void move(Request& request);
  void check_owners();

  typename Protocol::Rows rows_{kRows};
  typename Protocol::Pages pages_{kPages};
  typename Protocol::HostPages host_pages_{kHostPages};
  typename Protocol::Steps steps_{kDepth};
  typename Protocol::Ring ring_{Protocol::kGraphSlots};

  std::array<Request, static_cast<std::size_t>(kRows)> requests_;
  /// What the device has not run, and what it has run since the last step that the host saw complete. Oldest first.
  std::array<Work, kDepth + kMaxCopies> queue_;
  std::size_t num_queued_ = 0;
  std::size_t num_run_ = 0;  // of those, by the device

  std::array<Value, static_cast<std::size_t>(kPages)> page_memory_{};
  std::array<Value, static_cast<std::size_t>(kHostPages)> host_memory_{};
  std::array<Value, static_cast<std::size_t>(kRows)> row_memory_{};
  std::array<Value, kDepth> slot_memory_{};
  std::array<Value, static_cast<std::size_t>(Protocol::kGraphSlots)> graph_slot_memory_{};

  Value last_value_ = 0;
  std::uint32_t last_request_ = 0;
  std::string_view violation_;
};

}  // namespace rigel::testing

#include "tests/engine/lifetime_world_device.h"
#include "tests/engine/lifetime_world_encoding.h"
#include "tests/engine/lifetime_world_events.h"
