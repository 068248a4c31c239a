#pragma once

#include <span>
#include <utility>
#include <vector>

#include "engine/contract/ids.h"
#include "tensor/view.h"

namespace rigel {

/// What a forward of a batch gives, by how it is addressed. The engine reuses one object for every step of a node.
///
/// Row outputs are whole-batch tensors: row i belongs to row_handles[i]. The engine copies them to the host in one go, right
/// behind the forward on its stream, where the stop check and the worker read them as HostRows.
class BatchedModelOutput {
 public:
  struct RowOutput {
    SignalId signal{};
    ConstDeviceView rows;  // (rows, ...): valid until the next forward of this node
  };

  void add_rows(SignalId signal, const ConstDeviceView& rows) { rows_.push_back({signal, rows}); }
  void set_row_handles(std::span<const RequestHandle> handles) {
    handles_.assign(handles.begin(), handles.end());
  }
  void push_row_handle(RequestHandle handle) { handles_.push_back(handle); }

  [[nodiscard]] std::span<const RowOutput> row_outputs() const { return rows_; }
  [[nodiscard]] std::span<const RequestHandle> row_handles() const { return handles_; }

  /// Forgets the outputs and keeps the memory.
  void reset() {
    rows_.clear();
    handles_.clear();
  }

 private:
  std::vector<RowOutput> rows_;
  std::vector<RequestHandle> handles_;
};

}  // namespace rigel
