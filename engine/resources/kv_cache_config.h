#pragma once

#include "tensor/dtype.h"

#include <bit>
#include <cstdint>

namespace rigel {

/// Which tokens of a stream are kept. Whole pages are let go, so a few more may be.
///
/// Without protected tokens an old page leaves a hole at its index: attention must have a window of at most `max_tokens`.
/// With protected tokens the later pages move up, so that attention needs no window; places in the stream are then not
/// positions any more.
struct RetentionPolicy {
  std::int32_t max_tokens = 0;        // latest tokens that are kept; 0: all
  std::int32_t protected_tokens = 0;  // first tokens that are kept beside them
};

/// Sizes of a paged KV cache.
struct KvCacheConfig {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 16;  // tokens
  std::int32_t num_pages = 0;   // the sink included
  std::int32_t num_rows = 0;
  std::int32_t max_length = 0;  // tokens a stream can hold
  Dtype dtype = Dtype::kBf16;
  std::int32_t num_labels = 1;      // streams a request
  std::int32_t num_host_pages = 0;  // pinned, for requests that are offloaded
  RetentionPolicy retention{};
  bool enable_prefix_cache = false;
  std::int32_t world_size =
      1;  // ranks that share the model; they could match different prefixes, so above 1 there are none
  std::uint64_t fingerprint =
      0;  // of the model and whatever else decides what a page of given tokens holds

  /// Bytes of one page in one layer.
  [[nodiscard]] std::int64_t block_bytes() const {
    return std::int64_t{2} * num_kv_heads * page_size * head_dim *
           static_cast<std::int64_t>(size_of(dtype));
  }
  /// Bytes of one page over all layers.
  [[nodiscard]] std::int64_t page_bytes() const { return num_layers * block_bytes(); }
  /// Pages that `length` tokens take.
  [[nodiscard]] std::int32_t pages_for(std::int32_t length) const {
    return page_of(length + page_size - 1);
  }
  /// The index of the page that holds token `place` of a stream. Several a row and step: page_size is a power of two.
  [[nodiscard]] std::int32_t page_of(std::int32_t place) const {
    return place >> std::countr_zero(static_cast<std::uint32_t>(page_size));
  }
  [[nodiscard]] bool has_prefix_cache() const { return enable_prefix_cache && world_size == 1; }
};

}  // namespace rigel
