#pragma once

#include "kernels/gemm_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

inline constexpr int kGemmTileColumns = 64;  // four panels
inline constexpr int kGemmTileDepth = 32;

/// What the output mode makes of one finished sum.
template <class T>
__device__ void gemm_store(const GemmParams& p, int row, int column, float sum) {
  const float value = p.bias != nullptr ? sum + p.bias[column] : sum;
  const int64_t at = row * p.out_row_stride + column;
  if (p.output == GemmOutput::kActivation) {
    static_cast<T*>(p.out)[at] = simt::from_float<T>(value);
  } else if (p.output == GemmOutput::kFloat) {
    static_cast<float*>(p.out)[at] = value;
  } else {
    static_cast<float*>(p.out)[at] += value;
  }
}

/// Fills shared memory with k in [first_k, first_k + depth) of the block's rows of x.
template <class T, int BLOCK, int ROWS>
__device__ void gemm_load_rows(const GemmParams& p, int first_row, int first_k, int depth,
                               float* rows /* [ROWS][kGemmTileDepth + 1] */) {
  const T* x = static_cast<const T*>(p.x);
  for (int i = threadIdx.x; i < ROWS * kGemmTileDepth; i += BLOCK) {
    const int row = i / kGemmTileDepth;
    const int k = i % kGemmTileDepth;
    if (first_row + row < p.num_rows && k < depth) {
      const int64_t at = (first_row + row) * p.x_row_stride + first_k + k;
      rows[row * (kGemmTileDepth + 1) + k] = simt::to_float(x[at]);
    }
  }
}

/// The same of the block's four panels, widened and put into column order.
template <class T, int BLOCK>
__device__ void gemm_load_panels(const GemmParams& p, int first_panel, int first_k, int depth,
                                 float* columns /* [kGemmTileDepth][kGemmTileColumns] */) {
  constexpr int kVec = simt::kVec<T>;
  constexpr int kVecsInRow = kGemmPanelColumns / kVec;
  constexpr int kVecsInPanel = kGemmTileDepth * kVecsInRow;
  const int num_panels = (p.num_columns + kGemmPanelColumns - 1) / kGemmPanelColumns;
  const T* weight = static_cast<const T*>(p.weight);
  for (int i = threadIdx.x; i < kGemmTileColumns / kGemmPanelColumns * kVecsInPanel; i += BLOCK) {
    const int panel = i / kVecsInPanel;
    const int k = i % kVecsInPanel / kVecsInRow;
    const int first_slot = i % kVecsInRow * kVec;
    if (first_panel + panel >= num_panels || k >= depth) {
      continue;
    }
    const int64_t panel_row = int64_t{first_panel + panel} * p.depth + first_k + k;
    const simt::Vec<T> slots = simt::load_vec(weight + panel_row * kGemmPanelColumns + first_slot);
    float* target = columns + k * kGemmTileColumns + panel * kGemmPanelColumns;
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      target[gemm_panel_column(first_slot + j, sizeof(T))] = slots.get(j);
    }
  }
}

/// A tile of ROWS x 64 outputs a block. A thread has one column in each of four panels, of ROWS * 16 / BLOCK rows, and one
/// accumulator for each that runs over k in order: the bits of the native variant, whatever the tile.
template <class T, int BLOCK, int ROWS>
__global__ void __launch_bounds__(BLOCK) gemm_kernel(GemmParams p) {
  simt::wait_for_predecessor();
  constexpr int kRowGroups = BLOCK / kGemmPanelColumns;
  constexpr int kThreadRows = ROWS / kRowGroups;
  constexpr int kThreadColumns = kGemmTileColumns / kGemmPanelColumns;
  constexpr int kRowStride = kGemmTileDepth + 1;  // no two rows in one bank
  static_assert(kThreadRows * kRowGroups == ROWS);
  SIMT_SHARED(float, rows, ROWS* kRowStride);
  SIMT_SHARED(float, columns, kGemmTileDepth* kGemmTileColumns);

  const int first_row = blockIdx.y * ROWS;
  const int first_column = blockIdx.x * kGemmTileColumns;
  const int thread_column = threadIdx.x % kGemmPanelColumns;
  const int row_group = threadIdx.x / kGemmPanelColumns;
  float sums[kThreadRows][kThreadColumns] = {};

  for (int first_k = 0; first_k < p.depth; first_k += kGemmTileDepth) {
    const int depth = p.depth - first_k < kGemmTileDepth ? p.depth - first_k : kGemmTileDepth;
    gemm_load_rows<T, BLOCK, ROWS>(p, first_row, first_k, depth, rows);
    gemm_load_panels<T, BLOCK>(p, first_column / kGemmPanelColumns, first_k, depth, columns);
    __syncthreads();
    for (int k = 0; k < depth; ++k) {
      float factors[kThreadColumns];
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) {
        factors[j] = columns[k * kGemmTileColumns + j * kGemmPanelColumns + thread_column];
      }
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float x = rows[(row_group * kThreadRows + i) * kRowStride + k];
#pragma unroll
        for (int j = 0; j < kThreadColumns; ++j) {
          sums[i][j] = fmaf(x, factors[j], sums[i][j]);
        }
      }
    }
    __syncthreads();  // the next step overwrites the tiles
  }

#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = first_row + row_group * kThreadRows + i;
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) {
      const int column = first_column + j * kGemmPanelColumns + thread_column;
      if (row < p.num_rows && column < p.num_columns) {
        gemm_store<T>(p, row, column, sums[i][j]);
      }
    }
  }
}

/// One output a thread: `p.x` holds the sums (M, N) f32.
template <class T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) gemm_add_bias_kernel(GemmParams p) {
  simt::wait_for_predecessor();
  const int row = blockIdx.x;
  const int column = blockIdx.y * BLOCK + threadIdx.x;
  if (column < p.num_columns) {
    const float sum = static_cast<const float*>(p.x)[row * p.x_row_stride + column];
    gemm_store<T>(p, row, column, sum);
  }
}

}  // namespace rigel::kernels
