#pragma once

#include <cstdint>

namespace rigel::kernels {

/// What a product does with its f32 sums.
enum class GemmOutput : std::uint8_t {
  kActivation,  ///< out T = round(sum + bias)
  kFloat,       ///< out f32 = sum + bias
  kAccumulate,  ///< out f32 += sum + bias
};

/// Columns of the product (rows of the weight) that lie together in a packed weight.
inline constexpr int kGemmPanelColumns = 16;

/// Largest N and K: sizes are int32 in kernels, with room for padding.
inline constexpr std::int64_t kMaxGemmExtent = std::int64_t{1} << 30;

/// One product out (M, N) = x (M, K) * W (N, K)^T + bias (N), for the device text and the native variant alike.
///
/// `weight` is packed in panels [ceil(N / 16)][K][16], zero beyond N. Within the 16 columns f32 keeps its order, bf16 lies as
/// 0 8 1 9 2 10 ... 7 15: a 32-bit word then holds columns i and i + 8, and a shift and a mask widen a whole vector in order.
struct GemmParams {
  const void* x = nullptr;       // (M, K) T
  const void* weight = nullptr;  // panels of T
  const float* bias = nullptr;   // (N) or null
  void* out = nullptr;           // (M, N) T or f32
  float* widened = nullptr;      // (M, K) f32: scratch of the native variant for x of bf16
  std::int64_t x_row_stride = 0;
  std::int64_t out_row_stride = 0;
  std::int64_t widened_row_stride = 0;
  std::int32_t num_rows = 0;     // M
  std::int32_t num_columns = 0;  // N
  std::int32_t depth = 0;        // K
  GemmOutput output = GemmOutput::kActivation;
  bool is_bf16 = false;  // T
};

/// Where column `column` of a panel row lies for a type of `element_bytes`.
constexpr int gemm_panel_slot(int column, int element_bytes) {
  return element_bytes == 2 ? (column % 8) * 2 + column / 8 : column;
}

/// The column at a slot: the inverse.
constexpr int gemm_panel_column(int slot, int element_bytes) {
  return element_bytes == 2 ? (slot % 2) * 8 + slot / 2 : slot;
}

}  // namespace rigel::kernels
