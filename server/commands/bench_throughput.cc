#include "server/api/json_writer.h"
#include "server/commands/commands.h"
#include "server/commands/progress_bar.h"
#include "server/commands/throughput.h"
#include "server/model_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace rigel::server {
namespace {

constexpr std::uint64_t kSeed = 20260101;

struct ThroughputRun {
  int concurrency;
  Throughput rates;
};

int num_threads(const WorkerOptions& options) {
  return options.num_threads > 0
             ? options.num_threads
             : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string as_json(const ModelSession& session, const WorkerOptions& worker,
                    const std::vector<ThroughputRun>& runs) {
  const ServiceDescription& description = session.service().description();
  JsonWriter json;
  json.begin_object().field("model", session.name()).field("dtype", description.dtype);
  json.field("device", description.device)
      .field("threads", num_threads(worker))
      .key("runs")
      .begin_array();
  for (const ThroughputRun& run : runs) {
    json.begin_object().field("concurrency", run.concurrency);
    json.field("prompt_tokens", run.rates.prompt_tokens).field("new_tokens", run.rates.new_tokens);
    json.field("prefill_tokens_per_s", run.rates.prefill_tokens_per_s);
    json.field("decode_tokens_per_s", run.rates.decode_tokens_per_s);
    json.field("total_tokens_per_s", run.rates.total_tokens_per_s).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

void print_table(const ModelSession& session, const WorkerOptions& worker,
                 const std::vector<ThroughputRun>& runs) {
  const ServiceDescription& description = session.service().description();
  fmt::print("{}, {}, {}, {} threads, gemm {}\n\n", session.name(), description.device,
             description.dtype, num_threads(worker), description.gemm);
  fmt::print("{:>11} {:>13} {:>10} {:>13} {:>12} {:>11}\n", "concurrency", "prompt tokens",
             "new tokens", "prefill tok/s", "decode tok/s", "total tok/s");
  for (const ThroughputRun& run : runs) {
    fmt::print("{:>11} {:>13} {:>10} {:>13.1f} {:>12.1f} {:>11.1f}\n", run.concurrency,
               run.rates.prompt_tokens, run.rates.new_tokens, run.rates.prefill_tokens_per_s,
               run.rates.decode_tokens_per_s, run.rates.total_tokens_per_s);
  }
}

}  // namespace

int run_bench_throughput(const BenchThroughputOptions& options) {
  const int most = *std::max_element(options.concurrency.begin(), options.concurrency.end());
  WorkerOptions worker = options.worker;
  if (worker.max_num_seqs == 0 && most > 64) {
    worker.max_num_seqs = most;  // all requests must decode together
  }
  if (worker.max_num_seqs != 0 && worker.max_num_seqs < most) {
    throw std::invalid_argument(fmt::format(
        "--concurrency must be at most --max-num-seqs ({}), got {}", worker.max_num_seqs, most));
  }
  worker.max_waiting = std::max(worker.max_waiting, most + 1);
  const ModelSession session(options.model, worker);
  const int max_model_len = session.service().limits().max_model_len;
  if (options.input_len + options.output_len > max_model_len) {
    throw std::invalid_argument(
        fmt::format("--input-len and --output-len must sum up to at most {}, got {}", max_model_len,
                    options.input_len + options.output_len));
  }
  ProgressBar bar("measuring", "runs");
  std::vector<ThroughputRun> runs;
  // Unmeasured: the first request pays for pages touched and caches filled.
  static_cast<void>(
      measure_throughput(session.service(), {.concurrency = 1, .input_len = 16, .output_len = 8}));
  for (const int concurrency : options.concurrency) {
    bar.show(static_cast<std::int64_t>(runs.size()),
             static_cast<std::int64_t>(options.concurrency.size()));
    runs.push_back(
        {concurrency, measure_throughput(session.service(), {.concurrency = concurrency,
                                                             .input_len = options.input_len,
                                                             .output_len = options.output_len,
                                                             .seed = kSeed})});
  }
  options.json ? fmt::print("{}\n", as_json(session, worker, runs))
               : print_table(session, worker, runs);
  return kDone;
}

}  // namespace rigel::server
