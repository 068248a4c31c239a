#pragma once

#include "kernels/attention_device.h"
#include "kernels/attention_params.h"
#include "simt/simt.h"

#include <cstdint>

namespace rigel::kernels {

/// Gives every token its slots in the workspace, in token order, while they last. One block.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) list_chunks_kernel(AttendDecodeParams params) {
  simt::wait_for_predecessor();
  const AttentionParams& p = params.attention;
  const DecodeWorkspace& w = params.workspace;
  SIMT_SHARED(int, sums, BLOCK);
  const int thread = static_cast<int>(threadIdx.x);
  int num_before = 0;  // slots asked for by the tokens of earlier rounds
  int num_used = 0;
  for (int base = 0; base < params.num_tokens; base += BLOCK) {
    const int index = base + thread;
    const bool in_range = index < params.num_tokens;
    const int token = params.first_token + (in_range ? index : 0);
    const bool is_real = in_range && p.token_rows[token] >= 0;
    const KeyRange chunks = is_real ? visible_chunks(p.positions[token], p.window) : KeyRange{0, 0};
    const int num_chunks = chunks.end - chunks.begin;
    const int asked = num_chunks > 1 ? num_chunks : 0;  // one chunk needs no partial result
    sums[thread] = asked;
    __syncthreads();  // before the first step of the scan
    for (int distance = 1; distance < BLOCK; distance *= 2) {
      const int other = thread >= distance ? sums[thread - distance] : 0;
      __syncthreads();  // everyone has read
      sums[thread] += other;
      __syncthreads();  // everyone has added
    }
    const int end = num_before + sums[thread];
    const bool fits = asked > 0 && end <= w.num_slots;
    if (in_range) {
      w.first_slots[index] = !is_real ? kPaddingToken : (fits ? end - asked : kWholeToken);
    }
    for (int i = 0; fits && i < asked; ++i) {
      w.slot_chunks[(end - asked + i) * 2] = token;
      w.slot_chunks[(end - asked + i) * 2 + 1] = chunks.begin + i;
    }
    num_before += sums[BLOCK - 1];
    __syncthreads();  // the next round overwrites the sums
    sums[thread] = fits ? end : 0;
    __syncthreads();  // before the first step of the maximum
    for (int distance = BLOCK / 2; distance > 0; distance /= 2) {
      if (thread < distance && sums[thread + distance] > sums[thread]) {
        sums[thread] = sums[thread + distance];
      }
      __syncthreads();  // halves become quarters
    }
    num_used = sums[0] > num_used ? sums[0] : num_used;
    __syncthreads();  // the next round overwrites the maximum
  }
  if (thread == 0) {
    *w.used_slots = num_used;
  }
}

/// Writes a chunk's partial result into its slot.
template <int ROWS, int BLOCK>
__device__ inline void write_partial(const AttendDecodeParams& params, const QueryRows& rows,
                                     const AttentionShared& s, int slot) {
  const AttentionParams& p = params.attention;
  const int thread = static_cast<int>(threadIdx.x);
  const int stride = padded_head_size(p.head_size);
  for (int i = thread; i < ROWS * p.head_size; i += BLOCK) {
    const int row = i / p.head_size;
    if (s.positions[row] >= 0) {
      const std::int64_t partial = std::int64_t{slot} * p.num_heads + head_of(p, rows, row);
      params.workspace.values[partial * stride + i % p.head_size] =
          chunk_value<ROWS, BLOCK>(p, s, i);
    }
  }
  for (int row = thread; row < ROWS; row += BLOCK) {
    if (s.positions[row] >= 0) {
      const std::int64_t partial = std::int64_t{slot} * p.num_heads + head_of(p, rows, row);
      params.workspace.stats[partial * 2] = s.stats[row * kNumStats + kChunkMax];
      params.workspace.stats[partial * 2 + 1] = s.stats[row * kNumStats + kChunkSum];
    }
  }
}

/// Blocks that a multiprocessor shall hold: without a number ptxas stops at 72 registers for 4 rows of float, and spills.
template <int ROWS>
inline constexpr int kBlocksOfProcessor = ROWS <= 4 ? 5 : 4;

/// grid (blocks that share the work, G, blocks of ROWS heads of a group). Work is the used slots, then the tokens without.
template <class T, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, kBlocksOfProcessor<ROWS>)
    attend_chunks_kernel(AttendDecodeParams params) {
  simt::wait_for_predecessor();
  const AttentionParams& p = params.attention;
  const DecodeWorkspace& w = params.workspace;
  const AttentionShared s = attention_shared(ROWS, p.head_size, BLOCK);
  const int num_slots = *w.used_slots;
  for (int work = static_cast<int>(blockIdx.x); work < num_slots + params.num_tokens;
       work += static_cast<int>(gridDim.x)) {
    const bool is_whole = work >= num_slots;
    if (is_whole && w.first_slots[work - num_slots] != kWholeToken) {
      continue;
    }
    const int token = is_whole ? params.first_token + work - num_slots : w.slot_chunks[work * 2];
    const std::int64_t request = p.token_rows[token];
    const QueryRows rows{token, static_cast<int>(blockIdx.z) * ROWS, p.num_heads / p.num_kv_heads,
                         static_cast<int>(blockIdx.y),
                         p.page_table + request * p.page_table_stride};
    __syncthreads();  // the last work's readers of shared memory
    load_queries<T, ROWS, BLOCK>(p, rows, s);
    __syncthreads();  // queries
    if (is_whole) {
      attend_rows<T, ROWS, BLOCK>(p, rows, s);
    } else {
      attend_chunk<T, ROWS, BLOCK>(p, rows, s, w.slot_chunks[work * 2 + 1]);
      write_partial<ROWS, BLOCK>(params, rows, s, work);
    }
  }
}

/// Folds the slots of a token in ascending order; writes zeros for padding. grid (tokens, H)
template <class T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) fold_chunks_kernel(AttendDecodeParams params) {
  simt::wait_for_predecessor();
  const AttentionParams& p = params.attention;
  const int first_slot = params.workspace.first_slots[blockIdx.x];
  if (first_slot == kWholeToken) {
    return;
  }
  const int token = params.first_token + static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  T* out = static_cast<T*>(p.out) + (std::int64_t{token} * p.num_heads + head) * p.head_size;
  const bool is_padding = first_slot == kPaddingToken;
  const KeyRange chunks =
      is_padding ? KeyRange{0, 0} : visible_chunks(p.positions[token], p.window);
  for (int d = static_cast<int>(threadIdx.x); d < p.head_size; d += BLOCK) {
    float stats[kNumStats];
    stats[kTotalMax] = -INFINITY;
    stats[kTotalSum] = 0;
    float value = 0;
    for (int i = 0; i < chunks.end - chunks.begin; ++i) {
      const std::int64_t partial = std::int64_t{first_slot + i} * p.num_heads + head;
      stats[kChunkMax] = params.workspace.stats[partial * 2];
      stats[kChunkSum] = params.workspace.stats[partial * 2 + 1];
      fold_stats(stats);
      value = fold_value(value, stats[kKept],
                         params.workspace.values[partial * padded_head_size(p.head_size) + d],
                         stats[kAdded]);
    }
    out[d] = simt::from_float<T>(is_padding ? 0.0f : value / stats[kTotalSum]);
  }
}

}  // namespace rigel::kernels
