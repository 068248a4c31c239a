#pragma once

#include "engine/resource.h"
#include "engine/resources/page_arena.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// Sizes of a paged KV cache.
struct KvCacheConfig {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 16;  // tokens
  std::int32_t num_pages = 0;   // the sink included
  std::int32_t num_rows = 0;
  std::int32_t max_length = 0;  // tokens a row can hold
  Dtype dtype = Dtype::kBf16;

  /// Bytes of one page over all layers.
  [[nodiscard]] std::int64_t page_bytes() const {
    return std::int64_t{num_layers} * 2 * num_kv_heads * page_size * head_dim *
           static_cast<std::int64_t>(size_of(dtype));
  }
  /// Pages that `length` tokens take.
  [[nodiscard]] std::int32_t pages_for(std::int32_t length) const {
    return (length + page_size - 1) / page_size;
  }
};

/// Keys and values of every row, in pages: the pool is (layer, page, K|V, kv head, token in page, head dim), the page table
/// (row, index) lives on the device and is changed by differences only. Thread: worker; `layer` and the page table are
/// what a forward reads.
class KvCache final : public Resource {
 public:
  KvCache(ResourceKey key, Device& device, const KvCacheConfig& config);

  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  void restart_request(RequestHandle handle, Epoch last_touch) override;
  AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) override;
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  void collect(Epoch completed) override { arena_.collect(completed); }

  /// Tokens of the row whose keys and values are in the cache (or being computed by a launched step).
  [[nodiscard]] std::int32_t stored_length(RequestHandle handle) const;
  /// Pages the row owns.
  [[nodiscard]] std::int32_t num_pages(RequestHandle handle) const;

  [[nodiscard]] const KvCacheConfig& config() const { return config_; }
  [[nodiscard]] const PageArena& arena() const { return arena_; }

  /// (page, K|V, kv head, token in page, head dim) of one layer.
  [[nodiscard]] DeviceView layer(std::int32_t index) const;
  /// (row, index) i32.
  [[nodiscard]] DeviceView page_table() const { return page_table_view_; }
  /// Indices a row has in the page table.
  [[nodiscard]] std::int32_t max_pages_per_row() const {
    return config_.pages_for(config_.max_length);
  }

 private:
  struct Stream {
    RequestHandle handle;
    std::vector<PageIndex> pages;
    std::int32_t stored_length = 0;
    std::int32_t num_published = 0;  // leading pages that the device's page table has
    bool open = false;
  };

  [[nodiscard]] Stream& stream(RequestHandle handle);
  [[nodiscard]] const Stream& stream(RequestHandle handle) const;
  [[nodiscard]] std::span<const Segment> segments(const SubmoduleStep& step) const;

  KvCacheConfig config_;
  PageArena arena_;
  std::vector<Stream> streams_;  // by row
  DeviceBuffer pool_;
  DeviceBuffer page_table_;
  DeviceView pool_view_;
  DeviceView page_table_view_;
};

}  // namespace rigel
