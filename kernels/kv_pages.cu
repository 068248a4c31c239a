#include "kernels/kv_pages.h"
#include "kernels/kv_pages_device.h"
#include "kernels/kv_pages_native.h"
#include "kernels/launch_checks.h"

#include <algorithm>

namespace rigel::kernels {
namespace {

static_assert(sizeof(CopyPagesParams) <= 1024);

constexpr int kKvPagesBlock = 128;
/// Blocks along one page of one layer, at most: 16 tokens of 8 heads of 128 in bf16 take 32 blocks of 128 threads.
constexpr std::int64_t kMaxBlocksPerPage = 32;

PagedBytes paged_bytes(DeviceView pool, const char* name) {
  RIGEL_CHECK(pool.dtype() == Dtype::kU8 && pool.rank() == 3 && pool.stride(2) == 1 &&
                  pool.stride(0) % 16 == 0 && pool.stride(1) % 16 == 0 && pool.dim(2) % 16 == 0 &&
                  is_aligned16(pool),
              "{} must be (pages, layers, bytes) u8 in blocks of 16 bytes, got {} {}", name,
              name_of(pool.dtype()), to_string(pool.shape()));
  return {pool.raw(), pool.stride(0), pool.stride(1)};
}

void check_pages(const PageCopy& copy, const ConstDeviceView& target,
                 const ConstDeviceView& source) {
  RIGEL_CHECK(copy.target >= 0 && copy.target < target.dim(0) && copy.source >= 0 &&
                  copy.source < source.dim(0),
              "a copy of page {} to page {} in pools of {} and {} pages", copy.source, copy.target,
              source.dim(0), target.dim(0));
}

LaunchPlan copy_pages_plan(const CopyPagesParams& params) {
  LaunchPlan plan;
  const std::int64_t blocks =
      std::min(ceil_div(params.block_bytes, kKvPagesBlock * 16), kMaxBlocksPerPage);
  plan.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(params.num_layers),
                   static_cast<unsigned>(params.num_pages));
  plan.block = dim3(kKvPagesBlock);
  const std::int64_t bytes = params.block_bytes * params.num_layers * params.num_pages;
  plan.traffic = Traffic{bytes, bytes, 0};
  return plan;
}

}  // namespace

void copy_pages(StreamRef stream, DeviceView target, ConstDeviceView source,
                std::span<const PageCopy> copies) {
  CopyPagesParams params{};
  params.target = paged_bytes(target, "target");
  // A source is never written; both sides share one description.
  params.source = paged_bytes(DeviceView(const_cast<std::byte*>(source.raw()), source.dtype(),
                                         source.shape(), source.strides()),
                              "source");
  RIGEL_CHECK(target.dim(1) == source.dim(1) && target.dim(2) == source.dim(2),
              "pages differ in shape: {} and {}", to_string(target.shape()),
              to_string(source.shape()));
  params.num_layers = static_cast<std::int32_t>(target.dim(1));
  params.block_bytes = target.dim(2);
  for (std::size_t first = 0; first < copies.size(); first += kMaxPageCopies) {
    const auto part =
        copies.subspan(first, std::min<std::size_t>(kMaxPageCopies, copies.size() - first));
    params.num_pages = static_cast<std::int32_t>(part.size());
    for (std::size_t index = 0; index < part.size(); ++index) {
      check_pages(part[index], target, source);
      params.target_pages[index] = part[index].target;
      params.source_pages[index] = part[index].source;
    }
    const LaunchPlan plan = copy_pages_plan(params);
    if (!launch_native(stream, "copy_pages", plan.traffic, RIGEL_NATIVE_VARIANT(copy_pages),
                       params)) {
      launch<copy_pages_kernel<kKvPagesBlock>>(stream, "copy_pages", plan, params);
    }
  }
}

}  // namespace rigel::kernels
