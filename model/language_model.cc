#include "model/language_model.h"

#include "engine/resources/attention_planner.h"
#include "engine/resources/positions.h"
#include "engine/step_context.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/page_table.h"
#include "kernels/rotary.h"
#include "model/rotary_frequencies.h"
#include "tensor/copy.h"
#include "tensor/trace.h"

#include <algorithm>
#include <cmath>

namespace rigel {

using Names = LanguageModelNames;
using kernels::GemmOutput;

namespace {

/// The attention of the first `num_tokens` tokens alone.
kernels::AttentionArgs leading(kernels::AttentionArgs args, std::int64_t num_tokens) {
  args.out = args.out.slice(0, 0, num_tokens);
  args.q = args.q.slice(0, 0, num_tokens);
  args.token_rows = args.token_rows.slice(0, 0, num_tokens);
  args.positions = args.positions.slice(0, 0, num_tokens);
  return args;
}

}  // namespace

LanguageModel::LanguageModel(Device& device, const ModelConfig& config, kernels::Gemm gemm,
                             TransformerWeights weights, const StepLimits& limits,
                             LanguageModelCaptures captures)
    : device_(device),
      config_(config),
      gemm_(std::move(gemm)),
      weights_(std::move(weights)),
      limits_(limits),
      buffers_(device, config, weights_.dtype, limits),
      rotary_scale_(rotary_attention_scale(config.rope)),
      attention_scale_(static_cast<float>(
          config.query_scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim))))),
      captures_(std::move(captures)),
      run_block_([this](const PiecewiseCallInputs& call) {
        enqueue_block(call.engine_inputs.context->stream(), call.num_tokens, call.part);
        return NamedViews();
      }) {
  auto decode_row = std::make_shared<ArNodeInputs>();
  decode_row->walk = Names::kDecode;
  decode_row->input_seq_len = 1;
  decode_row_ = std::move(decode_row);
  upload_frequencies(device);
  prepare_gemms();
}

void LanguageModel::upload_frequencies(Device& device) {
  const std::vector<float> frequencies = rotary_inverse_frequencies(config_.rope);
  const Shape shape{static_cast<std::int64_t>(frequencies.size())};
  inverse_frequencies_ = DeviceBuffer(device, Dtype::kF32, shape);
  const Stream stream(device);
  copy(stream, inverse_frequencies_.view(Dtype::kF32, shape),
       const_host_view(std::span<const float>(frequencies)));
  stream.synchronize();
}

void LanguageModel::prepare_gemms() {
  const std::int64_t max_tokens = limits_.max_tokens;
  for (const LayerWeights& layer : weights_.layers) {
    gemm_.prepare(layer.qkv, {max_tokens, GemmOutput::kActivation, config_.attention_bias});
    gemm_.prepare(layer.output, {max_tokens, GemmOutput::kAccumulate, config_.output_bias});
    gemm_.prepare(layer.gate_up, {max_tokens, GemmOutput::kActivation, config_.mlp_bias});
    gemm_.prepare(layer.down, {max_tokens, GemmOutput::kAccumulate, config_.mlp_bias});
  }
  gemm_.prepare(weights_.lm_head,
                {TransformerBuffers::head_rows(limits_), GemmOutput::kFloat, false});
}

void LanguageModel::bind_node_resources(const NodeResources& resources) {
  kv_cache_ = &resources.get<KvCache>("kv");
  sampler_ = &resources.get<Sampler>("sampler");
  kv_key_ = kv_cache_->key();
  sampler_key_ = sampler_->key();
  stops_ = &resources.get<StopTable>("stops");
  stops_key_ = stops_->key();
  positions_key_ = resources.get<Positions>("positions").key();
  attention_key_ = resources.get<AttentionPlanner>("attention").key();
}

void LanguageModel::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  const StepContext& context = *inputs.context;
  const auto& positions = context.plan<PositionPlan>(positions_key_);
  const auto& attention = context.plan<AttentionPlan>(attention_key_);
  const Step step{.context = context,
                  .stream = context.stream(),
                  .num_tokens = context.num_tokens,
                  .positions = positions.positions,
                  .token_rows = positions.token_rows,
                  .num_decode_tokens = attention.num_decode_tokens,
                  .decode_rows = attention.decode_rows,
                  .prefill_tiles = attention.prefill_tiles};
  const StreamRef stream = step.stream;
  const Shape rows{step.num_tokens};
  const DeviceView ids = buffers_.ids.view(Dtype::kI32, rows);
  const DeviceView residual =
      buffers_.residual.view(Dtype::kF32, {step.num_tokens, config_.hidden_size});

  kernels::apply_page_updates(stream, kv_cache_->page_table(),
                              context.plan<KvPlan>(kv_key_).page_updates);
  kernels::select_tokens(stream, ids, context.staged(Names::kStagedIds), step.token_rows,
                         sampler_->last_tokens());
  kernels::embed(stream, residual, ids,
                 weights_.embedding.view(weights_.dtype, {config_.vocab_size, config_.hidden_size}),
                 static_cast<float>(config_.embedding_scale));
  if (embedding_table_.copies.defined()) {
    kernels::materialize_rows(stream, embedding_table_);
  }
  kernels::rotary_angles(
      stream, buffers_.angles.view(Dtype::kF32, {step.num_tokens, config_.rope.rotary_dim / 2, 2}),
      step.positions, inverse_frequencies_.view(Dtype::kF32, {config_.rope.rotary_dim / 2}),
      rotary_scale_);
  enqueue_layers(step, inputs);
  enqueue_scores(step, context.batch, outputs);
  sampler_->enqueue_prompt_counts(context, ids);
  stops_->enqueue_new_rows(context);
  const auto& lanes = context.plan<SamplerPlan>(sampler_key_);
  for (const SamplerStep::Lane& lane :
       std::get<SamplerStep>(*inputs.step->find(sampler_key_)).lanes) {
    outputs.push_row_handle(lane.handle);
  }
  if (lanes.num_lanes > 0) {
    sampler_->enqueue(context, enqueue_head(step, lanes.token_indices), outputs);
    outputs.set_stop_lanes({.records = Names::kStopRecord,
                            .test = stops_->test(context, outputs.rows(Names::kNewToken))});
  }
}

void LanguageModel::enqueue_attention(const Step& step, int index) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerScope scope(step.stream.device(), index);
  const Dtype dtype = weights_.dtype;
  const std::int64_t num_heads = config_.num_heads;
  const std::int64_t head_dim = config_.head_dim;
  const DeviceView qkv = buffers_.qkv.view(dtype, {step.num_tokens, layer.qkv.num_rows()});
  const DeviceView kv_layer = kv_cache_->layer(index);

  kernels::rotary_append_kv(step.stream,
                            {.qkv = qkv,
                             .angles = buffers_.angles.view(
                                 Dtype::kF32, {step.num_tokens, config_.rope.rotary_dim / 2, 2}),
                             .token_rows = step.token_rows,
                             .positions = step.positions,
                             .page_table = kv_cache_->page_table(),
                             .kv_layer = kv_layer,
                             .num_heads = config_.num_heads,
                             .interleaved = config_.rope.interleaved});

  const kernels::AttentionArgs args{
      .out = buffers_.attention.view(dtype, {step.num_tokens, num_heads * head_dim}),
      .q = qkv.slice(1, 0, num_heads * head_dim),
      .kv_layer = kv_layer,
      .page_table = kv_cache_->page_table(),
      .token_rows = step.token_rows,
      .positions = step.positions,
      .scale = attention_scale_,
      .soft_cap = static_cast<float>(config_.attention_logit_cap.value_or(0.0)),
      .window = config_.sliding_windows[static_cast<std::size_t>(index)]};
  if (step.num_decode_tokens > 0) {
    kernels::AttentionArgs decoding = args;
    if (step.decode_rows.defined()) {
      decoding = leading(args, step.num_decode_tokens);
      decoding.token_rows = step.decode_rows;
    }
    kernels::attend_decode(
        step.stream, decoding, 0, static_cast<int>(step.num_decode_tokens),
        buffers_.decode_workspace.view(Dtype::kU8, {buffers_.decode_workspace.num_bytes()}));
  }
  if (step.prefill_tiles.dim(0) > 0) {
    kernels::attend_prefill(step.stream, args, step.prefill_tiles);
  }
}

}  // namespace rigel
