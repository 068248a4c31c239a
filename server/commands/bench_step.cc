#include "server/api/json_writer.h"
#include "server/commands/commands.h"
#include "server/commands/progress_bar.h"
#include "worker/step_bench.h"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <vector>

namespace rigel::server {
namespace {

struct StepRun {
  int rows;
  int context;
  StepCost cost;
};

struct PhaseColumn {
  std::string_view name;
  StepPhase phase;
};
constexpr std::array<PhaseColumn, 8> kPhases = {{{"build", StepPhase::kBuild},
                                                 {"splice", StepPhase::kSplice},
                                                 {"declare", StepPhase::kDeclare},
                                                 {"admit", StepPhase::kAdmit},
                                                 {"plan", StepPhase::kPlan},
                                                 {"launch", StepPhase::kLaunch},
                                                 {"settle", StepPhase::kSettle},
                                                 {"route", StepPhase::kRoute}}};

constexpr std::string_view kForward =
    "synthetic transformer of one layer, decode steps captured and replayed, no kernel runs";

double phase_us(const StepCost& cost, StepPhase phase) {
  return cost.phase_us[static_cast<std::size_t>(phase)];
}

double forward_us(const StepCost& cost) {
  return phase_us(cost, StepPhase::kForward);
}

/// The model's own enqueues are a part of the launch; how much of it they are is said beside.
double column_us(const StepCost& cost, StepPhase phase) {
  return phase_us(cost, phase) + (phase == StepPhase::kLaunch ? forward_us(cost) : 0.0);
}

std::string as_json(const BenchStepOptions& options, const std::vector<StepRun>& runs) {
  JsonWriter json;
  json.begin_object().field("device", runs.front().cost.device).field("forward", kForward);
  json.field("counted_steps", options.num_counted).key("rows").begin_array();
  for (const StepRun& run : runs) {
    json.begin_object().field("rows", run.rows).field("context", run.context);
    json.field("host_us", run.cost.host_us).field("best_us", run.cost.best_us);
    json.field("forward_us", forward_us(run.cost));
    if (!options.async_scheduling) {
      json.field("device_idle_us", run.cost.idle_us);
    }
    json.key("phases").begin_object();
    for (const PhaseColumn& column : kPhases) {
      json.field(column.name, column_us(run.cost, column.phase));
    }
    json.end_object().field("allocations", run.cost.costs.allocations);
    json.field("locks", run.cost.costs.locks).key("syscalls");
    run.cost.counts_syscalls ? json.value(run.cost.costs.syscalls) : json.value(nullptr);
    json.key("dispatcher_wakes");
    run.cost.counts_syscalls ? json.value(run.cost.costs.sleeps) : json.value(nullptr);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

void print_table(const BenchStepOptions& options, const std::vector<StepRun>& runs) {
  fmt::print("device {}; {}\n", runs.front().cost.device, kForward);
  fmt::print("microseconds of the worker thread a steady decode step; counts are of {} steps\n\n",
             options.num_counted);
  fmt::print("{:>5} {:>8} {:>9} {:>9} {:>9}", "rows", "context", "host", "best", "forward");
  for (const PhaseColumn& column : kPhases) {
    fmt::print(" {:>8}", column.name);
  }
  fmt::print(" {:>7} {:>6} {:>9} {:>6}{}\n", "allocs", "locks", "syscalls", "wakes",
             options.async_scheduling ? "" : fmt::format(" {:>12}", "device idle"));
  for (const StepRun& run : runs) {
    fmt::print("{:>5} {:>8} {:>9.2f} {:>9.2f} {:>9.2f}", run.rows, run.context, run.cost.host_us,
               run.cost.best_us, forward_us(run.cost));
    for (const PhaseColumn& column : kPhases) {
      fmt::print(" {:>8.2f}", column_us(run.cost, column.phase));
    }
    const ThreadCosts& costs = run.cost.costs;
    const auto counted = [&](std::int64_t count) {
      return run.cost.counts_syscalls ? std::to_string(count) : std::string("-");
    };
    fmt::print(" {:>7} {:>6} {:>9} {:>6}{}\n", costs.allocations, costs.locks,
               counted(costs.syscalls), counted(costs.sleeps),
               options.async_scheduling ? "" : fmt::format(" {:>12.2f}", run.cost.idle_us));
  }
}

}  // namespace

int run_bench_step(const BenchStepOptions& options) {
  ProgressBar bar("measuring", "runs");
  std::vector<StepRun> runs;
  const auto num_runs = static_cast<std::int64_t>(options.rows.size()) *
                        static_cast<std::int64_t>(options.context.size());
  for (const int context : options.context) {
    for (const int rows : options.rows) {
      bar.show(static_cast<std::int64_t>(runs.size()), num_runs);
      const StepBenchCase what{.num_rows = rows,
                               .context = context,
                               .num_counted = static_cast<std::size_t>(options.num_counted),
                               .steps_per_launch = options.steps_per_launch,
                               .one_step_ahead = options.async_scheduling,
                               .preplan = options.preplan};
      runs.push_back({rows, context, measure_step(what)});
    }
  }
  options.json ? fmt::print("{}\n", as_json(options, runs)) : print_table(options, runs);
  return kDone;
}

}  // namespace rigel::server
