#pragma once

#include "kernels/rows_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Copies the words of a row that fall to this thread, or zeroes them where there is no source.
template <class Word, int BLOCK>
__device__ inline void move_words(std::byte* target, const std::byte* source,
                                  std::int64_t row_bytes) {
  const std::int64_t num_words = row_bytes / static_cast<std::int64_t>(sizeof(Word));
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * BLOCK;
  for (std::int64_t word = static_cast<std::int64_t>(blockIdx.y) * BLOCK + threadIdx.x;
       word < num_words; word += step) {
    Word value = {};
    if (source != nullptr) {
      value = reinterpret_cast<const Word*>(source)[word];
    }
    reinterpret_cast<Word*>(target)[word] = value;
  }
}

template <int BLOCK>
__device__ inline void move_vectors(std::byte* target, const std::byte* source,
                                    std::int64_t row_bytes) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * BLOCK * 16;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.y) * BLOCK + threadIdx.x) * 16;
       at < row_bytes; at += step) {
    simt::Bytes16 value = {};
    if (source != nullptr) {
      value = simt::ld16(source + at);
    }
    simt::st16(target + at, value);
  }
}

/// Grid: (rows, blocks along a row, signals).
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) move_rows_kernel(MoveRowsParams p) {
  const int row = static_cast<int>(blockIdx.x);
  const int source_row = p.source_rows[row];
  if (source_row < 0 && !p.zero_missing) {
    return;
  }
  const RowMove move = p.moves[blockIdx.z];
  std::byte* target = move.target + row * move.row_bytes;
  const std::byte* source = source_row < 0 ? nullptr : move.source + source_row * move.row_bytes;
  if (move.access_bytes == 16) {
    move_vectors<BLOCK>(target, source, move.row_bytes);
  } else if (move.access_bytes == 4) {
    move_words<unsigned, BLOCK>(target, source, move.row_bytes);
  } else {
    move_words<unsigned char, BLOCK>(target, source, move.row_bytes);
  }
}

}  // namespace rigel::kernels
