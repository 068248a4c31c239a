#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/input_metadata.h"
#include "engine/contract/request_info.h"
#include "engine/contract/request_outputs.h"
#include "engine/contract/signals.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rigel {

/// The inputs, by request, of a step that is built before the step in flight has produced them. A row with no inputs of its
/// own reads as the template: every signal without tensors, for the node to take from the device. All such rows share one
/// row; only what the caller assigns or edits is kept apart.
///
/// A template row that sees no tensor for a signal is right only where that signal is one of the node's
/// device_loopback_signals.
///
/// Thread: worker, one owner at a time; reads through const change nothing. Cost: each call but materialize is independent
/// of the number of rows (reset is one pass over its columns), and none uses the heap once warm.
class DeferredRowInputs {
 public:
  /// One row, looked up again at each access, so that it shows later signals and assignments. Not valid once the row is erased.
  class RowView {
   public:
    [[nodiscard]] const TensorList* find(SignalId signal) const { return row().find(signal); }
    [[nodiscard]] std::size_t size() const { return row().size(); }
    [[nodiscard]] auto begin() const { return row().begin(); }
    [[nodiscard]] auto end() const { return row().end(); }
    [[nodiscard]] const SignalMap& row() const { return rows_->resolve(handle_); }

   private:
    friend class DeferredRowInputs;
    RowView(const DeferredRowInputs& rows, RequestHandle handle) : rows_(&rows), handle_(handle) {}

    const DeferredRowInputs* rows_;
    RequestHandle handle_;
  };

  DeferredRowInputs() = default;
  explicit DeferredRowInputs(std::span<const RequestHandle> handles,
                             std::span<const SignalId> signals = {}) {
    reset(handles, signals);
  }

  /// Starts over, with the memory of before. A handle or signal that comes twice is an error, as is a padding handle.
  void reset(std::span<const RequestHandle> handles, std::span<const SignalId> signals = {});

  /// Throws CheckError where the row is unknown or erased.
  [[nodiscard]] RowView row(RequestHandle handle) const;
  /// A row to edit. Unless it was assigned, set_signals still replaces what it holds.
  [[nodiscard]] SignalMap& row_mut(RequestHandle handle);
  [[nodiscard]] bool contains(RequestHandle handle) const { return position_of(handle) >= 0; }
  /// Gives a row inputs of its own, which set_signals leaves alone. A new row goes to the end.
  void assign(RequestHandle handle, SignalMap inputs) { assign(handle) = std::move(inputs); }
  /// The same, without any signal yet: to be filled in place.
  SignalMap& assign(RequestHandle handle);
  /// Throws CheckError where the row is unknown or erased.
  void erase(RequestHandle handle);
  /// The same, tolerant: false.
  bool try_erase(RequestHandle handle);
  /// Every row that was not assigned now carries exactly these signals, without tensors; rows read or edited before, too.
  void set_signals(std::span<const SignalId> signals);

  /// Every live row, in order, as a row of its own.
  void materialize(RequestOutputs& rows) const;

  /// Live rows.
  [[nodiscard]] std::size_t size() const { return num_live_; }
  /// Calls `visit(handle)` for the live rows: those of reset, then those that were added.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries_) {
      if (entry.live) {
        visit(entry.handle);
      }
    }
  }
  /// Rows kept apart from the template, for tests and counters.
  [[nodiscard]] std::size_t num_built() const { return num_owned_; }

 private:
  static constexpr std::int32_t kTemplate = -1;
  struct Entry {
    RequestHandle handle;
    std::int32_t owned = kTemplate;  // index of its own row
    bool live = true;
  };
  struct OwnedRow {
    SignalMap inputs;
    bool assigned = false;
  };

  [[nodiscard]] std::int32_t position_of(RequestHandle handle) const;
  [[nodiscard]] Entry& entry_of(RequestHandle handle);
  [[nodiscard]] const SignalMap& resolve(RequestHandle handle) const;
  void append(RequestHandle handle);
  [[nodiscard]] OwnedRow& own(Entry& entry);

  std::vector<Entry> entries_;
  std::vector<std::int32_t> positions_;  // by row: its entry; -1: none
  std::size_t num_live_ = 0;
  SignalMap template_;
  std::deque<OwnedRow> owned_;  // in place while a caller edits one
  std::size_t num_owned_ = 0;
};

/// The metadata of a step's rows, each with its own copy of its request's loop counters: the shared ones move when the step in
/// flight is routed, which can be while this step is prepared. The first `num_next_iteration` rows run one iteration past them
/// in `loop` (all rows where there are fewer); other loops' counters stay. Replaces what `snapshots` held; no stream chunks.
void loop_counter_snapshots(std::span<const RequestInfo* const> infos, std::optional<LoopId> loop,
                            std::int64_t num_next_iteration, std::vector<InputMetadata>& snapshots);

}  // namespace rigel
