#pragma once

// What can happen in a LifetimeWorld, on the host and on the device.

#include "tests/engine/lifetime_world.h"

namespace rigel::testing {

template <class Protocol>
bool LifetimeWorld<Protocol>::must_grow(const Request& request) const {
  return request.num_pages == 0 || request.pages[at(request.num_pages - 1)].shared;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::can_grow(const Request& request) const {
  return request.phase == Phase::kRunning && request.num_pages < kPerRow;
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
              (request.phase == Phase::kRunning && request.num_pages == kPerRow));
    case Kind::kLaunch:
      if (!steps_.can_launch() || action.lanes == 0 || (action.growing & ~action.lanes) != 0) {
        return false;
      }
      for (std::int32_t lane = 0; lane < kRows; ++lane) {
        const Request& runs = requests_[at(lane)];
        const bool grows = (action.growing >> lane & 1) != 0;
        if ((action.lanes >> lane & 1) != 0 &&
            (runs.phase != Phase::kRunning || (grows && !can_grow(runs)) ||
             (!grows && must_grow(runs)))) {
          return false;
        }
      }
      return true;
    case Kind::kReserve:
      return can_grow(request) && pages_.queue().num_free() > 0 && must_grow(request);
    case Kind::kRunStep:
      return num_run_ < num_flying_;
    case Kind::kComplete:
      return num_run_ > 0;
    case Kind::kFinish:
      return request.phase != Phase::kNone;
    case Kind::kPreempt:
      return request.phase == Phase::kRunning && request.num_pages > 0;
    case Kind::kOffload:
      return Protocol::kHasCopies && request.phase == Phase::kRunning && request.num_pages > 0 &&
             !must_grow(request) && num_copies_ < kMaxCopies &&
             host_pages_.queue().num_free() >= request.num_pages &&
             (!Protocol::kCopyOutWaits || !written_in_flight(request));
    case Kind::kReload:
      return request.phase == Phase::kOffloaded && num_copies_ < kMaxCopies &&
             pages_.queue().num_free() >= request.num_pages;
    case Kind::kRunCopy:
      return num_copies_run_ < num_copies_;
    case Kind::kCompleteCopy:
      return num_copies_run_ > 0;
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
      launch(action);
      break;
    case Kind::kReserve:
      grow(request);
      break;
    case Kind::kRunStep:
      run_step();
      break;
    case Kind::kComplete:
      complete();
      break;
    case Kind::kFinish:
      finish(request);
      break;
    case Kind::kPreempt:
      release_pages(request);
      request.num_pages = 0;
      break;
    case Kind::kOffload:
      begin_copy(request, /*to_host=*/true);
      break;
    case Kind::kReload:
      begin_copy(request, /*to_host=*/false);
      break;
    case Kind::kRunCopy:
      run_copy();
      break;
    case Kind::kCompleteCopy:
      complete_copy();
      break;
  }
  check_owners();
}

// ---- the host

template <class Protocol>
bool LifetimeWorld<Protocol>::has_lane_in_flight(std::int32_t row) const {
  for (std::size_t step = 0; step < num_flying_; ++step) {
    for (std::int32_t lane = 0; lane < flying_[step].num_lanes; ++lane) {
      if (flying_[step].lanes[at(lane)].handle.row == row) {
        return true;
      }
    }
  }
  return false;
}

/// Whether a step that the host has not seen complete writes a page of the request: its own step, or that of whom it shares with.
template <class Protocol>
bool LifetimeWorld<Protocol>::written_in_flight(const Request& request) const {
  for (std::size_t step = 0; step < num_flying_; ++step) {
    for (std::int32_t lane = 0; lane < flying_[step].num_lanes; ++lane) {
      const Lane& flying = flying_[step].lanes[at(lane)];
      for (std::int32_t index = 0; index < request.num_pages; ++index) {
        if (flying.pages[at(flying.num_pages - 1)].page == request.pages[at(index)].page) {
          return true;
        }
      }
    }
  }
  return false;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::page_in_use(std::int32_t page) const {
  const auto holds = [page](const HeldPages& pages, std::int32_t count) {
    for (std::int32_t index = 0; index < count; ++index) {
      if (pages[at(index)].page == page) {
        return true;
      }
    }
    return false;
  };
  for (std::size_t step = 0; step < num_flying_; ++step) {
    for (std::int32_t lane = 0; lane < flying_[step].num_lanes; ++lane) {
      const Lane& flying = flying_[step].lanes[at(lane)];
      if (holds(flying.pages, flying.num_pages)) {
        return true;
      }
    }
  }
  for (std::size_t copy = 0; copy < num_copies_; ++copy) {
    if (holds(copies_[copy].pages, copies_[copy].num_pages)) {
      return true;
    }
  }
  return false;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::host_page_in_use(std::int32_t page) const {
  for (std::size_t copy = 0; copy < num_copies_; ++copy) {
    for (std::int32_t index = 0; index < copies_[copy].num_pages; ++index) {
      if (copies_[copy].host[at(index)].page == page) {
        return true;
      }
    }
  }
  return false;
}

template <class Protocol>
std::int32_t LifetimeWorld<Protocol>::take_page() {
  const std::optional<std::int32_t> page = pages_.acquire();
  if (!page) {
    return -1;
  }
  expect(!Protocol::kReuseIsChecked || !page_in_use(*page),
         "a page has a new owner while work that nobody has seen end uses it");
  return *page;
}

template <class Protocol>
std::int32_t LifetimeWorld<Protocol>::take_host_page() {
  const std::optional<std::int32_t> page = host_pages_.acquire();
  if (!page) {
    return -1;
  }
  expect(!Protocol::kReuseIsChecked || !host_page_in_use(*page),
         "a host page has a new owner while a copy uses it");
  return *page;
}

template <class Protocol>
bool LifetimeWorld<Protocol>::grow(Request& request) {
  const std::int32_t page = take_page();
  if (page < 0) {
    return false;
  }
  request.pages[at(request.num_pages++)] = {page, 0, false};
  return true;
}

template <class Protocol>
void LifetimeWorld<Protocol>::release_pages(Request& request) {
  for (std::int32_t index = 0; index < request.num_pages; ++index) {
    pages_.release(request.pages[at(index)].page, steps_.last_touch(request.handle.row));
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::release_host_pages(Request& request) {
  for (std::int32_t index = 0; index < request.num_pages; ++index) {
    host_pages_.release(request.host[at(index)].page, 0);
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
  request.phase = Phase::kRunning;
  request.id = ++last_request_;
  request.handle = handle;
  if (action.lanes != 0) {
    request.pages[0] = requests_[at(row_of(action))].pages[0];
    request.pages[0].shared = true;
    request.num_pages = 1;
    pages_.retain(request.pages[0].page);
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::launch(const Action& action) {
  for (std::int32_t row = 0; row < kRows; ++row) {
    // A refusal leaves what was reserved with its request.
    if ((action.growing >> row & 1) != 0 && !grow(requests_[at(row)])) {
      return;
    }
  }
  Step& step = flying_[num_flying_];
  step = {};
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
  step.slot_index = steps_.slot_of(epoch);
  step.slot = ++last_value_;
  slot_memory_[step.slot_index] =
      step.slot;  // the host writes it at once, whatever the device does
  ++num_flying_;
}

template <class Protocol>
void LifetimeWorld<Protocol>::complete() {
  const Epoch completed = steps_.complete();
  for (std::int32_t lane = 0; lane < flying_[0].num_lanes; ++lane) {
    const Lane& done = flying_[0].lanes[at(lane)];
    const Request& owner = requests_[at(done.handle.row)];
    const bool still_runs = owner.phase != Phase::kNone && owner.id == done.request;
    expect(rows_.is_open(done.handle) == still_runs, "a token reaches another request");
  }
  for (std::size_t step = 1; step < num_flying_; ++step) {
    flying_[step - 1] = flying_[step];
  }
  --num_flying_;
  --num_run_;
  pages_.collect(completed);
  host_pages_.collect(completed);
  rows_.collect(completed);
}

template <class Protocol>
void LifetimeWorld<Protocol>::finish(Request& request) {
  if (request.phase != Phase::kOffloaded) {
    release_pages(request);
  }
  if (request.phase != Phase::kRunning) {
    release_host_pages(request);
  }
  rows_.close(request.handle, steps_.last_touch(request.handle.row));
  request = {};
}

template <class Protocol>
void LifetimeWorld<Protocol>::begin_copy(Request& request, bool to_host) {
  for (std::int32_t index = 0; index < request.num_pages; ++index) {
    Held& device = request.pages[at(index)];
    Held& host = request.host[at(index)];
    if (to_host) {
      host = {take_host_page(), device.value, false};
    } else {
      device = {take_page(), host.value, false};
    }
    if (Protocol::kCopyOwns) {
      pages_.retain(device.page);
      host_pages_.retain(host.page);
    }
  }
  copies_[num_copies_++] = {to_host,           request.id,    request.handle.row,
                            request.num_pages, request.pages, request.host};
  request.phase = to_host ? Phase::kCopyingOut : Phase::kCopyingIn;
  if (!Protocol::kCopyEndIsSeen) {
    end_copy_of(request, to_host);
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::complete_copy() {
  const Copy copy = copies_[0];
  copies_[0] = copies_[1];
  --num_copies_;
  --num_copies_run_;
  if (Protocol::kCopyOwns) {
    for (std::int32_t index = 0; index < copy.num_pages; ++index) {
      pages_.release(copy.pages[at(index)].page, 0);
      host_pages_.release(copy.host[at(index)].page, 0);
    }
  }
  Request& request = requests_[at(copy.row)];
  const Phase copying = copy.to_host ? Phase::kCopyingOut : Phase::kCopyingIn;
  if (request.id == copy.request && request.phase == copying) {
    end_copy_of(request, copy.to_host);
  }
}

template <class Protocol>
void LifetimeWorld<Protocol>::end_copy_of(Request& request, bool to_host) {
  if (to_host) {
    release_pages(request);
  } else {
    release_host_pages(request);
  }
  request.phase = to_host ? Phase::kOffloaded : Phase::kRunning;
}

template <class Protocol>
void LifetimeWorld<Protocol>::check_owners() {
  std::array<std::int32_t, static_cast<std::size_t>(kPages)> owners{};
  std::array<std::int32_t, static_cast<std::size_t>(kHostPages)> host_owners{};
  const auto count = [](auto& counts, const HeldPages& pages, std::int32_t num_pages) {
    for (std::int32_t index = 0; index < num_pages; ++index) {
      ++counts[at(pages[at(index)].page)];
    }
  };
  for (const Request& request : requests_) {
    const bool on_device = request.phase == Phase::kRunning ||
                           request.phase == Phase::kCopyingOut ||
                           request.phase == Phase::kCopyingIn;
    const bool on_host = request.phase != Phase::kRunning && request.phase != Phase::kNone;
    count(owners, request.pages, on_device ? request.num_pages : 0);
    count(host_owners, request.host, on_host ? request.num_pages : 0);
  }
  for (std::size_t copy = 0; copy < (Protocol::kCopyOwns ? num_copies_ : 0); ++copy) {
    count(owners, copies_[copy].pages, copies_[copy].num_pages);
    count(host_owners, copies_[copy].host, copies_[copy].num_pages);
  }
  std::int32_t num_owned = 0;
  for (std::int32_t page = 0; page < kPages; ++page) {
    expect(pages_.num_owners(page) == owners[at(page)], "a page's owners are miscounted");
    num_owned += owners[at(page)] > 0 ? 1 : 0;
  }
  for (std::int32_t page = 0; page < kHostPages; ++page) {
    expect(host_pages_.num_owners(page) == host_owners[at(page)],
           "a host page's owners are miscounted");
  }
  expect(num_owned + pages_.queue().num_free() + pages_.queue().num_retiring() == kPages,
         "a page is lost");
}

template <class Protocol>
void LifetimeWorld<Protocol>::drain() {
  for (Request& request : requests_) {
    if (request.phase != Phase::kNone) {
      finish(request);
    }
  }
  while (num_flying_ > 0 || num_copies_ > 0) {
    if (num_run_ < num_flying_) {
      run_step();
    }
    if (num_copies_run_ < num_copies_) {
      run_copy();
    }
    if (num_run_ > 0) {
      complete();
    }
    if (num_copies_run_ > 0) {
      complete_copy();
    }
  }
  check_owners();
  expect(pages_.queue().num_free() == kPages, "not every page came back");
  expect(host_pages_.queue().num_free() == kHostPages, "not every host page came back");
  expect(rows_.queue().num_free() == kRows, "not every row came back");
}

// ---- the device

template <class Protocol>
void LifetimeWorld<Protocol>::run_step() {
  const Step& step = flying_[num_run_++];
  expect(slot_memory_[step.slot_index] == step.slot, "a step reads the columns of another step");
  for (std::int32_t index = 0; index < step.num_lanes; ++index) {
    const Lane& lane = step.lanes[at(index)];
    for (std::int32_t held = 0; held < lane.num_pages; ++held) {
      const Held& page = lane.pages[at(held)];
      expect(page.value == 0 || page_memory_[at(page.page)] == page.value,
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
void LifetimeWorld<Protocol>::run_copy() {
  const Copy& copy = copies_[num_copies_run_++];
  for (std::int32_t index = 0; index < copy.num_pages; ++index) {
    const Held& device = copy.pages[at(index)];
    const Held& host = copy.host[at(index)];
    if (copy.to_host) {
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

}  // namespace rigel::testing
