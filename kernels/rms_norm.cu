#include "kernels/launch_checks.h"
#include "kernels/rms_norm.h"
#include "kernels/rms_norm_device.h"
#include "kernels/rms_norm_native.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

// The block depends on the row's length alone, never on the number of rows: same bits in every batch.
constexpr int kShortRow = 1024;
constexpr int kShortBlock = 64;
constexpr int kLongBlock = 256;
constexpr int kHeadBlock = 128;

LaunchPlan rms_norm_plan(std::int64_t rows, std::int64_t columns, std::int64_t element_bytes,
                         bool add) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(rows));
  plan.block = dim3(columns <= kShortRow ? kShortBlock : kLongBlock);
  const std::int64_t elements = rows * columns;
  plan.traffic.read_bytes = elements * (4 + (add ? element_bytes : 0)) + columns * 4;
  plan.traffic.written_bytes = elements * (element_bytes + (add ? 4 : 0));
  plan.traffic.flops = elements * (add ? 5 : 4);
  return plan;
}

LaunchPlan head_rms_norm_plan(std::int64_t num_heads, std::int64_t head_size,
                              std::int64_t element_bytes) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_heads, kHeadBlock / 32)));
  plan.block = dim3(kHeadBlock);
  const std::int64_t elements = num_heads * head_size;
  plan.traffic = {elements * element_bytes + head_size * 4, elements * element_bytes, elements * 4};
  return plan;
}

template <class T, int BLOCK, bool ADD>
void launch_rms_norm(StreamRef stream, const LaunchPlan& plan, const RmsNormParams& params,
                     bool vectors) {
  const char* name = ADD ? "add_rms_norm" : "rms_norm";
  if (vectors) {
    launch<rms_norm_kernel<T, BLOCK, true, ADD>>(stream, name, plan, params);
  } else {
    launch<rms_norm_kernel<T, BLOCK, false, ADD>>(stream, name, plan, params);
  }
}

template <class T, bool ADD>
void launch_rms_norm(StreamRef stream, const LaunchPlan& plan, const RmsNormParams& params,
                     bool vectors) {
  if (params.columns <= kShortRow) {
    launch_rms_norm<T, kShortBlock, ADD>(stream, plan, params, vectors);
  } else {
    launch_rms_norm<T, kLongBlock, ADD>(stream, plan, params, vectors);
  }
}

}  // namespace

void rms_norm(StreamRef stream, DeviceView out, ConstDeviceView x, ConstDeviceView weight,
              float epsilon) {
  check_dense(x, Dtype::kF32, {-1, -1}, "x");
  const std::int64_t rows = x.dim(0);
  const std::int64_t columns = x.dim(1);
  check_dense(out, out.dtype(), {rows, columns}, "out");
  check_dense(weight, Dtype::kF32, {columns}, "weight");
  if (rows == 0 || columns == 0) {
    return;
  }
  dispatch_activation(out.dtype(), [&]<class T>() {
    const RmsNormParams params{out.raw(),
                               x.data<float>(),
                               nullptr,
                               nullptr,
                               weight.data<float>(),
                               static_cast<int>(rows),
                               static_cast<int>(columns),
                               epsilon};
    const LaunchPlan plan = rms_norm_plan(rows, columns, sizeof(T), false);
    if (launch_native(stream, "rms_norm", plan.traffic, RIGEL_NATIVE_VARIANT(rms_norm<T>),
                      params)) {
      return;
    }
    const bool vectors = columns % simt::kVec<T> == 0 && is_aligned16(out) && is_aligned16(x) &&
                         is_aligned16(weight);
    launch_rms_norm<T, false>(stream, plan, params, vectors);
  });
}

void add_rms_norm(StreamRef stream, DeviceView out, DeviceView residual, ConstDeviceView delta,
                  ConstDeviceView weight, float epsilon) {
  check_dense(residual, Dtype::kF32, {-1, -1}, "residual");
  const std::int64_t rows = residual.dim(0);
  const std::int64_t columns = residual.dim(1);
  check_dense(out, out.dtype(), {rows, columns}, "out");
  check_dense(delta, out.dtype(), {rows, columns}, "delta");
  check_dense(weight, Dtype::kF32, {columns}, "weight");
  if (rows == 0 || columns == 0) {
    return;
  }
  dispatch_activation(out.dtype(), [&]<class T>() {
    const RmsNormParams params{out.raw(),
                               residual.data<float>(),
                               residual.data<float>(),
                               delta.raw(),
                               weight.data<float>(),
                               static_cast<int>(rows),
                               static_cast<int>(columns),
                               epsilon};
    const LaunchPlan plan = rms_norm_plan(rows, columns, sizeof(T), true);
    if (launch_native(stream, "add_rms_norm", plan.traffic, RIGEL_NATIVE_VARIANT(add_rms_norm<T>),
                      params)) {
      return;
    }
    const bool vectors = columns % simt::kVec<T> == 0 && is_aligned16(out) &&
                         is_aligned16(residual) && is_aligned16(delta) && is_aligned16(weight);
    launch_rms_norm<T, true>(stream, plan, params, vectors);
  });
}

void head_rms_norm(StreamRef stream, DeviceView heads, ConstDeviceView weight, float epsilon) {
  check_tensor(heads, heads.dtype(), {-1, -1, -1}, "heads");
  const std::int64_t head_size = heads.dim(2);
  check_dense(weight, Dtype::kF32, {head_size}, "weight");
  RIGEL_CHECK(heads.stride(2) == 1 || head_size <= 1, "heads must be dense in D, got stride {}",
              heads.stride(2));
  const std::int64_t num_heads = heads.dim(0) * heads.dim(1);
  if (num_heads == 0 || head_size == 0) {
    return;
  }
  dispatch_activation(heads.dtype(), [&]<class T>() {
    const HeadRmsNormParams params{heads.raw(),
                                   weight.data<float>(),
                                   heads.stride(0),
                                   heads.stride(1),
                                   static_cast<int>(heads.dim(0)),
                                   static_cast<int>(heads.dim(1)),
                                   static_cast<int>(head_size),
                                   epsilon};
    const LaunchPlan plan = head_rms_norm_plan(num_heads, head_size, sizeof(T));
    if (launch_native(stream, "head_rms_norm", plan.traffic, RIGEL_NATIVE_VARIANT(head_rms_norm<T>),
                      params)) {
      return;
    }
    constexpr std::int64_t kWidth = simt::kVec<T>;
    const bool vectors = head_size % kWidth == 0 && heads.stride(0) % kWidth == 0 &&
                         heads.stride(1) % kWidth == 0 && is_aligned16(heads) &&
                         is_aligned16(weight);
    if (vectors) {
      launch<head_rms_norm_kernel<T, kHeadBlock, true>>(stream, "head_rms_norm", plan, params);
    } else {
      launch<head_rms_norm_kernel<T, kHeadBlock, false>>(stream, "head_rms_norm", plan, params);
    }
  });
}

}  // namespace rigel::kernels
