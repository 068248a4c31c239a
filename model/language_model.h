#pragma once

#include "engine/contract/submodule.h"
#include "engine/resources/kv_cache.h"
#include "engine/resources/sampler.h"
#include "engine/resources/stop_table.h"
#include "kernels/gemm.h"
#include "kernels/signals.h"
#include "model/language_model_names.h"
#include "model/model_config.h"
#include "model/transformer_buffers.h"
#include "model/transformer_weights.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rigel {

/// What of a language model's steps is captured. Each ascends; empty: nothing of that kind.
struct LanguageModelCaptures {
  std::vector<std::int32_t> decode_lanes;  // steps of decode lanes alone
  std::vector<std::int64_t>
      packed_tokens;  // steps with prompts among their lanes, by their tokens ...
  std::vector<std::int32_t> packed_lanes;  // ... and lanes, the last as many as a step may have
  /// Tokens of the blocks between two attentions, for steps with prompts that no capture serves whole.
  std::vector<std::int64_t> block_tokens;
};

/// A decoder-only transformer of the Llama kind as the node of a walk: prefill takes a prompt's tokens into the KV cache and
/// samples after its last one, decode takes the token that each row sampled last. Both run in one step, decode lanes first.
///
/// Resources it needs: "kv", "positions", "attention", "sampler", "stops".
class LanguageModel final : public ArNodeSubmodule {
 public:
  LanguageModel(Device& device, const ModelConfig& config, kernels::Gemm gemm,
                TransformerWeights weights, const StepLimits& limits,
                LanguageModelCaptures captures);

  [[nodiscard]] std::vector<std::string> get_node_resources() const override {
    return {"kv", "positions", "attention", "sampler", "stops"};
  }
  [[nodiscard]] const Device* get_device() const override { return &device_; }
  void bind_node_resources(const NodeResources& resources) override;
  [[nodiscard]] std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                                           const RequestView& request) override;
  [[nodiscard]] std::unique_ptr<NodeInputs> split_inputs(const RequestView& request,
                                                         const NodeInputs& inputs,
                                                         std::int64_t start,
                                                         std::int64_t end) override;
  [[nodiscard]] std::unique_ptr<NodeInputs> replay_inputs(const RequestView& request,
                                                          const Tensor& tokens) override;
  [[nodiscard]] std::optional<LoopBounds> loop_bounds(LoopId loop,
                                                      const RequestInfo& info) const override;
  [[nodiscard]] std::span<const SignalId> device_loopback_signals(WalkId walk) const override;
  [[nodiscard]] std::span<const InlineSignal> inline_client_signals(WalkId walk) const override;
  [[nodiscard]] const NodeInputs* uniform_row_inputs(WalkId walk) const override;
  [[nodiscard]] bool combines_walks(WalkId label) const override {
    return label == LanguageModelNames::kMixed;
  }
  [[nodiscard]] bool can_batch(const BatchColumns& batch) const override;
  [[nodiscard]] bool can_use_cuda_graphs(const BatchColumns& batch) const override;
  [[nodiscard]] CgKey cg_key_info(const BatchColumns& batch) const override;
  [[nodiscard]] std::vector<CudaGraphConfig> get_cuda_graph_configs(
      Device& device, int tensor_parallel_size) const override;
  [[nodiscard]] std::vector<PiecewiseCudaGraphConfig> get_piecewise_cuda_graph_configs(
      Device& device, Dtype dtype, int tensor_parallel_size) const override;
  [[nodiscard]] bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override;
  void preprocess(const BatchColumns& batch, StepContext& context) override;
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override;
  [[nodiscard]] std::vector<LoopId> check_stop(const RequestView& request,
                                               const HostRows& rows) const override;
  [[nodiscard]] bool check_stop_batched(std::span<const RequestView> requests, const HostRows& rows,
                                        std::vector<LoopStop>& stops) const override;

  [[nodiscard]] const TransformerWeights& weights() const { return weights_; }
  [[nodiscard]] const TransformerBuffers& buffers() const { return buffers_; }
  [[nodiscard]] std::string gemm_description() const { return gemm_.description(); }

 private:
  /// The buffers of a step, narrowed to its tokens.
  struct Step {
    const StepContext& context;
    StreamRef stream;
    std::int64_t num_tokens;
    ConstDeviceView positions;
    ConstDeviceView token_rows;
    std::int64_t num_decode_tokens;
    ConstDeviceView decode_rows;  // (num_decode_tokens) i32; undefined: their token rows
    ConstDeviceView prefill_tiles;
  };

  void prepare_gemms();
  void upload_frequencies(Device& device);
  /// Leading lanes that have the row of a decode step.
  [[nodiscard]] std::size_t num_decode_lanes(const BatchColumns& batch) const;
  std::size_t declare_decode_lanes(const BatchColumns& batch, SubmoduleStep& step,
                                   SamplerStep& sampler) const;
  void declare_packed_rows(const BatchColumns& batch, SubmoduleStep& step,
                           SamplerStep& sampler) const;
  void stage_embeddings(const BatchColumns& batch, std::size_t num_decoding, StepContext& context);
  static void stage_scores(const BatchColumns& batch, std::size_t num_decoding,
                           StepContext& context);
  void enqueue_layers(const Step& step, const ModelInputsFromEngine& inputs);
  /// Everything between two attentions: the end of layer `index` - 1 and the beginning of layer `index`, where they are. Reads
  /// and writes the buffers row by row, so that rows behind the step's tokens are nobody's, whatever is in them.
  void enqueue_block(StreamRef stream, std::int64_t num_tokens, int index);
  void enqueue_before_attention(StreamRef stream, std::int64_t num_tokens, int index);
  void enqueue_behind_attention(StreamRef stream, std::int64_t num_tokens, int index);
  void enqueue_attention(const Step& step, int index);
  /// Logits of the tokens whose indices are given: (n, V) f32.
  [[nodiscard]] DeviceView enqueue_head(const Step& step, const ConstDeviceView& token_indices);
  void enqueue_scores(const Step& step, const BatchColumns& batch, BatchedModelOutput& outputs);
  [[nodiscard]] DeviceView last_logits_view(std::size_t num_prompts);

  Device& device_;
  ModelConfig config_;
  kernels::Gemm gemm_;
  TransformerWeights weights_;
  StepLimits limits_;
  TransformerBuffers buffers_;
  DeviceBuffer inverse_frequencies_;  // (R / 2) f32
  float rotary_scale_ = 1.0f;
  float attention_scale_ = 1.0f;
  kernels::RowTensorTable
      embedding_table_;       // of the step that is launched, where a row brings embeddings
  DeviceBuffer last_logits_;  // (n, V) f32; grown when scored prompts first ask for it
  std::shared_ptr<const ArNodeInputs> decode_row_;
  LanguageModelCaptures captures_;
  std::function<NamedViews(const PiecewiseCallInputs&)> run_block_;  // as a captured region does
  RequestInfo nobody_;  // of sampling lanes that a packed capture has too many

  KvCache* kv_cache_ = nullptr;
  Sampler* sampler_ = nullptr;
  StopTable* stops_ = nullptr;
  ResourceKey kv_key_{};
  ResourceKey positions_key_{};
  ResourceKey attention_key_{};
  ResourceKey sampler_key_{};
  ResourceKey stops_key_{};
};

}  // namespace rigel
