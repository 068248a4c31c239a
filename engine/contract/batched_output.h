#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/request_outputs.h"
#include "engine/contract/signals.h"
#include "kernels/stop.h"
#include "tensor/allocator.h"
#include "tensor/view.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

/// What the stop check reads under one signal: a tensor whose row i belongs to the i-th request, or signals of their own.
using StopBuffer = std::variant<Tensor, SignalMap>;
using StopBuffers = std::vector<std::pair<SignalId, StopBuffer>>;

/// Whether an output's stop buffers can be read by row. A row describes one forward: two forwards joined are a conflict,
/// which no further join takes back, because the rows of a third would cover only its own requests.
enum class StopRows : std::uint8_t { kNone, kSingle, kConflict };

/// Of rows that have none in a step's pinned results.
inline constexpr std::int64_t kNoPlace = -1;

/// The lanes that sampled, one a row handle, and what the device tests them by. Their records (kernels::StepRecord) come to the
/// host as rows (S, kStepRecordWords) i64 of a signal of their own.
struct StopLanes {
  SignalId records{};
  kernels::StopTest test;
  std::int64_t place = kNoPlace;  // of the records, where a replay makes them
};

/// What a forward of a batch gives, by how it is addressed. The engine reuses one object for every step of a node.
///
/// Row outputs are whole-batch tensors: row i belongs to row_handles[i]. The engine copies them to the host in one go, right
/// behind the forward on its stream, where the stop check and the worker read them as HostRows. Outputs of a request are
/// tensors of its own. Packed outputs are whole-batch tensors `__name__` that the submodule cuts by request.
class BatchedModelOutput {
 public:
  struct RowOutput {
    SignalId signal{};
    ConstDeviceView rows;  // (rows, ...): valid until the next forward of this node
    /// Where they lie in the step's pinned results once it has completed, if a replay takes them there itself.
    std::int64_t place = kNoPlace;
  };
  using RowTensors = std::vector<std::pair<SignalId, Tensor>>;
  using Packed = std::vector<std::pair<std::string, Tensor>>;
  using MixedEntry = std::variant<RequestOutputs::Entry, std::pair<std::string, Tensor>>;
  /// The stop buffers, even if there are none among them, or else the outputs by request.
  using CheckStopInput = std::variant<const StopBuffers*, const RequestOutputs*>;

  void add_rows(SignalId signal, const ConstDeviceView& rows, std::int64_t place = kNoPlace) {
    rows_.push_back({signal, rows, place});
  }
  /// The rows of `signal`; an undefined view where there are none.
  [[nodiscard]] ConstDeviceView rows(SignalId signal) const {
    for (const RowOutput& output : rows_) {
      if (output.signal == signal) {
        return output.rows;
      }
    }
    return {};
  }
  void set_row_handles(std::span<const RequestHandle> handles) {
    handles_.assign(handles.begin(), handles.end());
  }
  void push_row_handle(RequestHandle handle) { handles_.push_back(handle); }
  [[nodiscard]] std::span<const RowOutput> row_outputs() const { return rows_; }
  [[nodiscard]] std::span<RowOutput> row_outputs() { return rows_; }
  [[nodiscard]] std::span<const RequestHandle> row_handles() const { return handles_; }

  /// Lets the engine test who stops, at the end of the step. One forward's: joined outputs have none.
  void set_stop_lanes(const StopLanes& lanes) { stop_lanes_ = lanes; }
  [[nodiscard]] const StopLanes* stop_lanes() const {
    return stop_lanes_ ? &*stop_lanes_ : nullptr;
  }
  [[nodiscard]] StopLanes* stop_lanes() { return stop_lanes_ ? &*stop_lanes_ : nullptr; }

  [[nodiscard]] RequestOutputs& requests() { return requests_; }
  [[nodiscard]] const RequestOutputs& requests() const { return requests_; }
  [[nodiscard]] const Packed& packed() const { return packed_; }
  /// Sets a packed output. Throws CheckError unless the name is one of a packed output.
  void set_packed(std::string name, Tensor tensor);
  void clear_packed() { packed_.clear(); }

  [[nodiscard]] StopRows stop_rows() const { return stop_rows_; }
  /// Gives this forward's stop buffers; there may be none, which is not the same as giving none. Not in a conflict.
  void set_stop_buffers(StopBuffers buffers);

  // A value as an output. `__name__` with something between the underscores is a packed output, any other name an error.
  [[nodiscard]] static BatchedModelOutput coerce(BatchedModelOutput output) { return output; }
  [[nodiscard]] static BatchedModelOutput coerce(RequestOutputs outputs);
  [[nodiscard]] static BatchedModelOutput coerce(std::vector<MixedEntry> entries);
  [[nodiscard]] static bool is_packed_name(std::string_view name);

  /// A request's outputs, or a packed output; null where there is none.
  [[nodiscard]] const SignalMap* get(RequestHandle handle) const { return requests_.find(handle); }
  [[nodiscard]] const Tensor* get(std::string_view packed_name) const;
  /// Takes a request's outputs out. Rows stay: the caller takes the request out of the batch instead.
  [[nodiscard]] std::optional<SignalMap> pop(RequestHandle handle);

  /// Copies of the stop buffers, in stream order, padding rows included: the next replay overwrites the buffers of a captured
  /// forward before the stop check reads them. Nothing unless this is a single forward's.
  [[nodiscard]] std::optional<StopBuffers> clone_check_stop_buffers(
      StreamRef stream, TensorAllocator& allocator) const;
  /// One copy a row output, in stream order, of its first `num_rows` rows at most, so that padding is never copied. What has
  /// no dimensions is copied whole.
  [[nodiscard]] RowTensors clone_row_outputs(std::int64_t num_rows, StreamRef stream,
                                             TensorAllocator& allocator) const;
  [[nodiscard]] CheckStopInput get_check_stop_input() const;

  /// Joins the outputs of another forward; `other` wins where both have a name. Two sides with stop buffers, or with rows of
  /// different requests, are a conflict: stop buffers go, and rows stay only where both describe the same requests.
  void update(const BatchedModelOutput& other);

  /// Forgets the outputs and keeps the memory.
  void reset();

 private:
  [[nodiscard]] bool is_row_addressed() const {
    return !rows_.empty() || stop_rows_ == StopRows::kSingle;
  }
  void join_rows(const BatchedModelOutput& other);

  std::vector<RowOutput> rows_;
  std::vector<RequestHandle> handles_;
  RequestOutputs requests_;
  Packed packed_;
  StopBuffers stop_buffers_;
  StopRows stop_rows_ = StopRows::kNone;
  std::optional<StopLanes> stop_lanes_;
};

}  // namespace rigel
