#include "kernels/launch_checks.h"
#include "kernels/rotary.h"
#include "kernels/rotary_device.h"
#include "kernels/rotary_native.h"

#include <bit>

namespace rigel::kernels {
namespace {

constexpr int kAnglesBlock = 128;
constexpr int kRotaryBlock = 128;
constexpr int kRun = 4;  // pairs a thread rotates at once: 8 bytes of bf16 twice

LaunchPlan rotary_angles_plan(std::int64_t num_tokens, std::int64_t num_pairs) {
  LaunchPlan plan;
  plan.programmatic = true;
  const std::int64_t num_angles = num_tokens * num_pairs;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_angles, kAnglesBlock)));
  plan.block = dim3(kAnglesBlock);
  plan.traffic = Traffic{num_tokens * 4 + num_pairs * 4, num_angles * 8, num_angles * 3};
  return plan;
}

LaunchPlan rotary_plan(const RotaryParams& p, std::int64_t element_bytes) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(p.num_tokens));
  plan.block = dim3(kRotaryBlock);
  const std::int64_t rotated =
      std::int64_t{p.num_tokens} * (p.num_heads + p.num_kv_heads) * p.rotary_dim;
  const std::int64_t appended =
      std::int64_t{p.num_tokens} * p.num_kv_heads * (2 * p.head_size - p.rotary_dim);
  plan.traffic.read_bytes =
      (rotated + appended) * element_bytes + std::int64_t{p.num_tokens} * p.rotary_dim * 4;
  plan.traffic.written_bytes = (rotated + appended) * element_bytes;
  plan.traffic.flops = rotated * 3;
  return plan;
}

/// What both operations have in common: the matrix of heads and the angles.
RotaryParams check_heads(const DeviceView& heads, const ConstDeviceView& angles,
                         std::int64_t head_size) {
  check_tensor(heads, heads.dtype(), {-1, -1}, "heads");
  check_dense(angles, Dtype::kF32, {heads.dim(0), -1, 2}, "angles");
  RIGEL_CHECK(head_size > 0 && heads.dim(1) % head_size == 0,
              "rows of {} elements are no whole heads of {}", heads.dim(1), head_size);
  RIGEL_CHECK(head_size % 2 == 0 && angles.dim(1) * 2 <= head_size,
              "{} rotated pairs do not fit into a head of {}", angles.dim(1), head_size);
  RIGEL_CHECK(heads.dim(0) == 0 || heads.stride(1) == 1, "rows must be dense, got stride {}",
              heads.stride(1));
  RotaryParams params{};
  params.qkv = heads.raw();
  params.angles = angles.data<float>();
  params.qkv_stride = heads.stride(0);
  params.num_tokens = static_cast<std::int32_t>(heads.dim(0));
  params.head_size = static_cast<std::int32_t>(head_size);
  params.rotary_dim = static_cast<std::int32_t>(angles.dim(1) * 2);
  return params;
}

template <class T, bool INTERLEAVED>
void launch_rotary(StreamRef stream, const char* name, const RotaryParams& params) {
  const LaunchPlan plan = rotary_plan(params, sizeof(T));
  if (launch_native(stream, name, plan.traffic, RIGEL_NATIVE_VARIANT(rotary<T, INTERLEAVED>),
                    params)) {
    return;
  }
  const auto is_aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  };
  const bool vectors = params.rotary_dim % (2 * kRun) == 0 && params.head_size % (2 * kRun) == 0 &&
                       params.qkv_stride % (2 * kRun) == 0 && is_aligned(params.qkv) &&
                       is_aligned(params.kv);
  if (vectors) {
    launch<rotary_kernel<T, kRun, INTERLEAVED, kRotaryBlock>>(stream, name, plan, params);
  } else {
    launch<rotary_kernel<T, 1, INTERLEAVED, kRotaryBlock>>(stream, name, plan, params);
  }
}

void launch_rotary(StreamRef stream, const char* name, Dtype dtype, bool interleaved,
                   const RotaryParams& params) {
  dispatch_activation(dtype, [&]<class T>() {
    if (interleaved) {
      launch_rotary<T, true>(stream, name, params);
    } else {
      launch_rotary<T, false>(stream, name, params);
    }
  });
}

}  // namespace

void rotary_angles(StreamRef stream, DeviceView angles, ConstDeviceView positions,
                   ConstDeviceView inverse_frequencies, float scale) {
  check_dense(positions, Dtype::kI32, {-1}, "positions");
  check_dense(inverse_frequencies, Dtype::kF32, {-1}, "inverse_frequencies");
  check_dense(angles, Dtype::kF32, {positions.dim(0), inverse_frequencies.dim(0), 2}, "angles");
  if (angles.num_elements() == 0) {
    return;
  }
  const RotaryAnglesParams params{.angles = angles.data<float>(),
                                  .positions = positions.data<std::int32_t>(),
                                  .inverse_frequencies = inverse_frequencies.data<float>(),
                                  .num_tokens = static_cast<std::int32_t>(angles.dim(0)),
                                  .num_pairs = static_cast<std::int32_t>(angles.dim(1)),
                                  .scale = scale};
  const LaunchPlan plan = rotary_angles_plan(angles.dim(0), angles.dim(1));
  if (launch_native(stream, "rotary_angles", plan.traffic, RIGEL_NATIVE_VARIANT(rotary_angles),
                    params)) {
    return;
  }
  launch<rotary_angles_kernel<kAnglesBlock>>(stream, "rotary_angles", plan, params);
}

void rotary_append_kv(StreamRef stream, const RotaryAppendArgs& args) {
  const Dtype dtype = args.qkv.dtype();
  check_dense(args.kv_layer, dtype, {-1, 2, -1, -1, -1}, "kv_layer");
  const std::int64_t num_kv_heads = args.kv_layer.dim(2);
  const std::int64_t page_size = args.kv_layer.dim(3);
  const std::int64_t head_size = args.kv_layer.dim(4);
  RotaryParams params = check_heads(args.qkv, args.angles, head_size);
  RIGEL_CHECK(args.qkv.dim(1) == (args.num_heads + 2 * num_kv_heads) * head_size,
              "qkv has {} columns, not those of {} + 2 * {} heads of {}", args.qkv.dim(1),
              args.num_heads, num_kv_heads, head_size);
  RIGEL_CHECK(num_kv_heads > 0 && std::has_single_bit(static_cast<std::uint64_t>(page_size)),
              "the page size is a power of two, got {}", page_size);
  check_dense(args.token_rows, Dtype::kI32, {params.num_tokens}, "token_rows");
  check_dense(args.positions, Dtype::kI32, {params.num_tokens}, "positions");
  check_dense(args.page_table, Dtype::kI32, {-1, -1}, "page_table");
  if (params.num_tokens == 0) {
    return;
  }
  params.token_rows = args.token_rows.data<std::int32_t>();
  params.positions = args.positions.data<std::int32_t>();
  params.page_table = args.page_table.data<std::int32_t>();
  params.kv = args.kv_layer.raw();
  params.page_table_stride = static_cast<std::int32_t>(args.page_table.dim(1));
  params.num_heads = args.num_heads;
  params.num_kv_heads = static_cast<std::int32_t>(num_kv_heads);
  params.page_shift = std::countr_zero(static_cast<std::uint32_t>(page_size));
  launch_rotary(stream, "rotary_append_kv", dtype, args.interleaved, params);
}

void rotary(StreamRef stream, DeviceView heads, ConstDeviceView angles, int head_size,
            bool interleaved) {
  RotaryParams params = check_heads(heads, angles, head_size);
  if (params.num_tokens == 0) {
    return;
  }
  params.num_heads = static_cast<std::int32_t>(heads.dim(1) / head_size);
  launch_rotary(stream, "rotary", heads.dtype(), interleaved, params);
}

}  // namespace rigel::kernels
