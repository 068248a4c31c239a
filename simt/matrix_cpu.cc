#include "simt/host_matrix.h"
#include "simt/multiprocessor.h"
#include "simt/sanitizer.h"

#include <bit>
#include <cstring>

namespace simt::detail {

namespace {

float low_half(std::uint32_t word) {
  return std::bit_cast<float>(word << 16);
}
float high_half(std::uint32_t word) {
  return std::bit_cast<float>(word & 0xffff0000u);
}

template <class Part>
const Part& part_of(std::uint64_t operand) {
  return *reinterpret_cast<const Part*>(operand);
}

std::uint32_t element(const void* row, int column) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const std::byte*>(row) + 2 * column, 2);
  return bits;
}

// The matrices of one product, gathered from the lanes.
struct Tile {
  float a[16][16];  // rows x k
  float b[8][16];   // columns x k

  void gather(int lane, const FragA& frag) {
    const int row = lane / 4;
    const int k = lane % 4 * 2;
    for (int word = 0; word < 4; ++word) {
      float* const pair = &a[row + word % 2 * 8][k + word / 2 * 8];
      pair[0] = low_half(frag.word[word]);
      pair[1] = high_half(frag.word[word]);
    }
  }
  void gather(int lane, const FragB& frag) {
    for (int word = 0; word < 2; ++word) {
      float* const pair = &b[lane / 4][lane % 4 * 2 + word * 8];
      pair[0] = low_half(frag.word[word]);
      pair[1] = high_half(frag.word[word]);
    }
  }
  void add_to(int lane, FragC& frag) const {
    for (int index = 0; index < 4; ++index) {
      const float* const row = a[lane / 4 + index / 2 * 8];
      const float* const column = b[lane % 4 * 2 + index % 2];
      float sum = frag.sum[index];
      for (int k = 0; k < 16; ++k) {
        sum += row[k] * column[k];
      }
      frag.sum[index] = sum;
    }
  }
};

}  // namespace

Switch arrive_at_matrix_load(const MatrixLoad& load, Site site) {
  const int lane =
      static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
  if (lane < 8 * load.num_matrices) {
    check_alignment(load.row, 16, site);
    race_read(load.row, 16);
  }
  return arrive_at_warp(WarpOperation::kMatrixLoad, {reinterpret_cast<std::uint64_t>(&load), 0},
                        0xffffffffu, site);
}

// The lanes' parts lie on the stacks of their fibers, which all wait here.
void Multiprocessor::load_matrices(int first_thread) {
  const std::uint64_t* const operands = operands_ + first_thread;
  const MatrixLoad& first = part_of<MatrixLoad>(operands[0]);
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < first.num_matrices; ++matrix) {
      const auto row = [&](int index) {
        return part_of<MatrixLoad>(operands[matrix * 8 + index]).row;
      };
      const int group = lane / 4;
      const int pair = lane % 4 * 2;
      const std::uint32_t low =
          first.transposed ? element(row(pair), group) : element(row(group), pair);
      const std::uint32_t high =
          first.transposed ? element(row(pair + 1), group) : element(row(group), pair + 1);
      part_of<MatrixLoad>(operands[lane]).words[matrix] = low | high << 16;
    }
  }
}

void Multiprocessor::multiply_matrices(int first_thread) {
  const std::uint64_t* const operands = operands_ + first_thread;
  const auto part = [&](int lane) -> const MatrixMultiply& {
    return part_of<MatrixMultiply>(operands[lane]);
  };
  const int num_row_tiles = part(0).num_row_tiles;
  const int num_column_tiles = part(0).num_column_tiles;
  Tile tile;
  for (int row_tile = 0; row_tile < num_row_tiles; ++row_tile) {
    for (int lane = 0; lane < 32; ++lane) {
      tile.gather(lane, part(lane).a[row_tile]);
    }
    for (int column_tile = 0; column_tile < num_column_tiles; ++column_tile) {
      for (int lane = 0; lane < 32; ++lane) {
        tile.gather(lane, part(lane).b[column_tile]);
      }
      for (int lane = 0; lane < 32; ++lane) {
        tile.add_to(lane, part(lane).sums[row_tile * num_column_tiles + column_tile]);
      }
    }
  }
}

}  // namespace simt::detail
