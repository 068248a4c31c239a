#include "kernels/launch_checks.h"
#include "kernels/rows.h"
#include "kernels/rows_device.h"
#include "kernels/rows_native.h"
#include "tensor/launch.h"

#include <algorithm>

namespace rigel::kernels {
namespace {

static_assert(kMaxSplices == kMaxRowMoves);
static_assert(sizeof(MoveRowsParams) <= 256);

constexpr int kBlock = 128;
/// Blocks along one row, at most: a row of 4,096 floats takes 8 blocks of 128 threads with 16 bytes each.
constexpr std::int64_t kMaxBlocksPerRow = 64;

std::int64_t row_bytes_of(const ConstDeviceView& view) {
  return view.dim(0) == 0 ? 0 : view.num_bytes() / view.dim(0);
}

std::int32_t access_bytes(const void* target, const void* source, std::int64_t row_bytes) {
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(target) |
                              reinterpret_cast<std::uintptr_t>(source) |
                              static_cast<std::uintptr_t>(row_bytes);
  return bits % 16 == 0 ? 16 : (bits % 4 == 0 ? 4 : 1);
}

RowMove row_move(DeviceView target, ConstDeviceView source) {
  RIGEL_CHECK(target.dtype() == source.dtype() && target.rank() == source.rank() &&
                  target.rank() >= 1 && target.is_contiguous() && source.is_contiguous(),
              "rows move between dense tensors of one dtype and rank, got {} {} and {} {}",
              name_of(target.dtype()), to_string(target.shape()), name_of(source.dtype()),
              to_string(source.shape()));
  for (int dim = 1; dim < target.rank(); ++dim) {
    RIGEL_CHECK(target.dim(dim) == source.dim(dim), "rows differ in shape: {} and {}",
                to_string(target.shape()), to_string(source.shape()));
  }
  const std::int64_t row_bytes = row_bytes_of(target);
  return {target.raw(), source.raw(), row_bytes,
          access_bytes(target.raw(), source.raw(), row_bytes)};
}

LaunchPlan move_rows_plan(const MoveRowsParams& params) {
  LaunchPlan plan;
  std::int64_t most_accesses = 1;
  std::int64_t bytes_a_row = 0;
  for (int index = 0; index < params.num_moves; ++index) {
    const RowMove& move = params.moves[index];
    most_accesses = std::max(most_accesses, move.row_bytes / move.access_bytes);
    bytes_a_row += move.row_bytes;
  }
  const std::int64_t blocks = std::min(ceil_div(most_accesses, kBlock), kMaxBlocksPerRow);
  plan.grid = dim3(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(blocks),
                   static_cast<unsigned>(params.num_moves));
  plan.block = dim3(kBlock);
  plan.traffic = {params.num_rows * (bytes_a_row + 4), params.num_rows * bytes_a_row, 0};
  return plan;
}

void move_rows(StreamRef stream, const char* name, const MoveRowsParams& params) {
  if (params.num_rows == 0 || params.num_moves == 0) {
    return;
  }
  const LaunchPlan plan = move_rows_plan(params);
  if (launch_native(stream, name, plan.traffic, RIGEL_NATIVE_VARIANT(move_rows), params)) {
    return;
  }
  launch<move_rows_kernel<kBlock>>(stream, name, plan, params);
}

}  // namespace

void gather_rows(StreamRef stream, DeviceView out, ConstDeviceView in, ConstDeviceView indices) {
  check_dense(indices, Dtype::kI32, {out.dim(0)}, "indices");
  MoveRowsParams params{};
  params.moves[0] = row_move(out, in);
  params.num_moves = 1;
  params.source_rows = indices.data<std::int32_t>();
  params.num_rows = static_cast<int>(out.dim(0));
  params.zero_missing = true;
  move_rows(stream, "gather_rows", params);
}

void splice_rows(StreamRef stream, std::span<const RowSplice> splices,
                 ConstDeviceView source_rows) {
  check_dense(source_rows, Dtype::kI32, {-1}, "source_rows");
  const std::int64_t lanes = source_rows.dim(0);
  MoveRowsParams params{};
  params.source_rows = source_rows.data<std::int32_t>();
  params.num_rows = static_cast<int>(lanes);
  params.zero_missing = false;
  for (const RowSplice& splice : splices) {
    RIGEL_CHECK(splice.target.dim(0) >= lanes, "a splice of {} lanes into {} rows", lanes,
                splice.target.dim(0));
    params.moves[params.num_moves++] = row_move(splice.target, splice.source);
    if (params.num_moves == kMaxRowMoves) {
      move_rows(stream, "splice_rows", params);
      params.num_moves = 0;
    }
  }
  move_rows(stream, "splice_rows", params);
}

}  // namespace rigel::kernels
