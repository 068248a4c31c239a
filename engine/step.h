#pragma once

#include "engine/contract/ids.h"

#include <cstdint>
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

/// This step appends `span` tokens to stream `label` of a request. A span of 0 only reads.
struct Segment {
  RequestHandle handle;
  LabelId label = LabelId::kMain;
  std::int32_t span = 0;
};

// What a submodule declares to each kind of resource. A step without segments of its own takes SubmoduleStep's.

struct KvStep {
  std::vector<Segment> segments;
  bool commit = true;
};

struct AttentionStep {
  bool causal = true;
};

struct PositionStep {
  std::vector<Segment> segments;
};

/// The lanes that sample at the end of this step, in order, each by the index of its last token in the batch.
struct SamplerStep {
  struct Lane {
    RequestHandle handle;
    const RequestInfo* info = nullptr;  // null for padding
    std::int32_t num_generated = 0;     // tokens sampled by earlier steps, read by the host or not
    std::int32_t token_index = 0;
  };
  std::vector<Lane> lanes;
};

using ResourceStep = std::variant<std::monostate, KvStep, AttentionStep, PositionStep, SamplerStep>;

/// A batch's declaration: which streams grow by which spans, and who samples. The engine reuses one object for every step
/// of a node, so that a steady step allocates nothing: `reset` keeps capacities.
class SubmoduleStep {
 public:
  std::vector<Segment> segments;  // in token order: the layout of every per-token column

  /// The declaration for `key`, made if it was not there. `Step` must be the same each time.
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
  /// Forgets the declaration and keeps its memory.
  void reset() {
    segments.clear();
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
  struct Clear {
    void operator()(std::monostate) const {}
    void operator()(KvStep& step) const {
      step.segments.clear();
      step.commit = true;
    }
    void operator()(AttentionStep& step) const { step.causal = true; }
    void operator()(PositionStep& step) const { step.segments.clear(); }
    void operator()(SamplerStep& step) const { step.lanes.clear(); }
  };

  std::vector<Entry> entries_;
};

/// Why a step was not admitted. Nothing of it needs undoing: what was reserved is found again at the next try.
struct AdmitOutcome {
  enum class Reason : std::uint8_t {
    kNone,
    kAllocationFailed,  // pages_short more pages are needed: free some and try again
  };
  Reason reason = Reason::kNone;
  std::int32_t pages_short = 0;
  RequestHandle handle;

  [[nodiscard]] bool ok() const { return reason == Reason::kNone; }
};

}  // namespace rigel
