#pragma once

#include "tensor/dtype.h"
#include "tensor/shape.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

/// How elements of a checkpoint tensor are stored. The Q types are GGML blocks (model/checkpoint/quantization.h).
enum class SourceType : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
[[nodiscard]] std::string_view name_of(SourceType type);

/// Elements of a block and its bytes; rows are whole blocks. 1 element for the float types.
struct BlockLayout {
  int num_elements;
  int num_bytes;
};
[[nodiscard]] BlockLayout block_layout(SourceType type);

/// Which naming of tensors a checkpoint uses.
enum class CheckpointFormat : std::uint8_t { kGguf, kHuggingFace };
[[nodiscard]] std::string_view name_of(CheckpointFormat format);

/// One tensor of a checkpoint; `bytes` lives as long as the checkpoint.
struct CheckpointTensor {
  std::string name;
  Shape shape;  ///< outermost first: (rows, columns) of a matrix
  SourceType type = SourceType::kF32;
  std::span<const std::byte> bytes;

  /// Elements of the innermost dimension (1 for a scalar).
  [[nodiscard]] std::int64_t num_columns() const {
    return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  }
  /// Product of all other dimensions.
  [[nodiscard]] std::int64_t num_rows() const {
    return num_columns() == 0 ? 0 : shape.num_elements() / num_columns();
  }
};

/// Read-only weights in memory-mapped files. Names are the source's own; WeightReader speaks canonical ones.
///
/// Thread: any (immutable). Opening costs O(header); tensor bytes are paged in when read.
class Checkpoint {
 public:
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  virtual ~Checkpoint() = default;

  [[nodiscard]] CheckpointFormat format() const { return format_; }
  /// All tensors, sorted by name.
  [[nodiscard]] std::span<const CheckpointTensor> tensors() const { return tensors_; }
  [[nodiscard]] std::vector<std::string_view> names() const;
  /// Null if there is none. O(log n).
  [[nodiscard]] const CheckpointTensor* find(std::string_view name) const;
  /// Bytes of all tensors as stored.
  [[nodiscard]] std::int64_t total_bytes() const { return total_bytes_; }

 protected:
  explicit Checkpoint(CheckpointFormat format) : format_(format) {}
  /// Takes the tensors of a parsed header. Throws ModelFileError, naming `source`, if a name occurs twice.
  void adopt(std::vector<CheckpointTensor> tensors, std::string_view source);

 private:
  CheckpointFormat format_;
  std::vector<CheckpointTensor> tensors_;
  std::int64_t total_bytes_ = 0;
};

/// Converts rows [first_row, first_row + num_rows) to float32 or bfloat16 (rounded to nearest even from float32). `out` holds
/// num_rows * num_columns elements. Preconditions: the range lies inside the tensor, `out` has that size. Cost: one pass.
void dequantize_rows(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                     std::span<float> out);
void dequantize_rows(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                     std::span<bf16> out);

}  // namespace rigel
