#pragma once

// What the device of a LifetimeWorld does with its queue, and what the host still counts as under way.

#include "tests/engine/lifetime_world.h"

namespace rigel::testing {

template <class Protocol>
std::size_t LifetimeWorld<Protocol>::num_copies() const {
  return static_cast<std::size_t>(
      std::count_if(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(num_queued_),
                    [](const Work& work) { return work.kind != WorkKind::kStep; }));
}

/// The place of the first copy, or step, that has not run; num_queued_ where there is none.
template <class Protocol>
std::size_t LifetimeWorld<Protocol>::first_in_queue(bool is_copy) const {
  std::size_t index = num_run_;
  while (index < num_queued_ && (queue_[index].kind != WorkKind::kStep) != is_copy) {
    ++index;
  }
  return index;
}

template <class Protocol>
std::int32_t LifetimeWorld<Protocol>::num_flying() const {
  return static_cast<std::int32_t>(num_queued_ - num_copies());
}

template <class Protocol>
bool LifetimeWorld<Protocol>::has_lane_in_flight(std::int32_t row) const {
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    for (std::int32_t lane = 0; lane < work.num_lanes; ++lane) {
      if (work.kind == WorkKind::kStep && work.lanes[at(lane)].handle.row == row) {
        return true;
      }
    }
  }
  return false;
}

/// A copy is under way while a step in front of it is: behind that, the order of the stream has to do.
template <class Protocol>
bool LifetimeWorld<Protocol>::page_in_use(std::int32_t page) const {
  bool is_behind_a_step = false;
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    is_behind_a_step = is_behind_a_step || work.kind == WorkKind::kStep;
    for (std::int32_t lane = 0; lane < (is_behind_a_step ? work.num_lanes : 0); ++lane) {
      const Lane& held = work.lanes[at(lane)];
      for (std::int32_t place = 0; place < held.num_pages; ++place) {
        if (held.pages[at(place)].page == page) {
          return true;
        }
      }
    }
  }
  return false;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::host_page_in_use(std::int32_t page) const {
  bool is_behind_a_step = false;
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    if (work.kind == WorkKind::kStep) {
      is_behind_a_step = true;
      continue;
    }
    for (std::int32_t place = 0; place < (is_behind_a_step ? work.lanes[0].num_pages : 0);
         ++place) {
      if (work.host[at(place)].page == page) {
        return true;
      }
    }
  }
  return false;
}

/// Runs what stands at `index` of the queue, which is then the last that has run.
template <class Protocol>
void LifetimeWorld<Protocol>::run_at(std::size_t index) {
  const auto place = [this](std::size_t offset) {
    return queue_.begin() + static_cast<std::ptrdiff_t>(offset);
  };
  std::rotate(place(num_run_), place(index), place(index + 1));
  const Work& work = queue_[num_run_++];
  if (work.kind == WorkKind::kStep) {
    run_step(work);
  } else {
    run_copy(work);
  }
  run_ready_copies();
}

/// A copy touches nothing that the host does: where nothing may overtake it, when it runs behind the work in front makes no
/// difference, so it runs at once.
template <class Protocol>
void LifetimeWorld<Protocol>::run_ready_copies() {
  while (Protocol::kCopyOrder != CopyOrder::kMayBeOvertaken && num_run_ < num_queued_ &&
         queue_[num_run_].kind != WorkKind::kStep) {
    run_copy(queue_[num_run_++]);
  }
  drop_copies_in_front();
}

template <class Protocol>
void LifetimeWorld<Protocol>::run_step(const Work& step) {
  const Columns& columns = step.columns;
  if (columns.value != 0) {
    expect((columns.graph_slot >= 0 ? graph_slot_memory_[at(columns.graph_slot)]
                                    : slot_memory_[columns.slot]) == columns.value,
           "a step reads the columns of another step");
  }
  for (std::int32_t index = 0; index < step.num_lanes; ++index) {
    const Lane& lane = step.lanes[at(index)];
    for (std::int32_t place = 0; place < lane.num_pages; ++place) {
      const Held& held = lane.pages[at(place)];
      expect(held.value == 0 || page_memory_[at(held.page)] == held.value,
             "a step reads a page whose content is another's, or not there yet");
    }
    page_memory_[at(lane.pages[at(lane.num_pages - 1)].page)] = lane.writes;
    Value& state = row_memory_[at(lane.handle.row)];
    expect(lane.state_read == 0 || state == lane.state_read,
           "a step reads the state of another request's row");
    state = lane.state_written;
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::run_copy(const Work& copy) {
  for (std::int32_t place = 0; place < copy.lanes[0].num_pages; ++place) {
    const Held& device = copy.lanes[0].pages[at(place)];
    const Held& host = copy.host[at(place)];
    if (copy.kind == WorkKind::kCopyOut) {
      expect(device.value == 0 || page_memory_[at(device.page)] == device.value,
             "a copy out overtakes the write it copies, or reads a recycled page");
      host_memory_[at(host.page)] = page_memory_[at(device.page)];
    } else {
      expect(host.value == 0 || host_memory_[at(host.page)] == host.value,
             "a copy in overtakes the copy out, or reads a recycled host page");
      page_memory_[at(device.page)] = host_memory_[at(host.page)];
    }
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::pop_front() {
  std::move(queue_.begin() + 1, queue_.begin() + static_cast<std::ptrdiff_t>(num_queued_),
            queue_.begin());
  --num_queued_;
  --num_run_;
}

/// Nobody sees the end of a copy: one that has run in front of every step is over.
template <class Protocol>
void LifetimeWorld<Protocol>::drop_copies_in_front() {
  while (num_run_ > 0 && queue_[0].kind != WorkKind::kStep) {
    pop_front();
  }
}

}  // namespace rigel::testing
