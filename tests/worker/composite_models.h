#pragma once

// Two submodules that are no language models, and a model in which one streams to the other: a denoising loop whose frames an
// encoder in another partition turns into sums. They compute on the virtual device, in host functions.

#include "engine/resource.h"
#include "engine/resources/kv_cache.h"
#include "engine/resources/slot_state.h"
#include "tensor/allocator.h"
#include "tensor/buffer.h"
#include "worker/composite_model.h"

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rigel::testing {

/// What happened, in order, and what is to go wrong. Thread: any.
class CompositeScript {
 public:
  void note(std::string event);
  [[nodiscard]] std::vector<std::string> events() const;
  [[nodiscard]] std::size_t count(const std::string& prefix) const;
  void wait_for(const std::string& prefix, std::size_t count) const;

  // Set before the worker starts.
  /// May throw: called with a hook's name and the seed of a request that it is called for.
  std::function<void(const std::string& hook, std::uint64_t seed)> on_hook = [](const std::string&,
                                                                                std::uint64_t) {};
  /// Whether the encoder's resource refuses a step behind another one in flight; called with how often it was asked before.
  std::function<bool(int)> refuses = [](int) { return false; };
  /// Makes the denoiser; none: the ordinary one.
  std::function<std::unique_ptr<NodeSubmodule>(Device&, StreamRef, CompositeScript&)> make_denoiser;
  /// Whether the encoder ends its loop after the chunk that begins with this item of the stream.
  std::function<bool(std::int64_t)> ends_encoding = [](std::int64_t) { return false; };
  /// Whether the encoder's captures, and so its batches, are of chunks of one size.
  bool keys_by_chunk = false;
  /// Whether the encoder's two loops may share steps.
  bool combines_loops = false;
  /// Of the denoiser's history: pages of 4 tokens, on the device and on the host.
  std::int32_t num_pages = 96;
  std::int32_t num_host_pages = 0;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> events_;
};

struct CompositeNames {
  static constexpr SignalId kLatents{0};    // (n) f32
  static constexpr SignalId kCondition{1};  // (1) f32
  static constexpr SignalId kFrame{2};      // (2) f32 items
  static constexpr SignalId kEmbedding{3};  // (1) f32
  static constexpr SignalId kLabel{
      4};  // (4) i32: elements of the row, its iteration, its steps so far, elements at the start
  static constexpr SignalId kChange{5};  // (S) f32 rows: how far the step has moved
  static constexpr SignalId kCarry{6};   // without tensors
  static constexpr SignalId kTrace{10};  // (1) f32: CompositeMath::trace of the branches
  // Staged, by lane.
  static constexpr SignalId kCounts{
      7};  // (L) i32: elements of the lane's tensor along its first dimension
  static constexpr SignalId kFactors{8};  // (L, 2) f32: condition, guidance
  static constexpr SignalId kStarts{9};   // (L) i32: the chunk's place in its stream
  static constexpr LoopId kDenoising{0};
  static constexpr LoopId kEncoding{1};
  static constexpr WalkId kDenoise{0};
  static constexpr WalkId kEncode{1};
  static constexpr WalkId kEncodeRest{2};  // of EncoderLoops::kTwo
  static constexpr WalkId kEncodeBoth{3};  // the label of steps of both
  static constexpr NodeId kDenoiser{0};
  static constexpr NodeId kEncoder{1};
};

/// The arithmetic of both, which the host reference shares.
struct CompositeMath {
  static constexpr int kInnerSteps = 2;
  static constexpr int kMaxIterations = 12;
  static constexpr float kSmallChange = 0.02F;  // below it the loop stops
  static constexpr int kMostFrames = 4;
  static constexpr int kGuidedFrom =
      2;  // iteration: a guided request's second branch begins as a copy of the first
  static constexpr int kWindow = 6;  // latest iterations that a branch's history tells of

  /// A forward of the denoiser on one row; how far it has moved.
  static float denoise(std::vector<float>& latents, float condition, float guidance);
  /// Frames that a row gives off in one iteration: none, one, or more than the encoder takes meanwhile.
  static int num_frames(std::size_t num_latents) { return std::array{0, 1, 4}[num_latents % 3]; }
  static float encode(const float* items, std::int64_t count, std::int64_t start);
  /// What a branch takes in with an iteration: its momentum, of 2 elements, here, and one token of its history.
  static void move(float* momentum, float value);
  /// A branch's state as one number: the last `count` tokens of its history, from place `start` on, and its momentum.
  [[gnu::noinline]] static float trace(const float* window, std::int64_t count, std::int64_t start,
                                       const float* momentum);
};

/// Refines latents until they hardly move. A request with a guidance other than 1 (its temperature) runs a second branch without
/// the condition from iteration kGuidedFrom on, packed behind the first ones of the batch; requests without it, with it, and those
/// whose branch begins are batched apart. Each branch has a label of its own in a history, which keeps a window, and in a state of
/// fixed size. Steps of rows of kCapturedLatents are captured.
class Denoiser : public NodeSubmodule {
 public:
  static constexpr std::int64_t kCapturedLatents = 4;

  Denoiser(Device& device, StreamRef stream, CompositeScript& script);

  std::vector<std::string> get_node_resources() const override { return {"history", "momentum"}; }
  void bind_node_resources(const NodeResources& resources) override;
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView& request) override;
  bool can_batch(const BatchColumns&) const override { return true; }
  bool can_use_cuda_graphs(const BatchColumns& batch) const override;
  CgKey cg_key_info(const BatchColumns& batch) const override;
  bool split_batches_by_capture_key(WalkId) const override { return true; }
  std::optional<std::int32_t> max_batch_size(WalkId) const override { return kMaxLanes; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override;
  void preprocess(const BatchColumns& batch, StepContext& context) override;
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override;
  void postprocess(const RequestView& request, SignalMap& outputs,
                   const NodeInputs& inputs) override;
  std::vector<LoopId> check_stop(const RequestView& request, const HostRows& rows) const override;
  void cleanup_request(RequestHandle) override { script_.on_hook("denoiser.cleanup", 0); }
  std::vector<CudaGraphConfig> get_cuda_graph_configs(Device&, int) const override;

 protected:
  /// What the step refines: (n) f32, the rows of all lanes.
  virtual ConstDeviceView latents_of(const ModelInputsFromEngine& inputs) {
    return inputs.context->staged(CompositeNames::kLatents);
  }

 private:
  static constexpr std::int32_t kMaxLanes = 4;

  /// Addresses on the device: the same in each replay of a capture.
  struct Job {
    const float* latents = nullptr;
    const std::int32_t* counts = nullptr;
    const float* factors = nullptr;
    float* results = nullptr;
    float* frames = nullptr;  // kMostFrames of 2 a lane
    float* changes = nullptr;
    float* traces = nullptr;
    const KvCache* history = nullptr;
    KvPlan plan;
    float* momentum = nullptr;  // 2 elements a slot
    const std::int32_t* slots = nullptr;
    std::int64_t num_lanes = 0;
    bool is_guided = false;
  };
  static void run(void* job);
  static float take_in(const Job& job, std::int64_t token, float value);
  static std::unique_ptr<NodeInputs> make_row(Tensor latents, Tensor condition);
  void declare_states(SubmoduleStep& step) const;

  CompositeScript& script_;
  CachingAllocator allocator_;
  DeviceBuffer changes_;
  const KvCache* history_ = nullptr;
  const SlotState* momentum_ = nullptr;
  Tensor captured_results_;
  Tensor captured_frames_;
  Tensor captured_traces_;
  std::array<Job, 4> jobs_;  // of eager steps
  std::deque<Job> captured_jobs_;
  std::uint64_t num_steps_ = 0;
};

/// Sums the items of each chunk, weighted by their places in the stream. Keeps nothing between steps. Its steps are captured
/// with chunks of any sizes packed together.
class Encoder final : public NodeSubmodule {
 public:
  Encoder(Device& device, StreamRef stream, CompositeScript& script);

  std::vector<std::string> get_node_resources() const override { return {"gate"}; }
  bool combines_walks(WalkId label) const override { return label == CompositeNames::kEncodeBoth; }
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView& request) override;
  bool can_batch(const BatchColumns&) const override { return true; }
  std::optional<std::int32_t> max_batch_size(WalkId) const override { return kMaxLanes; }
  CgKey cg_key_info(const BatchColumns& batch) const override;
  bool split_batches_by_capture_key(WalkId) const override { return script_.keys_by_chunk; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override;
  void preprocess(const BatchColumns& batch, StepContext& context) override;
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override;
  std::vector<CudaGraphConfig> get_cuda_graph_configs(Device&, int) const override;
  std::vector<LoopId> check_stop(const RequestView& request, const HostRows& rows) const override;
  std::span<const SignalId> device_loopback_signals(WalkId) const override;

 private:
  static constexpr std::int32_t kMaxLanes = 3;

  struct Job {
    const float* items = nullptr;  // 2 elements each
    const std::int32_t* counts = nullptr;
    const std::int32_t* starts = nullptr;
    float* results = nullptr;
    std::int64_t num_lanes = 0;
  };
  static void run(void* job);

  CompositeScript& script_;
  CachingAllocator allocator_;
  Tensor captured_results_;
  std::array<Job, 4> jobs_;  // of eager steps
  std::deque<Job> captured_jobs_;
  std::uint64_t num_steps_ = 0;
};

/// The loops in which the encoder runs.
enum class EncoderLoops : std::uint8_t {
  kOne,
  kTwo,  // in two walks, one after the other; each step waits for "carry" of the one before, so that steps run ahead. Requests
         // bring it once for each walk
};

[[nodiscard]] CompositeModel make_composite_model(Device& device, CompositeScript& script,
                                                  EncoderLoops loops = EncoderLoops::kOne);

}  // namespace rigel::testing
