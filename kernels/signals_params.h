#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

/// One row on its way into a tensor of its own, as the device reads it from the step's table.
struct RowCopy {
  std::byte* target;
  const std::byte* source;
  std::int64_t num_bytes;  // 0: padding
};
inline constexpr int kRowCopyWords = 3;
static_assert(sizeof(RowCopy) == kRowCopyWords * sizeof(std::int64_t));

struct MaterializeRowsParams {
  const RowCopy* copies;  // (num_copies)
  std::int32_t num_copies;
};

}  // namespace rigel::kernels
