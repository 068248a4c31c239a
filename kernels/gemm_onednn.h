#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rigel::kernels {

/// Whether oneDNN's implementation of that name gives a row the same bits at any number of rows. Measured with 2.6 at 1 to
/// 1,024 rows: the AVX512 batch-reduce kernels do; gemm:jit and all that runs on AVX2 do not.
[[nodiscard]] bool onednn_keeps_bits(std::string_view implementation);

/// The row counts that primitives are made for, ascending; the first is 1.
[[nodiscard]] std::span<const std::int64_t> onednn_row_counts();

/// The largest of them that is at most `num_rows` (> 0) and `max_rows`: any number of rows is a sum of prepared ones, so no
/// row is padded and no output needs a copy.
[[nodiscard]] std::int64_t onednn_next_rows(std::int64_t num_rows, std::int64_t max_rows);

}  // namespace rigel::kernels
