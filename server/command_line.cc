#include "server/command_line.h"

#include "server/commands/commands.h"
#include "server/config.h"
#include "server/log.h"
#include "server/version.h"

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>

namespace rigel::server {
namespace {

/// Everything that the command line can say, and what is to be done.
struct CommandLine {
  std::string config;  // read before parsing; here so that the option exists
  std::string log_level = "info";
  WorkerOptions worker;
  ServeOptions serve;
  GenerateOptions generate;
  ScoreOptions score;
  TextOptions text;
  RenderOptions render;
  InspectOptions inspect;
  BenchThroughputOptions bench;
  BenchStepOptions bench_step;
  std::function<int()> command;
};

CLI::Validator positive(const char* unit) {
  return CLI::Range(1, 1 << 30).description(unit);
}

/// An option that this build cannot honour is refused: accepting it would promise something that is not there. `harmless` is
/// the value, if any, that describes what this build does.
void refuse_option(CLI::App& app, const std::string& name, const std::string& harmless) {
  app.add_option_function<std::string>(
         name,
         [name, harmless](const std::string& value) {
           if (value != harmless) {
             throw CLI::ValidationError(name,
                                        fmt::format("{} is not available in this build", value));
           }
         },
         "not available in this build")
      ->group("");
}

/// vLLM's options of an engine that this build has no counterpart for. Those that switch something off are true statements.
void add_future_options(CLI::App& app) {
  app.add_flag("--no-early-speculation")->description("always so in this build")->group("Engine");
  // Whoever is ready runs in the step that comes next, or takes turns.
  refuse_option(app, "--max-consecutive-steps", "1");
  refuse_option(app, "--yield-hold-ms", "0");
}

void add_model(CLI::App& app, std::string& model) {
  app.add_option("model,--model", model, "a GGUF file or a Hugging Face directory")
      ->required()
      ->take_first();  // the command line comes before a --config file
}

void add_program_options(CLI::App& app, CommandLine& line) {
  app.add_option("--config", line.config, "YAML file with any of these options");
  app.add_option("--log-level", line.log_level,
                 "trace, debug, info, warning, error, critical or off")
      ->capture_default_str();
}

void add_engine_options(CLI::App& app, CommandLine& line) {
  add_program_options(app, line);
  WorkerOptions& worker = line.worker;
  app.add_option("--device", worker.device, "auto, cpu, cuda or cuda:i")
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--dtype", worker.dtype, "auto (bfloat16), bfloat16 or float32")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}))
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--threads", worker.num_threads, "of the CPU device; default one a core")
      ->check(positive("THREADS"))
      ->group("Engine");
  app.add_option("--max-model-len", worker.max_model_len,
                 "prompt plus answer; default the model's own")
      ->check(positive("TOKENS"))
      ->group("Engine");
  app.add_option("--max-num-seqs", worker.max_num_seqs,
                 "requests that run together; default 64 on cpu, 512 on cuda")
      ->check(positive("REQUESTS"))
      ->group("Engine");
  app.add_option("--max-num-batched-tokens", worker.max_num_batched_tokens,
                 "of a step; default 512 on cpu, 8192 on cuda")
      ->check(positive("TOKENS"))
      ->group("Engine");
  app.add_option_function<std::string>(
         "--kv-cache-memory-bytes",
         [&worker](const std::string& size) {
           try {
             worker.kv_cache_memory_bytes = parse_size(size);
           } catch (const std::invalid_argument& problem) {
             throw CLI::ValidationError("--kv-cache-memory-bytes", problem.what());
           }
         },
         "with K, M or G; default 1G on cpu, 90 % of free memory on cuda")
      ->group("Engine");
  app.add_option_function<double>(
         "--swap-space",
         [&worker](double gib) {
           worker.swap_space_bytes =
               static_cast<std::int64_t>(gib * static_cast<double>(std::int64_t{1} << 30));
         },
         "GiB of host memory for the pages of preempted requests; default 0: they are computed "
         "again")
      ->check(CLI::Range(0.0, 65536.0))
      ->group("Engine");
  app.add_option("--block-size", worker.block_size, "tokens a page of the KV cache")
      ->check(CLI::IsMember({16, 32, 64}))
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--max-waiting", worker.max_waiting,
                 "requests that may wait before more are refused")
      ->check(positive("REQUESTS"))
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--seed", worker.seed, "base of the seeds of requests that bring none")
      ->capture_default_str()
      ->group("Engine");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", worker.enable_prefix_caching,
               "keep the pages of finished prompts for those that begin alike; default on")
      ->group("Engine");
  app.add_flag("--async-scheduling,!--no-async-scheduling", worker.async_scheduling,
               "launch a step before the one in front of it has been read; default on")
      ->group("Engine");
  app.add_flag("--preplan,!--no-preplan", worker.preplan,
               "without async scheduling: plan the next step while the device has this one; "
               "default on")
      ->group("Engine");
  app.add_option("--steps-per-launch", worker.steps_per_launch,
                 "decode steps that one launch of a captured step may run; above 1 they wait for "
                 "each other as without async scheduling, and answers come in bursts")
      ->check(CLI::Range(1, 16))
      ->capture_default_str()
      ->group("Engine");
  app.add_flag("--programmatic-launches,!--no-programmatic-launches", worker.programmatic_launches,
               "cuda: small kernels start while the one before them ends; default on")
      ->group("Engine");
  app.add_flag("--enforce-eager", worker.enforce_eager, "no captured steps")->group("Engine");
  app.add_option("--capture", worker.capture,
                 "eager: capture steps before serving; lazy: while serving, in idle moments")
      ->check(CLI::IsMember({"eager", "lazy"}))
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--graph-slots", worker.graph_slots, "double buffers of a captured step")
      ->check(CLI::Range(2, 4))
      ->capture_default_str()
      ->group("Engine");
  app.add_option("--cudagraph-capture-sizes", worker.capture_sizes,
                 "requests of the captured steps, ascending, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(positive("REQUESTS"))
      ->group("Engine");
  app.add_option("--prefill-capture-sizes", worker.prefill_capture_sizes,
                 "tokens of the captured steps with prompts, ascending, with commas between; 0: "
                 "none; default 64 to 2048 on CUDA, none on the CPU")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->group("Engine");
  app.add_option("--piecewise-capture-sizes", worker.piecewise_capture_sizes,
                 "tokens of the captured blocks between attentions, for steps with prompts that no "
                 "captured step serves; given like --prefill-capture-sizes")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->group("Engine");
  add_future_options(app);
}

void add_jsonl(CLI::App& app, std::string& file, bool required) {
  app.add_option("--jsonl", file, "one JSON object a line; - for stdin")->required(required);
}

void add_serve(CLI::App& app, CommandLine& line) {
  CLI::App& serve =
      *app.add_subcommand("serve", "serve a model over HTTP, with OpenAI's interface");
  ServeOptions& options = line.serve;
  add_model(serve, options.model);
  serve.add_option("--host", options.host, "address to listen on")->capture_default_str();
  serve.add_option("--port", options.port, "0: any free one")->capture_default_str();
  serve.add_option("--served-model-name", options.served_model_name,
                   "default: the model's own name");
  serve.add_option("--api-key", options.api_keys, "callers must bring one of these")
      ->delimiter(',')
      ->allow_extra_args(false);
  serve
      .add_option("--shutdown-timeout", options.shutdown_timeout_s,
                  "seconds that running requests get after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_engine_options(serve, line);
  serve.callback([&line] {
    line.command = [&line] {
      line.serve.worker = line.worker;
      return run_serve(line.serve);
    };
  });
}

void add_generate(CLI::App& app, CommandLine& line) {
  CLI::App& generate =
      *app.add_subcommand("generate", "continue a prompt, chat, or run a file of requests");
  GenerateOptions& options = line.generate;
  add_model(generate, options.model);
  CLI::Option* prompt =
      generate.add_option("prompt", options.prompt, "without one, each line of stdin is a turn");
  generate.add_option("--jsonl", options.jsonl, "one request a line, run together; - for stdin")
      ->excludes(prompt);
  generate.add_flag("--raw", options.raw, "no chat template");
  generate.add_option("--max-tokens", options.max_tokens)
      ->check(positive("TOKENS"))
      ->capture_default_str();
  generate.add_option("--temperature", options.temperature, "default: the model's")
      ->check(CLI::Range(0.0, 2.0));
  generate.add_option("--top-p", options.top_p, "default: the model's")
      ->check(CLI::Range(1e-6, 1.0));
  generate.add_option("--top-k", options.top_k, "0: off; default: the model's")
      ->check(CLI::NonNegativeNumber);
  generate.add_option("--min-p", options.min_p)->check(CLI::Range(0.0, 1.0));
  generate.add_option("--repetition-penalty", options.repetition_penalty)
      ->check(CLI::PositiveNumber);
  generate
      .add_option("--stop", options.stop, "text that ends the answer; may be given several times")
      ->allow_extra_args(false);
  generate.add_flag("--ignore-eos", options.ignore_eos, "go on after the end token");
  add_engine_options(generate, line);
  generate.callback([&line] {
    line.command = [&line] {
      line.generate.worker = line.worker;
      return run_generate(line.generate);
    };
  });
}

void add_score(CLI::App& app, CommandLine& line) {
  CLI::App& score = *app.add_subcommand("score", "log-probabilities of given text");
  ScoreOptions& options = line.score;
  add_model(score, options.model);
  add_jsonl(score, options.jsonl, /*required=*/true);
  score.add_option("--top", options.num_top, "show the best K tokens after each position")
      ->check(CLI::Range(0, 1000));
  score.add_option("--dump-logits", options.dump_folder,
                   "folder for the logits after each line's last token");
  add_engine_options(score, line);
  score.callback([&line] {
    line.command = [&line] {
      line.score.worker = line.worker;
      return run_score(line.score);
    };
  });
}

void add_text_commands(CLI::App& app, CommandLine& line) {
  const auto add = [&](const char* name, const char* what, int (*run)(const TextOptions&)) {
    CLI::App& command = *app.add_subcommand(name, what);
    add_model(command, line.text.model);
    add_jsonl(command, line.text.jsonl, /*required=*/true);
    add_program_options(command, line);
    command.callback([&line, run] { line.command = [&line, run] { return run(line.text); }; });
  };
  add("tokenize", "text to token ids", run_tokenize);
  add("detokenize", "token ids to text", run_detokenize);

  CLI::App& render = *app.add_subcommand("render", "chat messages to prompt text");
  CLI::Option* model =
      render.add_option("model,--model", line.render.model, "whose chat template to use");
  render.add_option("--template", line.render.template_file, "a file with the chat template")
      ->excludes(model);
  add_jsonl(render, line.render.jsonl, /*required=*/true);
  add_program_options(render, line);
  render.callback([&line] {
    if (line.render.model.empty() && line.render.template_file.empty()) {
      throw CLI::RequiredError("MODEL or --template");
    }
    line.command = [&line] { return run_render(line.render); };
  });
}

void add_inspect(CLI::App& app, CommandLine& line) {
  CLI::App& inspect =
      *app.add_subcommand("inspect", "what a model holds and the memory it takes here");
  add_model(inspect, line.inspect.model);
  inspect.add_flag("--json", line.inspect.json, "one JSON object");
  inspect.add_flag("--graph", line.inspect.graph, "the captured steps and what they consist of");
  add_engine_options(inspect, line);
  inspect.callback([&line] {
    line.command = [&line] {
      line.inspect.worker = line.worker;
      return run_inspect(line.inspect);
    };
  });
}

void add_bench_step(CLI::App& bench, CommandLine& line) {
  CLI::App& step = *bench.add_subcommand(
      "step", "what a decode step costs the host, on a device that computes nothing");
  BenchStepOptions& options = line.bench_step;
  step.add_option("--rows", options.rows, "requests of a step, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  step.add_option("--context", options.context, "tokens of each request, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  step.add_option("--steps", options.num_counted,
                  "whose allocations, locks and system calls are counted")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  step.add_option("--steps-per-launch", options.steps_per_launch, "steps that one launch may run")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  step.add_flag("--async-scheduling,!--no-async-scheduling", options.async_scheduling,
                "launch a step before the one in front of it has been read; default on");
  step.add_flag("--preplan,!--no-preplan", options.preplan,
                "without async scheduling: plan the next step while the device has this one; "
                "default on");
  step.add_flag("--json", options.json, "one JSON object");
  add_program_options(step, line);
  step.callback([&line] { line.command = [&line] { return run_bench_step(line.bench_step); }; });
}

void refuse_measurement(CLI::App& bench, const std::string& name) {
  CLI::App& measurement = *bench.add_subcommand(name, "not available in this build")->group("");
  measurement.allow_extras();
  measurement.callback(
      [name] { throw CLI::ValidationError("bench " + name, "is not available in this build"); });
}

void add_bench(CLI::App& app, CommandLine& line) {
  CLI::App& bench = *app.add_subcommand("bench", "measurements");
  bench.require_subcommand(1);
  CLI::App& throughput =
      *bench.add_subcommand("throughput", "tokens a second at several numbers of requests");
  BenchThroughputOptions& options = line.bench;
  add_model(throughput, options.model);
  throughput
      .add_option("--concurrency", options.concurrency, "requests together, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(positive("REQUESTS"))
      ->capture_default_str();
  throughput.add_option("--input-len", options.input_len)
      ->check(positive("TOKENS"))
      ->capture_default_str();
  throughput.add_option("--output-len", options.output_len)
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  throughput.add_flag("--json", options.json, "one JSON object");
  add_engine_options(throughput, line);
  throughput.callback([&line] {
    line.command = [&line] {
      line.bench.worker = line.worker;
      return run_bench_throughput(line.bench);
    };
  });
  add_bench_step(bench, line);
  for (const char* name : {"latency", "serve", "kernels", "load"}) {
    refuse_measurement(bench, name);
  }
}

/// The word that stands where a command should; nothing if there is none.
std::optional<std::string> unknown_command(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
  }
  const std::vector<std::string> rest = app->remaining();
  if (app->get_require_subcommand_min() == 0 || rest.empty()) {
    return std::nullopt;
  }
  std::string known;
  for (const CLI::App* command : app->get_subcommands({})) {
    if (!command->get_group().empty()) {
      known += (known.empty() ? "" : ", ") + command->get_name();
    }
  }
  return fmt::format("there is no command '{}'; {} has {}", rest.front(), app->get_name(), known);
}

int run_guarded(const std::function<int()>& command) {
  try {
    return command();
  } catch (const std::invalid_argument& problem) {
    fmt::print(stderr, "rigel: {}\n", problem.what());
    return kWrongUsage;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "rigel: {}\n", problem.what());
    return kFailed;
  }
}

int parse_and_run(std::vector<std::string> arguments) {
  CommandLine line;
  CLI::App app("Rigel: a serving engine for composite any-to-any models", "rigel");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(1);
  add_serve(app, line);
  add_generate(app, line);
  add_score(app, line);
  add_text_commands(app, line);
  add_inspect(app, line);
  add_bench(app, line);
  merge_config_file(arguments);
  read_environment(line.worker);
  try {
    std::reverse(arguments.begin(), arguments.end());  // the order in which the library takes them
    app.parse(std::move(arguments));
  } catch (const CLI::RequiredError& problem) {
    if (const std::optional<std::string> message = unknown_command(app)) {
      throw std::invalid_argument(*message);
    }
    return app.exit(problem) == 0 ? kDone : kWrongUsage;
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;
  }
  if (!configure_log(line.log_level)) {
    throw std::invalid_argument(fmt::format(
        "--log-level must be trace, debug, info, warning, error, critical or off, got '{}'",
        line.log_level));
  }
  return line.command();
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  return run_guarded([&] { return parse_and_run({argv + 1, argv + argc}); });
}

}  // namespace rigel::server
