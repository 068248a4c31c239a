#include "kernels/attend_decode_device.h"
#include "kernels/attention.h"
#include "kernels/attention_device.h"
#include "kernels/attention_native.h"
#include "kernels/launch_checks.h"
#include "kernels/native.h"

#include <algorithm>
#include <bit>

namespace rigel::kernels {
namespace {

constexpr int kAttentionBlock = 128;
constexpr int kListBlock = 256;
constexpr int kFoldBlock = 64;
// Query rows that share the loads of K and V in a block: shared memory grows with it (22 KB at 4 rows, 44 KB at 8, D 64).
constexpr int kFewRows = 4;
constexpr int kManyRows = 8;
// Blocks of the fixed decode grid: two waves of a large GPU at the occupancy of the larger variant.
constexpr std::int64_t kDecodeBlocks = 1056;
constexpr std::int64_t kMaxSlots = 4096;
constexpr std::int64_t kSlotAlignment = 16;

int rows_of_block(int num_rows) {
  return num_rows <= kFewRows ? kFewRows : kManyRows;
}

std::int64_t slot_bytes(std::int64_t num_heads, std::int64_t head_size) {
  return num_heads * (padded_head_size(static_cast<int>(head_size)) + 2) * 4 + 2 * 4;
}

/// Bytes of the workspace that do not depend on the slots.
std::int64_t token_bytes(std::int64_t num_tokens) {
  return (num_tokens + 1) * 4 + kSlotAlignment;
}

AttentionParams check_attention(const AttentionArgs& args) {
  const Dtype dtype = args.q.dtype();
  check_tensor(args.q, dtype, {-1, -1}, "q");
  check_dense(args.kv_layer, dtype, {-1, 2, -1, -1, -1}, "kv_layer");
  const std::int64_t num_tokens = args.q.dim(0);
  const std::int64_t head_size = args.kv_layer.dim(4);
  check_dense(args.out, dtype, {num_tokens, args.q.dim(1)}, "out");
  check_dense(args.page_table, Dtype::kI32, {-1, -1}, "page_table");
  check_dense(args.token_rows, Dtype::kI32, {num_tokens}, "token_rows");
  check_dense(args.positions, Dtype::kI32, {num_tokens}, "positions");
  const std::int64_t num_kv_heads = args.kv_layer.dim(2);
  const std::int64_t page_size = args.kv_layer.dim(3);
  RIGEL_CHECK(head_size % 8 == 0 && head_size >= 8 && head_size <= kMaxHeadSize,
              "the head size is a multiple of 8 up to 256, got {}", head_size);
  RIGEL_CHECK(args.q.dim(1) % head_size == 0, "q has {} columns, not whole heads of {}",
              args.q.dim(1), head_size);
  const std::int64_t num_heads = args.q.dim(1) / head_size;
  RIGEL_CHECK(num_kv_heads > 0 && num_heads % num_kv_heads == 0 &&
                  num_heads / num_kv_heads <= kMaxHeadsPerKvHead,
              "heads are 1 to 16 times the kv heads, got {} and {}", num_heads, num_kv_heads);
  RIGEL_CHECK(page_size >= 16 && std::has_single_bit(static_cast<std::uint64_t>(page_size)),
              "the page size is a power of two of at least 16, got {}", page_size);
  RIGEL_CHECK(args.window >= 0, "the window is not negative, got {}", args.window);
  RIGEL_CHECK(num_tokens == 0 || (args.q.stride(1) == 1 && args.q.stride(0) % 8 == 0),
              "q has dense rows and a row stride of a multiple of 8, got {}", args.q.stride(0));
  RIGEL_CHECK(is_aligned16(args.q) && is_aligned16(args.kv_layer),
              "q and kv_layer must be 16-byte aligned");
  return AttentionParams{.q = args.q.raw(),
                         .out = args.out.raw(),
                         .kv = args.kv_layer.raw(),
                         .page_table = args.page_table.data<std::int32_t>(),
                         .token_rows = args.token_rows.data<std::int32_t>(),
                         .positions = args.positions.data<std::int32_t>(),
                         .q_stride = args.q.stride(0),
                         .page_table_stride = static_cast<std::int32_t>(args.page_table.dim(1)),
                         .num_heads = static_cast<std::int32_t>(num_heads),
                         .num_kv_heads = static_cast<std::int32_t>(num_kv_heads),
                         .head_size = static_cast<std::int32_t>(head_size),
                         .page_shift = std::countr_zero(static_cast<std::uint32_t>(page_size)),
                         .window = args.window,
                         .scale = args.scale,
                         .soft_cap = args.soft_cap,
                         .is_bf16 = dtype == Dtype::kBf16};
}

/// Where the parts of a decode workspace lie: values, stats, {token, chunk} pairs, first slots, count.
DecodeWorkspace decode_workspace(const DeviceView& bytes, const AttentionParams& p,
                                 std::int64_t num_tokens) {
  check_dense(bytes, Dtype::kU8, {-1}, "workspace");
  RIGEL_CHECK(is_aligned16(bytes), "the workspace must be 16-byte aligned");
  const std::int64_t left = bytes.num_bytes() - token_bytes(num_tokens);
  RIGEL_CHECK(left >= 0, "the workspace of {} bytes does not hold {} tokens", bytes.num_bytes(),
              num_tokens);
  const std::int64_t num_slots = std::min(left / slot_bytes(p.num_heads, p.head_size), kMaxSlots);
  DecodeWorkspace w;
  w.num_slots = static_cast<std::int32_t>(num_slots);
  w.values = reinterpret_cast<float*>(bytes.raw());
  w.stats = w.values + num_slots * p.num_heads * padded_head_size(p.head_size);
  w.slot_chunks = reinterpret_cast<std::int32_t*>(w.stats + num_slots * p.num_heads * 2);
  w.first_slots = w.slot_chunks + num_slots * 2;
  w.used_slots = w.first_slots + num_tokens;
  return w;
}

unsigned shared_bytes(int rows, int head_size) {
  return static_cast<unsigned>(attention_shared_floats(rows, head_size, kAttentionBlock)) * 4u;
}

Traffic attention_traffic(const AttentionParams& p, std::int64_t num_queries,
                          std::int64_t num_kv_reads, std::int64_t max_keys) {
  const std::int64_t element_bytes = p.is_bf16 ? 2 : 4;
  const std::int64_t keys = p.window > 0 ? std::min<std::int64_t>(p.window, max_keys) : max_keys;
  const std::int64_t query_elements = num_queries * p.num_heads * p.head_size;
  const std::int64_t key_bytes = std::int64_t{2} * p.num_kv_heads * p.head_size * element_bytes;
  Traffic traffic{query_elements * element_bytes + num_kv_reads * keys * key_bytes,
                  query_elements * element_bytes, 4 * query_elements * keys};
  traffic.context.num_tokens = num_kv_reads * keys;
  traffic.context.read_bytes = static_cast<double>(key_bytes);
  traffic.context.flops =
      4.0 * static_cast<double>(query_elements) / static_cast<double>(num_kv_reads);
  return traffic;
}

template <class T, int ROWS>
void launch_decode(StreamRef stream, const AttendDecodePlan& plan,
                   const AttendDecodeParams& params) {
  launch<list_chunks_kernel<kListBlock>>(stream, "attend_decode.list", plan.list, params);
  launch<attend_chunks_kernel<T, ROWS, kAttentionBlock>>(stream, "attend_decode", plan.chunks,
                                                         params);
  launch<fold_chunks_kernel<T, kFoldBlock>>(stream, "attend_decode.fold", plan.fold, params);
}

}  // namespace

std::int64_t attend_decode_workspace_bytes(int max_tokens, int max_context, int num_heads,
                                           int head_size) {
  const std::int64_t slots = max_tokens * ceil_div(max_context, kAttentionChunk);
  return std::min(slots, kMaxSlots) * slot_bytes(num_heads, head_size) + token_bytes(max_tokens);
}

AttendDecodePlan attend_decode_plan(const AttendDecodeParams& params, std::int64_t max_keys) {
  const AttentionParams& p = params.attention;
  const int group = p.num_heads / p.num_kv_heads;
  const int rows = rows_of_block(group);
  const unsigned row_blocks = static_cast<unsigned>(ceil_div(group, rows));
  const std::int64_t most_work =
      params.num_tokens * std::max<std::int64_t>(ceil_div(max_keys, kAttentionChunk), 1);
  const std::int64_t blocks =
      std::max<std::int64_t>(kDecodeBlocks / (p.num_kv_heads * row_blocks), 1);
  AttendDecodePlan plan;
  plan.list.programmatic = plan.chunks.programmatic = plan.fold.programmatic = true;
  plan.list.grid = dim3(1);
  plan.list.block = dim3(kListBlock);
  plan.list.traffic =
      Traffic{std::int64_t{8} * params.num_tokens, std::int64_t{4} * params.num_tokens, 0};
  plan.chunks.grid = dim3(static_cast<unsigned>(std::min(most_work, blocks)),
                          static_cast<unsigned>(p.num_kv_heads), row_blocks);
  plan.chunks.block = dim3(kAttentionBlock);
  plan.chunks.shared_bytes = shared_bytes(rows, p.head_size);
  plan.chunks.traffic = attention_traffic(p, params.num_tokens, params.num_tokens, max_keys);
  plan.fold.grid =
      dim3(static_cast<unsigned>(params.num_tokens), static_cast<unsigned>(p.num_heads));
  plan.fold.block = dim3(kFoldBlock);
  const std::int64_t slots = std::min<std::int64_t>(most_work, params.workspace.num_slots);
  plan.fold.traffic.read_bytes = slots * slot_bytes(p.num_heads, p.head_size);
  plan.fold.traffic.written_bytes =
      std::int64_t{params.num_tokens} * p.num_heads * p.head_size * (p.is_bf16 ? 2 : 4);
  plan.fold.traffic.context.num_tokens = plan.chunks.traffic.context.num_tokens;
  plan.fold.traffic.context.read_bytes =
      static_cast<double>(plan.fold.traffic.read_bytes) /
      static_cast<double>(std::max<std::int64_t>(plan.fold.traffic.context.num_tokens, 1));
  return plan;
}

LaunchPlan attend_prefill_plan(const AttendPrefillParams& params, std::int64_t max_keys) {
  const AttentionParams& p = params.attention;
  const int most_rows = kPrefillTile * (p.num_heads / p.num_kv_heads);
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(params.num_tiles), static_cast<unsigned>(p.num_kv_heads),
                   static_cast<unsigned>(ceil_div(most_rows, kManyRows)));
  plan.block = dim3(kAttentionBlock);
  plan.shared_bytes = shared_bytes(kManyRows, p.head_size);
  plan.traffic = attention_traffic(p, std::int64_t{params.num_tiles} * kPrefillTile,
                                   params.num_tiles * std::int64_t{plan.grid.z}, max_keys);
  return plan;
}

void attend_decode(StreamRef stream, const AttentionArgs& args, int first_token, int num_tokens,
                   DeviceView workspace) {
  AttendDecodeParams params;
  params.attention = check_attention(args);
  RIGEL_CHECK(first_token >= 0 && num_tokens >= 0 && first_token + num_tokens <= args.q.dim(0),
              "tokens [{}, {}) of {}", first_token, first_token + num_tokens, args.q.dim(0));
  if (num_tokens == 0) {
    return;
  }
  params.workspace = decode_workspace(workspace, params.attention, num_tokens);
  params.first_token = first_token;
  params.num_tokens = num_tokens;
  const AttendDecodePlan plan =
      attend_decode_plan(params, args.page_table.dim(1) * args.kv_layer.dim(3));
  if (launch_native(stream, "attend_decode", plan.chunks.traffic,
                    RIGEL_NATIVE_VARIANT(attend_decode), params)) {
    return;
  }
  const int group = params.attention.num_heads / params.attention.num_kv_heads;
  dispatch_activation(args.q.dtype(), [&]<class T>() {
    if (rows_of_block(group) == kFewRows) {
      launch_decode<T, kFewRows>(stream, plan, params);
    } else {
      launch_decode<T, kManyRows>(stream, plan, params);
    }
  });
}

void attend_prefill(StreamRef stream, const AttentionArgs& args, ConstDeviceView tiles) {
  AttendPrefillParams params;
  params.attention = check_attention(args);
  check_dense(tiles, Dtype::kI32, {-1, 2}, "tiles");
  if (tiles.dim(0) == 0) {
    return;
  }
  params.tiles = tiles.data<std::int32_t>();
  params.num_tiles = static_cast<std::int32_t>(tiles.dim(0));
  const LaunchPlan plan =
      attend_prefill_plan(params, args.page_table.dim(1) * args.kv_layer.dim(3));
  if (launch_native(stream, "attend_prefill", plan.traffic, RIGEL_NATIVE_VARIANT(attend_prefill),
                    params)) {
    return;
  }
  dispatch_activation(args.q.dtype(), [&]<class T>() {
    launch<attend_prefill_kernel<T, kManyRows, kAttentionBlock>>(stream, "attend_prefill", plan,
                                                                 params);
  });
}

}  // namespace rigel::kernels
