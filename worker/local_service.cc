#include "worker/local_service.h"

#include "engine/piecewise_runners.h"
#include "model/language_model_loader.h"
#include "model/transformer_buffers.h"
#include "worker/device_choice.h"
#include "worker/dispatcher.h"
#include "worker/worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

namespace rigel {

namespace {

RequestError invalid(std::string param, std::string message) {
  return {RequestError::Kind::kInvalid, std::move(message), std::move(param)};
}

class LocalServiceImpl final : public LocalService {
 public:
  LocalServiceImpl(const ModelFiles& files, const text::Tokenizer* tokenizer,
                   const WorkerOptions& options, LoadProgress* progress)
      : device_(Device::open(device_options(options))),
        options_(options),
        vocab_size_(files.config.vocab_size),
        dispatcher_(tokenizer, [this](RequestId id, std::int32_t num_tokens) {
          worker_->end_at_stop_string(id, num_tokens);
        }) {
    const LanguageModelOptions model_options = language_model_options(options, device_->is_cuda());
    LoadedLanguageModel model = load_language_model(*device_, files, model_options, progress);
    max_length_ = model.max_length;
    num_rows_ = model_options.max_lanes;
    description_ = {device_->name(),
                    std::string(name_of(model_options.dtype)),
                    model.gemm,
                    model.memory,
                    {},
                    {},
                    {}};
    if (const StepCaptures* captures = model.engine->captures()) {
      describe_captures(captures->runner(), "step", description_.graphs);
      describe_captures(captures->regions().runner(), "block", description_.block_graphs);
    }
    const WorkerConfig config{.one_step_ahead = options.async_scheduling,
                              .steps_per_launch = model_options.steps_per_launch,
                              .num_rows = model_options.max_lanes,
                              .max_num_batched_tokens = model_options.max_tokens,
                              .max_length = model.max_length,
                              .seed = options.seed,
                              .eos_ids = end_ids(files)};
    worker_ =
        std::make_unique<Worker>(std::move(model.engine), *model.kv_cache, config, dispatcher_);
  }

  /// The worker's last outputs still go through the dispatcher, which may answer the worker: so its thread ends first, then
  /// the dispatcher, then the worker itself.
  ~LocalServiceImpl() override { worker_->stop(); }

  [[nodiscard]] ServiceLimits limits() const override {
    return {max_length_, vocab_size_, kMaxSampledLogprobs};
  }

  SubmitResult submit(GenerationRequest request,
                      std::shared_ptr<OutputListener> listener) override {
    if (std::optional<RequestError> error = find_error(request)) {
      return {{}, std::move(error)};
    }
    const RequestId id{next_id_.fetch_add(1)};
    const SamplingParams& sampling = request.sampling;
    dispatcher_.open({.id = id,
                      .listener = std::move(listener),
                      .stop = sampling.stop,
                      .include_stop = sampling.include_stop_in_output,
                      .skip_special = sampling.skip_special_tokens,
                      .num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size()),
                      .min_tokens = sampling.min_tokens});
    worker_->submit(id, std::move(request));
    return {id, std::nullopt};
  }

  void cancel(RequestId id) override { worker_->cancel(id); }

  [[nodiscard]] ServiceMetrics metrics() const override {
    ServiceMetrics metrics = worker_->metrics().snapshot();
    metrics.memory_bytes = description_.memory_bytes;
    return metrics;
  }

  [[nodiscard]] bool healthy() const override { return worker_->healthy(); }
  void begin_drain() override { draining_.store(true); }
  [[nodiscard]] std::int64_t num_unfinished() const override { return worker_->num_unfinished(); }
  [[nodiscard]] const ServiceDescription& description() const override { return description_; }

 private:
  static constexpr std::size_t kMaxLogitEntries = 1024;

  void describe_captures(const GraphRunner& runner, const char* what,
                         std::vector<GraphManifest>& graphs) {
    for (const CaptureFailure& failure : runner.failures()) {
      description_.capture_failures.push_back(
          fmt::format("a {} of {} lanes and {} tokens was not captured: {}", what,
                      failure.bucket.num_lanes, failure.bucket.num_tokens, failure.message));
    }
    for (std::size_t bucket = 0; bucket < runner.buckets().size(); ++bucket) {
      if (runner.buckets().is_enabled(bucket)) {
        graphs.push_back(runner.manifest(bucket));
      }
    }
  }

  static std::vector<std::int32_t> end_ids(const ModelFiles& files) {
    std::vector<std::int32_t> ids(files.config.eos_ids.begin(), files.config.eos_ids.end());
    if (files.tokenizer) {
      const auto& more = files.tokenizer->end_of_generation;
      ids.insert(ids.end(), more.begin(), more.end());
    }
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  [[nodiscard]] std::optional<RequestError> find_error(const GenerationRequest& request) const {
    if (draining_.load()) {
      return RequestError{RequestError::Kind::kUnavailable, "the server is shutting down", ""};
    }
    if (!worker_->healthy()) {
      return RequestError{RequestError::Kind::kUnavailable, "the device has failed", ""};
    }
    // What is submitted counts at once, not when the worker has read it: a burst comes within one step.
    if (worker_->num_unfinished() >= num_rows_ + options_.max_waiting) {
      return RequestError{RequestError::Kind::kOverloaded,
                          fmt::format("{} requests are waiting already", options_.max_waiting), ""};
    }
    if (request.prompt.empty()) {
      return invalid("prompt", "the prompt has no tokens; it must have at least one");
    }
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    const std::int64_t longest = request.sampling.max_tokens > 0 ? max_length_ - 1 : max_length_;
    if (length > longest) {
      return invalid("prompt",
                     fmt::format("the prompt has {} tokens, the model's context holds {} tokens, "
                                 "prompt and answer together",
                                 length, max_length_));
    }
    for (const std::int32_t id : request.prompt) {
      if (id < 0 || id >= vocab_size_) {
        return invalid("prompt",
                       fmt::format("token id {} is not in the vocabulary of {}", id, vocab_size_));
      }
    }
    return find_logit_error(request.sampling);
  }

  [[nodiscard]] std::optional<RequestError> find_logit_error(const SamplingParams& params) const {
    if (params.logit_bias.size() > kMaxLogitEntries ||
        params.stop_token_ids.size() > kMaxLogitEntries) {
      return invalid(params.logit_bias.size() > kMaxLogitEntries ? "logit_bias" : "stop_token_ids",
                     fmt::format("at most {} entries are supported", kMaxLogitEntries));
    }
    for (const auto& [token, bias] : params.logit_bias) {
      if (token < 0 || token >= vocab_size_) {
        return invalid("logit_bias", fmt::format("token id {} is not in the vocabulary of {}",
                                                 token, vocab_size_));
      }
    }
    for (const std::int32_t token : params.stop_token_ids) {
      if (token < 0 || token >= vocab_size_) {
        return invalid("stop_token_ids", fmt::format("token id {} is not in the vocabulary of {}",
                                                     token, vocab_size_));
      }
    }
    return std::nullopt;
  }

  std::unique_ptr<Device> device_;
  WorkerOptions options_;
  std::int32_t vocab_size_;
  std::int32_t max_length_ = 0;
  std::int64_t num_rows_ = 0;
  ServiceDescription description_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<bool> draining_{false};
  std::unique_ptr<Worker> worker_;
  Dispatcher dispatcher_;
};

}  // namespace

std::unique_ptr<LocalService> start_local_service(const ModelFiles& files,
                                                  const text::Tokenizer* tokenizer,
                                                  const WorkerOptions& options,
                                                  LoadProgress* progress) {
  return std::make_unique<LocalServiceImpl>(files, tokenizer, options, progress);
}

}  // namespace rigel
