#pragma once

#include "kernels/attention_params.h"
#include "kernels/elements_device.h"
#include "simt/simt.h"

#include <cstdint>

namespace rigel::kernels {

/// Dynamic shared memory of a block of `threads` threads that works on `rows` query rows. All arrays are 16-byte aligned.
struct AttentionShared {
  float* q;        // (rows, D)
  float* weights;  // (rows, kAttentionChunk): scores, then exp(score - max)
  float* slices;   // (slices, rows, D): sums over every slices-th key
  float* values;   // (rows, D): the fold so far
  float* stats;    // (rows, kNumStats)
  int* positions;  // (rows): -1 for a row that does not exist
};

/// The numbers of a row that all threads need.
enum AttentionStat : int {
  kChunkMax,  // largest score of the chunk
  kChunkSum,  // sum of its weights
  kTotalMax,  // the same of all chunks so far
  kTotalSum,
  kKept,   // factor of the values so far when the chunk joins them
  kAdded,  // factor of the chunk's values
  kNumStats
};

constexpr int attention_shared_floats(int rows, int head_size, int threads) {
  return 2 * rows * head_size + rows * kAttentionChunk + threads * 8 * rows + rows * kNumStats +
         rows;
}

__device__ inline AttentionShared attention_shared(int rows, int head_size, int threads) {
  AttentionShared s;
  s.q = simt::dyn_smem<float>();
  s.weights = s.q + rows * head_size;
  s.slices = s.weights + rows * kAttentionChunk;
  s.values = s.slices + threads * 8 * rows;
  s.stats = s.values + rows * head_size;
  s.positions = simt::dyn_smem<int>() + (s.stats + rows * kNumStats - s.q);
  return s;
}

/// The query rows of a block: (token, head) pairs of one kv head and one request, heads innermost.
struct QueryRows {
  int first_token;
  int first_pair;
  int num_pairs;  // of the tile; a block takes those in [first_pair, first_pair + ROWS)
  int kv_head;
  const std::int32_t* pages;
};

__device__ inline int token_of(const AttentionParams& p, const QueryRows& rows, int row) {
  return rows.first_token + (rows.first_pair + row) / (p.num_heads / p.num_kv_heads);
}
__device__ inline int head_of(const AttentionParams& p, const QueryRows& rows, int row) {
  const int group = p.num_heads / p.num_kv_heads;
  return rows.kv_head * group + (rows.first_pair + row) % group;
}

/// K (part 0) or V (part 1) of one key under the block's kv head.
template <class T>
__device__ inline const T* key_line(const AttentionParams& p, const QueryRows& rows, int position,
                                    int part) {
  const std::int64_t page = rows.pages[position >> p.page_shift];
  const std::int64_t head = (page * 2 + part) * p.num_kv_heads + rows.kv_head;
  const std::int64_t in_page = position & ((1 << p.page_shift) - 1);
  return static_cast<const T*>(p.kv) + ((head << p.page_shift) + in_page) * p.head_size;
}

/// Keys of the chunk that any row of the block sees.
template <int ROWS>
__device__ inline KeyRange keys_of_block(const AttentionParams& p, const AttentionShared& s,
                                         int chunk) {
  KeyRange all{kAttentionChunk, 0};
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const KeyRange own = visible_keys(s.positions[row], p.window, chunk);
    if (own.end > own.begin) {
      all.begin = own.begin < all.begin ? own.begin : all.begin;
      all.end = own.end > all.end ? own.end : all.end;
    }
  }
  return all;
}

template <class T, int ROWS, int BLOCK>
__device__ inline void load_queries(const AttentionParams& p, const QueryRows& rows,
                                    const AttentionShared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const int vectors = p.head_size / 8;
  for (int i = thread; i < ROWS * vectors; i += BLOCK) {
    const int row = i / vectors;
    float eight[8] = {};
    if (rows.first_pair + row < rows.num_pairs) {
      const std::int64_t token = token_of(p, rows, row);
      const std::int64_t head = head_of(p, rows, row);
      load_elements(
          static_cast<const T*>(p.q) + token * p.q_stride + head * p.head_size + i % vectors * 8,
          eight);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      s.q[i * 8 + j] = eight[j];
      s.values[i * 8 + j] = 0;
    }
  }
  for (int row = thread; row < ROWS; row += BLOCK) {
    const bool exists = rows.first_pair + row < rows.num_pairs;
    s.positions[row] = exists ? p.positions[token_of(p, rows, row)] : -1;
    s.stats[row * kNumStats + kTotalMax] = -INFINITY;
    s.stats[row * kNumStats + kTotalSum] = 0;
  }
}

/// One key a thread: its products with all rows share the loads of K. Each product is one chain of FMAs over D.
template <class T, int ROWS, int BLOCK>
__device__ inline void score_keys(const AttentionParams& p, const QueryRows& rows,
                                  const AttentionShared& s, int chunk, KeyRange keys) {
  for (int key = keys.begin + static_cast<int>(threadIdx.x); key < keys.end; key += BLOCK) {
    const T* line = key_line<T>(p, rows, chunk * kAttentionChunk + key, 0);
    float score[ROWS] = {};
    for (int d = 0; d < p.head_size; d += 8) {
      float k[8];
      load_elements(line + d, k);
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        float q[8];
        load_elements(s.q + row * p.head_size + d, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          score[row] = fmaf(q[i], k[i], score[row]);
        }
      }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      float scaled = score[row] * p.scale;
      if (p.soft_cap > 0) {
        scaled = tanhf(scaled / p.soft_cap) * p.soft_cap;
      }
      s.weights[row * kAttentionChunk + key] = scaled;
    }
  }
}

/// Adds the statistics of a chunk to those of a row and gives the factors of both sides' values.
__device__ inline void fold_stats(float* stats) {
  const float max = fmaxf(stats[kTotalMax], stats[kChunkMax]);
  stats[kKept] = expf(stats[kTotalMax] - max);
  stats[kAdded] = expf(stats[kChunkMax] - max);
  stats[kTotalSum] = fmaf(stats[kTotalSum], stats[kKept], stats[kChunkSum] * stats[kAdded]);
  stats[kTotalMax] = max;
}

/// One fold of a value, as both phases do it.
__device__ inline float fold_value(float total, float kept, float chunk, float added) {
  return fmaf(total, kept, chunk * added);
}

/// A warp a row: scores become weights. A key outside the row's own range weighs nothing; a row that sees nothing of the
/// chunk has a sum of 0 and no fold.
template <int ROWS, int BLOCK>
__device__ inline void soften_rows(const AttentionParams& p, const AttentionShared& s, int chunk,
                                   KeyRange keys) {
  constexpr int kKeysOfLane = kAttentionChunk / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < ROWS; row += BLOCK / 32) {
    const KeyRange own = visible_keys(s.positions[row], p.window, chunk);
    float* weights = s.weights + row * kAttentionChunk;
    float score[kKeysOfLane];
    float max = -INFINITY;
#pragma unroll
    for (int i = 0; i < kKeysOfLane; ++i) {
      const int key = i * 32 + lane;
      score[i] = key >= own.begin && key < own.end ? weights[key] : -INFINITY;
      max = fmaxf(max, score[i]);
    }
    max = simt::warp_max<32>(max);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kKeysOfLane; ++i) {
      const int key = i * 32 + lane;
      const float weight = key >= own.begin && key < own.end ? expf(score[i] - max) : 0.0f;
      sum += weight;
      if (key >= keys.begin && key < keys.end) {
        weights[key] = weight;
      }
    }
    sum = simt::warp_sum<32>(sum);
    if (lane == 0) {
      float* stats = s.stats + row * kNumStats;
      stats[kChunkMax] = max;
      stats[kChunkSum] = sum;
      if (own.end > own.begin) {
        fold_stats(stats);
      }
    }
  }
}

/// D / 8 threads share a key's V, eight elements each, and as many such slices as fit into the block take every so-many-th
/// key. A weight of zero is skipped: V is not even multiplied where it may never have been written.
template <class T, int ROWS, int BLOCK>
__device__ inline void weigh_values(const AttentionParams& p, const QueryRows& rows,
                                    const AttentionShared& s, int chunk, KeyRange keys) {
  const int vectors = p.head_size / 8;
  const int num_slices = BLOCK / vectors;
  const int slice = static_cast<int>(threadIdx.x) / vectors;
  const int d = static_cast<int>(threadIdx.x) % vectors * 8;
  if (slice >= num_slices) {
    return;
  }
  float sums[ROWS][8] = {};
  const int skipped = keys.begin / num_slices * num_slices;
  for (int key = skipped + slice; key < keys.end; key += num_slices) {
    if (key < keys.begin) {
      continue;
    }
    float v[8];
    load_elements(key_line<T>(p, rows, chunk * kAttentionChunk + key, 1) + d, v);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const float weight = s.weights[row * kAttentionChunk + key];
      if (weight != 0) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sums[row][i] = fmaf(weight, v[i], sums[row][i]);
        }
      }
    }
  }
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      s.slices[(slice * ROWS + row) * p.head_size + d + i] = sums[row][i];
    }
  }
}

/// The partial result of a chunk for all rows: stats and slices. The caller reads them after the barrier at the end and puts
/// one more before the next chunk.
template <class T, int ROWS, int BLOCK>
__device__ inline void attend_chunk(const AttentionParams& p, const QueryRows& rows,
                                    const AttentionShared& s, int chunk) {
  const KeyRange keys = keys_of_block<ROWS>(p, s, chunk);
  score_keys<T, ROWS, BLOCK>(p, rows, s, chunk, keys);
  __syncthreads();  // scores
  soften_rows<ROWS, BLOCK>(p, s, chunk, keys);
  __syncthreads();  // weights
  weigh_values<T, ROWS, BLOCK>(p, rows, s, chunk, keys);
  __syncthreads();  // slices
}

/// Element `index` of the chunk's values (ROWS, D).
template <int ROWS, int BLOCK>
__device__ inline float chunk_value(const AttentionParams& p, const AttentionShared& s, int index) {
  const int num_slices = BLOCK / (p.head_size / 8);
  float sum = 0;
  for (int slice = 0; slice < num_slices; ++slice) {
    sum += s.slices[slice * ROWS * p.head_size + index];
  }
  return sum;
}

/// A block's rows over all their chunks, and the output. Every thread calls it; `load_queries` and a barrier came before.
template <class T, int ROWS, int BLOCK>
__device__ inline void attend_rows(const AttentionParams& p, const QueryRows& rows,
                                   const AttentionShared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  KeyRange chunks{0x7fffffff, 0};
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (s.positions[row] >= 0) {
      const KeyRange own = visible_chunks(s.positions[row], p.window);
      chunks.begin = own.begin < chunks.begin ? own.begin : chunks.begin;
      chunks.end = own.end > chunks.end ? own.end : chunks.end;
    }
  }
  for (int chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    attend_chunk<T, ROWS, BLOCK>(p, rows, s, chunk);
    for (int i = thread; i < ROWS * p.head_size; i += BLOCK) {
      const float* stats = s.stats + i / p.head_size * kNumStats;
      if (stats[kChunkSum] != 0) {
        s.values[i] =
            fold_value(s.values[i], stats[kKept], chunk_value<ROWS, BLOCK>(p, s, i), stats[kAdded]);
      }
    }
    __syncthreads();  // the next chunk overwrites stats
  }
  for (int i = thread; i < ROWS * p.head_size; i += BLOCK) {
    const int row = i / p.head_size;
    if (s.positions[row] >= 0) {
      const std::int64_t head =
          std::int64_t{token_of(p, rows, row)} * p.num_heads + head_of(p, rows, row);
      static_cast<T*>(p.out)[head * p.head_size + i % p.head_size] =
          simt::from_float<T>(s.values[i] / s.stats[row * kNumStats + kTotalSum]);
    }
  }
}

/// grid (tiles, G, blocks of ROWS pairs)
template <class T, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) attend_prefill_kernel(AttendPrefillParams params) {
  simt::wait_for_predecessor();
  const AttentionParams& p = params.attention;
  const int first_token = params.tiles[blockIdx.x * 2];
  const int num_tokens = params.tiles[blockIdx.x * 2 + 1];
  const int group = p.num_heads / p.num_kv_heads;
  const int first_pair = static_cast<int>(blockIdx.z) * ROWS;
  if (first_pair >= num_tokens * group) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t request = p.token_rows[first_token];
  const QueryRows rows{first_token, first_pair, num_tokens * group, static_cast<int>(blockIdx.y),
                       p.page_table + (request < 0 ? 0 : request) * p.page_table_stride};
  if (request < 0) {
    const int count = rows.num_pairs - first_pair < ROWS ? rows.num_pairs - first_pair : ROWS;
    for (int i = thread; i < count * p.head_size; i += BLOCK) {
      const int row = i / p.head_size;
      const std::int64_t head =
          std::int64_t{token_of(p, rows, row)} * p.num_heads + head_of(p, rows, row);
      static_cast<T*>(p.out)[head * p.head_size + i % p.head_size] = simt::from_float<T>(0.0f);
    }
    return;
  }
  const AttentionShared s = attention_shared(ROWS, p.head_size, BLOCK);
  load_queries<T, ROWS, BLOCK>(p, rows, s);
  __syncthreads();  // queries
  attend_rows<T, ROWS, BLOCK>(p, rows, s);
}

}  // namespace rigel::kernels
