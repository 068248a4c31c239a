#pragma once

#include "engine/contract/capture_key.h"
#include "engine/contract/ids.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

struct RequestInfo;

/// Which of a request's cache streams ("main", ...); interned by the model.
enum class LabelId : std::uint8_t { kMain = 0 };

/// Labels that a model may have.
inline constexpr std::int32_t kMaxLabels = 4;

/// This step appends `span` tokens to stream `label` of a request. A span of 0 only reads. At most one segment a stream.
struct Segment {
  RequestHandle handle;
  LabelId label = LabelId::kMain;
  std::int32_t span = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Stream `destination` of every request of the step becomes a copy of its stream `source`.
struct Fork {
  LabelId source{};
  LabelId destination{};

  friend bool operator==(const Fork&, const Fork&) = default;
};

// What a submodule declares to each kind of resource. A step without segments of its own takes SubmoduleStep's.

struct KvStep {
  std::vector<Segment> segments;
  bool commit = true;
  /// Labels that run as one batch: their segments lie label after label, each with the same requests in the same order.
  std::vector<LabelId> combined_labels;
  std::vector<Fork> pre_forks;   // before the forward
  std::vector<Fork> post_forks;  // after it, this step's tokens included

  friend bool operator==(const KvStep&, const KvStep&) = default;
};

struct AttentionStep {
  std::vector<Segment> segments;
  bool causal = true;  // false: a token sees all tokens of its segment

  friend bool operator==(const AttentionStep&, const AttentionStep&) = default;
};

struct PositionStep {
  enum class Scheme : std::uint8_t {
    kSequential,
    kBlock,  // the tokens of a segment share one position, and the counter goes on by one
  };
  std::vector<Segment> segments;
  Scheme scheme = Scheme::kSequential;
  std::vector<std::int32_t> pos_ids;  // by token; empty: what the scheme gives
  std::vector<std::int32_t> advance;  // by segment: what commit adds; empty: what the scheme adds

  friend bool operator==(const PositionStep&, const PositionStep&) = default;
};

struct SlotStateStep {
  std::vector<Segment> segments;
  std::vector<Fork> pre_forks;
  std::vector<Fork> post_forks;

  friend bool operator==(const SlotStateStep&, const SlotStateStep&) = default;
};

/// The lanes that sample at the end of this step, in order, each by the index of its last token in the batch.
struct SamplerStep {
  struct Lane {
    RequestHandle handle;
    const RequestInfo* info = nullptr;  // null for padding
    std::int32_t num_generated = 0;     // tokens sampled by earlier steps, read by the host or not
    std::int32_t token_index = 0;

    friend bool operator==(const Lane&, const Lane&) = default;
  };
  /// Tokens that count as a prompt's although they are not among the step's inputs, such as those that a prefix cache spared.
  struct TrackedTokens {
    RequestHandle handle;
    std::span<const std::int32_t> tokens;  // live until the step was planned

    /// The same place: tokens of a step that was planned may be gone.
    friend bool operator==(const TrackedTokens& a, const TrackedTokens& b) {
      return a.handle == b.handle && a.tokens.data() == b.tokens.data() &&
             a.tokens.size() == b.tokens.size();
    }
  };
  std::vector<Lane> lanes;
  bool apply_penalty = true;  // false: the logits are not those of the requests' own texts
  /// In a captured step: alternatives that log-probabilities have room for, whoever asks; -1: none are computed.
  std::int32_t captured_logprobs = -1;
  std::vector<TrackedTokens> prefill_tracked_tokens;

  friend bool operator==(const SamplerStep&, const SamplerStep&) = default;
};

using ResourceStep =
    std::variant<std::monostate, KvStep, AttentionStep, PositionStep, SlotStateStep, SamplerStep>;

/// A batch's declaration: which streams grow by which spans, and who samples. The engine reuses one object for every step
/// of a node, so that a steady step allocates nothing: `reset` keeps capacities.
class SubmoduleStep {
 public:
  std::vector<Segment> segments;  // in token order: the layout of every per-token column
  /// In a packed capture: whose the forward's row outputs are, padding last. Empty: one of each lane.
  std::vector<RequestHandle> row_handles;
  CgKey
      cg_key_info;  // of the capture that this declaration is for; equals what the hook of that name answers

  /// The declaration for `key`, made if it was not there; it stays where it is. `Step` must be the same each time.
  template <class Step>
  Step& declare(ResourceKey key) {
    for (Entry& entry : entries_) {
      if (entry.key == key) {
        entry.active = true;
        return std::get<Step>(entry.step);
      }
    }
    entries_.push_back({key, true, Step{}});
    return std::get<Step>(entries_.back().step);
  }
  [[nodiscard]] const ResourceStep* find(ResourceKey key) const {
    for (const Entry& entry : entries_) {
      if (entry.active && entry.key == key) {
        return &entry.step;
      }
    }
    return nullptr;
  }
  /// The segments of resource `key`: its own, or the step's where it declared none.
  [[nodiscard]] std::span<const Segment> segments_of(ResourceKey key) const {
    const ResourceStep* const step = find(key);
    if (step != nullptr) {
      if (const std::vector<Segment>* own = std::visit(OwnSegments{}, *step);
          own != nullptr && !own->empty()) {
        return *own;
      }
    }
    return segments;
  }
  /// Calls `visit(key)` for every declared resource, in the order of declaration.
  template <class Visit>
  void for_each_key(const Visit& visit) const {
    for (const Entry& entry : entries_) {
      if (entry.active) {
        visit(entry.key);
      }
    }
  }
  /// The request's segments become padding: it takes no part in what is still to be committed.
  void drop(RequestHandle handle) {
    drop_from(segments, handle);
    for (Entry& entry : entries_) {
      if (const std::vector<Segment>* const own = std::visit(OwnSegments{}, entry.step)) {
        drop_from(const_cast<std::vector<Segment>&>(*own), handle);
      }
    }
  }
  /// Forgets the declaration and keeps its memory.
  void reset() {
    segments.clear();
    row_handles.clear();
    cg_key_info = CgKey();
    for (Entry& entry : entries_) {
      entry.active = false;
      std::visit(Clear{}, entry.step);
    }
  }

 private:
  struct Entry {
    ResourceKey key;
    bool active;
    ResourceStep step;
  };
  struct OwnSegments {
    const std::vector<Segment>* operator()(std::monostate) const { return nullptr; }
    const std::vector<Segment>* operator()(const SamplerStep&) const { return nullptr; }
    template <class Step>
    const std::vector<Segment>* operator()(const Step& step) const {
      return &step.segments;
    }
  };
  struct Clear {
    void operator()(std::monostate) const {}
    void operator()(KvStep& step) const {
      step.segments.clear();
      step.commit = true;
      step.combined_labels.clear();
      step.pre_forks.clear();
      step.post_forks.clear();
    }
    void operator()(AttentionStep& step) const {
      step.segments.clear();
      step.causal = true;
    }
    void operator()(PositionStep& step) const {
      step.segments.clear();
      step.scheme = PositionStep::Scheme::kSequential;
      step.pos_ids.clear();
      step.advance.clear();
    }
    void operator()(SlotStateStep& step) const {
      step.segments.clear();
      step.pre_forks.clear();
      step.post_forks.clear();
    }
    void operator()(SamplerStep& step) const {
      step.lanes.clear();
      step.apply_penalty = true;
      step.captured_logprobs = -1;
      step.prefill_tracked_tokens.clear();
    }
  };

  static void drop_from(std::vector<Segment>& segments, RequestHandle handle) {
    for (Segment& segment : segments) {
      segment.handle = segment.handle == handle ? RequestHandle{-1, 0} : segment.handle;
    }
  }

  std::deque<Entry> entries_;  // what declare() gave must not move
};

/// Why a step was not admitted. Nothing of it needs undoing: what was reserved is found again at the next try.
struct AdmitOutcome {
  enum class Reason : std::uint8_t {
    kNone,
    kAllocationFailed,  // pages_short more pages are needed: free some and try again
    kOffloaded,         // the request is on the host: reload it and try again
    kNotReady,          // wait: nothing is wrong with the request
    kNeverFits,         // the request needs more than there is: it has failed
  };
  Reason reason = Reason::kNone;
  std::int32_t pages_short = 0;
  RequestHandle handle{};  // whom it concerns
  LabelId label = LabelId::kMain;
  ResourceKey resource{};  // who refused; filled in by the step runner

  [[nodiscard]] bool ok() const { return reason == Reason::kNone; }
};

}  // namespace rigel
