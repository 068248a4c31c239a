#include "worker/step_bench.h"

#include "model/language_model_loader.h"
#include "model/synthetic_model.h"
#include "worker/dispatcher.h"
#include "worker/step_log.h"
#include "worker/worker.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

namespace rigel {

namespace {

// Until queues, rings and vectors have their sizes.
constexpr std::size_t kNumSkipped = 10;
// Steps that run before the last request has come and is through its prompt. Generously: whoever sends them may have to wait
// for a core while the first ones decode.
constexpr std::int32_t kSpareTokens = 32'768;
constexpr std::int32_t kPageSize = 16;
constexpr std::int32_t kPrefillTokens = 8192;

/// A request that ends before the measurement does leaves it without a step of all rows.
class EndListener final : public OutputListener {
 public:
  explicit EndListener(StepLog& log) : log_(log) {}
  void on_delta(const OutputDelta& delta) override {
    if (delta.finish) {
      log_.give_up();
    }
  }

 private:
  StepLog& log_;
};

std::unique_ptr<Device> open_device() {
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  options.memory_bytes = std::int64_t{1} << 46;  // nobody touches it
  options.fill_garbage = false;
  return Device::open(options);
}

double total_of(const StepSample& sample) {
  double total = 0.0;
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    total += phase == static_cast<std::size_t>(StepPhase::kWait) ? 0.0 : sample.seconds[phase];
  }
  return total;
}

double mean_us(std::span<const StepSample> samples) {
  double sum = 0.0;
  for (const StepSample& sample : samples) {
    sum += total_of(sample) * 1e6;
  }
  return sum / static_cast<double>(samples.size());
}

void summarize(std::span<const StepSample> timed, StepCost& cost) {
  std::vector<StepSample> samples(timed.begin(), timed.end());
  std::ranges::sort(samples, {}, total_of);
  const std::size_t count = std::max<std::size_t>(1, samples.size() / 5);
  const auto middle = std::span(samples).subspan((samples.size() - count) / 2, count);
  for (const StepSample& sample : middle) {
    for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
      cost.phase_us[phase] += sample.seconds[phase] * 1e6 / static_cast<double>(count);
    }
  }
  for (const StepSample& sample : middle) {
    cost.idle_us += sample.idle_seconds * 1e6 / static_cast<double>(count);
  }
  cost.host_us = mean_us(middle);
  cost.best_us = mean_us(std::span(samples).first(std::max<std::size_t>(1, samples.size() / 10)));
}

}  // namespace

StepCost measure_step(const StepBenchCase& what) {
  // Whoever came first still decodes when the last prompt has ended.
  const auto num_prompt_steps =
      static_cast<std::int32_t>(2 * std::int64_t{what.num_rows} * what.context / kPrefillTokens);
  const auto num_launches =
      static_cast<std::int32_t>(kNumSkipped + what.num_timed + what.num_counted);
  const std::int32_t num_steps =
      num_launches * what.steps_per_launch + kSpareTokens + num_prompt_steps;
  const std::int32_t max_length = what.context + num_steps;
  const auto device = open_device();
  const ModelFiles files = synthetic_model_files(max_length);
  // The batch sizes of a GPU, and the one that is measured: its steps are not split.
  std::vector<std::int32_t> sizes = default_decode_batch_sizes(/*is_cuda=*/true, what.num_rows);
  if (sizes.back() < what.num_rows) {
    sizes.push_back(what.num_rows);
  }
  const LanguageModelOptions options{.max_length = max_length,
                                     .max_lanes = what.num_rows,
                                     .max_tokens = std::max(kPrefillTokens, what.num_rows),
                                     .kv_cache_bytes = std::int64_t{1} << 46,
                                     .page_size = kPageSize,
                                     .preplan = what.preplan,
                                     .steps_per_launch = what.steps_per_launch,
                                     .decode_batch_sizes = sizes};
  LoadedLanguageModel model = load_language_model(*device, files, options, nullptr);

  StepLog log(static_cast<std::size_t>(what.num_rows), kNumSkipped, what.num_timed,
              what.num_counted);
  Dispatcher dispatcher(nullptr, [](RequestId, std::int32_t) {});
  Worker worker(std::move(model.engine), *model.kv_cache,
                {.one_step_ahead = what.one_step_ahead,
                 .steps_per_launch = what.steps_per_launch,
                 .num_rows = what.num_rows,
                 .max_num_batched_tokens = options.max_tokens,
                 .max_length = max_length,
                 .eos_ids = {},
                 .step_log = &log},
                dispatcher);
  // Made before the first is sent: whoever came much earlier than the last would have ended before it decodes.
  std::vector<GenerationRequest> requests(static_cast<std::size_t>(what.num_rows));
  for (std::int32_t row = 0; row < what.num_rows; ++row) {
    GenerationRequest& request = requests[static_cast<std::size_t>(row)];
    request.prompt.assign(static_cast<std::size_t>(std::max(1, what.context - row % kPageSize)), 1);
    request.sampling.max_tokens = num_steps;
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
  }
  const auto listener = std::make_shared<EndListener>(log);
  for (std::size_t row = 0; row < requests.size(); ++row) {
    const RequestId id{row + 1};
    dispatcher.open({.id = id, .listener = listener, .stop = {}});
    worker.submit(id, std::move(requests[row]));
  }
  const bool measured = log.wait();
  worker.stop();
  if (!measured) {
    throw std::runtime_error("the requests of the measurement ended before it did");
  }

  StepCost cost;
  summarize(log.timed(), cost);
  cost.costs = log.counted().back().costs - log.counted().front().costs;
  cost.counts_syscalls = log.counts_syscalls();
  cost.device = device->is_cuda() ? device->name() : "null";
  return cost;
}

}  // namespace rigel
