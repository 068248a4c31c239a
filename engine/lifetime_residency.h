#pragma once

// Where the pages of one request are, on the device or on the host, and from when on others may have what it lets go.

#include "engine/contract/ids.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel::lifetime {

/// One request's place on the device or on the host. A copy between them runs on the steps' stream, has no number of its own
/// and an end that nobody sees; it counts as work of the step launched last in front of it. The caller enqueues the copy,
/// then says so here, and releases what the copy read with the epoch it gets. Thread: worker.
class Residency {
 public:
  [[nodiscard]] bool is_on_host() const { return is_on_host_; }
  /// Step `epoch`, which was launched, has a lane of the request.
  void note_step(Epoch epoch) { last_step_ = epoch; }
  /// Whether a copy to the host may be enqueued: the pages are on the device, and of the request's steps, which write them,
  /// all up to `completed`, seen complete, was the last.
  [[nodiscard]] bool can_leave(Epoch completed) const {
    return !is_on_host_ && last_step_ <= completed;
  }
  /// A copy to the host was enqueued behind step `last_launched`. Gives the epoch to release its pages on the device with.
  [[nodiscard]] Epoch leave(Epoch last_launched) {
    RIGEL_CHECK(!is_on_host_, "the pages of a copy behind step {} are on the host already",
                last_launched);
    is_on_host_ = true;
    return note_copy(last_launched);
  }
  /// A copy from the host was enqueued behind step `last_launched`. Gives the epoch to release its pages on the host with.
  [[nodiscard]] Epoch come_back(Epoch last_launched) {
    RIGEL_CHECK(is_on_host_, "the pages of a copy behind step {} are on the device already",
                last_launched);
    is_on_host_ = false;
    return note_copy(last_launched);
  }
  /// The epoch to release any of its pages with, where no step after `last_touch` has a lane of the request.
  [[nodiscard]] Epoch last_use(Epoch last_touch) const { return std::max(last_touch, last_copy_); }
  /// All its pages, wherever they are, are let go, and the request begins anew on the device. Gives the epoch to release them
  /// with, as last_use.
  [[nodiscard]] Epoch empty(Epoch last_touch) {
    is_on_host_ = false;
    return last_use(last_touch);
  }

 private:
  Epoch note_copy(Epoch last_launched) {
    last_copy_ = std::max(last_copy_, last_launched);
    return last_copy_;
  }

  Epoch last_step_ = 0;
  Epoch last_copy_ = 0;  // the step in front of the last copy
  bool is_on_host_ = false;
};

}  // namespace rigel::lifetime
