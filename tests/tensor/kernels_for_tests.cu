#include "simt/simt.h"
#include "tensor/launch.h"
#include "tests/tensor/kernels_for_tests.h"

namespace rigel::testing {
namespace {

constexpr int kBlock = 64;

__global__ void __launch_bounds__(kBlock)
    add_kernel(std::int32_t* out, const std::int32_t* a, const std::int32_t* b, int num_elements) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index < num_elements) {
    out[index] = a[index] + b[index];
  }
}

__global__ void __launch_bounds__(kBlock)
    scale_add_kernel(std::int32_t* x, std::int32_t factor, std::int32_t term, int num_elements) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index < num_elements) {
    x[index] = x[index] * factor + term;
  }
}

__global__ void __launch_bounds__(kBlock) diverge_kernel(int num_threads) {
  if (static_cast<int>(threadIdx.x) >= num_threads) {
    return;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kBlock)
    repeat_until_kernel(const std::int32_t* x, std::int32_t limit, simt::LoopCondition condition) {
  if (threadIdx.x == 0) {
    simt::set_loop_condition(condition, x[0] < limit);
  }
}

LaunchPlan elementwise_plan(std::int64_t num_elements) {
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>((num_elements + kBlock - 1) / kBlock));
  plan.block = dim3(kBlock);
  plan.traffic = {8 * num_elements, 4 * num_elements, num_elements};
  return plan;
}

}  // namespace

void add(StreamRef stream, DeviceView out, ConstDeviceView a, ConstDeviceView b) {
  launch<add_kernel>(stream, "add", elementwise_plan(out.num_elements()), out.data<std::int32_t>(),
                     a.data<const std::int32_t>(), b.data<const std::int32_t>(),
                     out.num_elements());
}

void scale_add(StreamRef stream, DeviceView x, std::int32_t factor, std::int32_t term) {
  launch<scale_add_kernel>(stream, "scale_add", elementwise_plan(x.num_elements()),
                           x.data<std::int32_t>(), factor, term, x.num_elements());
}

void repeat_until(StreamRef stream, ConstDeviceView x, std::int32_t limit,
                  LoopCondition condition) {
  launch<repeat_until_kernel>(stream, "repeat_until", elementwise_plan(1), x.data<std::int32_t>(),
                              limit, condition);
}

void diverge(StreamRef stream) {
  launch<diverge_kernel>(stream, "diverge", elementwise_plan(kBlock), kBlock / 2);
}

}  // namespace rigel::testing
