#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/submodule.h"
#include "engine/staging.h"
#include "engine/step_plans.h"
#include "engine/tensor_inputs.h"
#include "tensor/stream.h"

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

/// Columns by sampling lane (S), in the order of the step's lanes. Penalty columns are there where a lane has penalties, or
/// could have in a captured step. Entries of lane -1 stand for nobody.
struct SamplerPlan {
  std::int64_t num_lanes = 0;
  std::int32_t max_logprobs = -1;  // over the lanes; -1: nobody asks
  bool has_penalties = false;
  ConstDeviceView token_indices;   // i32: each lane's last token in the batch
  ConstDeviceView lanes;           // i32: 0..S-1, -1 for padding
  ConstDeviceView rows;            // i32
  ConstDeviceView temperature;     // f32
  ConstDeviceView top_k;           // i32
  ConstDeviceView top_p;           // f32
  ConstDeviceView min_p;           // f32
  ConstDeviceView seeds;           // i64
  ConstDeviceView positions;       // i32: of the token to be drawn
  ConstDeviceView publish;         // i32: 1, the token is the row's next input
  ConstDeviceView logprob_counts;  // i32: alternatives asked for; -1: no log-probabilities
  ConstDeviceView penalty_rows;    // i32: -1 without penalties
  ConstDeviceView repetition;      // f32
  ConstDeviceView presence;        // f32
  ConstDeviceView frequency;       // f32
  ConstDeviceView bias_lanes;      // (n) i32
  ConstDeviceView bias_tokens;     // (n) i32
  ConstDeviceView bias_values;     // (n) f32
  ConstDeviceView barred_lanes;    // (n) i32
  ConstDeviceView barred_tokens;   // (n) i32
  ConstDeviceView
      prompt_rows;  // (T) i32: where the step's input tokens count as a prompt's; -1 elsewhere
  ConstDeviceView
      tracked_rows;  // (n) i32: rows of prompt tokens that are not among the step's inputs
  ConstDeviceView tracked_tokens;  // (n) i32: those tokens
};

/// Rows whose stop test begins with this step; undefined views where there are none.
struct StopPlan {
  ConstDeviceView rows;    // (n) i32
  ConstDeviceView values;  // (n, kStopRowWords) i32, kernels::StopRow each
};

using PlanOutput = std::variant<std::monostate, KvPlan, PositionPlan, AttentionPlan,
                                CrossAttentionPlan, SlotStatePlan, SamplerPlan, StopPlan>;

/// One step on its way through the resources and the forward.
class StepContext {
 public:
  explicit StepContext(StreamRef stream) : stream_(stream) {}

  Epoch epoch = 0;
  std::int32_t slot = 0;  // which of a graph's double buffers the step uses
  StepStaging* staging = nullptr;
  TensorInputs* tensor_inputs = nullptr;
  BatchColumns batch;
  std::int64_t num_tokens = 0;
  /// Turns that a launch of this node may have. Each has a number of its own: those of an epoch follow each other.
  std::int32_t max_turns = 1;
  std::int32_t num_turns = 1;        // that the step may have: set before it is planned
  ConstDeviceView step_number;       // (1) i64: of the step's first turn, known to the device
  ConstDeviceView last_step_number;  // (1) i64: of the last one that it may have

  /// Starts the step's columns: the step's own numbers come first. `staging` is reset already.
  void begin_columns(StepStaging& columns) {
    staging = &columns;
    const auto numbers = columns.column<std::int64_t>(2);
    step_number = numbers.device.slice(0, 0, 1);
    last_step_number = numbers.device.slice(0, 1, 1);
    host_numbers_ = numbers.host;
    set_num_turns(1);
  }
  /// The step may have so many turns: it runs as often, one behind the other, unless the host must see what a turn has given.
  void set_num_turns(std::int32_t wanted) {
    num_turns = wanted;
    host_numbers_[0] = static_cast<std::int64_t>(epoch) * max_turns;
    host_numbers_[1] = host_numbers_[0] + wanted - 1;
  }

  /// The stream that the step runs on.
  [[nodiscard]] StreamRef stream() const { return stream_; }

  /// What the resource `key` planned. Throws CheckError where it planned nothing or something else.
  template <class Plan>
  [[nodiscard]] const Plan& plan(ResourceKey key) const {
    const auto index = static_cast<std::size_t>(key);
    RIGEL_CHECK(index < plans_.size() && std::holds_alternative<Plan>(plans_[index]),
                "resource {} planned nothing of this kind", index);
    return std::get<Plan>(plans_[index]);
  }
  /// The same whatever its kind; monostate where it planned nothing.
  [[nodiscard]] PlanOutput plan_output(ResourceKey key) const {
    const auto index = static_cast<std::size_t>(key);
    return index < plans_.size() ? plans_[index] : PlanOutput{};
  }
  void set_plan(ResourceKey key, PlanOutput plan) {
    const auto index = static_cast<std::size_t>(key);
    if (index >= plans_.size()) {
      plans_.resize(index + 1);
    }
    plans_[index] = std::move(plan);
  }

  /// A column that the submodule staged for its forward.
  void stage(SignalId signal, const ConstDeviceView& view) { staged_.emplace_back(signal, view); }
  /// Stages a tensor that the step's rows bring, part behind part along `dim`, of all lanes in their order. A captured forward
  /// reads it in the buffer of its capture, where it may lie apart along the dimensions before `dim`.
  void bring(SignalId signal, std::span<const Tensor> parts, int dim = 0) {
    stage(signal, tensor_inputs->put(stream_, signal, parts, dim, splices_.rows));
    splices_.expect(staged_.back().second, std::ssize(parts), dim);
  }
  /// Behind the last `bring`: stages what the launch that splices their parts reads.
  void stage_splices();
  /// Enqueues that launch, behind the copy of the columns.
  void enqueue_splices() const;
  [[nodiscard]] const ConstDeviceView& staged(SignalId signal) const {
    for (const auto& [name, view] : staged_) {
      if (name == signal) {
        return view;
      }
    }
    RIGEL_CHECK(false, "nothing was staged under signal {}", static_cast<int>(signal));
    return staged_.front().second;
  }

  /// Forgets the step and keeps the memory.
  void reset() {
    staged_.clear();
    for (PlanOutput& plan : plans_) {
      plan = std::monostate{};
    }
    num_tokens = 0;
    splices_.clear();
  }

 private:
  /// The parts that one launch moves, and room for those that a captured step may have.
  struct Splices {
    std::vector<kernels::RowSplice> rows;
    std::int64_t num_expected = 0;
    std::int64_t num_bytes = 0;
    kernels::SpliceTable table;
    ConstDeviceView lanes;  // undefined: nothing is launched

    void expect(const ConstDeviceView& whole, std::int64_t num_parts, int dim) {
      for (int outer = 0; outer < dim; ++outer) {
        num_parts *= whole.dim(outer);
      }
      num_expected += num_parts;
      num_bytes += whole.num_bytes();
    }
    void clear() {
      rows.clear();
      num_expected = 0;
      num_bytes = 0;
      lanes = {};
    }
  };

  StreamRef stream_;
  std::span<std::int64_t> host_numbers_;
  std::vector<PlanOutput> plans_;
  std::vector<std::pair<SignalId, ConstDeviceView>> staged_;
  Splices splices_;
};

}  // namespace rigel
