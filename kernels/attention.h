#pragma once

#include "kernels/attention_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel::kernels {

/// Causal attention of a step's tokens over the paged KV cache of one layer.
///   out (T, H * D) T    q (T, H * D) T, rows any multiple of 8 elements apart (it may lie inside the qkv matrix)
///   kv_layer (P, 2, G, S, D) T    page_table (R, Pmax) i32    token_rows (T) i32    positions (T) i32
/// Each token is a query of its own: at position p of row r it sees the keys max(0, p - window + 1) to p of r's pages, which
/// rotary_append_kv has written before. score = q.k * scale, or soft_cap * tanh(q.k * scale / soft_cap). Tokens of row -1
/// are padding: their output is zero. Pages that hold no visible key are never read, nor are their table entries.
/// Pre: D a multiple of 8 up to 256; H / G a whole number up to 16; S a power of two >= 16; 16-byte aligned.
struct AttentionArgs {
  DeviceView out;
  ConstDeviceView q;
  ConstDeviceView kv_layer;
  ConstDeviceView page_table;
  ConstDeviceView token_rows;
  ConstDeviceView positions;
  float scale = 1;
  float soft_cap = 0;  ///< 0: none
  int window = 0;      ///< keys a query sees, itself included; 0: all before it
};

/// Attention of tokens [first_token, first_token + num_tokens), each perhaps of another row: decode.
///
/// The keys are cut into chunks of 256 at absolute positions. An in-graph kernel lists the (token, chunk) pairs, a fixed grid
/// computes them, and a third kernel folds each token's chunks in ascending order (split-KV, "Flash-Decoding", Dao et al.
/// 2023). Tokens whose chunks the workspace has no room for are folded by one block each: slower, with the same bits.
///   workspace (N) u8, 16-byte aligned; N >= attend_decode_workspace_bytes(num_tokens, 1, H, D)
/// Errors: shapes and dtypes (check). Stream-ordered, capture-safe, bits independent of neighbours and of the workspace.
/// Cost: reads 2 G D elements a visible key, once for all heads of a group.
void attend_decode(StreamRef stream, const AttentionArgs& args, int first_token, int num_tokens,
                   DeviceView workspace);

/// Bytes with which every chunk of `max_tokens` contexts of `max_context` keys has its slot, but no more than 4,096 slots:
/// that many keep any device busy.
[[nodiscard]] std::int64_t attend_decode_workspace_bytes(int max_tokens, int max_context,
                                                         int num_heads, int head_size);

/// Attention of prompts: each tile is a run of consecutive tokens of one row (or of padding), so the prompt's cached prefix
/// and its own keys are read once for up to 16 queries. Gives the bits of attend_decode.
///   tiles (n, 2) i32 on the device: {first token, count}, 0 <= count <= kPrefillTile; 0 is padding and does nothing
/// Errors, stream and capture as attend_decode. Cost: 4 H D FLOPs a query and visible key.
void attend_prefill(StreamRef stream, const AttentionArgs& args, ConstDeviceView tiles);

/// The launches of attend_decode, in order.
struct AttendDecodePlan {
  LaunchPlan list;
  LaunchPlan chunks;
  LaunchPlan fold;
};

/// Pure: the launches for shapes alone. `max_keys` is Pmax * S; traffic counts it as every token's context.
[[nodiscard]] AttendDecodePlan attend_decode_plan(const AttendDecodeParams& params,
                                                  std::int64_t max_keys);
[[nodiscard]] LaunchPlan attend_prefill_plan(const AttendPrefillParams& params,
                                             std::int64_t max_keys);

}  // namespace rigel::kernels
