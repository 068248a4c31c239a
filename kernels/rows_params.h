#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

inline constexpr int kMaxRowMoves = 6;

/// Rows of one signal that a launch moves.
struct RowMove {
  std::byte* target;
  const std::byte* source;
  std::int64_t row_bytes;
  std::int32_t access_bytes;  // 16, 4 or 1: what divides both addresses and row_bytes
};

struct MoveRowsParams {
  RowMove moves[kMaxRowMoves];
  const std::int32_t* source_rows;  // (num_rows); -1: zeros, or the target stays
  int num_rows;
  int num_moves;
  bool zero_missing;
};

}  // namespace rigel::kernels
