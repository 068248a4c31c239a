#include "kernels/gate.h"
#include "kernels/gate_device.h"
#include "kernels/gate_native.h"
#include "kernels/launch_checks.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

constexpr int kGateBlock = 128;

LaunchPlan gate_plan(std::int64_t rows, std::int64_t columns, std::int64_t element_bytes,
                     std::int64_t unit) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(rows),
                   static_cast<unsigned>(ceil_div(columns, kGateBlock * unit)));
  plan.block = dim3(kGateBlock);
  const std::int64_t elements = rows * columns;
  plan.traffic = {2 * elements * element_bytes, elements * element_bytes, 6 * elements};
  return plan;
}

LaunchPlan add_plan(std::int64_t elements, std::int64_t out_bytes, std::int64_t delta_bytes,
                    std::int64_t unit) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(elements, kGateBlock * unit)));
  plan.block = dim3(kGateBlock);
  plan.traffic = {elements * (out_bytes + delta_bytes), elements * out_bytes, elements};
  return plan;
}

template <class T, Activation ACTIVATION>
void launch_gate(StreamRef stream, const GateParams& params, bool vectors,
                 void (*native)(simt::Pool&, const GateParams&)) {
  const LaunchPlan plan =
      gate_plan(params.num_rows, params.columns, sizeof(T), vectors ? simt::kVec<T> : 1);
  if (launch_native(stream, "gate", plan.traffic, native, params)) {
    return;
  }
  if (vectors) {
    launch<gate_kernel<T, kGateBlock, true, ACTIVATION>>(stream, "gate", plan, params);
  } else {
    launch<gate_kernel<T, kGateBlock, false, ACTIVATION>>(stream, "gate", plan, params);
  }
}

template <class O, class T>
void launch_add(StreamRef stream, const char* name, DeviceView out, ConstDeviceView a,
                ConstDeviceView b) {
  const std::int64_t elements = out.num_elements();
  if (elements == 0) {
    return;
  }
  const AddParams params{out.raw(), a.raw(), b.raw(), elements};
  const bool vectors =
      elements % simt::kVec<T> == 0 && is_aligned16(out) && is_aligned16(a) && is_aligned16(b);
  const LaunchPlan plan = add_plan(elements, sizeof(O), sizeof(T), vectors ? simt::kVec<T> : 1);

  if (launch_native(stream, name, plan.traffic, RIGEL_NATIVE_VARIANT(add<O, T>), params)) {
    return;
  }
  if (vectors) {
    launch<add_kernel<O, T, kGateBlock, true>>(stream, name, plan, params);
  } else {
    launch<add_kernel<O, T, kGateBlock, false>>(stream, name, plan, params);
  }
}

}  // namespace

void gate(StreamRef stream, DeviceView out, ConstDeviceView gate_up, Activation activation) {
  check_dense(out, out.dtype(), {-1, -1}, "out");
  const std::int64_t rows = out.dim(0);
  const std::int64_t columns = out.dim(1);
  check_dense(gate_up, out.dtype(), {rows, 2 * columns}, "gate_up");
  if (rows == 0 || columns == 0) {
    return;
  }
  dispatch_activation(out.dtype(), [&]<class T>() {
    const GateParams params{out.raw(), gate_up.raw(), static_cast<int>(rows),
                            static_cast<int>(columns)};
    const bool vectors = columns % simt::kVec<T> == 0 && is_aligned16(out) && is_aligned16(gate_up);
    switch (activation) {
      case Activation::kSilu:
        return launch_gate<T, Activation::kSilu>(stream, params, vectors,
                                                 RIGEL_NATIVE_VARIANT(gate_silu<T>));
      case Activation::kGeluTanh:
        return launch_gate<T, Activation::kGeluTanh>(stream, params, vectors,
                                                     RIGEL_NATIVE_VARIANT(gate_gelu_tanh<T>));
      case Activation::kGeluErf:
        return launch_gate<T, Activation::kGeluErf>(stream, params, vectors,
                                                    RIGEL_NATIVE_VARIANT(gate_gelu_erf<T>));
    }
  });
}

void add_to_residual(StreamRef stream, DeviceView residual, ConstDeviceView delta) {
  check_dense(residual, Dtype::kF32, {residual.dim(0), residual.dim(1)}, "residual");
  check_dense(delta, delta.dtype(), {residual.dim(0), residual.dim(1)}, "delta");
  dispatch_activation(delta.dtype(), [&]<class T>() {
    launch_add<float, T>(stream, "add_to_residual", residual, residual, delta);
  });
}

void add(StreamRef stream, DeviceView out, ConstDeviceView a, ConstDeviceView b) {
  RIGEL_CHECK(out.dtype() == a.dtype() && out.dtype() == b.dtype(),
              "add takes one dtype, got {}, {} and {}", name_of(out.dtype()), name_of(a.dtype()),
              name_of(b.dtype()));
  RIGEL_CHECK(out.shape() == a.shape() && out.shape() == b.shape(),
              "add takes one shape, got {}, {} and {}", to_string(out.shape()),
              to_string(a.shape()), to_string(b.shape()));
  RIGEL_CHECK(out.is_contiguous() && a.is_contiguous() && b.is_contiguous(),
              "add takes contiguous views, got shape {}", to_string(out.shape()));
  dispatch_activation(out.dtype(), [&]<class T>() { launch_add<T, T>(stream, "add", out, a, b); });
}

}  // namespace rigel::kernels
