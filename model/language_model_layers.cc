// The layers of a language model but for attention, and the head that makes logits of their result.

#include "engine/piecewise_runners.h"
#include "engine/step_context.h"
#include "kernels/gate.h"
#include "kernels/rms_norm.h"
#include "kernels/rows.h"
#include "model/language_model.h"
#include "tensor/trace.h"

namespace rigel {

using Names = LanguageModelNames;
using kernels::GemmOutput;

namespace {

kernels::Activation kernel_activation(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::Activation::kSilu;
    case Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case Activation::kGelu:
      return kernels::Activation::kGeluErf;
  }
  return kernels::Activation::kSilu;
}

/// A vector of weights; undefined where the model has none.
ConstDeviceView vector_view(const DeviceBuffer& buffer) {
  return buffer.num_bytes() == 0 ? ConstDeviceView()
                                 : buffer.view(Dtype::kF32, {buffer.num_bytes() / 4});
}

}  // namespace

void LanguageModel::enqueue_layers(const Step& step, const ModelInputsFromEngine& inputs) {
  const bool has_prompts = step.context.batch.walk != Names::kDecode;
  PiecewiseRunners* const regions = has_prompts ? inputs.piecewise_runners : nullptr;
  for (int index = 0; index <= config_.num_layers; ++index) {
    if (regions != nullptr && regions->size() > 0) {
      (*regions)[0].run({.part = index, .seq_lens = {&step.num_tokens, 1}}, inputs);
    } else {
      enqueue_block(step.stream, step.num_tokens, index);
    }
    if (index < config_.num_layers) {
      enqueue_attention(step, index);
    }
  }
}

void LanguageModel::enqueue_block(StreamRef stream, std::int64_t num_tokens, int index) {
  if (index > 0) {
    enqueue_behind_attention(stream, num_tokens, index - 1);
  }
  if (index < config_.num_layers) {
    enqueue_before_attention(stream, num_tokens, index);
  }
}

void LanguageModel::enqueue_before_attention(StreamRef stream, std::int64_t num_tokens, int index) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerScope scope(stream.device(), index);
  const std::int64_t hidden = config_.hidden_size;
  const DeviceView residual = buffers_.residual.view(Dtype::kF32, {num_tokens, hidden});
  const DeviceView normed = buffers_.normed.view(weights_.dtype, {num_tokens, hidden});
  const DeviceView qkv = buffers_.qkv.view(weights_.dtype, {num_tokens, layer.qkv.num_rows()});

  kernels::rms_norm(stream, normed, residual, vector_view(layer.attention_norm),
                    static_cast<float>(config_.rms_norm_epsilon));
  gemm_.run(stream, qkv, normed, layer.qkv, vector_view(layer.qkv_bias), GemmOutput::kActivation);
}

void LanguageModel::enqueue_behind_attention(StreamRef stream, std::int64_t num_tokens, int index) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const Dtype dtype = weights_.dtype;
  const LayerScope scope(stream.device(), index);
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t inner = config_.intermediate_size;
  const std::int64_t query_width = std::int64_t{config_.num_heads} * config_.head_dim;
  const DeviceView residual = buffers_.residual.view(Dtype::kF32, {num_tokens, hidden});
  const DeviceView normed = buffers_.normed.view(dtype, {num_tokens, hidden});
  const DeviceView attention = buffers_.attention.view(dtype, {num_tokens, query_width});
  const DeviceView gate_up = buffers_.gate_up.view(dtype, {num_tokens, 2 * inner});
  const DeviceView gated = buffers_.gated.view(dtype, {num_tokens, inner});

  gemm_.run(stream, residual, attention, layer.output, vector_view(layer.output_bias),
            GemmOutput::kAccumulate);
  kernels::rms_norm(stream, normed, residual, vector_view(layer.mlp_norm),
                    static_cast<float>(config_.rms_norm_epsilon));
  gemm_.run(stream, gate_up, normed, layer.gate_up, vector_view(layer.gate_up_bias),
            GemmOutput::kActivation);
  kernels::gate(stream, gated, gate_up, kernel_activation(config_.activation));
  gemm_.run(stream, residual, gated, layer.down, vector_view(layer.down_bias),
            GemmOutput::kAccumulate);
}

DeviceView LanguageModel::enqueue_head(const Step& step, const ConstDeviceView& token_indices) {
  const std::int64_t num_rows = token_indices.dim(0);
  const std::int64_t hidden = config_.hidden_size;
  const DeviceView gathered = buffers_.head_residual.view(Dtype::kF32, {num_rows, hidden});
  const DeviceView normed = buffers_.head_normed.view(weights_.dtype, {num_rows, hidden});
  const DeviceView logits = buffers_.logits.view(Dtype::kF32, {num_rows, config_.vocab_size});
  kernels::gather_rows(step.stream, gathered,
                       buffers_.residual.view(Dtype::kF32, {step.num_tokens, hidden}),
                       token_indices);
  kernels::rms_norm(step.stream, normed, gathered, vector_view(weights_.final_norm),
                    static_cast<float>(config_.rms_norm_epsilon));
  gemm_.run(step.stream, logits, normed, weights_.lm_head, {}, GemmOutput::kFloat);
  return logits;
}

}  // namespace rigel
