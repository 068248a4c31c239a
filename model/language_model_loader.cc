#include "model/language_model_loader.h"

#include "engine/resources/attention_planner.h"
#include "engine/resources/positions.h"
#include "engine/resources/sampler.h"
#include "engine/resources/stop_table.h"
#include "kernels/attention_params.h"
#include "model/language_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <stdexcept>

namespace rigel {

namespace {

using Names = LanguageModelNames;

constexpr std::int64_t kCpuKvBytes = std::int64_t{1} << 30;
constexpr double kCudaShare = 0.9;

/// What a model may take of the device, as long as nothing of it is there.
std::int64_t memory_budget(Device& device, const LanguageModelOptions& options) {
  const std::int64_t free = device.free_memory_bytes();
  return device.is_cuda() && options.kv_cache_bytes == 0
             ? static_cast<std::int64_t>(kCudaShare * static_cast<double>(free))
             : free;
}

std::int64_t kv_budget(Device& device, const LanguageModelOptions& options,
                       const MemoryLedger& memory) {
  if (options.kv_cache_bytes > 0) {
    return options.kv_cache_bytes;
  }
  return device.is_cuda() ? memory.left() : kCpuKvBytes;
}

std::int32_t model_length(const ModelConfig& config, const LanguageModelOptions& options) {
  if (options.max_length > config.max_position_embeddings) {
    throw std::invalid_argument(
        fmt::format("max_model_len {} is more than the model's context of {} tokens",
                    options.max_length, config.max_position_embeddings));
  }
  return options.max_length > 0 ? options.max_length : config.max_position_embeddings;
}

KvCacheConfig size_kv_cache(Device& device, const ModelConfig& config,
                            const LanguageModelOptions& options, const MemoryLedger& memory) {
  KvCacheConfig kv{.num_layers = config.num_layers,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .page_size = options.page_size,
                   .num_pages = 0,
                   .num_rows = options.max_lanes,
                   .max_length = model_length(config, options),
                   .dtype = options.dtype,
                   .enable_prefix_cache = options.enable_prefix_cache};
  const std::int64_t budget = kv_budget(device, options, memory);
  kv.num_pages = kv_pages(kv, budget);
  const std::int32_t longest = (kv.num_pages - 1) * kv.page_size;
  if (longest < 1 || (options.max_length > 0 && longest < options.max_length)) {
    throw std::invalid_argument(
        fmt::format("a KV cache of {} bytes holds {} tokens, max_model_len asks for {}: raise "
                    "kv_cache_memory_bytes or lower max_model_len",
                    budget, std::max(longest, 0), kv.max_length));
  }
  kv.max_length = std::min(kv.max_length, longest);
  kv.num_host_pages = kv_pages(kv, options.kv_host_bytes);
  return kv;
}

/// Columns of the largest step; see the plans of the resources for what there is.
std::int64_t staging_bytes(const KvCacheConfig& kv, const LanguageModelOptions& options) {
  constexpr std::int64_t kBytesAToken = 64;
  constexpr std::int64_t kBytesALane = 256;
  constexpr std::int64_t kLogitEntryBytes = 16 * 1024;  // of a lane's bias and barred tokens
  return options.max_tokens * kBytesAToken + options.max_lanes * (kBytesALane + kLogitEntryBytes) +
         std::int64_t{kv.num_pages} * 3 * 4 + 64 * 1024;
}

/// A lane's row outputs: its token, its log-probability, the alternatives with theirs, and the record of its stop test.
constexpr std::int64_t kResultBytesALane =
    4 + 4 + std::int64_t{kMaxSampledLogprobs} * 8 + std::int64_t{sizeof(kernels::StepRecord)};

/// The row outputs of the largest step but for scores; each begins at a multiple of 64 bytes.
std::int64_t result_bytes(const LanguageModelOptions& options) {
  return options.max_lanes * kResultBytesALane + 1024;
}

/// Columns of the largest captured step, whose parts are all there whatever its lanes ask for.
std::int64_t captured_staging_bytes(const LanguageModelCaptures& captures) {
  constexpr std::int64_t kBytesALane = 512;
  constexpr std::int64_t kBytesAToken = 32;
  const auto last = [](const auto& sizes) { return sizes.empty() ? 0 : sizes.back(); };
  const std::int64_t num_lanes = std::max(last(captures.decode_lanes), last(captures.packed_lanes));
  return num_lanes * kBytesALane + last(captures.packed_tokens) * kBytesAToken + 64 * 1024;
}

LanguageModelCaptures captures_of(const LanguageModelOptions& options, bool is_cuda) {
  LanguageModelCaptures captures;
  if (options.capture == CaptureMode::kNever) {
    return captures;
  }
  captures.decode_lanes = options.decode_batch_sizes.empty()
                              ? default_decode_batch_sizes(is_cuda, options.max_lanes)
                              : options.decode_batch_sizes;
  if (options.capture_prefill) {
    captures.packed_tokens = options.prefill_token_counts.empty()
                                 ? default_prefill_token_counts(is_cuda, options.max_tokens)
                                 : options.prefill_token_counts;
  }
  if (!captures.packed_tokens.empty()) {
    captures.packed_lanes = prefill_lane_counts(options.max_lanes);
  }
  if (options.capture_blocks) {
    captures.block_tokens = options.block_token_counts.empty()
                                ? default_prefill_token_counts(is_cuda, options.max_tokens)
                                : options.block_token_counts;
  }
  return captures;
}

/// What the graphs of all captured steps will take, in all their slots, and those of blocks, which have one: the driver tells
/// only once they are there.
std::int64_t expected_graph_bytes(const ModelConfig& config, const LanguageModelCaptures& sizes,
                                  const CaptureOptions& captures) {
  constexpr std::int64_t kKeys = 2;  // with and without log-probabilities
  constexpr std::int64_t kLaunchesALayer = 12;
  constexpr std::int64_t kLaunchesABlock = 7;
  constexpr std::int64_t kLaunchesBeside = 32;
  constexpr std::int64_t kBytesALaunch = 2048;
  constexpr std::int64_t kBytesAGraph = 64 * 1024;
  const std::size_t num_sizes =
      sizes.decode_lanes.size() + sizes.packed_tokens.size() * sizes.packed_lanes.size();
  const std::int64_t num_launches = config.num_layers * kLaunchesALayer + kLaunchesBeside;
  const std::int64_t num_blocks =
      (config.num_layers + 1) * static_cast<std::int64_t>(sizes.block_tokens.size());
  return num_blocks * (kLaunchesABlock * kBytesALaunch + kBytesAGraph) +
         captures.num_slots *
             (captures.staging_bytes + kKeys * static_cast<std::int64_t>(num_sizes) *
                                           (num_launches * kBytesALaunch + kBytesAGraph));
}

SamplerConfig sampler_config(const ModelConfig& config, const LanguageModelOptions& options) {
  return {
      .num_rows = options.max_lanes,
      .vocab_size = config.vocab_size,
      .max_top_logprobs = kMaxTopLogprobs,
      .signals = {Names::kNewToken, Names::kChosenLogprob, Names::kTopIds, Names::kTopLogprobs}};
}

NodeResources make_resources(Device& device, const SamplerConfig& sampler,
                             std::span<const std::int32_t> eos_ids, const KvCacheConfig& kv) {
  NodeResources resources;
  const ResourceKey cache = resources.next_key();
  resources.add("kv", std::make_unique<KvCache>(cache, device, kv));
  resources.add("positions",
                std::make_unique<Positions>(resources.next_key(), kv.num_rows, 1, cache));
  resources.add("attention",
                std::make_unique<AttentionPlanner>(resources.next_key(), kernels::kPrefillTile));
  const ResourceKey sampler_key = resources.next_key();
  resources.add("sampler", std::make_unique<Sampler>(sampler_key, device, sampler));
  resources.add("stops", std::make_unique<StopTable>(resources.next_key(), device, kv.num_rows,
                                                     eos_ids, sampler_key));
  return resources;
}

}  // namespace

std::vector<std::int32_t> default_decode_batch_sizes(bool is_cuda, std::int32_t max_lanes) {
  constexpr std::int32_t kCpuLargest = 64;
  constexpr std::int32_t kCudaLargest = 512;
  const std::int32_t largest = std::min(max_lanes, is_cuda ? kCudaLargest : kCpuLargest);
  std::vector<std::int32_t> sizes;
  for (std::int32_t size = 1; size < largest;) {
    sizes.push_back(size);
    if (!is_cuda) {
      ++size;
    } else if (size < 8) {
      size *= 2;
    } else {
      size += size < 256 ? 8 : 16;
    }
  }
  sizes.push_back(largest);
  return sizes;
}

std::vector<std::int64_t> default_prefill_token_counts(bool is_cuda, std::int32_t max_tokens) {
  constexpr std::int64_t kSmallest = 64;
  constexpr std::int64_t kLargest = 2048;
  std::vector<std::int64_t> counts;
  if (!is_cuda) {
    return counts;
  }
  const std::int64_t largest = std::min<std::int64_t>(max_tokens, kLargest);
  for (std::int64_t count = kSmallest; count < largest; count *= 2) {
    counts.push_back(count);
  }
  counts.push_back(largest);
  return counts;
}

std::vector<std::int32_t> prefill_lane_counts(std::int32_t max_lanes) {
  std::vector<std::int32_t> counts;
  for (std::int32_t count = 8; count < max_lanes; count *= 4) {
    counts.push_back(count);
  }
  counts.push_back(max_lanes);
  return counts;
}

std::int32_t kv_pages(const KvCacheConfig& config, std::int64_t bytes) {
  const std::int64_t affordable = bytes / config.page_bytes();
  const std::int64_t usable =
      std::int64_t{config.num_rows} * config.pages_for(config.max_length) + 1;
  return static_cast<std::int32_t>(std::min(affordable, usable));
}

LoadedLanguageModel load_language_model(Device& device, const ModelFiles& files,
                                        const LanguageModelOptions& options,
                                        LoadProgress* progress) {
  const ModelConfig& config = files.config;
  MemoryLedger memory(memory_budget(device, options));
  kernels::Gemm gemm(device, {});
  TransformerWeights weights =
      load_transformer_weights(device, gemm, *files.checkpoint, config, options.dtype, progress);
  memory.take("weights", weights.num_bytes());

  // The longest request decides over buffers, and the buffers over what is left for the cache; a first look at the cache
  // gives the former.
  const KvCacheConfig most = size_kv_cache(device, config, options, memory);
  const StepLimits limits{.max_tokens = options.max_tokens,
                          .max_lanes = options.max_lanes,
                          .max_length = most.max_length};
  LanguageModelCaptures captured = captures_of(options, device.is_cuda());
  const CaptureOptions captures{.num_slots = options.graph_slots,
                                .staging_bytes = options.capture == CaptureMode::kNever
                                                     ? 0
                                                     : captured_staging_bytes(captured)};
  const std::int64_t graph_bytes = expected_graph_bytes(config, captured, captures);
  auto model = std::make_unique<LanguageModel>(device, config, std::move(gemm), std::move(weights),
                                               limits, std::move(captured));
  LoadedLanguageModel loaded;
  loaded.gemm = model->gemm_description();
  const SamplerConfig sampler = sampler_config(config, options);
  const EngineConfig engine{.staging_bytes = staging_bytes(most, options),
                            .result_bytes = result_bytes(options),
                            .stream = options.stream,
                            .preplan = options.preplan,
                            .max_turns = options.steps_per_launch};
  memory.take("workspace", model->buffers().num_bytes() +
                               engine.staging_bytes * std::int64_t{Engine::kMaxInFlight});
  memory.take("sampler", Sampler::bytes_of(sampler) +
                             StopTable::bytes_of(options.max_lanes, config.eos_ids.size()));
  if (options.capture != CaptureMode::kNever) {
    memory.take("graphs", graph_bytes);
  }

  KvCacheConfig kv = size_kv_cache(device, config, options, memory);
  kv.max_length = std::min(kv.max_length, limits.max_length);
  memory.take("kv_cache", kv.page_bytes() * kv.num_pages);
  loaded.max_length = kv.max_length;
  NodeResources resources = make_resources(device, sampler, config.eos_ids, kv);
  loaded.kv_cache = &resources.get<KvCache>("kv");
  loaded.engine = std::make_unique<Engine>(device, std::move(model), std::move(resources), engine);
  if (options.capture != CaptureMode::kNever) {
    StepCaptures& steps = loaded.engine->capture_steps(captures);
    if (options.capture == CaptureMode::kAtLoad) {
      steps.capture_all();
      memory.settle("graphs", steps.num_bytes());
    }
  }
  loaded.memory = memory.parts();
  return loaded;
}

}  // namespace rigel
