#pragma once

// The canonical numbers of a LifetimeWorld's state.

#include "tests/engine/lifetime_world.h"

namespace rigel::testing {

/// Small numbers for things in the order in which they are first named: 1, 2, ...
template <class Thing, std::size_t kMost>
class FirstNames {
 public:
  std::uint8_t name(Thing thing) {
    const std::uint8_t known = find(thing);
    if (known != 0) {
      return known;
    }
    things_[count_++] = thing;
    return static_cast<std::uint8_t>(count_);
  }
  /// 0: was not named.
  [[nodiscard]] std::uint8_t find(Thing thing) const {
    for (std::size_t index = 0; index < count_; ++index) {
      if (things_[index] == thing) {
        return static_cast<std::uint8_t>(index + 1);
      }
    }
    return 0;
  }

 private:
  std::array<Thing, kMost> things_{};
  std::size_t count_ = 0;
};

/// A number by which most rows in different conditions differ. Two that do not are told apart by index, which costs the
/// explorer a state and nothing else.
template <class Protocol>
std::uint64_t LifetimeWorld<Protocol>::doing(std::int32_t row) const {
  const Request& request = requests_[at(row)];
  std::uint64_t number = 0;
  const auto add = [&number](auto part) { number = number * 8 + static_cast<std::uint64_t>(part); };
  add(request.phase);
  add(request.num_pages);
  add(request.state == 0);
  for (std::int32_t index = 0; index < kPerRow; ++index) {
    const Held& held = request.pages[at(index)];
    const bool is_held = index < request.num_pages && request.phase != Phase::kOffloaded;
    add(is_held && held.shared);
    add(is_held ? pages_.num_owners(held.page) : 0);
    add(is_held && held.value == 0);
  }
  for (std::size_t index = 0; index < num_flying_; ++index) {
    std::int32_t lane_kind = 0;
    for (std::int32_t place = 0; place < flying_[index].num_lanes; ++place) {
      const Lane& lane = flying_[index].lanes[at(place)];
      if (lane.handle.row == row) {
        lane_kind = 1 + lane.num_pages + (rows_.is_open(lane.handle) ? 3 : 0);
      }
    }
    add(lane_kind);
  }
  for (std::size_t index = 0; index < num_copies_; ++index) {
    add(copies_[index].row == row ? 1 : 0);
  }
  return number;
}

template <class Protocol>
template <class Visit>
void LifetimeWorld<Protocol>::encode(Visit visit) const {
  FirstNames<std::int32_t, static_cast<std::size_t>(kPages)> page_names;
  FirstNames<std::int32_t, static_cast<std::size_t>(kHostPages)> host_names;
  FirstNames<Value, 128> values;
  const Epoch completed = steps_.last_completed();
  const auto put = [&](auto number) { visit(static_cast<std::uint8_t>(number)); };
  const auto put_epoch = [&](Epoch epoch) { put(epoch > completed ? epoch - completed : 0); };
  const auto put_value = [&](Value value) { put(value == 0 ? 0 : values.name(value)); };
  const auto put_queue = [&](const auto& queue, auto name) {
    put(queue.num_free());
    put(queue.num_retiring());
    for (std::int32_t position = 0; position < queue.num_free() + queue.num_retiring();
         ++position) {
      const std::int32_t index = queue.at(position);
      name(index);
      put_epoch(queue.last_touch(index));
    }
  };
  const auto put_held = [&](const HeldPages& pages, std::int32_t count, auto& names) {
    for (std::int32_t index = 0; index < count; ++index) {
      put(names.name(pages[at(index)].page));
      put_value(pages[at(index)].value);
      put(pages[at(index)].shared);
    }
  };

  // Rows go by their place in the queue, then the open ones by what they are doing: their indices mean nothing.
  std::array<std::int32_t, static_cast<std::size_t>(kRows)> rows;
  std::int32_t num_rows = 0;
  put_queue(rows_.queue(), [&](std::int32_t row) { rows[at(num_rows++)] = row; });
  const std::int32_t first_open = num_rows;
  for (std::int32_t row = 0; row < kRows; ++row) {
    if (requests_[at(row)].phase != Phase::kNone) {
      rows[at(num_rows++)] = row;
    }
  }
  std::ranges::sort(std::span(rows).subspan(at(first_open)), {},
                    [&](std::int32_t row) { return doing(row); });
  put_queue(pages_.queue(), [&](std::int32_t page) { page_names.name(page); });
  put_queue(host_pages_.queue(), [&](std::int32_t page) { host_names.name(page); });

  for (const std::int32_t row : rows) {
    const Request& request = requests_[at(row)];
    put(request.phase);
    put_epoch(steps_.last_touch(row));
    if (request.phase == Phase::kNone) {
      continue;
    }
    put(request.num_pages);
    put_value(request.state);
    if (request.phase != Phase::kOffloaded) {
      put_held(request.pages, request.num_pages, page_names);
    }
    if (request.phase != Phase::kRunning) {
      put_held(request.host, request.num_pages, host_names);
    }
  }
  put(num_flying_);
  put(num_run_);
  for (std::size_t index = 0; index < num_flying_; ++index) {
    const Step& step = flying_[index];
    put(index < num_run_ || slot_memory_[step.slot_index] == step.slot);
    for (const std::int32_t row : rows) {
      for (std::int32_t place = 0; place < step.num_lanes; ++place) {
        const Lane& lane = step.lanes[at(place)];
        if (lane.handle.row != row) {
          continue;
        }
        put(rows_.is_open(lane.handle) ? 3 : 2);
        put(lane.num_pages);
        for (std::int32_t held = 0; held < lane.num_pages; ++held) {
          put(page_names.name(lane.pages[at(held)].page));
          put_value(index < num_run_ ? 0 : lane.pages[at(held)].value);
        }
        put_value(index < num_run_ ? 0 : lane.writes);
        put_value(index < num_run_ ? 0 : lane.state_read);
        put_value(index < num_run_ ? 0 : lane.state_written);
      }
      put(1);
    }
  }
  put(num_copies_);
  put(num_copies_run_);
  for (std::size_t index = 0; index < num_copies_; ++index) {
    const Copy& copy = copies_[index];
    const Request& request = requests_[at(copy.row)];
    put(copy.to_host);
    put(request.phase != Phase::kNone && request.id == copy.request);
    for (std::int32_t place = 0; place < kRows; ++place) {
      if (rows[at(place)] == copy.row) {
        put(place);
      }
    }
    put(copy.num_pages);
    put_held(copy.pages, copy.num_pages, page_names);
    put_held(copy.host, copy.num_pages, host_names);
  }
  // Of what memory holds, only what somebody will look for matters.
  const auto put_memory = [&](Value value) { put(value == 0 ? 0 : values.find(value)); };
  for (std::uint8_t name = 1; name <= kPages; ++name) {
    for (std::int32_t page = 0; page < kPages; ++page) {
      if (page_names.find(page) == name) {
        put_memory(page_memory_[at(page)]);
        put(pages_.num_owners(page));
        put_epoch(pages_.num_owners(page) > 0 ? pages_.last_touch(page) : 0);
      }
    }
  }
  for (std::uint8_t name = 1; name <= kHostPages; ++name) {
    for (std::int32_t page = 0; page < kHostPages; ++page) {
      if (host_names.find(page) == name) {
        put_memory(host_memory_[at(page)]);
        put(host_pages_.num_owners(page));
      }
    }
  }
  for (const std::int32_t row : rows) {
    put_memory(row_memory_[at(row)]);
  }
}

}  // namespace rigel::testing
