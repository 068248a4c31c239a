#include "kernels/launch_checks.h"
#include "kernels/page_table.h"
#include "kernels/page_table_device.h"

namespace rigel::kernels {
namespace {

constexpr int kPageTableBlock = 128;

LaunchPlan page_updates_plan(std::int64_t num_updates) {
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_updates, kPageTableBlock)));
  plan.block = dim3(kPageTableBlock);
  plan.traffic = Traffic{num_updates * 12, num_updates * 4, 0};
  return plan;
}

}  // namespace

void apply_page_updates(StreamRef stream, DeviceView page_table, ConstDeviceView updates) {
  check_dense(page_table, Dtype::kI32, {-1, -1}, "page_table");
  check_dense(updates, Dtype::kI32, {-1, 3}, "updates");
  if (updates.dim(0) == 0) {
    return;
  }
  const PageUpdatesParams params{.page_table = page_table.data<std::int32_t>(),
                                 .updates = updates.data<std::int32_t>(),
                                 .num_rows = static_cast<std::int32_t>(page_table.dim(0)),
                                 .num_columns = static_cast<std::int32_t>(page_table.dim(1)),
                                 .num_updates = static_cast<std::int32_t>(updates.dim(0))};
  launch<page_updates_kernel<kPageTableBlock>>(stream, "apply_page_updates",
                                               page_updates_plan(updates.dim(0)), params);
}

}  // namespace rigel::kernels
