// Captured steps in serving: which steps replay, and what is said of those that do not.

#include "graphs/graph_cost.h"
#include "tests/worker/request_mix.h"
#include "tests/worker/tiny_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

namespace rigel {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MixedRequest;
using ::testing::Not;

class GraphService : public testing::TinyServiceTest {
 protected:
  static WorkerOptions options() {
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 1;
    options.max_model_len = 128;
    options.max_num_seqs = 8;
    options.kv_cache_memory_bytes = 4 << 20;
    return options;
  }
  static std::unique_ptr<LocalService> start(const WorkerOptions& options) {
    return start_local_service(files(), nullptr, options, nullptr);
  }
  /// Eight requests at once, of 40 tokens each.
  static void run(LocalService& service, int num_logprobs = -1) {
    std::vector<MixedRequest> requests(8);
    for (MixedRequest& mixed : requests) {
      mixed.request.prompt = {5, 9, 11};
      mixed.request.sampling.max_tokens = 40;
      mixed.request.sampling.ignore_eos = true;
      if (num_logprobs >= 0) {
        mixed.request.sampling.logprobs = num_logprobs;
      }
    }
    for (const auto& answer : testing::run_mix(service, requests, testing::Cancels::kIgnore)) {
      EXPECT_EQ(answer.ids.size(), 40U) << answer.error;
    }
  }
  static std::set<std::string> buckets(const ServiceMetrics& metrics) {
    std::set<std::string> names;
    for (const GraphReplayCount& replays : metrics.graph_replays) {
      EXPECT_EQ(replays.walk,
                replays.bucket.find("tokens") == std::string::npos ? "decode" : "mixed");
      names.insert(replays.bucket);
    }
    return names;
  }
};

TEST_F(GraphService, T_CG_1_every_decode_step_of_a_model_replays) {
  const auto service = start(options());
  EXPECT_THAT(service->description().capture_failures, IsEmpty());
  EXPECT_EQ(service->description().graphs.size(), 2U * 8U) << "with log-probabilities and without";
  run(*service);
  run(*service, /*num_logprobs=*/3);
  const ServiceMetrics metrics = service->metrics();
  EXPECT_THAT(metrics.graph_misses, IsEmpty());
  EXPECT_TRUE(buckets(metrics).contains("8"));
  EXPECT_TRUE(buckets(metrics).contains("8/logprobs"));
}

// A captured step has room for whole pages of tokens, so the bytes of page updates have steps.
constexpr double kPageUpdateBytes = 16;

TEST_F(GraphService, LaunchesAreNamedByLayerAndCostWhatTheirFunctionsSay) {
  const auto service = start(options());
  std::vector<GraphManifest> graphs;
  for (const GraphManifest& graph : service->description().graphs) {
    if (graph.bucket.key == service->description().graphs.front().bucket.key) {
      graphs.push_back(graph);
    }
  }
  ASSERT_EQ(graphs.size(), 8U);
  const auto [small, large] = std::ranges::minmax_element(
      graphs, {}, [](const GraphManifest& graph) { return graph.bucket.num_tokens; });
  const auto costs = launch_costs(*small, *large);
  ASSERT_TRUE(costs.has_value());
  std::set<int> layers;
  for (const LaunchCost& cost : *costs) {
    layers.insert(cost.layer);
  }
  EXPECT_EQ(layers.size(), static_cast<std::size_t>(files().config.num_layers) + 1) << "and -1";
  for (const GraphManifest& graph : graphs) {
    ASSERT_EQ(graph.launches.size(), costs->size());
    for (std::size_t i = 0; i < costs->size(); ++i) {
      const simt::Traffic& traffic = graph.launches[i].traffic;
      const LaunchCost& cost = (*costs)[i];
      const std::int64_t tokens = graph.bucket.num_tokens;
      const std::int64_t context = traffic.context.num_tokens;
      const std::string which = std::string(cost.operation) + " of " + std::to_string(tokens);
      EXPECT_NEAR(cost.read_bytes(tokens, context), static_cast<double>(traffic.read_bytes),
                  kPageUpdateBytes)
          << which;
      EXPECT_NEAR(cost.written_bytes(tokens, context), static_cast<double>(traffic.written_bytes),
                  kPageUpdateBytes)
          << which;
      EXPECT_DOUBLE_EQ(cost.flops(tokens, context), static_cast<double>(traffic.flops)) << which;
      EXPECT_EQ(std::string(cost.operation) == "attend_decode", context > 0) << which;
    }
  }
}

TEST_F(GraphService, T_CG_1_a_batch_above_the_largest_capture_is_split_and_never_eager) {
  WorkerOptions few = options();
  few.capture_sizes = {1, 3};
  const auto service = start(few);
  run(*service);
  const ServiceMetrics metrics = service->metrics();
  EXPECT_THAT(metrics.graph_misses, IsEmpty());
  EXPECT_TRUE(buckets(metrics).contains("3"));
}

TEST_F(GraphService, T_CG_1_prompts_replay_a_packed_capture_that_holds_them) {
  WorkerOptions packed = options();
  packed.prefill_capture_sizes = {64};
  const auto service = start(packed);
  EXPECT_THAT(service->description().capture_failures, IsEmpty());
  run(*service);
  const ServiceMetrics metrics = service->metrics();
  EXPECT_THAT(metrics.graph_misses, IsEmpty());
  EXPECT_TRUE(buckets(metrics).contains("8/64-tokens"));
}

TEST_F(GraphService, T_CG_1_prompts_replay_the_blocks_that_are_captured_alone) {
  WorkerOptions blocks = options();
  blocks.piecewise_capture_sizes = {64};
  const auto service = start(blocks);
  EXPECT_THAT(service->description().capture_failures, IsEmpty());
  EXPECT_EQ(std::ssize(service->description().block_graphs), files().config.num_layers + 1);
  for (const GraphManifest& graph : service->description().block_graphs) {
    EXPECT_GT(graph.num_bytes, 0);
    for (const LaunchRecord& launch : graph.launches) {
      EXPECT_TRUE(launch.layer == graph.bucket.key || launch.layer == graph.bucket.key - 1)
          << "a block lies between two layers' attentions";
    }
  }
  run(*service);
  const ServiceMetrics metrics = service->metrics();
  ASSERT_EQ(metrics.graph_regions.size(), 1U) << "no run was missed";
  EXPECT_EQ(metrics.graph_regions[0].region, "blocks");
  EXPECT_EQ(metrics.graph_regions[0].outcome, "replayed");
  EXPECT_GT(metrics.graph_regions[0].count, 0U);
  EXPECT_THAT(metrics.graph_misses, IsEmpty());
}

TEST_F(GraphService, T_CG_12_without_captured_steps_nothing_replays_and_nothing_is_missed) {
  WorkerOptions eager = options();
  eager.enforce_eager = true;
  const auto service = start(eager);
  run(*service);
  EXPECT_THAT(service->metrics().graph_replays, IsEmpty());
  EXPECT_THAT(service->metrics().graph_misses, IsEmpty());
  EXPECT_THAT(service->description().graphs, IsEmpty());
}

TEST_F(GraphService, T_CG_12_lazy_captures_come_while_it_serves) {
  WorkerOptions lazy = options();
  lazy.capture = "lazy";
  const auto service = start(lazy);
  EXPECT_THAT(service->description().graphs, IsEmpty());
  const auto num_misses = [&] {
    std::uint64_t sum = 0;
    for (const GraphMissCount& misses : service->metrics().graph_misses) {
      EXPECT_EQ(misses.reason, "not_captured");
      sum += misses.count;
    }
    return sum;
  };
  run(*service);
  run(*service);  // every turn of the first has captured one
  const std::uint64_t before = num_misses();
  run(*service);
  EXPECT_EQ(num_misses(), before);
  EXPECT_THAT(service->metrics().graph_replays, Not(IsEmpty()));
}

TEST_F(GraphService, T_EN_7_in_turn_the_next_step_is_planned_while_the_device_has_this_one) {
  const auto outcomes = [](const WorkerOptions& options) {
    const auto service = start(options);
    run(*service);
    std::map<std::string, std::uint64_t> counts;
    for (const PreplanCount& count : service->metrics().preplans) {
      counts[count.outcome] = count.count;
    }
    EXPECT_THAT(service->metrics().graph_misses, IsEmpty());
    return counts;
  };
  WorkerOptions in_turn = options();
  in_turn.async_scheduling = false;
  EXPECT_GT(outcomes(in_turn)["promoted"], 25U) << "of 39 steps, some of which take prompts along";
  in_turn.preplan = false;
  EXPECT_EQ(outcomes(in_turn)["promoted"], 0U);
  EXPECT_EQ(outcomes(options())["promoted"], 0U) << "one step ahead there is nothing to gain";
}

TEST_F(GraphService, T_CG_1_a_launch_runs_several_decode_steps_where_it_may) {
  WorkerOptions turning = options();
  turning.steps_per_launch = 4;
  const auto service = start(turning);
  EXPECT_THAT(service->description().capture_failures, IsEmpty());
  run(*service);
  run(*service, /*num_logprobs=*/3);
  const ServiceMetrics metrics = service->metrics();
  EXPECT_THAT(metrics.graph_misses, IsEmpty());
  EXPECT_EQ(metrics.generation_tokens, 2U * 8U * 40U);
  for (const std::uint64_t wasted : metrics.wasted_row_steps) {
    EXPECT_EQ(wasted, 0U);
  }
  // 39 tokens behind the prompts': nine launches of four steps and one that ends early, and a few around the prompts.
  const Histogram& launches = metrics.steps_per_launch;
  EXPECT_GT(launches.counts[2], 10U) << "of three or four steps";
  EXPECT_LT(launches.count, 40U);
}

TEST_F(GraphService, T_CG_1_options_that_cannot_be_are_refused_by_name) {
  const auto error_of = [](const auto& change) -> std::string {
    WorkerOptions wrong = options();
    change(wrong);
    try {
      std::ignore = start(wrong);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of([](WorkerOptions& wrong) { wrong.capture = "never"; }),
              HasSubstr("capture 'never' must be eager or lazy"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) { wrong.steps_per_launch = 17; }),
              HasSubstr("steps_per_launch must be between 1 and 16, got 17"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) {
                wrong.steps_per_launch = 2;
                wrong.enforce_eager = true;
              }),
              HasSubstr("steps_per_launch above 1 needs captured steps"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) { wrong.graph_slots = 1; }),
              HasSubstr("graph_slots must be between 2 and 4, got 1"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) {
                wrong.capture_sizes = {4, 2};
              }),
              HasSubstr("cudagraph_capture_sizes must be between 5 and 8, got 2"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) { wrong.capture_sizes = {9}; }),
              HasSubstr("cudagraph_capture_sizes must be between 1 and 8, got 9"));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) {
                wrong.prefill_capture_sizes = {64, 0};
              }),
              HasSubstr("prefill_capture_sizes must be between 65 and "));
  EXPECT_THAT(error_of([](WorkerOptions& wrong) {
                wrong.piecewise_capture_sizes = {64, 0};
              }),
              HasSubstr("piecewise_capture_sizes must be between 65 and "));
}

}  // namespace
}  // namespace rigel
