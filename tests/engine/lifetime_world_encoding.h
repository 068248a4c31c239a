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
  const bool is_on_host = request.residency.is_on_host();
  std::uint64_t number = 0;
  const auto add = [&number](auto part) { number = number * 8 + static_cast<std::uint64_t>(part); };
  add(is_on_host);
  add(request.num_pages);
  add(request.state == 0);
  for (std::int32_t index = 0; index < kPerRow; ++index) {
    const Held& held = request.pages[at(index)];
    const bool is_held = index < request.num_pages;
    add(is_held && held.shared);
    add(is_held && !is_on_host ? pages_.num_owners(held.page) : 0);
    add(is_held && held.value == 0);
  }
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    std::int32_t lane_kind = 0;
    for (std::int32_t place = 0; place < work.num_lanes; ++place) {
      const Lane& lane = work.lanes[at(place)];
      if (work.kind == WorkKind::kStep && lane.handle.row == row) {
        lane_kind = 1 + lane.num_pages + (rows_.is_open(lane.handle) ? 3 : 0);
      }
    }
    add(lane_kind);
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
  const auto put_held = [&](const HeldPages& pages, std::int32_t count, bool is_read, auto& names) {
    for (std::int32_t index = 0; index < count; ++index) {
      put(names.name(pages[at(index)].page));
      put_value(is_read ? pages[at(index)].value : 0);
    }
  };

  // Rows go by their place in the queue, then the open ones by what they are doing: their indices mean nothing.
  std::array<std::int32_t, static_cast<std::size_t>(kRows)> rows;
  std::int32_t num_rows = 0;
  put_queue(rows_.queue(), [&](std::int32_t row) { rows[at(num_rows++)] = row; });
  const std::int32_t first_open = num_rows;
  for (std::int32_t row = 0; row < kRows; ++row) {
    if (requests_[at(row)].is_open) {
      rows[at(num_rows++)] = row;
    }
  }
  std::ranges::sort(std::span(rows).subspan(at(first_open)), {},
                    [&](std::int32_t row) { return doing(row); });
  put_queue(pages_.queue(), [&](std::int32_t page) { page_names.name(page); });
  put_queue(host_pages_.queue(), [&](std::int32_t page) { host_names.name(page); });

  for (const std::int32_t row : rows) {
    const Request& request = requests_[at(row)];
    put(request.is_open);
    put_epoch(steps_.last_touch(row));
    if (!request.is_open) {
      continue;
    }
    put(request.num_pages);
    put_value(request.state);
    put(request.residency.is_on_host());
    put(request.residency.can_leave(completed));
    put(request.residency.can_leave(completed + 1));
    put_epoch(request.residency.last_use(0));
    if (request.residency.is_on_host()) {
      put_held(request.pages, request.num_pages, true, host_names);
    } else {
      put_held(request.pages, request.num_pages, true, page_names);
    }
    for (std::int32_t index = 0; index < request.num_pages; ++index) {
      put(request.pages[at(index)].shared);
    }
  }
  put(num_queued_);
  put(num_run_);
  typename Protocol::Ring next_lease = ring_;
  const std::int32_t next_slot = next_lease.take();
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    const bool is_read = index >= num_run_;
    put(work.kind);
    if (work.kind != WorkKind::kStep) {
      put(work.lanes[0].num_pages);
      put_held(work.lanes[0].pages, work.lanes[0].num_pages, is_read, page_names);
      put_held(work.host, work.lanes[0].num_pages, is_read, host_names);
      continue;
    }
    const Columns& columns = work.columns;
    if (columns.value != 0 && columns.graph_slot >= 0) {
      put(2 + (columns.graph_slot - next_slot + Protocol::kGraphSlots) % Protocol::kGraphSlots);
      put(is_read && graph_slot_memory_[at(columns.graph_slot)] != columns.value);
    } else {
      put(columns.value != 0);
      put(is_read && columns.value != 0 && slot_memory_[columns.slot] != columns.value);
    }
    for (const std::int32_t row : rows) {
      for (std::int32_t place = 0; place < work.num_lanes; ++place) {
        const Lane& lane = work.lanes[at(place)];
        if (lane.handle.row != row) {
          continue;
        }
        put(rows_.is_open(lane.handle) ? 3 : 2);
        put(lane.num_pages);
        put_held(lane.pages, lane.num_pages, is_read, page_names);
        put_value(is_read ? lane.writes : 0);
        put_value(is_read ? lane.state_read : 0);
        put_value(is_read ? lane.state_written : 0);
      }
      put(1);
    }
  }
  // Of what memory holds, only what somebody will look for matters.
  const auto put_memory = [&](Value value) { put(value == 0 ? 0 : values.find(value)); };
  const auto put_pages = [&](const auto& pages, const auto& names, const auto& memory) {
    const std::int32_t size = pages.queue().size();
    for (std::int32_t name = 1; name <= size; ++name) {
      for (std::int32_t page = 0; page < size; ++page) {
        if (names.find(page) == name) {
          put_memory(memory[at(page)]);
          put(pages.num_owners(page));
          put_epoch(pages.num_owners(page) > 0 ? pages.last_touch(page) : 0);
        }
      }
    }
  };
  put_pages(pages_, page_names, page_memory_);
  put_pages(host_pages_, host_names, host_memory_);
  for (const std::int32_t row : rows) {
    put_memory(row_memory_[at(row)]);
  }
}

}  // namespace rigel::testing
