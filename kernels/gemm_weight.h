#pragma once

#include "tensor/buffer.h"
#include "tensor/view.h"

#include <cstdint>
#include <memory>

namespace rigel::kernels {

class Gemm;
class GemmWeightPacker;

/// How a weight lies in memory; each library multiplies fastest with its own.
enum class GemmLayout : std::uint8_t {
  kPanels,  ///< our own: [ceil(N / 16)][K][16], see gemm_params.h
  kRows,    ///< cuBLASLt: (N, K), row-major
  kOneDnn,  ///< blocked as oneDNN asked for
};

/// A weight matrix W (N, K) on the device, packed for the library of the Gemm that it was built for. Immutable: any number
/// of Gemm objects of the same library may multiply with it, from any thread.
class GemmWeight {
 public:
  GemmWeight() = default;
  GemmWeight(Dtype dtype, std::int64_t num_rows, std::int64_t num_columns, GemmLayout layout,
             DeviceBuffer buffer);

  /// N: features that come out.
  [[nodiscard]] std::int64_t num_rows() const { return num_rows_; }
  /// K: features that go in.
  [[nodiscard]] std::int64_t num_columns() const { return num_columns_; }
  [[nodiscard]] Dtype dtype() const { return dtype_; }
  [[nodiscard]] GemmLayout layout() const { return layout_; }
  /// With padding.
  [[nodiscard]] std::int64_t num_bytes() const { return buffer_.num_bytes(); }
  [[nodiscard]] const std::byte* raw() const { return buffer_.raw(); }

 private:
  Dtype dtype_ = Dtype::kBf16;
  GemmLayout layout_ = GemmLayout::kPanels;
  std::int64_t num_rows_ = 0;
  std::int64_t num_columns_ = 0;
  DeviceBuffer buffer_;
};

/// Packs a weight from row-major rows in host memory. Load time only.
class GemmWeightBuilder {
 public:
  /// W will be (num_rows, num_columns) of bf16 or f32, both > 0; rows that are never added are zero.
  GemmWeightBuilder(Gemm& gemm, Dtype dtype, std::int64_t num_rows, std::int64_t num_columns);
  ~GemmWeightBuilder();

  /// Sets rows [first_row, first_row + n) from `rows` (n, K) T, contiguous; read before the call returns.
  void add_rows(std::int64_t first_row, ConstHostView rows);
  /// The weight, complete on the device. Call once.
  [[nodiscard]] GemmWeight finish();

 private:
  Dtype dtype_;
  std::int64_t num_rows_;
  std::int64_t num_columns_;
  std::unique_ptr<GemmWeightPacker> packer_;
};

}  // namespace rigel::kernels
