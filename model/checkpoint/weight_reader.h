#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/weight_names.h"
#include "model/model_config.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rigel {

/// Told as weights are read. Called on the reading thread, at most once per megabyte of source and once at the end of each
/// tensor.
class LoadProgress {
 public:
  virtual ~LoadProgress() = default;
  virtual void advance(std::int64_t bytes_done, std::int64_t bytes_total) = 0;
};

/// (rows, columns) of a weight, or (n) of a norm or bias.
[[nodiscard]] Shape weight_shape(const ModelConfig& config, WeightKind kind);

/// Reads a model's weights by canonical name, checks their shapes, and remembers which tensors nobody asked for.
///
/// Thread: one (the loading one). The checkpoint and `progress` (may be null) outlive the reader.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const ModelConfig& config, LoadProgress* progress);

  /// Whether the checkpoint holds it (whatever its shape).
  [[nodiscard]] bool has(WeightKind kind, int layer = kNoLayer) const;

  /// The tensor, counted as used. Throws ModelFileError with canonical and source name if it is missing, and with both
  /// shapes if its shape is not weight_shape().
  [[nodiscard]] const CheckpointTensor& require(WeightKind kind, int layer = kNoLayer);

  /// Rows [first_row, first_row + num_rows) (elements of a vector count as one row) as float32 or bfloat16 into `out`, a
  /// contiguous host view of num_rows * columns elements whose dtype says which. Reports progress.
  void read_rows(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                 HostView out);

  /// require() and read_rows() of the whole weight.
  void read(WeightKind kind, int layer, HostView out);

  /// Names of tensors that were never required, without derived ones. Ask after loading; non-empty means the file holds a
  /// feature that the model code does not know.
  [[nodiscard]] std::vector<std::string> unused() const;

 private:
  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  LoadProgress* progress_;
  std::vector<bool> used_;  // parallel to checkpoint_.tensors()
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_;  // to be read
};

}  // namespace rigel
