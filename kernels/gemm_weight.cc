#include "kernels/gemm_weight.h"

#include "kernels/gemm_backend.h"

#include <utility>

namespace rigel::kernels {

GemmWeight::GemmWeight(Dtype dtype, std::int64_t num_rows, std::int64_t num_columns,
                       GemmLayout layout, DeviceBuffer buffer)
    : dtype_(dtype),
      layout_(layout),
      num_rows_(num_rows),
      num_columns_(num_columns),
      buffer_(std::move(buffer)) {}

GemmWeightBuilder::GemmWeightBuilder(Gemm& gemm, Dtype dtype, std::int64_t num_rows,
                                     std::int64_t num_columns)
    : dtype_(dtype), num_rows_(num_rows), num_columns_(num_columns) {
  RIGEL_CHECK(dtype == Dtype::kBf16 || dtype == Dtype::kF32,
              "a weight is bfloat16 or float32, got {}", name_of(dtype));
  RIGEL_CHECK(num_rows > 0 && num_rows <= kMaxGemmExtent && num_columns > 0 &&
                  num_columns <= kMaxGemmExtent,
              "a weight has 1 to 2^30 rows and columns, got ({}, {})", num_rows, num_columns);
  if (gemm.library_ != nullptr) {
    packer_ = gemm.library_->make_packer(dtype, num_rows, num_columns);
  }
  if (packer_ == nullptr) {
    packer_ = gemm.own_->make_packer(dtype, num_rows, num_columns);
  }
}

GemmWeightBuilder::~GemmWeightBuilder() = default;

void GemmWeightBuilder::add_rows(std::int64_t first_row, ConstHostView rows) {
  RIGEL_CHECK(rows.rank() == 2 && rows.dim(1) == num_columns_ && rows.dtype() == dtype_ &&
                  rows.is_contiguous(),
              "rows must be (n, {}) {} and contiguous, got {} {}", num_columns_, name_of(dtype_),
              to_string(rows.shape()), name_of(rows.dtype()));
  RIGEL_CHECK(first_row >= 0 && first_row + rows.dim(0) <= num_rows_,
              "rows [{}, {}) leave a weight of {} rows", first_row, first_row + rows.dim(0),
              num_rows_);
  RIGEL_CHECK(packer_ != nullptr, "the weight is finished already, of {} rows", num_rows_);
  packer_->add_rows(first_row, rows);
}

GemmWeight GemmWeightBuilder::finish() {
  RIGEL_CHECK(packer_ != nullptr, "the weight is finished already, of {} rows", num_rows_);
  return std::exchange(packer_, nullptr)->finish();
}

}  // namespace rigel::kernels
