#include "worker/device_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace rigel {

namespace {

#if defined(RIGEL_DEVICE_CUDA)
constexpr bool kBuildHasCuda = true;
#else
constexpr bool kBuildHasCuda = false;
#endif

// Defaults by device: rows, and tokens of a step.
constexpr int kCpuRows = 64;
constexpr int kCpuTokens = 512;
constexpr int kCudaRows = 512;
constexpr int kCudaTokens = 8192;

// A row then takes at most one page more than it has for its next token.
constexpr int kMaxStepsPerLaunch = 16;

int device_index(const std::string& device) {
  if (device == "auto" || device == (kBuildHasCuda ? "cuda" : "cpu")) {
    return 0;
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (kBuildHasCuda && device.starts_with(kPrefix)) {
    int index = -1;
    const char* end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + kPrefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) {
      return index;
    }
  }
  throw std::invalid_argument(fmt::format("device '{}' is not in this build; it has: auto, {}",
                                          device, kBuildHasCuda ? "cuda, cuda:i" : "cpu"));
}

DeviceOrder launch_order(const std::string& order) {
  if (order == "ascending") {
    return DeviceOrder::kAscending;
  }
  if (order == "descending") {
    return DeviceOrder::kDescending;
  }
  if (order == "random") {
    return DeviceOrder::kRandom;
  }
  throw std::invalid_argument(
      fmt::format("launch order '{}' must be ascending, descending or random", order));
}

void check_range(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    throw std::invalid_argument(
        fmt::format("{} must be between {} and {}, got {}", name, low, high, value));
  }
}

Dtype compute_dtype(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") {
    return Dtype::kBf16;
  }
  if (dtype == "float32") {
    return Dtype::kF32;
  }
  throw std::invalid_argument(fmt::format("dtype '{}' must be auto, bfloat16 or float32", dtype));
}

CaptureMode capture_mode(const WorkerOptions& options) {
  if (options.capture != "eager" && options.capture != "lazy") {
    throw std::invalid_argument(fmt::format("capture '{}' must be eager or lazy", options.capture));
  }
  if (options.enforce_eager) {
    return CaptureMode::kNever;
  }
  return options.capture == "lazy" ? CaptureMode::kIdle : CaptureMode::kAtLoad;
}

void check_capture_sizes(const char* name, const std::vector<int>& sizes, int largest) {
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    check_range(name, sizes[index], index == 0 ? 1 : sizes[index - 1] + 1, largest);
  }
}

}  // namespace

DeviceOptions device_options(const WorkerOptions& options) {
  DeviceOptions device;
  device.index = device_index(options.device);
  device.programmatic_launches = options.programmatic_launches;
  device.order = launch_order(options.launch_order);
  device.seed = options.launch_seed;
  check_range("threads", options.num_threads, 0, 1024);
  device.num_threads = options.num_threads > 0
                           ? options.num_threads
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // The virtual device's memory is the host's, which has its own way to say that it is full.
  device.memory_bytes = std::int64_t{1} << 46;
  for (const std::string& text : options.device_texts) {
    device.device_texts += (device.device_texts.empty() ? "" : ",") + text;
  }
  // Garbage in fresh memory finds faults of kernels; it is for their own texts, not for serving.
  device.fill_garbage = !options.device_texts.empty();
  return device;
}

LanguageModelOptions language_model_options(const WorkerOptions& options, bool is_cuda) {
  LanguageModelOptions model;
  model.dtype = compute_dtype(options.dtype);
  check_range("max_model_len", options.max_model_len, 0, 1 << 30);
  model.max_length = options.max_model_len;
  check_range("max_num_seqs", options.max_num_seqs, 0, 65536);
  check_range("max_num_batched_tokens", options.max_num_batched_tokens, 0, 1 << 20);
  const int default_rows = is_cuda ? kCudaRows : kCpuRows;
  const int default_tokens = is_cuda ? kCudaTokens : kCpuTokens;
  model.max_tokens =
      options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens : default_tokens;
  model.max_lanes =
      options.max_num_seqs > 0 ? options.max_num_seqs : std::min(default_rows, model.max_tokens);
  if (model.max_lanes > model.max_tokens) {
    throw std::invalid_argument(
        fmt::format("max_num_seqs {} is more than max_num_batched_tokens {}: every request needs "
                    "a token of each step",
                    model.max_lanes, model.max_tokens));
  }
  check_range("kv_cache_memory_bytes", options.kv_cache_memory_bytes, 0, std::int64_t{1} << 46);
  model.kv_cache_bytes = options.kv_cache_memory_bytes;
  check_range("swap_space_bytes", options.swap_space_bytes, 0, std::int64_t{1} << 46);
  model.kv_host_bytes = options.swap_space_bytes;
  if (options.block_size != 16 && options.block_size != 32 && options.block_size != 64) {
    throw std::invalid_argument(
        fmt::format("block_size must be 16, 32 or 64, got {}", options.block_size));
  }
  model.page_size = options.block_size;
  model.enable_prefix_cache = options.enable_prefix_caching;
  model.capture = capture_mode(options);
  model.preplan = options.preplan;
  check_range("steps_per_launch", options.steps_per_launch, 1, kMaxStepsPerLaunch);
  if (options.steps_per_launch > 1 && model.capture == CaptureMode::kNever) {
    throw std::invalid_argument(
        "steps_per_launch above 1 needs captured steps, and enforce_eager captures none");
  }
  model.steps_per_launch = options.steps_per_launch;
  check_range("graph_slots", options.graph_slots, 2, 4);
  model.graph_slots = options.graph_slots;
  check_capture_sizes("cudagraph_capture_sizes", options.capture_sizes, model.max_lanes);
  model.decode_batch_sizes.assign(options.capture_sizes.begin(), options.capture_sizes.end());
  const std::vector<int>& prefill_sizes = options.prefill_capture_sizes;
  model.capture_prefill = prefill_sizes != std::vector{0};
  if (model.capture_prefill) {
    check_capture_sizes("prefill_capture_sizes", prefill_sizes, model.max_tokens);
    model.prefill_token_counts.assign(prefill_sizes.begin(), prefill_sizes.end());
  }
  const std::vector<int>& block_sizes = options.piecewise_capture_sizes;
  model.capture_blocks = block_sizes != std::vector{0};
  if (model.capture_blocks) {
    check_capture_sizes("piecewise_capture_sizes", block_sizes, model.max_tokens);
    model.block_token_counts.assign(block_sizes.begin(), block_sizes.end());
  }
  return model;
}

}  // namespace rigel
