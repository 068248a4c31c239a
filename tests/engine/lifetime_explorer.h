#pragma once

// Every history of a small world, or long random ones of a larger world.

#include "tests/engine/lifetime_world.h"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace rigel::testing {

/// What a search found. `violation` is empty where every history holds; else `history` is a shortest one that does not.
struct LifetimeReport {
  std::string violation;
  std::string history;
  std::size_t num_states = 0;
  std::size_t num_events = 0;
};

inline std::string describe(const LifetimeAction& action) {
  std::string text(name_of(action.kind));
  const auto append_rows = [&text](std::string_view word, unsigned rows) {
    for (unsigned row = 0; rows >> row != 0; ++row) {
      if ((rows >> row & 1) != 0) {
        text += std::string(word) + std::to_string(row);
      }
    }
  };
  append_rows(" ", action.lanes);
  append_rows(" +", action.growing);
  text += action.replays ? " replaying" : "";
  return text;
}

/// A set of state fingerprints; 64 bits of 10^7 states collide with a chance of 10^-6.
class FingerprintSet {
 public:
  FingerprintSet() : slots_(std::size_t{1} << 16, 0) {}
  /// False where it was in already.
  bool insert(std::uint64_t fingerprint) {
    fingerprint |= 1;  // 0 is an empty slot
    if ((count_ + 1) * 2 > slots_.size()) {
      grow();
    }
    if (!place(fingerprint)) {
      return false;
    }
    ++count_;
    return true;
  }

 private:
  bool place(std::uint64_t fingerprint) {
    std::size_t slot = (fingerprint * 0x9E3779B97F4A7C15ULL) >> 20 & (slots_.size() - 1);
    while (slots_[slot] != 0) {
      if (slots_[slot] == fingerprint) {
        return false;
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = fingerprint;
    return true;
  }
  void grow() {
    std::vector<std::uint64_t> old(slots_.size() * 2, 0);
    std::swap(old, slots_);
    for (const std::uint64_t fingerprint : old) {
      if (fingerprint != 0) {
        place(fingerprint);
      }
    }
  }

  std::vector<std::uint64_t> slots_;
  std::size_t count_ = 0;
};

/// Calls `visit` with each event that can happen in `world` now.
template <class Protocol, class Visit>
void for_each_event(const LifetimeWorld<Protocol>& world, Visit visit) {
  using Kind = LifetimeAction::Kind;
  constexpr unsigned kAllRows = (1U << Protocol::kRows) - 1;
  const auto offer = [&](Kind kind, unsigned lanes, unsigned growing, bool replays = false) {
    const LifetimeAction action{kind, static_cast<std::uint8_t>(lanes),
                                static_cast<std::uint8_t>(growing), replays};
    if (world.enabled(action)) {
      visit(action);
    }
  };
  for (const Kind kind : {Kind::kAdmit, Kind::kRefuse, Kind::kRun, Kind::kRunCopy, Kind::kRunOther,
                          Kind::kComplete}) {
    offer(kind, 0, 0);
  }
  for (std::int32_t row = 0; row < Protocol::kRows; ++row) {
    for (const Kind kind : {Kind::kAdmit, Kind::kReserve, Kind::kFinish, Kind::kPreempt,
                            Kind::kOffload, Kind::kReload}) {
      offer(kind, 1U << row, 0);
    }
  }
  for (unsigned lanes = 1; lanes <= kAllRows; ++lanes) {
    for (unsigned growing = lanes;; growing = (growing - 1) & lanes) {
      for (const Kind kind : {Kind::kLaunch, Kind::kFail}) {
        offer(kind, lanes, growing);
        offer(kind, lanes, growing, /*replays=*/true);
      }
      if (growing == 0) {
        break;
      }
    }
  }
}

/// All states that can be reached, breadth first. Stops at the first violation.
template <class Protocol>
LifetimeReport explore_lifetimes() {
  using World = LifetimeWorld<Protocol>;
  struct Origin {
    std::uint32_t parent;
    LifetimeAction action;
  };
  LifetimeReport report;
  FingerprintSet seen;
  std::vector<Origin> origins(1);
  std::vector<std::pair<World, std::uint32_t>> frontier(1), next;
  const auto history_to = [&origins](std::uint32_t state) {
    std::string history;
    for (; state != 0; state = origins[state].parent) {
      history = describe(origins[state].action) + "; " + history;
    }
    return history;
  };
  const auto failed = [&](const World& world, std::uint32_t state) {
    report.violation = world.violation();
    report.history = history_to(state);
    report.num_states = origins.size();
  };
  while (!frontier.empty()) {
    next.clear();
    for (const auto& [world, state] : frontier) {
      bool found = false;
      for_each_event(world, [&, &world = world, state = state](const LifetimeAction& action) {
        if (found) {
          return;
        }
        ++report.num_events;
        World after = world;
        after.apply(action);
        std::uint64_t fingerprint = 0xCBF29CE484222325ULL;
        after.encode([&fingerprint](std::uint8_t number) {
          fingerprint = (fingerprint ^ number) * 0x9FB21C651E98DF25ULL;
          fingerprint ^= fingerprint >> 32;
        });
        if (after.violation().empty() && !seen.insert(fingerprint)) {
          return;
        }
        const auto index = static_cast<std::uint32_t>(origins.size());
        origins.push_back({state, action});
        World ended = after;
        ended.drain();
        if (!ended.violation().empty()) {
          failed(ended, index);
          found = true;
          return;
        }
        next.emplace_back(after, index);
      });
      if (found) {
        return report;
      }
    }
    std::swap(frontier, next);
  }
  report.num_states = origins.size();
  return report;
}

/// One random history of `num_events` events, the same for one seed; `history` holds the last of them.
template <class Protocol>
LifetimeReport run_random_lifetimes(std::uint32_t seed, std::size_t num_events) {
  using Kind = LifetimeAction::Kind;
  constexpr unsigned kAllRows = (1U << Protocol::kRows) - 1;
  std::mt19937 random(seed);
  LifetimeWorld<Protocol> world;
  LifetimeReport report;
  std::vector<LifetimeAction> recent;
  while (report.num_events < num_events && world.violation().empty()) {
    LifetimeAction action{static_cast<Kind>(random() % LifetimeAction::kNumKinds), 0, 0, false};
    if (action.kind == Kind::kFail && random() % 8 != 0) {
      continue;
    }
    if (action.kind == Kind::kLaunch || action.kind == Kind::kFail) {
      // Who must grow is found by trying: a lane that cannot go along is left out.
      for (unsigned row = 0; row < static_cast<unsigned>(Protocol::kRows); ++row) {
        LifetimeAction lane{Kind::kLaunch, static_cast<std::uint8_t>(1U << row), 0, false};
        lane.growing = static_cast<std::uint8_t>(random() % 2 == 0 ? lane.lanes : 0);
        if (random() % 4 != 0 && world.enabled(lane)) {
          action.lanes |= lane.lanes;
          action.growing |= lane.growing;
        }
      }
      action.replays = random() % 2 == 0;
    } else if (action.kind != Kind::kAdmit || random() % 3 == 0) {
      action.lanes = static_cast<std::uint8_t>(1U << random() % Protocol::kRows);
    }
    static_assert(kAllRows <= 0xFF);
    if (!world.enabled(action)) {
      continue;
    }
    ++report.num_events;
    world.apply(action);
    recent.push_back(action);
    if (recent.size() > 64) {
      recent.erase(recent.begin());
    }
  }
  if (world.violation().empty()) {
    world.drain();
  }
  report.violation = world.violation();
  for (const LifetimeAction& action : recent) {
    report.history += describe(action) + "; ";
  }
  return report;
}

}  // namespace rigel::testing
