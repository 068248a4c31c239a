// What of the language model's steps is captured, and what such a step declares more.

#include "model/language_model.h"

#include <algorithm>

namespace rigel {

using Names = LanguageModelNames;

CgKey LanguageModel::cg_key_info(const BatchColumns& batch) const {
  const bool anybody =
      sampler_->num_with_logprobs() > 0 && std::ranges::any_of(batch.infos, [](const auto* info) {
        return info->sampling.num_logprobs >= 0;
      });
  return anybody ? Names::kWithLogprobs : Names::kPlain;
}

std::vector<CudaGraphConfig> LanguageModel::get_cuda_graph_configs(
    Device& /*device*/, int /*tensor_parallel_size*/) const {
  std::vector<CudaGraphConfig> configs;
  for (const CgKey key : {Names::kPlain, Names::kWithLogprobs}) {
    if (!captures_.decode_lanes.empty()) {
      BatchedGraphConfig config;
      config.capture_walk = Names::kDecode;
      config.key = key;
      config.key_name = key == Names::kWithLogprobs ? "logprobs" : "";
      config.batch_sizes = captures_.decode_lanes;
      config.row = decode_row_;
      config.repeats = true;
      configs.emplace_back(std::move(config));
    }
    if (!captures_.packed_tokens.empty()) {
      PackedGraphConfig config;
      config.capture_walk = Names::kMixed;
      config.replay_walks = {Names::kPrefill};  // steps of prompts alone
      config.key = key;
      config.key_name = key == Names::kWithLogprobs ? "logprobs" : "";
      config.batch_sizes = captures_.packed_lanes;
      config.caps_eager_batch_size = false;  // what no capture holds is large enough to be enqueued
      config.token_counts = captures_.packed_tokens;
      config.make_row = [](std::int64_t num_tokens) {
        auto row = std::make_unique<ArNodeInputs>();
        row->walk = Names::kPrefill;
        row->input_seq_len = num_tokens;
        return row;
      };
      configs.emplace_back(std::move(config));
    }
  }
  return configs;
}

/// The blocks work in the model's own buffers, which lie where they lie: they bring nothing and give nothing.
std::vector<PiecewiseCudaGraphConfig> LanguageModel::get_piecewise_cuda_graph_configs(
    Device& /*device*/, Dtype /*dtype*/, int /*tensor_parallel_size*/) const {
  if (captures_.block_tokens.empty()) {
    return {};
  }
  PiecewisePackedConfig blocks;
  blocks.label = Names::kBlocks;
  blocks.num_parts = config_.num_layers + 1;
  blocks.batch_sizes = {1};  // nothing of a block asks whose token it is
  blocks.token_counts = captures_.block_tokens;
  blocks.make_static_inputs = [](const PiecewiseShape&) { return NamedTensors(); };
  blocks.capture = run_block_;
  return {std::move(blocks)};
}

/// In a packed capture any lane may end its prompt, so there is a sampling lane for each. Those that do sample come first, as
/// they do in an eager step.
void LanguageModel::declare_packed_rows(const BatchColumns& batch, SubmoduleStep& step,
                                        SamplerStep& sampler) const {
  while (sampler.lanes.size() < batch.handles.size()) {
    const auto lane = static_cast<std::int32_t>(sampler.lanes.size());
    sampler.lanes.push_back(
        {.handle = {-1 - lane, 0}, .info = &nobody_, .num_generated = 0, .token_index = -1});
  }
  for (const SamplerStep::Lane& lane : sampler.lanes) {
    step.row_handles.push_back(lane.handle);
  }
}

}  // namespace rigel
