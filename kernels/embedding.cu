#include "kernels/embedding.h"
#include "kernels/embedding_device.h"
#include "kernels/embedding_native.h"
#include "kernels/launch_checks.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

constexpr int kEmbeddingBlock = 128;

LaunchPlan select_tokens_plan(std::int64_t num_tokens) {
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_tokens, kEmbeddingBlock)));
  plan.block = dim3(kEmbeddingBlock);
  plan.traffic = {12 * num_tokens, 4 * num_tokens, 0};
  return plan;
}

LaunchPlan embed_plan(std::int64_t num_tokens, std::int64_t columns, std::int64_t element_bytes,
                      std::int64_t unit) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(num_tokens),
                   static_cast<unsigned>(ceil_div(columns, kEmbeddingBlock * unit)));
  plan.block = dim3(kEmbeddingBlock);
  plan.traffic = {num_tokens * (columns * element_bytes + 4), num_tokens * columns * 4,
                  num_tokens * columns};
  return plan;
}

}  // namespace

void select_tokens(StreamRef stream, DeviceView out_ids, ConstDeviceView staged_ids,
                   ConstDeviceView token_rows, ConstDeviceView last_token) {
  const std::int64_t num_tokens = out_ids.num_elements();
  check_dense(out_ids, Dtype::kI32, {num_tokens}, "out_ids");
  check_dense(staged_ids, Dtype::kI32, {num_tokens}, "staged_ids");
  check_dense(token_rows, Dtype::kI32, {num_tokens}, "token_rows");
  check_dense(last_token, Dtype::kI32, {-1}, "last_token");
  if (num_tokens == 0) {
    return;
  }
  const SelectTokensParams params{out_ids.data<std::int32_t>(), staged_ids.data<std::int32_t>(),
                                  token_rows.data<std::int32_t>(), last_token.data<std::int32_t>(),
                                  static_cast<int>(num_tokens)};
  const LaunchPlan plan = select_tokens_plan(num_tokens);
  if (launch_native(stream, "select_tokens", plan.traffic, RIGEL_NATIVE_VARIANT(select_tokens),
                    params)) {
    return;
  }
  launch<select_tokens_kernel<kEmbeddingBlock>>(stream, "select_tokens", plan, params);
}

void embed(StreamRef stream, DeviceView out, ConstDeviceView ids, ConstDeviceView table,
           float scale) {
  const std::int64_t num_tokens = ids.num_elements();
  check_dense(ids, Dtype::kI32, {-1}, "ids");
  check_dense(table, table.dtype(), {-1, -1}, "table");
  const std::int64_t columns = table.dim(1);
  check_dense(out, Dtype::kF32, {num_tokens, columns}, "out");
  if (num_tokens == 0 || columns == 0) {
    return;
  }
  dispatch_activation(table.dtype(), [&]<class T>() {
    const EmbedParams params{out.data<float>(),
                             ids.data<std::int32_t>(),
                             table.raw(),
                             static_cast<int>(num_tokens),
                             static_cast<int>(columns),
                             static_cast<int>(table.dim(0)),
                             scale};
    const bool vectors = columns % simt::kVec<T> == 0 && is_aligned16(out) && is_aligned16(table);
    const LaunchPlan plan = embed_plan(num_tokens, columns, sizeof(T), vectors ? simt::kVec<T> : 1);
    if (launch_native(stream, "embed", plan.traffic, RIGEL_NATIVE_VARIANT(embed<T>), params)) {
      return;
    }
    if (vectors) {
      launch<embed_kernel<T, kEmbeddingBlock, true>>(stream, "embed", plan, params);
    } else {
      launch<embed_kernel<T, kEmbeddingBlock, false>>(stream, "embed", plan, params);
    }
  });
}

}  // namespace rigel::kernels
