#include "kernels/attention_native.h"

#include "kernels/attention_panels_native.h"
#include "simt/pool.h"

#include <cstdint>

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

using std::int32_t;
using std::int64_t;

// Query rows that share the widening of K and V. 48 rows of 64 floats are 12 KB: they stay in the first-level cache.
constexpr int kMaxRows = 48;
constexpr int kRowFloats = kMaxHeadSize;

// Pool items of less work than this cost more to hand out than to compute.
constexpr double kItemNanoseconds = 10e3;

/// Query heads of one kv head: `num_pairs` (token, head) pairs from `first_pair` on, counted from `first_token` with the
/// group's heads innermost. All tokens belong to one request.
struct Queries {
  int first_token;
  int first_pair;
  int num_pairs;
  int kv_head;
  const int32_t* pages;
};

/// The attention of up to kMaxRows query heads of one kv head. Lives on the stack of a pool item: 230 KB, touched as far as
/// rows and head size go.
template <class T>
class RowBlock {
 public:
  RowBlock(const AttentionParams& params, const Queries& queries)
      : p_(params),
        queries_(queries),
        group_(params.num_heads / params.num_kv_heads),
        stride_(padded_head_size(params.head_size)) {
    for (int row = 0; row < queries_.num_pairs; ++row) {
      position_[row] = p_.positions[token(row)];
      const T* q = static_cast<const T*>(p_.q) + token(row) * p_.q_stride;
      widen(q + int64_t{head(row)} * p_.head_size, p_.head_size, q_ + row * stride_);
    }
  }

  int num_rows() const { return queries_.num_pairs; }
  int token(int row) const { return queries_.first_token + (queries_.first_pair + row) / group_; }
  int head(int row) const {
    return queries_.kv_head * group_ + (queries_.first_pair + row) % group_;
  }
  const RowStats& chunk_stats(int row) const { return chunk_stats_[row]; }
  const float* chunk_values(int row) const { return chunk_values_ + row * stride_; }

  /// All chunks in ascending order, then the output.
  void attend() {
    KeyRange chunks = visible_chunks(position_[0], p_.window);
    for (int row = 0; row < num_rows(); ++row) {
      const KeyRange own = visible_chunks(position_[row], p_.window);
      chunks.begin = own.begin < chunks.begin ? own.begin : chunks.begin;
      chunks.end = own.end > chunks.end ? own.end : chunks.end;
      start(row);
    }
    for (int chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      attend_chunk(chunk);
      for (int row = 0; row < num_rows(); ++row) {
        if (!is_empty(range_[row])) {
          fold(row, chunk_stats_[row], chunk_values(row));
        }
      }
    }
    for (int row = 0; row < num_rows(); ++row) {
      write(row);
    }
  }

  /// The partial result of each row that sees something of the chunk.
  void attend_chunk(int chunk) {
    all_ = KeyRange{kAttentionChunk, 0};
    for (int row = 0; row < num_rows(); ++row) {
      const KeyRange range = visible_keys(position_[row], p_.window, chunk);
      range_[row] = range;
      if (!is_empty(range)) {
        all_.begin = range.begin < all_.begin ? range.begin : all_.begin;
        all_.end = range.end > all_.end ? range.end : all_.end;
      }
    }
    const int first_panel = all_.begin / kPanelKeys * kPanelKeys;
    for (int key = first_panel; key < all_.end; key += kPanelKeys) {
      multiply_keys(chunk, key);
    }
    for (int row = 0; row < num_rows(); ++row) {
      if (!is_empty(range_[row])) {
        chunk_stats_[row] =
            soften(weights_ + row * kAttentionChunk, range_[row], p_.scale, p_.soft_cap);
      }
    }
    for (int i = 0; i < num_rows() * stride_; ++i) {
      chunk_values_[i] = 0;
    }
    for (int key = first_panel; key < all_.end; key += kPanelKeys) {
      multiply_values(chunk, key);
    }
  }

  /// Makes room for the first fold of a row.
  void start(int row) {
    stats_[row] = RowStats{-__builtin_inff(), 0};
    for (int i = 0; i < stride_; ++i) {
      values_[row * stride_ + i] = 0;
    }
  }

  /// Adds a chunk to what came before it. Out of line: one text, one set of roundings.
  [[gnu::noinline]] void fold(int row, const RowStats& chunk, const float* chunk_values) {
    RowStats& total = stats_[row];
    const float max = total.max > chunk.max ? total.max : chunk.max;
    const F8 kept = exp8(splat8(total.max - max));
    const F8 added = exp8(splat8(chunk.max - max));
    total = RowStats{max, total.sum * kept[0] + chunk.sum * added[0]};
    float* values = values_ + row * stride_;
    for (int d = 0; d < stride_; d += 8) {
      store8(values + d, fma8(load8(values + d), kept, load8(chunk_values + d) * added));
    }
  }

  void write(int row) {
    T* out =
        static_cast<T*>(p_.out) + (int64_t{token(row)} * p_.num_heads + head(row)) * p_.head_size;
    round_scaled(values_ + row * stride_, 1.0f / stats_[row].sum, p_.head_size, out);
  }

 private:
  static bool is_empty(KeyRange range) { return range.end <= range.begin; }

  /// K (part 0) or V (part 1) of the panel that begins at `key` of the chunk.
  const T* panel(int chunk, int key, int part) const {
    const int64_t position = int64_t{chunk} * kAttentionChunk + key;
    const int64_t page = queries_.pages[position >> p_.page_shift];
    const int64_t page_size = int64_t{1} << p_.page_shift;
    const int64_t in_page = position & (page_size - 1);
    const int64_t head = (page * 2 + part) * p_.num_kv_heads + queries_.kv_head;
    return static_cast<const T*>(p_.kv) + (head * page_size + in_page) * p_.head_size;
  }

  int rows_from(int row) const {
    return num_rows() - row < kTileRows ? num_rows() - row : kTileRows;
  }

  /// Products of all rows with 16 keys. What lies outside a row's range (perhaps never written) `soften` ignores.
  void multiply_keys(int chunk, int key) {
    transpose_keys(panel(chunk, key, 0), p_.head_size, panel_);
    for (int row = 0; row < num_rows(); row += kTileRows) {
      multiply<false>(rows_from(row), q_ + row * stride_, stride_, panel_, kPanelKeys, p_.head_size,
                      weights_ + row * kAttentionChunk + key, kAttentionChunk, kPanelKeys);
    }
  }

  /// Adds the weighted values of 16 keys. A value outside a row's range is not even multiplied by zero: it may be NaN.
  void multiply_values(int chunk, int first_key) {
    const KeyRange keys = intersect(all_, KeyRange{first_key, first_key + kPanelKeys});
    const T* values = panel(chunk, first_key, 1);
    for (int key = keys.begin; key < keys.end; ++key) {
      float* to = panel_ + (key - first_key) * stride_;
      widen(values + (key - first_key) * p_.head_size, p_.head_size, to);
      for (int d = p_.head_size; d < stride_; ++d) {
        to[d] = 0;
      }
    }
    for (int row = 0; row < num_rows(); row += kTileRows) {
      const int count = rows_from(row);
      KeyRange shared = keys;
      for (int i = row; i < row + count; ++i) {
        shared = intersect(shared, range_[i]);
      }
      if (is_empty(shared)) {
        shared = KeyRange{keys.end, keys.end};
      }
      for (int i = row; i < row + count; ++i) {
        add_values(i, 1, intersect(range_[i], KeyRange{keys.begin, shared.begin}), first_key);
      }
      add_values(row, count, shared, first_key);
      for (int i = row; i < row + count; ++i) {
        add_values(i, 1, intersect(range_[i], KeyRange{shared.end, keys.end}), first_key);
      }
    }
  }

  void add_values(int row, int count, KeyRange keys, int first_key) {
    if (is_empty(keys)) {
      return;
    }
    multiply<true>(count, weights_ + row * kAttentionChunk + keys.begin, kAttentionChunk,
                   panel_ + (keys.begin - first_key) * stride_, stride_, keys.end - keys.begin,
                   chunk_values_ + row * stride_, stride_, stride_);
  }

  static KeyRange intersect(KeyRange a, KeyRange b) {
    return KeyRange{a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
  }

  const AttentionParams& p_;
  const Queries queries_;
  const int group_;
  const int stride_;  // floats between rows, a multiple of 16
  KeyRange all_;
  int32_t position_[kMaxRows];
  KeyRange range_[kMaxRows];
  RowStats chunk_stats_[kMaxRows];
  RowStats stats_[kMaxRows];
  alignas(64) float q_[kMaxRows * kRowFloats];
  alignas(64) float panel_[kPanelKeys * kRowFloats];  // K transposed, then V
  alignas(64) float weights_[kMaxRows * kAttentionChunk];
  alignas(64) float chunk_values_[kMaxRows * kRowFloats];
  alignas(64) float values_[kMaxRows * kRowFloats];
};

template <class T>
void write_zeros(const AttentionParams& p, int token, int kv_head) {
  const int64_t count = int64_t{p.num_heads / p.num_kv_heads} * p.head_size;
  T* out = static_cast<T*>(p.out) + int64_t{token} * p.num_heads * p.head_size + kv_head * count;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = T{};
  }
}

/// `count` consecutive tokens of one request (or of padding) under one kv head.
template <class T>
void attend_tile(const AttentionParams& p, int first_token, int count, int kv_head) {
  if (count <= 0) {
    return;
  }
  const int32_t row = p.token_rows[first_token];
  if (row < 0) {
    for (int i = 0; i < count; ++i) {
      write_zeros<T>(p, first_token + i, kv_head);
    }
    return;
  }
  const int num_pairs = count * (p.num_heads / p.num_kv_heads);
  for (int first = 0; first < num_pairs; first += kMaxRows) {
    const int left = num_pairs - first;
    RowBlock<T> block(p, Queries{first_token, first, left < kMaxRows ? left : kMaxRows, kv_head,
                                 p.page_table + int64_t{row} * p.page_table_stride});
    block.attend();
  }
}

struct ChunkCount {
  int64_t all = 0;      // of all tokens
  int64_t largest = 0;  // of one token
};

ChunkCount count_chunks(const AttendDecodeParams& params) {
  const AttentionParams& p = params.attention;
  ChunkCount count;
  for (int i = 0; i < params.num_tokens; ++i) {
    const int token = params.first_token + i;
    if (p.token_rows[token] >= 0) {
      const KeyRange chunks = visible_chunks(p.positions[token], p.window);
      const int64_t own = chunks.end - chunks.begin;
      count.all += own;
      count.largest = own > count.largest ? own : count.largest;
    }
  }
  return count;
}

/// Items that `work_nanoseconds` of work in `num_units` indivisible units are worth.
int num_items(double work_nanoseconds, int64_t num_units) {
  const double wanted = work_nanoseconds / kItemNanoseconds;
  const int64_t items = wanted < 1 ? 1 : static_cast<int64_t>(wanted);
  return static_cast<int>(items < num_units ? items : num_units);
}

/// Calls body(unit) for all units, several in a row to an item.
template <class Body>
void for_units(simt::Pool& pool, int items, int64_t num_units, const Body& body) {
  pool.parallel_for(items, [&](int item) {
    const int64_t end = num_units * (item + 1) / items;
    for (int64_t unit = num_units * item / items; unit < end; ++unit) {
      body(unit);
    }
  });
}

struct TokenChunk {
  int token;
  int chunk;
};

/// The `slot`-th (token, chunk) in token order.
TokenChunk chunk_of_slot(const AttendDecodeParams& params, int64_t slot) {
  const AttentionParams& p = params.attention;
  for (int token = params.first_token;; ++token) {
    if (p.token_rows[token] >= 0) {
      const KeyRange chunks = visible_chunks(p.positions[token], p.window);
      if (slot < chunks.end - chunks.begin) {
        return TokenChunk{token, chunks.begin + static_cast<int>(slot)};
      }
      slot -= chunks.end - chunks.begin;
    }
  }
}

template <class T>
void compute_slot(const AttendDecodeParams& params, int64_t slot, int kv_head) {
  const AttentionParams& p = params.attention;
  const TokenChunk at = chunk_of_slot(params, slot);
  const int64_t row = p.token_rows[at.token];
  RowBlock<T> block(p, Queries{at.token, 0, p.num_heads / p.num_kv_heads, kv_head,
                               p.page_table + row * p.page_table_stride});
  block.attend_chunk(at.chunk);
  const int stride = padded_head_size(p.head_size);
  for (int i = 0; i < block.num_rows(); ++i) {
    const int64_t partial = slot * p.num_heads + block.head(i);
    params.workspace.stats[partial * 2] = block.chunk_stats(i).max;
    params.workspace.stats[partial * 2 + 1] = block.chunk_stats(i).sum;
    for (int d = 0; d < stride; ++d) {
      params.workspace.values[partial * stride + d] = block.chunk_values(i)[d];
    }
  }
}

template <class T>
void fold_token(const AttendDecodeParams& params, int token, int64_t slot, int kv_head) {
  const AttentionParams& p = params.attention;
  if (p.token_rows[token] < 0) {
    write_zeros<T>(p, token, kv_head);
    return;
  }
  const KeyRange chunks = visible_chunks(p.positions[token], p.window);
  RowBlock<T> block(p, Queries{token, 0, p.num_heads / p.num_kv_heads, kv_head, nullptr});
  for (int i = 0; i < block.num_rows(); ++i) {
    block.start(i);
    for (int chunk = 0; chunk < chunks.end - chunks.begin; ++chunk) {
      const int64_t partial = (slot + chunk) * p.num_heads + block.head(i);
      const float* stats = params.workspace.stats + partial * 2;
      block.fold(i, RowStats{stats[0], stats[1]},
                 params.workspace.values + partial * padded_head_size(p.head_size));
    }
    block.write(i);
  }
}

template <class T>
void decode(simt::Pool& pool, const AttendDecodeParams& params) {
  const AttentionParams& p = params.attention;
  const ChunkCount chunks = count_chunks(params);
  const int64_t num_units = int64_t{params.num_tokens} * p.num_kv_heads;
  const double nanoseconds = 0.4 * p.head_size * kAttentionChunk * p.num_kv_heads;
  const int items = num_items(nanoseconds * static_cast<double>(chunks.all), num_units);
  // Cutting a token pays where there are few tokens for many threads; the bits are the same.
  const bool cut = chunks.largest > 1 && num_units < int64_t{4} * pool.num_threads() &&
                   pool.num_threads() > 1 && chunks.all <= params.workspace.num_slots;
  if (!cut) {
    for_units(pool, items, num_units, [&](int64_t unit) {
      attend_tile<T>(p, params.first_token + static_cast<int>(unit / p.num_kv_heads), 1,
                     static_cast<int>(unit % p.num_kv_heads));
    });
    return;
  }
  const int64_t num_parts = chunks.all * p.num_kv_heads;
  for_units(pool, static_cast<int>(num_parts), num_parts, [&](int64_t part) {
    compute_slot<T>(params, part / p.num_kv_heads, static_cast<int>(part % p.num_kv_heads));
  });
  int64_t slot = 0;
  for (int i = 0; i < params.num_tokens; ++i) {
    const int token = params.first_token + i;
    for (int kv_head = 0; kv_head < p.num_kv_heads; ++kv_head) {
      fold_token<T>(params, token, slot, kv_head);
    }
    if (p.token_rows[token] >= 0) {
      const KeyRange own = visible_chunks(p.positions[token], p.window);
      slot += own.end - own.begin;
    }
  }
}

template <class T>
void prefill(simt::Pool& pool, const AttendPrefillParams& params) {
  const int num_units = params.num_tiles * params.attention.num_kv_heads;
  pool.parallel_for(num_units, [&](int item) {
    // The last tiles of a prompt see the most keys: they go first, so that no thread ends with a long one.
    const int unit = num_units - 1 - item;
    const int32_t* tile = params.tiles + unit / params.attention.num_kv_heads * 2;
    attend_tile<T>(params.attention, tile[0], tile[1], unit % params.attention.num_kv_heads);
  });
}

}  // namespace

void attend_decode(simt::Pool& pool, const AttendDecodeParams& params) {
  if (params.attention.is_bf16) {
    decode<std::uint16_t>(pool, params);
  } else {
    decode<float>(pool, params);
  }
}

void attend_prefill(simt::Pool& pool, const AttendPrefillParams& params) {
  if (params.attention.is_bf16) {
    prefill<std::uint16_t>(pool, params);
  } else {
    prefill<float>(pool, params);
  }
}

}  // namespace rigel::kernels::RIGEL_NATIVE
