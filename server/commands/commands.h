#pragma once

#include "worker/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rigel::server {

/// Exit codes of the program.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

struct ServeOptions {
  std::string model;
  WorkerOptions worker;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string served_model_name;  // empty: the model's own
  std::vector<std::string> api_keys;
  double shutdown_timeout_s = 30.0;
};

struct GenerateOptions {
  std::string model;
  WorkerOptions worker;
  std::optional<std::string> prompt;  // none, and no jsonl: a chat on stdin
  std::string jsonl;                  // a file, - for stdin, empty for the terminal form
  bool raw = false;                   // no chat template
  int max_tokens = 512;
  // Where not given: what the model's own generation settings say.
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

struct ScoreOptions {
  std::string model;
  WorkerOptions worker;
  std::string jsonl;
  int num_top = 0;          // best tokens shown a position
  std::string dump_folder;  // for the last logits; empty: none
};

struct TextOptions {
  std::string model;
  std::string jsonl;
};

struct RenderOptions {
  std::string model;  // one of these two
  std::string template_file;
  std::string jsonl;
};

struct InspectOptions {
  std::string model;
  WorkerOptions worker;
  bool json = false;
  bool graph = false;  // the captured steps, too
};

struct BenchThroughputOptions {
  std::string model;
  WorkerOptions worker;
  std::vector<int> concurrency = {1, 8, 32};
  int input_len = 128;
  int output_len = 128;
  bool json = false;
};

struct BenchStepOptions {
  std::vector<int> rows = {1, 8, 64, 128, 256, 512, 1024};
  std::vector<int> context = {1024, 131072};
  int num_counted = 1000;  // steps whose allocations, locks and system calls are counted
  int steps_per_launch = 1;
  bool async_scheduling = true;
  bool preplan = true;
  bool json = false;
};

/// The commands. Data goes to stdout, everything else to stderr. They return the exit code; std::invalid_argument is a
/// wrong usage, any other exception a failure.
int run_serve(const ServeOptions& options);
int run_generate(const GenerateOptions& options);
int run_score(const ScoreOptions& options);
int run_tokenize(const TextOptions& options);
int run_detokenize(const TextOptions& options);
int run_render(const RenderOptions& options);
int run_inspect(const InspectOptions& options);
int run_bench_throughput(const BenchThroughputOptions& options);
int run_bench_step(const BenchStepOptions& options);

}  // namespace rigel::server
