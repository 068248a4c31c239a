#pragma once

#include "engine/contract/ids.h"
#include "kernels/rows.h"
#include "tensor/allocator.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// Puts the tensors that a step's rows bring together, lane behind lane along one dimension, where its forward reads them.
/// Thread: the step's owner.
class TensorInputs {
 public:
  virtual ~TensorInputs() = default;

  /// What the forward reads. Parts on the device are added to `splices`, as one row each (where `dim` is not the first, one for
  /// every place before it), which one launch moves for all signals. Copies of the others are enqueued in stream order;
  /// pageable memory is read at once.
  ///   parts, at least one: on host or device, contiguous, of one dtype and one shape but for dimension `dim`
  /// Throws CheckError naming signal and part where they do not fit together.
  [[nodiscard]] virtual ConstDeviceView put(StreamRef stream, SignalId signal,
                                            std::span<const Tensor> parts, int dim,
                                            std::vector<kernels::RowSplice>& splices) = 0;
  /// Entries of the launch for a step that could bring `num_parts` parts on the device. A captured launch has as many as in its
  /// capture, whatever a replay brings.
  [[nodiscard]] virtual std::int64_t num_splice_entries(std::int64_t num_parts) {
    return num_parts;
  }
};

/// Those of an eager step: in memory of their own, as long as the step; a single tensor on the device stays where it is.
class GatheredInputs final : public TensorInputs {
 public:
  explicit GatheredInputs(Device& device) : allocator_(device), pinned_(device) {}

  [[nodiscard]] ConstDeviceView put(StreamRef stream, SignalId signal,
                                    std::span<const Tensor> parts, int dim,
                                    std::vector<kernels::RowSplice>& splices) override;
  /// The step has completed.
  void clear() { held_.clear(); }

 private:
  CachingAllocator allocator_;
  PinnedPool pinned_;
  std::vector<Tensor> held_;
};

/// Those of the captured steps of one graph config: a buffer a signal, which all its captures read. The first capture, which is
/// the largest, decides how large it is; smaller ones and shorter steps have its beginning along the dimension that the
/// signal's parts lie behind each other in, and leave the rest as it was.
///
/// That dimension is said with each put and never guessed from sizes: those of a small bucket may be equal in two.
class StaticInputs final : public TensorInputs {
 public:
  StaticInputs(Device& device, std::int32_t num_slots)
      : device_(device), pinned_(device), held_(static_cast<std::size_t>(num_slots)) {}

  /// The next puts are those of a capture of `bucket`: they say what it reads, and copy nothing, because steps in flight may
  /// be reading it too.
  void begin_capture(std::size_t bucket);
  /// The next puts are those of a replay, and the slot's last replay has completed.
  void begin_replay(std::size_t bucket, std::int32_t slot);
  /// Throws CheckError naming a signal that the capture reads and this replay did not put.
  void check_complete() const;

  /// Throws CheckError, too, where a replay puts a signal that no capture has read, or more than its capture reads.
  [[nodiscard]] ConstDeviceView put(StreamRef stream, SignalId signal,
                                    std::span<const Tensor> parts, int dim,
                                    std::vector<kernels::RowSplice>& splices) override;
  [[nodiscard]] std::int64_t num_splice_entries(std::int64_t num_parts) override;
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  struct Input {
    SignalId signal{};
    int dim = 0;
    Dtype dtype{};
    Shape shape;
    DeviceBuffer memory;
    std::vector<std::int64_t> sizes;  // along `dim`, by bucket; -1: that one does not read it
    bool is_put = false;              // since the replay began
  };

  [[nodiscard]] Input& intern(SignalId signal, Dtype dtype, const Shape& shape, int dim);

  Device& device_;
  PinnedPool pinned_;
  std::vector<Input> inputs_;
  std::vector<std::int64_t> num_splice_entries_;  // by bucket
  std::vector<std::vector<Tensor>> held_;  // by slot: pinned copies that are still being read
  std::size_t bucket_ = 0;
  std::int32_t slot_ = 0;
  bool is_capturing_ = false;
};

}  // namespace rigel
