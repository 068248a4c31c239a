#pragma once

#include "simt/kernel_calls.h"
#include "simt/matrix.h"

namespace simt {

namespace detail {

/// One lane's part of an ldmatrix: the row that it addresses and where its words go.
struct MatrixLoad {
  const void* row;
  std::uint32_t* words;
  int num_matrices;
  bool transposed;
};

/// One lane's part of a product of tiles: sums[MT][NT] += a[MT] b[NT].
struct MatrixMultiply {
  FragC* sums;
  const FragA* a;
  const FragB* b;
  int num_row_tiles;
  int num_column_tiles;
};

/// Checks the row's alignment, tells the race detector, and meets the warp.
[[nodiscard]] Switch arrive_at_matrix_load(const MatrixLoad& load, Site site);

[[gnu::always_inline]] inline void load_matrix(const MatrixLoad& load, Site site) {
  wait(arrive_at_matrix_load(load, site));
}

}  // namespace detail

/// Loads four 8 x 8 matrices of 16-bit elements from shared memory; lane i addresses row i % 8 (16 bytes) of matrix i / 8.
/// All 32 lanes take part.
[[gnu::always_inline]] inline void ldmatrix_x4(FragA& frag, const void* row,
                                               Site site = Site::here()) {
  detail::load_matrix({row, frag.word, 4, false}, site);
}
/// The same of two matrices, addressed by lanes 0 to 15; the other lanes' addresses are not used.
[[gnu::always_inline]] inline void ldmatrix_x2(FragB& frag, const void* row,
                                               Site site = Site::here()) {
  detail::load_matrix({row, frag.word, 2, false}, site);
}
/// As ldmatrix_x2, each matrix transposed: the operand B of rows of k.
[[gnu::always_inline]] inline void ldmatrix_x2_trans(FragB& frag, const void* row,
                                                     Site site = Site::here()) {
  detail::load_matrix({row, frag.word, 2, true}, site);
}

/// sums[m][n] += a[m] b[n]: MT x NT products of 16 x 8 x 16 by one warp. The order of the 16 terms inside a product is the
/// machine's own: compare devices with a tolerance.
template <int MT, int NT>
[[gnu::always_inline]] inline void mma_tile(FragC (&sums)[MT][NT], const FragA (&a)[MT],
                                            const FragB (&b)[NT], Site site = Site::here()) {
  const detail::MatrixMultiply part{&sums[0][0], a, b, MT, NT};
  detail::wait(detail::arrive_at_warp(detail::WarpOperation::kMatrixMultiply,
                                      {reinterpret_cast<std::uint64_t>(&part), 0}, 0xffffffffu,
                                      site));
}

}  // namespace simt
