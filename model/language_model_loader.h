#pragma once

#include "engine/engine.h"
#include "engine/resources/kv_cache.h"
#include "model/checkpoint/weight_reader.h"
#include "model/memory_ledger.h"
#include "model/model_files.h"
#include "tensor/device.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rigel {

/// When decode steps are captured.
enum class CaptureMode : std::uint8_t {
  kNever,   // every step is enqueued launch by launch
  kAtLoad,  // before the first request
  kIdle,    // by the worker, in moments in which it has nothing else to do
};

/// What a language model is loaded with. Zero means "choose".
struct LanguageModelOptions {
  Dtype dtype = Dtype::kBf16;
  std::int32_t max_length = 0;    // tokens of one request
  std::int32_t max_lanes = 64;    // requests of a step
  std::int32_t max_tokens = 512;  // of a step
  std::int64_t kv_cache_bytes =
      0;  // 0: 1 GiB on the CPU; on CUDA what the rest leaves of 90 % of free memory
  std::int64_t kv_host_bytes = 0;  // pinned, for requests that are offloaded
  std::int32_t page_size = 16;     // tokens
  bool enable_prefix_cache = false;
  CaptureMode capture = CaptureMode::kAtLoad;
  std::int32_t graph_slots = 2;
  bool preplan = true;
  std::int32_t steps_per_launch = 1;  // turns of a captured decode step that one launch may have
  std::optional<StreamRef> stream =
      std::nullopt;  // shared with the engines of other nodes, which it outlives; none: its own
  std::vector<std::int32_t> decode_batch_sizes = {};  // of captures; empty: the device's
  bool capture_prefill = true;
  std::vector<std::int64_t> prefill_token_counts = {};  // of captures; empty: the device's
  bool capture_blocks = true;
  std::vector<std::int64_t> block_token_counts = {};  // of captures; empty: as of prefill
};

/// The batch sizes whose decode steps are captured: 1, 2, 4, then every 8th up to 256 and every 16th up to 512. On the CPU
/// device, where a padding lane costs what a lane costs and a capture next to nothing, every size up to 64.
[[nodiscard]] std::vector<std::int32_t> default_decode_batch_sizes(bool is_cuda,
                                                                   std::int32_t max_lanes);

/// The token counts whose steps with prompts are captured, and the blocks of those that are not: the powers of two from 64 to
/// 2,048, as far as a step goes. On the CPU device none: there a padding token costs what a token costs, and enqueueing the
/// launches next to nothing.
[[nodiscard]] std::vector<std::int64_t> default_prefill_token_counts(bool is_cuda,
                                                                     std::int32_t max_tokens);
/// The lanes that such captures come with: 8, 32, 128, ... and `max_lanes`. Every lane costs a row of logits, used or not.
[[nodiscard]] std::vector<std::int32_t> prefill_lane_counts(std::int32_t max_lanes);

/// A language model ready to run.
struct LoadedLanguageModel {
  std::unique_ptr<Engine> engine;
  KvCache* kv_cache = nullptr;  // one of the engine's resources
  std::int32_t max_length = 0;  // as far as model, option and KV cache reach
  std::vector<MemoryLedger::Part> memory;
  std::string gemm;  // which code multiplies
};

/// Puts the model's weights on the device, sizes its buffers and its KV cache, and builds the engine around it. Throws
/// ModelFileError for a checkpoint that does not fit its configuration, DeviceError when memory runs out, and
/// std::invalid_argument naming an option that cannot be met.
[[nodiscard]] LoadedLanguageModel load_language_model(Device& device, const ModelFiles& files,
                                                      const LanguageModelOptions& options,
                                                      LoadProgress* progress);

/// The pages of a KV cache of `bytes`, or as many as all rows can ever use.
[[nodiscard]] std::int32_t kv_pages(const KvCacheConfig& config, std::int64_t bytes);

}  // namespace rigel
