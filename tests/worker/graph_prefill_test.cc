// Steps with prompts among their lanes, of any lengths: packed into a capture they give the bits of the eager step.

#include "engine/piecewise_runners.h"
#include "model/language_model.h"
#include "model/language_model_loader.h"
#include "model/model_files.h"
#include "tensor/copy.h"
#include "tests/test_data.h"
#include "tests/worker/poison.h"
#include "worker/thread_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace rigel {
namespace {

using ::testing::IsEmpty;
using Names = LanguageModelNames;

constexpr std::int32_t kPrefillRows = 8;
constexpr std::int32_t kPrefillTokens = 64;
#if defined(__SANITIZE_THREAD__)
constexpr int kNumPartitions = 2;
constexpr unsigned kNumReplays = 60;
#else
constexpr int kNumPartitions = 10;
constexpr unsigned kNumReplays = 300;
#endif

struct PrefillCase {
  std::vector<std::int64_t> token_counts = {};  // of captured steps
  std::vector<std::int64_t> block_counts = {};  // of captured blocks between attentions
  std::uint32_t seed = 1;                       // of how the prompts are cut
  std::int32_t num_requests = 4;
  DeviceOrder order = DeviceOrder::kAscending;
  bool with_logprobs = false;
  bool with_penalties = false;
  bool poisons = false;  // NaN in every buffer between steps
};

/// What became of a case: what each request was given, and the bits of all keys and values at the end.
struct PrefillResult {
  std::vector<std::vector<std::pair<std::int32_t, std::uint32_t>>> texts;  // token, log-probability
  std::vector<std::uint8_t> pages;

  friend bool operator==(const PrefillResult&, const PrefillResult&) = default;
};

/// A loaded model driven step by step: prompts in parts of random lengths, and who has ended its own decodes beside them.
class Prefiller {
 public:
  explicit Prefiller(const PrefillCase& what) : what_(what), random_(what.seed) {
    DeviceOptions options;
    options.order = what.order;
    options.seed = 3;
    options.num_threads = 2;
    options.fill_garbage = true;  // the same in every run, so that whole pools can be compared
    device_ = Device::open(options);
    static const ModelFiles kFiles = open_model_files(testing::test_data() / "tiny/llama-untied");
    model_ = load_language_model(
        *device_, kFiles,
        {.dtype = Dtype::kF32,
         .max_length = 128,
         .max_lanes = kPrefillRows,
         .max_tokens = kPrefillTokens,
         .kv_cache_bytes = 1 << 20,
         .capture = what.token_counts.empty() && what.block_counts.empty() ? CaptureMode::kNever
                                                                           : CaptureMode::kAtLoad,
         .decode_batch_sizes = {1, 8},
         .capture_prefill = !what.token_counts.empty(),
         .prefill_token_counts = what.token_counts,
         .capture_blocks = !what.block_counts.empty(),
         .block_token_counts = what.block_counts},
        nullptr);
    for (std::int32_t row = 0; row < what.num_requests; ++row) {
      add_request(row);
    }
  }
  Engine& engine() { return *model_.engine; }
  RequestInfo& info(std::size_t request) { return infos_[request]; }

  PrefillResult run() {
    PrefillResult result{
        .texts = std::vector<std::vector<std::pair<std::int32_t, std::uint32_t>>>(infos_.size()),
        .pages = {}};
    for (int step = 0; step < 24; ++step) {
      if (what_.poisons) {
        testing::poison_workspaces(engine());
      }
      step_once();
      append(engine().complete(), result);
    }
    result.pages = all_pages();
    return result;
  }
  /// All that can decode do; prompts get what the budget leaves, in parts of any length.
  void step_once() {
    batch_.clear();
    const NodeInputs* const decode_row = engine().submodule().uniform_row_inputs(Names::kDecode);
    auto budget = static_cast<std::int64_t>(1 + random_() % kPrefillTokens);
    sampled_.clear();
    for (std::size_t request = 0; request < infos_.size(); ++request) {
      if (done_[request] == infos_[request].num_prompt_tokens) {
        batch_.add(infos_[request].handle, infos_[request], *decode_row)
            .set(Names::kDecodeLoop, num_sampled_[request]++);
        sampled_.push_back(request);
        --budget;
      }
    }
    const std::size_t num_decoding = batch_.size();
    for (std::size_t request = 0; request < infos_.size(); ++request) {
      const std::int32_t left = infos_[request].num_prompt_tokens - done_[request];
      if (left > 0 && budget > 0) {
        const auto most = std::min<std::int64_t>(left, budget);
        add_part(request, static_cast<std::int32_t>(1 + random_() % most));
        budget -= batch_.inputs().back()->input_seq_len;
      }
    }
    batch_.walk = batch_.size() > num_decoding ? Names::kMixed : Names::kDecode;
    if (batch_.empty()) {
      add_part(0, 1);  // the budget was nothing: a request's next token at least
      batch_.walk = Names::kMixed;
    }
    ASSERT_TRUE(engine().launch(batch_).ok());
  }
  /// The whole prompt of one request as a step of its own.
  void prefill_whole(std::size_t request) {
    batch_.clear();
    batch_.walk = Names::kMixed;
    sampled_.clear();
    add_part(request, infos_[request].num_prompt_tokens);
    ASSERT_TRUE(engine().launch(batch_).ok());
  }
  /// The request has gone and another one has its row.
  void replace(std::size_t request) {
    engine().remove_request(infos_[request].handle);
    ++infos_[request].handle.generation;
    done_[request] = 0;
    num_sampled_[request] = 0;
    engine().add_request(infos_[request]);
  }
  [[nodiscard]] std::int64_t free_device_bytes() const { return device_->free_memory_bytes(); }
  [[nodiscard]] std::uint64_t num_packed_replays() {
    std::uint64_t sum = 0;
    const GraphRunner& runner = engine().captures()->runner();
    for (std::size_t bucket = 0; bucket < runner.buckets().size(); ++bucket) {
      sum += runner.buckets().kind(bucket) == BucketKind::kPacked ? runner.num_replays(bucket) : 0;
    }
    return sum;
  }

 private:
  void add_request(std::int32_t row) {
    RequestInfo& info = infos_.emplace_back();
    info.handle = {row, 1};
    info.num_prompt_tokens = row == 0 ? 1 : 3 + (row * 23) % 60;
    info.max_tokens = 100;
    info.max_length = 128;
    info.seed = 17 + static_cast<std::uint64_t>(row);
    info.sampling.temperature = row % 3 == 0 ? 0.0f : 1.0f;
    info.sampling.num_logprobs = what_.with_logprobs && row % 2 == 0 ? row % 4 : -1;
    info.sampling.min_tokens = 8;
    info.sampling.stop_token_ids = {5, 6, 7};
    if (what_.with_penalties && row % 2 == 1) {
      info.sampling.repetition_penalty = 1.3f;
      info.sampling.presence_penalty = 0.5f;
      info.sampling.logit_bias = {{9, 1.5f}, {10, -2.0f}};
    }
    done_.push_back(0);
    num_sampled_.push_back(0);
    engine().add_request(info);
  }
  void add_part(std::size_t request, std::int32_t num_tokens) {
    const RequestInfo& info = infos_[request];
    std::vector<std::int32_t> ids;
    for (std::int32_t index = 0; index < num_tokens; ++index) {
      ids.push_back(3 + (info.handle.row * 7 + (done_[request] + index) * 5) % 50);
    }
    auto row = std::make_unique<ArNodeInputs>();
    row->walk = Names::kPrefill;
    row->input_ids = Tensor::copy_of(std::span<const std::int32_t>(ids));
    row->input_seq_len = num_tokens;
    row->chunk_start = done_[request];
    row->chunk_total = info.num_prompt_tokens;
    if (info.scoring) {
      row->tensor_inputs.emplace_back("targets", row->input_ids);
    }
    done_[request] += num_tokens;
    if (row->is_final_chunk()) {
      sampled_.push_back(request);
      ++num_sampled_[request];
    }
    batch_.add(info.handle, info, {}, std::move(row));
  }
  void append(const HostRows& rows, PrefillResult& result) const {
    ASSERT_EQ(rows.handles.size(), sampled_.size()) << "padding never travels to the host";
    if (sampled_.empty()) {
      return;
    }
    const auto tokens = rows.find(Names::kNewToken).span<const std::int32_t>();
    const ConstHostView logprobs = rows.find(Names::kChosenLogprob);
    for (const std::size_t request : sampled_) {
      const auto row = static_cast<std::size_t>(rows.row_of(infos_[request].handle));
      const bool asks = infos_[request].sampling.num_logprobs >= 0;
      result.texts[request].emplace_back(
          tokens[row], asks ? std::bit_cast<std::uint32_t>(logprobs.span<const float>()[row]) : 0);
    }
  }
  [[nodiscard]] std::vector<std::uint8_t> all_pages() {
    std::vector<std::uint8_t> bytes;
    for (std::int32_t layer = 0; layer < model_.kv_cache->config().num_layers; ++layer) {
      const DeviceView view = model_.kv_cache->layer(layer);
      for (std::int64_t page = 0; page < view.dim(0); ++page) {
        const DeviceView one = view.select(0, page);
        const PinnedBuffer host(*device_, one.num_bytes());
        copy(engine().stream(), host.view(Dtype::kF32, {one.num_elements()}),
             ConstDeviceView(one.reshape({one.num_elements()})));
        engine().stream().synchronize();
        const auto* const begin = reinterpret_cast<const std::uint8_t*>(host.raw());
        bytes.insert(bytes.end(), begin, begin + one.num_bytes());
      }
    }
    return bytes;
  }
  PrefillCase what_;
  std::mt19937 random_;
  std::unique_ptr<Device> device_;
  LoadedLanguageModel model_;
  std::deque<RequestInfo> infos_;
  std::vector<std::int32_t> done_;         // prompt tokens, by request
  std::vector<std::int32_t> num_sampled_;  // by request
  std::vector<std::size_t> sampled_;       // requests that sample in the last step
  ExecutingBatch batch_;
};

class GraphPrefill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
  }
  static PrefillResult eager(PrefillCase what) {
    what.token_counts = {};
    what.block_counts = {};
    what.poisons = false;
    what.order = DeviceOrder::kAscending;
    return Prefiller(what).run();
  }
  static void expect_same(const PrefillCase& what) {
    SCOPED_TRACE(::testing::Message() << what.num_requests << " requests, seed " << what.seed);
    Prefiller packed(what);
    const PrefillResult got = packed.run();
    const PrefillResult wanted = eager(what);
    EXPECT_EQ(got.texts, wanted.texts);
    EXPECT_TRUE(got.pages == wanted.pages) << "a page differs: padding may have written one";
    EXPECT_THAT(packed.engine().graph_misses().all(), IsEmpty());
    EXPECT_THAT(packed.engine().captures()->runner().failures(), IsEmpty());
    EXPECT_GT(packed.num_packed_replays(), 0u);
  }
};

TEST_F(GraphPrefill, T_CG_3_prompts_of_any_lengths_give_the_bits_of_the_eager_step) {
  for (int partition = 0; partition < kNumPartitions; ++partition) {
    expect_same({.token_counts = {16, 64},
                 .seed = static_cast<std::uint32_t>(partition),
                 .num_requests = 1 + partition % kPrefillRows});
  }
}

TEST_F(GraphPrefill, T_CG_3_logprobs_penalties_and_biases_are_packed_too) {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    expect_same({.token_counts = {8, 32, 64},
                 .seed = seed,
                 .num_requests = 8,
                 .with_logprobs = seed != 2,
                 .with_penalties = true});
  }
}

TEST_F(GraphPrefill, T_CG_4_garbage_in_workspaces_and_padding_changes_nothing) {
  for (const std::uint32_t seed : {4u, 5u}) {
    expect_same({.token_counts = {64},
                 .seed = seed,
                 .num_requests = 5,
                 .with_logprobs = true,
                 .with_penalties = true,
                 .poisons = true});
  }
}

TEST_F(GraphPrefill, T_CG_12_nodes_in_any_order_that_the_edges_allow_give_the_same) {
  for (const DeviceOrder order : {DeviceOrder::kDescending, DeviceOrder::kRandom}) {
    expect_same({.token_counts = {64}, .seed = 6, .num_requests = 6, .order = order});
  }
}

TEST_F(GraphPrefill, T_CG_3_captured_blocks_between_attentions_give_the_bits_of_the_eager_step) {
  const std::vector<PrefillCase> cases = {
      {.block_counts = {16, 64}, .seed = 1, .num_requests = 3, .poisons = true},
      {.block_counts = {64},
       .seed = 2,
       .num_requests = 8,
       .with_logprobs = true,
       .with_penalties = true},
      {.block_counts = {8, 32, 64},
       .seed = 3,
       .num_requests = 5,
       .order = DeviceOrder::kDescending},
      {.block_counts = {64},
       .seed = 4,
       .num_requests = 6,
       .order = DeviceOrder::kRandom,
       .poisons = true},
  };
  for (const PrefillCase& what : cases) {
    Prefiller blocks(what);
    const PrefillResult got = blocks.run();
    const PrefillResult wanted = eager(what);
    EXPECT_EQ(got.texts, wanted.texts);
    EXPECT_TRUE(got.pages == wanted.pages) << "a page differs: padding may have written one";
    const PiecewiseRunners& regions = blocks.engine().captures()->regions();
    EXPECT_THAT(regions.runner().failures(), IsEmpty());
    EXPECT_GT(regions[0].counts().num_replays, 0u);
    EXPECT_THAT(regions[0].counts().misses, ::testing::Each(0u));
    EXPECT_THAT(blocks.engine().graph_misses().all(), IsEmpty());
  }
}

TEST_F(GraphPrefill, T_CG_1_blocks_serve_the_steps_that_no_packed_capture_can) {
  Prefiller packed({.token_counts = {16}, .block_counts = {32}, .num_requests = 4});
  const RegionCounts& counts = packed.engine().captures()->regions()[0].counts();
  packed.prefill_whole(0);  // one token
  std::ignore = packed.engine().complete();
  EXPECT_EQ(counts.num_replays, 0u) << "replayed whole";
  packed.prefill_whole(1);  // 26 tokens
  std::ignore = packed.engine().complete();
  const std::uint64_t num_parts = counts.num_replays;
  EXPECT_EQ(num_parts, packed.engine().captures()->regions().runner().buckets().size());
  packed.prefill_whole(2);  // 49 tokens
  std::ignore = packed.engine().complete();
  EXPECT_EQ(counts.num_replays, num_parts);
  EXPECT_EQ(counts.misses[static_cast<std::size_t>(RegionMiss::kNoBucket)], num_parts);
}

TEST_F(GraphPrefill, T_CG_8_replays_take_no_memory_of_the_device) {
  Prefiller packed({.token_counts = {64}, .num_requests = 2});
  std::int64_t device_bytes = 0;
  for (unsigned turn = 0; turn < kNumReplays; ++turn) {
    if (turn == 5) {
      device_bytes = packed.free_device_bytes();
    }
    packed.prefill_whole(1);
    std::ignore = packed.engine().complete();
    packed.replace(1);
  }
  EXPECT_EQ(packed.free_device_bytes(), device_bytes);
  EXPECT_EQ(packed.num_packed_replays(), kNumReplays);
}

TEST_F(GraphPrefill, T_CG_1_what_no_packed_capture_can_serve_is_counted_by_reason) {
  Prefiller packed({.token_counts = {16}, .num_requests = 4});
  const auto reasons = [&packed] {
    std::vector<GraphMissReason> counted;
    for (const GraphMiss& miss : packed.engine().graph_misses().all()) {
      EXPECT_EQ(miss.walk, Names::kMixed);
      counted.push_back(miss.reason);
    }
    return counted;
  };
  packed.prefill_whole(0);
  std::ignore = packed.engine().complete();
  EXPECT_THAT(reasons(), IsEmpty());
  packed.prefill_whole(1);  // 26 tokens
  std::ignore = packed.engine().complete();
  EXPECT_THAT(reasons(), ::testing::ElementsAre(GraphMissReason::kNotCaptured));
  packed.info(3).num_prompt_tokens = 9;
  for (std::int32_t token = 0; token < 400; ++token) {
    packed.info(3).sampling.logit_bias.emplace_back(token, 0.0f);
  }
  packed.replace(3);
  packed.prefill_whole(3);
  std::ignore = packed.engine().complete();
  EXPECT_THAT(reasons(),
              ::testing::ElementsAre(GraphMissReason::kNotCaptured, GraphMissReason::kOverflow));
  packed.info(2).num_prompt_tokens = 9;
  packed.info(2).scoring = PromptScoring{};
  packed.replace(2);
  packed.prefill_whole(2);
  std::ignore = packed.engine().complete();
  EXPECT_THAT(reasons(), ::testing::Contains(GraphMissReason::kDeclined)) << "a scored prompt";
  EXPECT_EQ(packed.num_packed_replays(), 1u);
}

TEST(PrefillTokenCounts, T_CG_1_are_powers_of_two_as_far_as_a_step_goes) {
  EXPECT_EQ(default_prefill_token_counts(/*is_cuda=*/true, 8192),
            (std::vector<std::int64_t>{64, 128, 256, 512, 1024, 2048}));
  EXPECT_EQ(default_prefill_token_counts(/*is_cuda=*/true, 300),
            (std::vector<std::int64_t>{64, 128, 256, 300}));
  EXPECT_THAT(default_prefill_token_counts(/*is_cuda=*/false, 512), IsEmpty());
  EXPECT_EQ(prefill_lane_counts(512), (std::vector<std::int32_t>{8, 32, 128, 512}));
  EXPECT_EQ(prefill_lane_counts(3), (std::vector<std::int32_t>{3}));
}

}  // namespace
}  // namespace rigel
