#pragma once

// What can happen on the host of a LifetimeWorld.

#include "tests/engine/lifetime_world.h"

namespace rigel::testing {

template <class Protocol>
bool LifetimeWorld<Protocol>::must_grow(const Request& request) const {
  return request.num_pages == 0 || request.pages[at(request.num_pages - 1)].shared;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::can_grow(const Request& request) const {
  return request.is_open && !request.residency.is_on_host() && request.num_pages < kPerRow;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::can_launch(const Action& action) const {
  if (!steps_.can_launch() || action.lanes == 0 || (action.growing & ~action.lanes) != 0 ||
      (action.replays && !Protocol::kHasGraphs)) {
    return false;
  }
  for (std::int32_t lane = 0; lane < kRows; ++lane) {
    const Request& runs = requests_[at(lane)];
    const bool grows = (action.growing >> lane & 1) != 0;
    if ((action.lanes >> lane & 1) != 0 &&
        (!runs.is_open || runs.residency.is_on_host() || (grows && !can_grow(runs)) ||
         (!grows && must_grow(runs)))) {
      return false;
    }
  }
  return true;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::enabled(const Action& action) const {
  const std::int32_t row = row_of(action);
  const Request& request = requests_[at(row < kRows ? row : 0)];
  switch (action.kind) {
    case Kind::kAdmit:
      // A whole first page is never written again, so another request may share it.
      return rows_.queue().num_free() > 0 &&
             (action.lanes == 0 ||
              (request.is_open && !request.residency.is_on_host() && request.num_pages == kPerRow));
    case Kind::kLaunch:
    case Kind::kFail:
      return can_launch(action);
    case Kind::kRefuse:
      return steps_.can_launch();
    case Kind::kReserve:
      return can_grow(request) && pages_.queue().num_free() > 0 && must_grow(request);
    case Kind::kRun:
      return num_run_ < num_queued_;
    case Kind::kRunCopy:
      return Protocol::kCopyOrder == CopyOrder::kMayOvertake && num_run_ < num_queued_ &&
             queue_[num_run_].kind == WorkKind::kStep && first_in_queue(true) < num_queued_;
    case Kind::kRunOther:
      return Protocol::kCopyOrder == CopyOrder::kMayBeOvertaken && num_run_ < num_queued_ &&
             queue_[num_run_].kind != WorkKind::kStep && first_in_queue(false) < num_queued_;
    case Kind::kComplete:
      // Copies in front of every step are gone once they have run: the first that has run is a step.
      return num_run_ > 0;
    case Kind::kFinish:
      return request.is_open;
    case Kind::kPreempt:
      return request.is_open && request.num_pages > 0;
    case Kind::kOffload:
      // Only what a step of its own has stored, or stands behind: a shared page may be written still before that has run.
      return Protocol::kHasCopies && request.is_open && request.num_pages > 0 &&
             request.state != 0 && request.pages[at(request.num_pages - 1)].value != 0 &&
             num_copies() < kMaxCopies && host_pages_.queue().num_free() >= request.num_pages &&
             request.residency.can_leave(steps_.last_completed());
    case Kind::kReload:
      return request.is_open && request.residency.is_on_host() && num_copies() < kMaxCopies &&
             pages_.queue().num_free() >= request.num_pages;
  }
  return false;
}

template <class Protocol>
void LifetimeWorld<Protocol>::apply(const Action& action) {
  const std::int32_t row = row_of(action);
  Request& request = requests_[at(row < kRows ? row : 0)];
  switch (action.kind) {
    case Kind::kAdmit:
      admit(action);
      break;
    case Kind::kLaunch:
    case Kind::kFail:
      launch(action);
      break;
    case Kind::kRefuse:
      std::ignore = write_columns(/*replays=*/false);
      if (Protocol::kHasGraphs) {
        ring_.give_back(write_columns(/*replays=*/true).graph_slot, /*used=*/false);
      }
      break;
    case Kind::kReserve:
      grow(request);
      break;
    case Kind::kRun:
      run_at(num_run_);
      break;
    case Kind::kRunCopy:
      run_at(first_in_queue(/*is_copy=*/true));
      break;
    case Kind::kRunOther:
      run_at(first_in_queue(/*is_copy=*/false));
      break;
    case Kind::kComplete:
      complete();
      break;
    case Kind::kFinish:
      finish(request);
      break;
    case Kind::kPreempt: {
      const bool was_on_host = request.residency.is_on_host();
      release_pages(request, was_on_host, request.residency.empty(steps_.last_touch(row)));
      request.num_pages = 0;
      break;
    }
    case Kind::kOffload:
    case Kind::kReload:
      move(request);
      break;
  }
  check_owners();
}

template <class Protocol>
std::int16_t LifetimeWorld<Protocol>::take_page() {
  const std::optional<std::int32_t> page = pages_.acquire();
  if (!page) {
    return -1;
  }
  expect(!Protocol::kReuseIsChecked || !page_in_use(*page),
         "a page has a new owner while work that nobody has seen end uses it");
  return static_cast<std::int16_t>(*page);
}

template <class Protocol>
std::int16_t LifetimeWorld<Protocol>::take_host_page() {
  const std::optional<std::int32_t> page = host_pages_.acquire();
  if (!page) {
    return -1;
  }
  expect(!Protocol::kReuseIsChecked || !host_page_in_use(*page),
         "a host page has a new owner while a copy uses it");
  return static_cast<std::int16_t>(*page);
}

template <class Protocol>
bool LifetimeWorld<Protocol>::grow(Request& request) {
  const std::int16_t page = take_page();
  if (page < 0) {
    return false;
  }
  request.pages[at(request.num_pages++)] = {page, false, 0};
  return true;
}

template <class Protocol>
void LifetimeWorld<Protocol>::release_pages(Request& request, bool on_host, Epoch last_use) {
  for (std::int32_t index = 0; index < request.num_pages; ++index) {
    const std::int32_t page = request.pages[at(index)].page;
    if (on_host) {
      host_pages_.release(page, last_use);
    } else {
      pages_.release(page, last_use);
    }
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::admit(const Action& action) {
  const RequestHandle handle = *rows_.open();
  steps_.open_row(handle.row);
  expect(!Protocol::kReuseIsChecked || !has_lane_in_flight(handle.row),
         "a row has a new request while a step may write it");
  Request& request = requests_[at(handle.row)];
  request = {};
  request.is_open = true;
  request.id = ++last_request_;
  request.handle = handle;
  if (action.lanes != 0) {
    request.pages[0] = requests_[at(row_of(action))].pages[0];
    request.pages[0].shared = true;
    request.num_pages = 1;
    pages_.retain(request.pages[0].page);
  }
}

/// The host writes the columns of the next step at once, whatever the device does.
template <class Protocol>
typename LifetimeWorld<Protocol>::Columns LifetimeWorld<Protocol>::write_columns(bool replays) {
  Columns columns;
  columns.value = ++last_value_;
  columns.slot = steps_.slot_of(steps_.last_launched() + 1);
  columns.graph_slot = replays ? ring_.take() : -1;
  for (std::size_t index = 0; index < num_queued_; ++index) {
    const Work& work = queue_[index];
    const bool reads = work.kind == WorkKind::kStep && work.columns.value != 0 &&
                       work.columns.graph_slot == columns.graph_slot &&
                       (replays || work.columns.slot == columns.slot);
    expect(!Protocol::kReuseIsChecked || !reads,
           "a slot is written while a step that reads it is in flight");
  }
  (replays ? graph_slot_memory_[at(columns.graph_slot)] : slot_memory_[columns.slot]) =
      columns.value;
  return columns;
}

template <class Protocol>
void LifetimeWorld<Protocol>::launch(const Action& action) {
  for (std::int32_t row = 0; row < kRows; ++row) {
    // A refusal leaves what was reserved with its request.
    if ((action.growing >> row & 1) != 0 && !grow(requests_[at(row)])) {
      return;
    }
  }
  const bool fails = action.kind == Kind::kFail;
  Work step;
  step.columns = write_columns(action.replays);
  std::array<RequestHandle, static_cast<std::size_t>(kRows)> handles;
  for (std::int32_t row = 0; row < kRows; ++row) {
    if ((action.lanes >> row & 1) == 0) {
      continue;
    }
    Request& request = requests_[at(row)];
    handles[at(step.num_lanes)] = request.handle;
    Lane& lane = step.lanes[at(step.num_lanes++)];
    lane = {request.id,    request.handle, request.num_pages, request.pages,
            ++last_value_, request.state,  ++last_value_};
    request.pages[at(request.num_pages - 1)].value = lane.writes;
    request.state = lane.state_written;
  }
  const Epoch epoch = steps_.launch(std::span(handles).first(at(step.num_lanes)));
  if (step.columns.graph_slot >= 0) {
    // What failed was the replay: nothing of the graph runs.
    ring_.give_back(step.columns.graph_slot, /*used=*/!fails);
    step.columns.value = fails ? 0 : step.columns.value;
  }
  queue_[num_queued_++] = step;
  for (std::int32_t row = 0; row < kRows; ++row) {
    if ((action.lanes >> row & 1) == 0) {
      continue;
    }
    if (fails) {
      finish(requests_[at(row)]);
    } else {
      requests_[at(row)].residency.note_step(epoch);
    }
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::complete() {
  const Epoch completed = steps_.complete();
  for (std::int32_t lane = 0; lane < queue_[0].num_lanes; ++lane) {
    const Lane& done = queue_[0].lanes[at(lane)];
    const Request& owner = requests_[at(done.handle.row)];
    expect(rows_.is_open(done.handle) == (owner.is_open && owner.id == done.request),
           "a token reaches another request");
  }
  pop_front();
  drop_copies_in_front();
  pages_.collect(completed);
  host_pages_.collect(completed);
  rows_.collect(completed);
}

template <class Protocol>
void LifetimeWorld<Protocol>::finish(Request& request) {
  const Epoch last_touch = steps_.last_touch(request.handle.row);
  const bool was_on_host = request.residency.is_on_host();
  release_pages(request, was_on_host, request.residency.empty(last_touch));
  rows_.close(request.handle, last_touch);
  request = {};
}

/// The request goes to the other side; the copy stands behind every step that was launched.
template <class Protocol>
void LifetimeWorld<Protocol>::move(Request& request) {
  const bool to_host = !request.residency.is_on_host();
  expect(!Protocol::kReuseIsChecked || !has_lane_in_flight(request.handle.row),
         "a request is copied while a step of it is in flight");
  const HeldPages from = request.pages;
  HeldPages into;
  for (std::int32_t index = 0; index < request.num_pages; ++index) {
    into[at(index)] = {to_host ? take_host_page() : take_page(), false, from[at(index)].value};
  }
  Work& copy = queue_[num_queued_++];
  copy = {};
  copy.kind = to_host ? WorkKind::kCopyOut : WorkKind::kCopyIn;
  copy.num_lanes = 1;
  copy.lanes[0].num_pages = request.num_pages;
  copy.lanes[0].pages = to_host ? from : into;
  copy.host = to_host ? into : from;
  const Epoch last_use = to_host ? request.residency.leave(steps_.last_launched())
                                 : request.residency.come_back(steps_.last_launched());
  release_pages(request, to_host ? false : true, last_use);
  request.pages = into;
  run_ready_copies();
}

template <class Protocol>
void LifetimeWorld<Protocol>::check_owners() {
  std::array<std::int32_t, static_cast<std::size_t>(kPages)> owners{};
  std::array<std::int32_t, static_cast<std::size_t>(kHostPages)> host_owners{};
  for (const Request& request : requests_) {
    for (std::int32_t index = 0; index < request.num_pages; ++index) {
      const auto page = static_cast<std::size_t>(request.pages[at(index)].page);
      ++(request.residency.is_on_host() ? host_owners[page] : owners[page]);
    }
  }
  const auto check = [this](const auto& pages, std::span<const std::int32_t> counted) {
    std::int32_t num_owned = 0;
    for (std::int32_t page = 0; page < pages.queue().size(); ++page) {
      expect(pages.num_owners(page) == counted[at(page)], "a page's owners are miscounted");
      num_owned += counted[at(page)] > 0 ? 1 : 0;
    }
    expect(
        num_owned + pages.queue().num_free() + pages.queue().num_retiring() == pages.queue().size(),
        "a page is lost");
  };
  check(pages_, owners);
  check(host_pages_, host_owners);
}

template <class Protocol>
void LifetimeWorld<Protocol>::drain() {
  for (Request& request : requests_) {
    if (request.is_open) {
      finish(request);
    }
  }
  while (num_queued_ > 0) {
    if (num_run_ < num_queued_) {
      run_at(num_run_);
    }
    if (num_run_ > 0) {
      complete();
    }
  }
  check_owners();
  expect(pages_.queue().num_free() == kPages, "not every page came back");
  expect(host_pages_.queue().num_free() == kHostPages, "not every host page came back");
  expect(rows_.queue().num_free() == kRows, "not every row came back");
}

}  // namespace rigel::testing
