#pragma once

// Who may use a row, a page or a slot, and from when on another may: the one protocol of the scheduler, the caches and the
// engine, as plain state and transitions that neither allocate nor wait.
//
// The device runs behind the host, so an owner that lets go is not the last to touch what it owned: steps in flight still
// read and write it. Three rules follow.
//
// 1. Every launched step has a number, its epoch, and touches the rows of its lanes, their pages and its own slots, nothing
//    else. `Steps` knows the last step that touched each row. A launch that fails once it has a number leaves a step like any
//    other, whatever of it was enqueued.
// 2. What is let go returns with the last epoch that may touch it, and has no new owner before the host has seen that step
//    complete. This holds even where the order of one stream would do, because not everything is on that stream: a copy to
//    or from the host, the network, and the host itself when it writes a slot or reads a result.
// 3. A copy to or from the host runs on the steps' stream and has no number; it counts as work of the step launched last in
//    front of it. Thanks to rule 2 it needs nothing of the steps in front but that number: of its request none is in flight,
//    and the pages that it gets were waited for. What is behind it stays behind, because nobody sees its end: that is what
//    the stream is for. `Residency`, in engine/lifetime_residency.h, has the epochs.
//
// The explorer in tests/engine/lifetime_explorer.h tries every order of events on this same code, with the graphs' double
// buffers (graphs/slot_ring.h).

#include "engine/contract/ids.h"
#include "tensor/error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace rigel::lifetime {

/// The size is known when the object is made; other sizes give plain arrays, whose states can be copied and compared.
inline constexpr std::size_t kDynamic = std::dynamic_extent;

template <class T, std::size_t kSize>
using Column = std::conditional_t<kSize == kDynamic, std::vector<T>, std::array<T, kSize>>;

/// A column of `size` values; a vector gets its memory here and never again.
template <class T, std::size_t kSize>
Column<T, kSize> make_column(std::int32_t size) {
  RIGEL_CHECK(size >= 1, "a column has at least one element, got {}", size);
  if constexpr (kSize == kDynamic) {
    return Column<T, kSize>(static_cast<std::size_t>(size));
  } else {
    RIGEL_CHECK(static_cast<std::size_t>(size) == kSize, "a column of {} elements, got {}", kSize,
                size);
    return {};
  }
}

/// Indices without an owner. First in, first out; none is handed out before the last step that may touch it has completed. A
/// free one behind one that still waits waits too: at most until the steps that are in flight now have completed.
template <std::size_t kSize = kDynamic>
class RecycleQueue {
 public:
  /// All indices of 0..size-1, free.
  explicit RecycleQueue(std::int32_t size)
      : order_(make_column<std::int32_t, kSize>(size)),
        last_touch_(make_column<Epoch, kSize>(size)),
        num_free_(size) {
    for (std::int32_t index = 0; index < size; ++index) {
      order_[static_cast<std::size_t>(index)] = index;
    }
  }

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(order_.size()); }
  /// Indices that can be taken now.
  [[nodiscard]] std::int32_t num_free() const { return num_free_; }
  /// Indices that can be taken once the steps in flight have completed.
  [[nodiscard]] std::int32_t num_retiring() const { return num_retiring_; }

  /// The index that has been free longest, if any is.
  [[nodiscard]] std::optional<std::int32_t> take() {
    if (num_free_ == 0) {
      return std::nullopt;
    }
    const std::int32_t index = at(0);
    head_ = (head_ + 1) % size();
    --num_free_;
    return index;
  }
  /// `index`, which was taken, is let go; steps after `last_touch` do not touch it.
  void put(std::int32_t index, Epoch last_touch) {
    last_touch_[static_cast<std::size_t>(index)] = last_touch;
    order_[place(num_free_ + num_retiring_)] = index;
    ++num_retiring_;
    ripen();
  }
  /// Every step up to `completed` has been seen complete.
  void collect(Epoch completed) {
    completed_ = std::max(completed_, completed);
    ripen();
  }

  /// The index that will be handed out after `position` others: the first num_free() are free, num_retiring() more wait.
  [[nodiscard]] std::int32_t at(std::int32_t position) const { return order_[place(position)]; }
  /// The last step that may touch an index in the queue.
  [[nodiscard]] Epoch last_touch(std::int32_t index) const {
    return last_touch_[static_cast<std::size_t>(index)];
  }

 private:
  [[nodiscard]] std::size_t place(std::int32_t position) const {
    return static_cast<std::size_t>((head_ + position) % size());
  }
  void ripen() {
    while (num_retiring_ > 0 && last_touch(at(num_free_)) <= completed_) {
      ++num_free_;
      --num_retiring_;
    }
  }

  Column<std::int32_t, kSize> order_;  // a ring: free from head_ on, then retiring
  Column<Epoch, kSize> last_touch_;    // by index
  std::int32_t head_ = 0;
  std::int32_t num_free_;
  std::int32_t num_retiring_ = 0;
  Epoch completed_ = 0;
};

/// Pages and how many own each: several requests that share a prefix, an index of prefixes.
template <std::size_t kSize = kDynamic>
class Pages {
 public:
  explicit Pages(std::int32_t num_pages)
      : queue_(num_pages),
        owners_(make_column<std::int32_t, kSize>(num_pages)),
        last_touch_(make_column<Epoch, kSize>(num_pages)) {}

  /// A page with one owner; none where no page is free.
  [[nodiscard]] std::optional<std::int32_t> acquire() {
    const std::optional<std::int32_t> page = queue_.take();
    if (page) {
      owners_[static_cast<std::size_t>(*page)] = 1;
      last_touch_[static_cast<std::size_t>(*page)] = 0;
    }
    return page;
  }
  /// One more owner of a page that has an owner.
  void retain(std::int32_t page) {
    RIGEL_CHECK(num_owners(page) > 0, "page {} has no owner to share it with", page);
    ++owners_[static_cast<std::size_t>(page)];
  }
  /// One owner less, whose steps touch the page no more after `last_touch`. The page retires with its last owner, and until
  /// the latest step of any of them.
  void release(std::int32_t page, Epoch last_touch) {
    RIGEL_CHECK(num_owners(page) > 0, "page {} has no owner to release it", page);
    Epoch& latest = last_touch_[static_cast<std::size_t>(page)];
    latest = std::max(latest, last_touch);
    if (--owners_[static_cast<std::size_t>(page)] == 0) {
      queue_.put(page, latest);
    }
  }
  /// Every step up to `completed` has been seen complete.
  void collect(Epoch completed) { queue_.collect(completed); }

  [[nodiscard]] std::int32_t num_owners(std::int32_t page) const {
    RIGEL_CHECK(page >= 0 && page < queue_.size(), "no page {} among {}", page, queue_.size());
    return owners_[static_cast<std::size_t>(page)];
  }
  /// The last step of the owners that have let go of a page already.
  [[nodiscard]] Epoch last_touch(std::int32_t page) const {
    return last_touch_[static_cast<std::size_t>(page)];
  }
  [[nodiscard]] const RecycleQueue<kSize>& queue() const { return queue_; }

 private:
  RecycleQueue<kSize> queue_;
  Column<std::int32_t, kSize> owners_;
  Column<Epoch, kSize> last_touch_;  // of owners that have let go
};

/// The rows of requests. A row's generation grows with each owner, so that what still names an earlier one is known.
template <std::size_t kSize = kDynamic>
class Rows {
 public:
  explicit Rows(std::int32_t num_rows)
      : queue_(num_rows), rows_(make_column<Row, kSize>(num_rows)) {}

  /// A row for a new request; none where no row is free.
  [[nodiscard]] std::optional<RequestHandle> open() {
    const std::optional<std::int32_t> index = queue_.take();
    if (!index) {
      return std::nullopt;
    }
    Row& row = rows_[static_cast<std::size_t>(*index)];
    row.is_open = true;
    return RequestHandle{*index, ++row.generation};
  }
  /// The request has ended; steps after `last_touch` have no lane of it.
  void close(RequestHandle handle, Epoch last_touch) {
    RIGEL_CHECK(is_open(handle), "row {} is not this request's to close", handle.row);
    rows_[static_cast<std::size_t>(handle.row)].is_open = false;
    queue_.put(handle.row, last_touch);
  }
  /// Every step up to `completed` has been seen complete.
  void collect(Epoch completed) { queue_.collect(completed); }

  /// False for padding, for a request that has ended, and for an earlier owner of the row.
  [[nodiscard]] bool is_open(RequestHandle handle) const {
    if (handle.row < 0 || handle.row >= queue_.size()) {
      return false;
    }
    const Row& row = rows_[static_cast<std::size_t>(handle.row)];
    return row.is_open && row.generation == handle.generation;
  }
  [[nodiscard]] const RecycleQueue<kSize>& queue() const { return queue_; }

 private:
  struct Row {
    std::uint32_t generation = 0;
    bool is_open = false;
  };

  RecycleQueue<kSize> queue_;
  Column<Row, kSize> rows_;
};

/// The numbers of the steps and which step touched each row last. Steps complete in the order in which they were launched.
template <std::size_t kRows = kDynamic>
class Steps {
 public:
  explicit Steps(std::uint64_t max_in_flight) : max_in_flight_(max_in_flight) {}

  [[nodiscard]] Epoch last_launched() const { return last_launched_; }
  [[nodiscard]] Epoch last_completed() const { return last_completed_; }
  [[nodiscard]] std::uint64_t num_in_flight() const { return last_launched_ - last_completed_; }
  [[nodiscard]] bool can_launch() const { return num_in_flight() < max_in_flight_; }

  /// A row may have lanes from now on. Dynamic: makes room for it.
  void open_row(std::int32_t row) {
    if constexpr (kRows == kDynamic) {
      last_touch_.resize(std::max(last_touch_.size(), static_cast<std::size_t>(row) + 1));
    }
  }
  /// The next step, with these lanes. A launch that fails after this leaves a step that completes like any other.
  Epoch launch(std::span<const RequestHandle> lanes) {
    RIGEL_CHECK(can_launch(), "{} steps are in flight already", num_in_flight());
    ++last_launched_;
    for (const RequestHandle lane : lanes) {
      if (!lane.is_padding()) {
        RIGEL_CHECK(static_cast<std::size_t>(lane.row) < last_touch_.size(),
                    "row {} was not opened", lane.row);
        last_touch_[static_cast<std::size_t>(lane.row)] = last_launched_;
      }
    }
    return last_launched_;
  }
  /// The oldest step in flight has been seen complete.
  Epoch complete() {
    RIGEL_CHECK(num_in_flight() > 0, "no step is in flight");
    return ++last_completed_;
  }

  /// The last step that has a lane of this row; 0: none.
  [[nodiscard]] Epoch last_touch(std::int32_t row) const {
    return last_touch_[static_cast<std::size_t>(row)];
  }
  /// Which of `max_in_flight` buffers step `epoch` uses: the step that used it before has completed when the next is launched.
  [[nodiscard]] std::size_t slot_of(Epoch epoch) const {
    return static_cast<std::size_t>(epoch % max_in_flight_);
  }

 private:
  std::uint64_t max_in_flight_;
  Epoch last_launched_ = 0;
  Epoch last_completed_ = 0;
  Column<Epoch, kRows> last_touch_{};  // by row
};

}  // namespace rigel::lifetime
