#pragma once

#include "engine/resource.h"
#include "engine/resources/kv_cache.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// Keys and values that a request writes once, as of an encoder's output, and that every later token attends to as a whole.
///
/// A step declares a KvStep with segments of its own: for each request the keys that it writes, or 0 once they are there. The
/// queries are the tokens of the step's own segments. Attention takes `query_streams` as rows and `last_keys` as positions.
/// Thread: worker.
class CrossAttentionCache final : public Resource {
 public:
  /// One label; no retention and no prefix cache (CheckError): what is written stands for no tokens.
  CrossAttentionCache(ResourceKey key, Device& device, const KvCacheConfig& config);

  void ingest_request(const RequestInfo& info) override { store_.ingest_request(info); }
  void remove_request(RequestHandle handle, Epoch last_touch) override {
    store_.remove_request(handle, last_touch);
  }
  void restart_request(RequestHandle handle, Epoch last_touch) override {
    store_.restart_request(handle, last_touch);
  }
  void truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                        Epoch last_touch) override {
    store_.truncate_request(step, accepted, last_touch);
  }
  /// Throws CheckError where a request would write a second time.
  AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) override;
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override {
    store_.commit(step, context);
  }
  void abandon(const SubmoduleStep& step) override { store_.abandon(step); }
  void collect(Epoch completed) override { store_.collect(completed); }

  [[nodiscard]] bool supports_preplan() const override { return true; }
  void begin_preplan() override { store_.begin_preplan(); }
  void promote(Epoch epoch) override { store_.promote(epoch); }
  void clear_preplan() override { store_.clear_preplan(); }

  [[nodiscard]] bool supports_eviction() const override { return store_.supports_eviction(); }
  [[nodiscard]] bool is_offloaded(RequestHandle handle) const override {
    return store_.is_offloaded(handle);
  }
  [[nodiscard]] std::int32_t reclaimable(RequestHandle handle) const override {
    return store_.reclaimable(handle);
  }
  [[nodiscard]] bool can_reload(RequestHandle handle) const override {
    return store_.can_reload(handle);
  }
  bool offload(RequestHandle handle, StreamRef stream, Epoch last_touch) override {
    return store_.offload(handle, stream, last_touch);
  }
  bool reload(RequestHandle handle, StreamRef stream, Epoch last_touch) override {
    return store_.reload(handle, stream, last_touch);
  }

  /// Where keys and values lie, and how many a request has.
  [[nodiscard]] const KvCache& store() const { return store_; }

 private:
  [[nodiscard]] std::span<const Segment> writes(const SubmoduleStep& step) const;

  KvCache store_;
  std::vector<std::int32_t> num_written_;  // by row: keys that the step being planned writes
};

}  // namespace rigel
