#pragma once

#include "engine/resource.h"
#include "engine/resources/kv_cache_config.h"
#include "engine/resources/kv_stream.h"
#include "engine/resources/page_arena.h"
#include "engine/resources/prefix_index.h"
#include "kernels/kv_pages.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rigel {

/// Keys and values of every request, in pages: the pool is (layer, page, K|V, kv head, token in page, head dim), the page
/// table (stream, index) lives on the device and is changed by differences only. A request has a stream for each label;
/// stream s of the table is label * num_rows + row.
///
/// Full pages may be shared, between forks and with the prefix index; nobody writes a shared page. Thread: worker; `layer` and
/// the page table are what a forward reads. Steps run in the order of one stream, which also runs the copies of forks,
/// offloads and reloads.
class KvCache final : public Resource {
 public:
  /// Throws CheckError naming a size that makes no sense.
  KvCache(ResourceKey key, Device& device, const KvCacheConfig& config);

  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  void restart_request(RequestHandle handle, Epoch last_touch) override;
  /// Not where old pages make way for later ones: what a step let go there is missed.
  [[nodiscard]] bool can_truncate(RequestHandle /*handle*/) const override {
    return config_.retention.protected_tokens == 0;
  }
  void truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                        Epoch last_touch) override;
  [[nodiscard]] bool fits_capture(const SubmoduleStep& step,
                                  const StepContext& context) const override;
  AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context) override;
  /// As many turns as the free pages last, and as a captured step has room for their page updates. A stream keeps the pages that
  /// were taken for a turn that does not come: its next step needs them.
  [[nodiscard]] std::int32_t admit_turns(const SubmoduleStep& step, const StepContext& context,
                                         std::int32_t num_turns) override;
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  void abandon(const SubmoduleStep& step) override;
  void collect(Epoch completed) override;

  [[nodiscard]] bool supports_preplan() const override { return true; }
  void begin_preplan() override;
  void promote(Epoch epoch) override;
  void clear_preplan() override;

  // Offload to the host. Refused (false, nothing changed) while a step of the request is in flight, or where pages are short.
  [[nodiscard]] bool supports_eviction() const override { return host_arena_.has_value(); }
  [[nodiscard]] bool is_offloaded(RequestHandle handle) const override;
  [[nodiscard]] std::int32_t reclaimable(RequestHandle handle) const override;
  [[nodiscard]] bool can_reload(RequestHandle handle) const override;
  bool offload(RequestHandle handle, StreamRef stream, Epoch last_touch) override;
  bool reload(RequestHandle handle, StreamRef stream, Epoch last_touch) override;

  /// Forgets the tokens of a stream from `length` on; pages that held only such are free after step `last_touch`. Requires
  /// that no step with it is admitted, that it is not offloaded and that tokens before `length` are still there.
  void truncate_to(RequestHandle handle, LabelId label, std::int32_t length, Epoch last_touch);

  // The prefix cache, of label main. All of it does nothing where the cache has none.

  /// Finds the longest cached prefix of a request's tokens, in whole pages and short of the last token, and keeps it for the
  /// request's first step, which then begins behind it. Gives its length; the same again until that step is admitted, 0
  /// for a request that has stored something.
  std::int32_t match_prefix(RequestHandle handle, std::span<const std::int32_t> tokens);
  /// Shortens what match_prefix kept to at most `length` tokens, and gives what is left.
  std::int32_t cut_prefix(RequestHandle handle, std::int32_t length);
  /// Indexes the full pages that are stored and whose tokens are known: `tokens` are all of the request's so far. Cost: O(1)
  /// without a new full page.
  void extend_prefix(RequestHandle handle, std::span<const std::int32_t> tokens);
  /// The request stores what no token ids stand for: its pages are indexed no further.
  void drop_prefix(RequestHandle handle);

  /// Pages that a step could take now, or once the steps in flight have completed: free, or held by the prefix index alone.
  [[nodiscard]] std::int32_t num_available() const;
  /// Whether a new request of `num_tokens` may begin: the pages of its prompt and one more are there beside `num_promised`
  /// pages; kNotReady, or kNeverFits, where not.
  [[nodiscard]] AdmitOutcome check_admission(std::int32_t num_tokens,
                                             std::int32_t num_promised) const;

  /// Tokens of the stream whose keys and values are in the cache (or being computed by a launched step).
  [[nodiscard]] std::int32_t stored_length(RequestHandle handle,
                                           LabelId label = LabelId::kMain) const;
  /// Pages the stream owns, alone or with others.
  [[nodiscard]] std::int32_t num_pages(RequestHandle handle, LabelId label = LabelId::kMain) const;
  /// Its pages by index; kNoPage where one was let go.
  [[nodiscard]] std::span<const PageIndex> pages(RequestHandle handle,
                                                 LabelId label = LabelId::kMain) const;
  /// Changes of what the stream stores, counted.
  [[nodiscard]] std::uint64_t generation(RequestHandle handle,
                                         LabelId label = LabelId::kMain) const;
  /// The stream's row in the page table.
  [[nodiscard]] std::int32_t table_row(RequestHandle handle, LabelId label) const {
    return static_cast<std::int32_t>(label) * config_.num_rows + handle.row;
  }

  [[nodiscard]] const KvCacheConfig& config() const { return config_; }
  [[nodiscard]] const PageArena& arena() const { return arena_; }
  [[nodiscard]] const PrefixIndex* prefix_index() const { return index_ ? &*index_ : nullptr; }
  /// Pages on the host that are free now; 0 without a host pool.
  [[nodiscard]] std::int32_t num_free_host_pages() const {
    return host_arena_ ? host_arena_->num_free() : 0;
  }
  /// Throws CheckError unless each page's owners are the streams, leases, undo entries and index entries that have it. O(pages).
  void assert_pages_conserved() const;

  /// (page, K|V, kv head, token in page, head dim) of one layer.
  [[nodiscard]] DeviceView layer(std::int32_t index) const;
  /// (stream, index) i32.
  [[nodiscard]] DeviceView page_table() const { return page_table_view_; }
  /// Indices a stream has in the page table.
  [[nodiscard]] std::int32_t max_pages_per_row() const {
    return config_.pages_for(config_.max_length);
  }

 private:
  [[nodiscard]] CacheRow& row(RequestHandle handle) {
    return const_cast<CacheRow&>(std::as_const(*this).row(handle));
  }
  [[nodiscard]] const CacheRow& row(RequestHandle handle) const {
    RIGEL_CHECK(handle.row >= 0 && handle.row < config_.num_rows, "no row {} in a cache of {} rows",
                handle.row, config_.num_rows);
    const CacheRow& row = rows_[static_cast<std::size_t>(handle.row)];
    RIGEL_CHECK(row.open && row.handle == handle, "row {} belongs to another request", handle.row);
    return row;
  }
  [[nodiscard]] CacheStream& stream(RequestHandle handle, LabelId label) {
    return const_cast<CacheStream&>(std::as_const(*this).stream(handle, label));
  }
  [[nodiscard]] const CacheStream& stream(RequestHandle handle, LabelId label) const {
    RIGEL_CHECK(static_cast<std::int32_t>(label) < config_.num_labels,
                "no label {} in a cache of {} labels", static_cast<int>(label), config_.num_labels);
    return stream_of(row(handle).handle.row, static_cast<std::int32_t>(label));
  }
  [[nodiscard]] CacheStream& stream_of(std::int32_t row, std::int32_t label) {
    return streams_[static_cast<std::size_t>(label * config_.num_rows + row)];
  }
  [[nodiscard]] const CacheStream& stream_of(std::int32_t row, std::int32_t label) const {
    return streams_[static_cast<std::size_t>(label * config_.num_rows + row)];
  }
  /// For a sweep over a step's lanes.
  [[nodiscard]] CacheStreams all_streams() { return {streams_, config_.num_rows}; }
  [[nodiscard]] bool is_admitted(const CacheRow& row) const;
  [[nodiscard]] lifetime::Residency residency_of(const CacheRow& row) const;
  void let_in(const CacheRow& row);
  void keep_out(const CacheRow& row);
  [[nodiscard]] static std::int32_t num_host_pages(const CacheRow& row);
  /// Streams of the row, up to label `end`, that have `page` at `index`.
  [[nodiscard]] std::int32_t num_labels_with(const CacheRow& row, PageIndex page, std::size_t index,
                                             std::int32_t end) const;
  void check_not_staged(RequestHandle handle) const;
  void empty_stream(CacheStream& stream, Epoch last_touch);
  void empty_host_pages(CacheRow& row, Epoch last_touch);

  // Page owners.
  [[nodiscard]] std::optional<PageIndex> take_page();
  void share_page(PageIndex page);
  void drop_page(PageIndex page, Epoch last_touch);

  // Admission.
  struct Admission;
  [[nodiscard]] AdmitOutcome refusal(RequestHandle handle, LabelId label,
                                     std::size_t num_short) const;
  [[nodiscard]] AdmitOutcome reserve(const Segment& segment);
  [[nodiscard]] AdmitOutcome reserve_with_forks(const KvStep& step,
                                                std::span<const Segment> segments,
                                                RequestHandle handle);
  [[nodiscard]] bool fill(std::vector<PageIndex>& pages, std::size_t count);
  [[nodiscard]] bool writes_shared_page(const CacheStream& stream) const;
  [[nodiscard]] std::int64_t num_page_updates(std::span<const Segment> segments,
                                              std::span<const Fork> pre_forks) const;
  void convert_lease(CacheStream& stream);
  void note_undo(std::int32_t stream_index);
  [[nodiscard]] StreamUndo* undo_of(const CacheStream& stream);

  // Planning.
  void check_combined(const KvStep& step, std::span<const Segment> segments) const;
  void fork_all(std::span<const Fork> forks, std::span<const Segment> segments, Epoch epoch);
  void fork(RequestHandle handle, const Fork& fork, Epoch epoch);
  [[nodiscard]] static PageIndex take_reserved(CacheStream& stream);
  void make_private(CacheStream& stream, Epoch epoch);
  /// Differences of the page table that a captured step has room for.
  [[nodiscard]] std::int64_t captured_updates(std::span<const Segment> segments,
                                              std::int64_t num_tokens,
                                              const SlotLease& lease) const;
  void publish(std::span<const Segment> segments, KvPlan& plan, StepContext& context);
  [[nodiscard]] static std::int32_t num_unpublished(const CacheStream& stream);
  [[nodiscard]] ConstDeviceView write_updates(std::int64_t num_places, StepContext& context);
  void enqueue_copies(StreamRef stream);
  void apply_retention(CacheStream& stream, Epoch epoch);

  [[nodiscard]] DeviceView device_blocks() const;  // (page, layer, bytes) u8
  [[nodiscard]] DeviceView host_blocks() const;

  KvCacheConfig config_;
  PageArena arena_;
  std::optional<PrefixIndex> index_;
  std::optional<PageArena> host_arena_;  // its page p is page p - 1 of the host pool
  std::vector<CacheRow> rows_;
  std::vector<CacheStream> streams_;  // by row of the page table
  DeviceBuffer pool_;
  DeviceBuffer page_table_;
  PinnedBuffer host_pool_;
  DeviceView pool_view_;
  DeviceView page_table_view_;

  Epoch completed_ = 0;
  std::uint64_t stamp_ = 0;
  std::vector<StreamStart> starts_;
  std::vector<std::int32_t>
      grown_;  // streams whose page table changes with the step that is planned
  // Of the step that was admitted last: its tokens, and segments that have no room yet.
  std::int64_t num_admitted_tokens_ = 0;
  std::vector<std::uint32_t> needy_;
  std::vector<kernels::PageCopy> copies_;
  bool is_staging_ = false;
  std::vector<StreamUndo> undo_;  // of the staged step
};

}  // namespace rigel
