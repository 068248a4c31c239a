#pragma once

#include "engine/resource.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// The absolute position of each stream's next token, and for a step the columns of positions and rows of its tokens.
/// With a KV cache to follow, a stream that begins with a cached prefix starts behind it and forks are mirrored. Thread: worker.
class Positions final : public Resource {
 public:
  Positions(ResourceKey key, std::int32_t num_rows, std::int32_t num_labels = 1,
            std::optional<ResourceKey> kv_cache = std::nullopt)
      : Resource(key),
        num_rows_(num_rows),
        kv_cache_(kv_cache),
        next_(static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(num_labels), 0),
        owners_(static_cast<std::size_t>(num_rows)) {}

  [[nodiscard]] std::span<const ResourceKey> depends_on() const override {
    return kv_cache_ ? std::span<const ResourceKey>(&*kv_cache_, 1)
                     : std::span<const ResourceKey>();
  }
  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  void restart_request(RequestHandle handle, Epoch last_touch) override;
  void truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                        Epoch last_touch) override;
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void add_counting_columns(const StepContext& context,
                            std::vector<ConstDeviceView>& columns) const override {
    columns.push_back(context.plan<PositionPlan>(key()).positions);
  }
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  [[nodiscard]] bool supports_preplan() const override { return true; }
  void begin_preplan() override { is_staging_ = true; }
  void promote(Epoch epoch) override;
  void clear_preplan() override;

  [[nodiscard]] std::int32_t next(RequestHandle handle, LabelId label = LabelId::kMain) const {
    return next_.at(index_of(handle, label));
  }
  /// The stream's next token is at `position`, which must not be behind where it is.
  void truncate_to(RequestHandle handle, LabelId label, std::int32_t position);

 private:
  struct Undo {
    std::size_t index;
    std::int32_t next;
  };

  [[nodiscard]] static std::size_t index_of(RequestHandle handle, LabelId label,
                                            std::int32_t num_rows) {
    return static_cast<std::size_t>(static_cast<std::int32_t>(label) * num_rows + handle.row);
  }
  [[nodiscard]] std::size_t index_of(RequestHandle handle, LabelId label) const {
    return index_of(handle, label, num_rows_);
  }
  [[nodiscard]] const PositionStep* own_step(const SubmoduleStep& step) const;
  [[nodiscard]] static std::int32_t advance_of(const PositionStep* own, const Segment& segment,
                                               std::size_t index);
  void set(std::size_t index, std::int32_t next);
  void follow_cache(const SubmoduleStep& step, const StepContext& context);
  void fork(std::span<const Fork> forks, std::span<const Segment> segments);

  std::int32_t num_rows_;
  std::optional<ResourceKey> kv_cache_;
  std::vector<std::int32_t> next_;     // by label, then row
  std::vector<RequestHandle> owners_;  // by row
  bool is_staging_ = false;
  std::vector<Undo> undo_;
};

}  // namespace rigel
