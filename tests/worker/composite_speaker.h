#pragma once

// A small autoregressive node that keeps a KV cache, positions and a cross-attention cache, and a model in which one request
// comes to it four times: it hears tokens, talks until it likes to stop, hears more, and talks again.

#include "engine/contract/submodule.h"
#include "engine/resources/cross_attention_cache.h"
#include "engine/resources/kv_cache.h"
#include "tensor/allocator.h"
#include "tensor/buffer.h"
#include "tests/worker/composite_models.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace rigel::testing {

struct SpeakerNames {
  static constexpr SignalId kTokens{0};  // (n) i32
  static constexpr SignalId kMemory{1};  // (m) f32: keys that every token attends to
  static constexpr SignalId kMore{2};    // (n) i32
  static constexpr SignalId kSaid{3};    // (1) i32: the token sampled last
  static constexpr SignalId kRows{
      4};  // staged: (S, 2) i32: row, and the lane's last token in the batch
  static constexpr LoopId kTalking{0};
  static constexpr LoopId kTalkingAgain{1};
  static constexpr WalkId kListen{0};
  static constexpr WalkId kTalk{1};
  static constexpr WalkId kListenAgain{2};
  static constexpr WalkId kTalkAgain{3};
  static constexpr WalkId kTogether{4};  // the label of steps of several of them
};

struct SpeakerRequest {
  std::vector<std::int32_t> tokens;
  std::vector<float> memory;  // small whole numbers
  std::vector<std::int32_t> more;
};

/// What it says: the same on the host.
class SpeakerMath {
 public:
  static constexpr int kMaxIterations = 10;
  static constexpr std::int32_t kStopsBelow = 16;

  static std::int64_t stored(std::int64_t token, std::int64_t position, std::int64_t place) {
    return token * (position + 3) + 7 * place;
  }
  static std::int32_t next(std::int64_t sum) { return static_cast<std::int32_t>(sum % 101); }
  [[nodiscard]] static std::vector<float> talk(const SpeakerRequest& request);
};

class Speaker final : public ArNodeSubmodule {
 public:
  Speaker(Device& device, std::int32_t num_rows, CompositeScript& script);

  std::vector<std::string> get_node_resources() const override;
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView& request) override;
  std::unique_ptr<NodeInputs> split_inputs(const RequestView& request, const NodeInputs& inputs,
                                           std::int64_t start, std::int64_t end) override;
  const NodeInputs* uniform_row_inputs(WalkId walk) const override;
  bool combines_walks(WalkId label) const override { return label == SpeakerNames::kTogether; }
  bool can_batch(const BatchColumns&) const override { return true; }
  std::optional<std::int32_t> max_batch_size(WalkId) const override { return kMaxLanes; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override;
  void preprocess(const BatchColumns& batch, StepContext& context) override;
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override;
  std::vector<LoopId> check_stop(const RequestView& request, const HostRows& rows) const override;
  std::span<const SignalId> device_loopback_signals(WalkId walk) const override;
  std::span<const InlineSignal> inline_client_signals(WalkId walk) const override;
  std::vector<CudaGraphConfig> get_cuda_graph_configs(Device&, int) const override;

 private:
  static constexpr std::int32_t kMaxLanes = 4;

  /// Addresses on the device: the same in each replay of a capture.
  struct Job {
    const std::int32_t* tokens = nullptr;  // -1: the one that the row said last
    const std::int32_t* rows = nullptr;
    const float* memory = nullptr;
    KvPlan plan;
    PositionPlan positions;
    CrossAttentionPlan cross;
    const KvCache* history = nullptr;
    const KvCache* keys = nullptr;
    std::int32_t* last_said = nullptr;
    std::int32_t* said = nullptr;
    std::int64_t num_lanes = 0;
  };
  static void run(void* job);
  static void write_keys(const Job& job);
  static std::int64_t attend(const Job& job, std::int64_t token);

  CompositeScript& script_;
  CachingAllocator allocator_;
  DeviceBuffer last_said_;  // (R) i32
  DeviceBuffer said_;       // (S) i32
  std::shared_ptr<ArNodeInputs> spoken_row_;
  ArNodeInputs spoken_beside_;  // the same beside rows that bring tokens
  std::array<Job, 4> jobs_;     // of eager steps
  std::deque<Job> captured_jobs_;
  std::uint64_t num_steps_ = 0;
};

struct SpeakerModel {
  CompositeModel model;
  KvCache* history = nullptr;
  const KvCache* keys = nullptr;
};

struct SpeakerOptions {
  std::int32_t num_rows = 0;
  std::int32_t num_pages = 0;  // of 4 tokens, for all that is heard and said
  std::int32_t num_host_pages = 0;
  bool has_state = false;  // and a state that steps would change in place
  bool combines = false;   // hearing and talking may share a step
};

/// Requests bring "tokens", "memory" and "more" of "speaker"; they get each token as "said".
[[nodiscard]] SpeakerModel make_speaker_model(Device& device, CompositeScript& script,
                                              const SpeakerOptions& options);

}  // namespace rigel::testing
