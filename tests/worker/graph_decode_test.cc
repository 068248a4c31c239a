// The decode step of a language model: captured and enqueued launch by launch, it gives the same bits.

#include "model/language_model.h"
#include "model/language_model_loader.h"
#include "model/model_files.h"
#include "tensor/copy.h"
#include "tests/test_data.h"
#include "tests/worker/poison.h"
#include "tests/worker/tiny_service.h"
#include "worker/thread_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace rigel {
namespace {

using ::testing::IsEmpty;
using Names = LanguageModelNames;

constexpr std::int32_t kMaxLanes = 8;
#if defined(__SANITIZE_THREAD__)
constexpr std::int32_t kLargestBatch = 3;  // the detector makes the rest take a minute
constexpr std::int32_t kBatches[] = {5};
#else
constexpr std::int32_t kLargestBatch = kMaxLanes;
constexpr std::int32_t kBatches[] = {1, 2, 5, 8};
#endif
constexpr std::int32_t kDecodeSteps = 20;  // over the edge of a page

/// A token, and the bits of its log-probability where one was asked for.
using Sampled = std::pair<std::int32_t, std::uint32_t>;
using Texts = std::vector<std::vector<Sampled>>;  // by request

struct DecodeCase {
  std::vector<std::int32_t> capture_sizes = {};  // none: no captured steps
  DeviceOrder order = DeviceOrder::kAscending;
  std::int32_t num_requests = 1;
  bool with_logprobs = false;
  bool with_penalties = false;
  bool poisons = false;   // NaN in every buffer between steps
  bool preplans = false;  // each step is planned while the device has the one before
  std::int32_t max_length = 128;
  std::int32_t num_turns = 1;  // a launch may have
  std::int32_t num_pages = 0;  // of the cache; 0: enough
};

const ModelFiles& files() {
  static const ModelFiles kFiles = open_model_files(testing::test_data() / "tiny/llama-untied");
  return kFiles;
}

/// A loaded model whose engine is driven step by step.
class Decoder {
 public:
  explicit Decoder(const DecodeCase& what) : what_(what) {
    DeviceOptions options;
    options.order = what.order;
    options.seed = 3;
    options.num_threads = 2;
    device_ = Device::open(options);
    model_ = load_language_model(
        *device_, files(),
        {.dtype = Dtype::kF32,
         .max_length = what.max_length,
         .max_lanes = kMaxLanes,
         .max_tokens = 64,
         .kv_cache_bytes = what.num_pages == 0 ? 8 << 20 : what.num_pages * testing::kTinyPageBytes,
         .capture = what.capture_sizes.empty() ? CaptureMode::kNever : CaptureMode::kAtLoad,
         .steps_per_launch = what.num_turns,
         .decode_batch_sizes = what.capture_sizes},
        nullptr);
    for (std::int32_t row = 0; row < what.num_requests; ++row) {
      add_request(row);
    }
  }
  Engine& engine() { return *model_.engine; }
  RequestInfo& info(std::size_t request) { return infos_[request]; }

  Texts run() {
    Texts texts(infos_.size());
    prefill();
    append(engine().complete(), texts);
    for (std::int32_t step = 1; step < kDecodeSteps; step += engine().completed_turns()) {
      if (what_.poisons) {
        testing::poison_workspaces(engine());
      }
      decode(step, std::min(what_.num_turns, kDecodeSteps - step));
      if (what_.preplans && step + 1 < kDecodeSteps) {
        fill_batch(next_, step + 1);
        EXPECT_TRUE(engine().preplan(next_));
      }
      append(engine().complete(), texts);
      for (std::int32_t turn = 1; turn < engine().completed_turns(); ++turn) {
        append(engine().rows_of_turn(turn), texts);
      }
      ++num_launches_;
    }
    return texts;
  }
  void decode(std::int32_t step, std::int32_t num_turns = 1) {
    fill_batch(batch_, step);
    batch_.num_turns = num_turns;
    ASSERT_TRUE(engine().launch(batch_).ok());
  }
  void fill_batch(ExecutingBatch& batch, std::int32_t step) {
    batch.clear();
    batch.walk = Names::kDecode;
    const NodeInputs* row = engine().submodule().uniform_row_inputs(Names::kDecode);
    for (const RequestInfo& info : infos_) {
      batch.add(info.handle, info, *row).set(Names::kDecodeLoop, step);
    }
  }
  void prefill() {
    batch_.clear();
    batch_.walk = Names::kMixed;
    for (const RequestInfo& info : infos_) {
      std::vector<std::int32_t> ids;
      for (std::int32_t index = 0; index < info.num_prompt_tokens; ++index) {
        ids.push_back(3 + (info.handle.row * 7 + index * 5) % 50);
      }
      auto row = std::make_unique<ArNodeInputs>();
      row->walk = Names::kPrefill;
      row->input_ids = Tensor::copy_of(std::span<const std::int32_t>(ids));
      row->input_seq_len = info.num_prompt_tokens;
      batch_.add(info.handle, info, {}, std::move(row));
    }
    ASSERT_TRUE(engine().launch(batch_).ok());
  }
  /// Page `page` of every layer.
  [[nodiscard]] std::vector<std::uint8_t> page(std::int32_t page) {
    std::vector<std::uint8_t> bytes;
    for (std::int32_t layer = 0; layer < model_.kv_cache->config().num_layers; ++layer) {
      const DeviceView view = model_.kv_cache->layer(layer).select(0, page);
      const PinnedBuffer host(*device_, view.num_bytes());
      copy(engine().stream(), host.view(Dtype::kF32, {view.num_elements()}),
           ConstDeviceView(view.reshape({view.num_elements()})));
      engine().stream().synchronize();
      const auto* begin = reinterpret_cast<const std::uint8_t*>(host.raw());
      bytes.insert(bytes.end(), begin, begin + view.num_bytes());
    }
    return bytes;
  }
  [[nodiscard]] int num_launches() const { return num_launches_; }
  [[nodiscard]] KvCache& kv_cache() { return *model_.kv_cache; }
  [[nodiscard]] std::int32_t num_pages() const { return model_.kv_cache->config().num_pages; }
  [[nodiscard]] std::int64_t free_device_bytes() const { return device_->free_memory_bytes(); }

 private:
  void add_request(std::int32_t row) {
    RequestInfo& info = infos_.emplace_back();
    info.handle = {row, 1};
    info.num_prompt_tokens = 1 + row % 5;
    info.max_tokens = what_.max_length - 10;
    info.max_length = what_.max_length;
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
    engine().add_request(info);
  }
  void append(const HostRows& rows, Texts& texts) const {
    const auto tokens = rows.find(Names::kNewToken).span<const std::int32_t>();
    const ConstHostView logprobs = rows.find(Names::kChosenLogprob);
    for (std::size_t request = 0; request < infos_.size(); ++request) {
      const auto row = static_cast<std::size_t>(rows.row_of(infos_[request].handle));
      const bool asks = infos_[request].sampling.num_logprobs >= 0;
      texts[request].emplace_back(
          tokens[row], asks ? std::bit_cast<std::uint32_t>(logprobs.span<const float>()[row]) : 0);
    }
  }
  DecodeCase what_;
  std::unique_ptr<Device> device_;
  LoadedLanguageModel model_;
  std::deque<RequestInfo> infos_;
  ExecutingBatch batch_;
  ExecutingBatch next_;
  int num_launches_ = 0;  // of decode steps, by run()
};

class GraphDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
  }
  static Texts eager(DecodeCase what) {
    what.capture_sizes = {};
    what.poisons = false;
    what.order = DeviceOrder::kAscending;
    return Decoder(what).run();
  }
  static void expect_same(const DecodeCase& what) {
    SCOPED_TRACE(::testing::Message() << what.num_requests << " requests, largest capture "
                                      << what.capture_sizes.back());
    Decoder captured(what);
    EXPECT_EQ(captured.run(), eager(what));
    EXPECT_THAT(captured.engine().graph_misses().all(), IsEmpty());
    ASSERT_NE(captured.engine().captures(), nullptr);
    EXPECT_THAT(captured.engine().captures()->runner().failures(), IsEmpty());
    EXPECT_TRUE(captured.engine().captures()->last_replayed().has_value());
  }
};

TEST_F(GraphDecode, T_CG_3_every_batch_and_every_padding_gives_the_bits_of_the_eager_step) {
  for (std::int32_t num_requests = 1; num_requests <= kLargestBatch; ++num_requests) {
    for (std::int32_t size = num_requests; size <= kLargestBatch; ++size) {
      expect_same({.capture_sizes = {size}, .num_requests = num_requests});
    }
  }
}

TEST_F(GraphDecode, T_CG_3_logprobs_penalties_and_biases_are_captured_too) {
  for (const std::int32_t num_requests : kBatches) {
    expect_same({.capture_sizes = {8},
                 .num_requests = num_requests,
                 .with_logprobs = true,
                 .with_penalties = true});
    expect_same(
        {.capture_sizes = {1, 2, 4, 8}, .num_requests = num_requests, .with_penalties = true});
  }
}

TEST_F(GraphDecode, T_CG_4_garbage_in_workspaces_and_padding_changes_nothing) {
  for (const std::int32_t num_requests : {1, 3, 7}) {
    expect_same({.capture_sizes = {8},
                 .num_requests = num_requests,
                 .with_logprobs = true,
                 .with_penalties = true,
                 .poisons = true});
  }
}

TEST_F(GraphDecode, T_CG_12_nodes_in_any_order_that_the_edges_allow_give_the_same) {
  for (const DeviceOrder order : {DeviceOrder::kDescending, DeviceOrder::kRandom}) {
    expect_same({.capture_sizes = {4}, .order = order, .num_requests = 3});
  }
}

TEST_F(GraphDecode, T_CG_5_plans_made_ahead_give_the_bits_of_the_eager_step) {
  for (const std::int32_t num_requests : {1, 3, 8}) {
    const DecodeCase what{.capture_sizes = {4, 8},
                          .num_requests = num_requests,
                          .with_logprobs = true,
                          .with_penalties = true,
                          .preplans = true};
    Decoder ahead(what);
    DecodeCase inline_case = what;
    inline_case.preplans = false;
    EXPECT_EQ(ahead.run(), eager(inline_case));
    const PreplanCounts& counts = ahead.engine().preplan_counts();
    EXPECT_EQ(counts.promoted, std::uint64_t{kDecodeSteps - 2}) << "all decode steps but the first";
    EXPECT_EQ(counts.dropped, 0u);
  }
}

TEST_F(GraphDecode, T_CG_3_several_turns_a_launch_give_the_bits_of_as_many_eager_steps) {
  for (const std::int32_t num_turns : {2, 5, 16}) {
    DecodeCase what{.capture_sizes = {4, 8},
                    .num_requests = 5,
                    .with_logprobs = num_turns != 2,
                    .with_penalties = true,
                    .poisons = num_turns == 5,
                    .num_turns = num_turns};
    Decoder turning(what);
    const Texts texts = turning.run();
    what.num_turns = 1;
    EXPECT_EQ(texts, eager(what)) << num_turns << " turns";
    EXPECT_THAT(turning.engine().graph_misses().all(), IsEmpty());
    EXPECT_THAT(turning.engine().captures()->runner().failures(), IsEmpty());
    EXPECT_LT(turning.num_launches(), kDecodeSteps - 1);
  }
}

TEST_F(GraphDecode, T_CG_12_turns_of_nodes_in_any_order_give_the_same) {
  for (const DeviceOrder order : {DeviceOrder::kDescending, DeviceOrder::kRandom}) {
    expect_same({.capture_sizes = {4}, .order = order, .num_requests = 3, .num_turns = 4});
  }
}

TEST_F(GraphDecode, T_CG_3_a_launch_ends_with_the_turn_that_the_host_must_see) {
  Decoder decoder({.capture_sizes = {4}, .num_requests = 3, .num_turns = 8});
  const auto set_limits = [&](std::size_t request, std::int32_t max_tokens) {
    RequestInfo& info = decoder.info(request);
    decoder.engine().remove_request(info.handle);
    ++info.handle.generation;
    info.max_tokens = max_tokens;
    info.sampling.min_tokens = 0;
    info.sampling.stop_token_ids = {};
    decoder.engine().add_request(info);
  };
  set_limits(0, 100);
  set_limits(1, 6);
  set_limits(2, 100);
  decoder.prefill();
  std::ignore = decoder.engine().complete();
  decoder.decode(1);  // brings nothing new to the stop table
  std::ignore = decoder.engine().complete();
  decoder.decode(2, 8);
  EXPECT_EQ(decoder.engine().launched_turns(), 8);
  ExecutingBatch behind;
  decoder.fill_batch(behind, 3);
  EXPECT_FALSE(decoder.engine().preplan(behind));
  EXPECT_THROW(std::ignore = decoder.engine().launch(behind), CheckError);
  const HostRows first = decoder.engine().complete();
  EXPECT_EQ(decoder.engine().completed_turns(), 4) << "the sixth token is the request's last";
  InputMetadata metadata;
  const std::vector<RequestView> views{
      {decoder.info(0), metadata}, {decoder.info(1), metadata}, {decoder.info(2), metadata}};
  EXPECT_THAT(decoder.engine().check_stop(views, first), IsEmpty());
  EXPECT_THAT(decoder.engine().check_stop(views, decoder.engine().rows_of_turn(2)), IsEmpty());
  const auto stops = decoder.engine().check_stop(views, decoder.engine().rows_of_turn(3));
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].handle, decoder.info(1).handle);
  EXPECT_THROW(std::ignore = decoder.engine().rows_of_turn(4), CheckError);
  // The cache holds the prompt and what was drawn but the last token, as behind six steps.
  EXPECT_EQ(decoder.kv_cache().stored_length(decoder.info(0).handle), 1 + 5);
}

TEST_F(GraphDecode, T_KV_5_a_launch_has_as_many_turns_as_there_are_pages_for) {
  // A page of padding's, and two for two requests, which begin with one and two tokens.
  Decoder decoder(
      {.capture_sizes = {2}, .num_requests = 2, .max_length = 32, .num_turns = 16, .num_pages = 3});
  for (std::size_t request = 0; request < 2; ++request) {
    RequestInfo& info = decoder.info(request);
    decoder.engine().remove_request(info.handle);
    ++info.handle.generation;
    info.sampling.min_tokens = 0;
    info.sampling.stop_token_ids = {};
    decoder.engine().add_request(info);
  }
  decoder.prefill();
  std::ignore = decoder.engine().complete();
  decoder.decode(1, 16);
  std::ignore = decoder.engine().complete();
  EXPECT_EQ(decoder.engine().completed_turns(), 14) << "until the longer one's page is full";
  decoder.kv_cache().assert_pages_conserved();
}

TEST_F(GraphDecode, B_57_a_request_that_goes_while_its_turns_run_leaves_the_others_theirs) {
  Decoder decoder({.capture_sizes = {4}, .num_requests = 3, .num_turns = 6});
  decoder.prefill();
  std::ignore = decoder.engine().complete();
  decoder.decode(1, 6);
  decoder.engine().remove_request(decoder.info(1).handle);
  std::ignore = decoder.engine().complete();
  EXPECT_EQ(decoder.engine().completed_turns(), 6);
  EXPECT_EQ(decoder.kv_cache().stored_length(decoder.info(0).handle), 1 + 6);
  EXPECT_EQ(decoder.kv_cache().stored_length(decoder.info(2).handle), 3 + 6);
  RequestInfo& info = decoder.info(1);
  ++info.handle.generation;
  decoder.engine().add_request(info);
  EXPECT_EQ(decoder.kv_cache().stored_length(info.handle), 0);
  decoder.kv_cache().assert_pages_conserved();
}

/// What the device says of each lane is what the host's own rule says.
TEST_F(GraphDecode, T_HR_1_the_device_tests_every_lane_of_captured_and_eager_steps) {
  for (const std::vector<std::int32_t>& sizes :
       {std::vector<std::int32_t>{}, std::vector<std::int32_t>{8}}) {
    Decoder decoder({.capture_sizes = sizes, .num_requests = 5, .with_logprobs = true});
    std::vector<std::int32_t> many(12);
    std::iota(many.begin(), many.end(), 3);
    const std::vector<std::vector<std::int32_t>> stop_ids{{5, 6, 7}, {}, {2}, many, {1, 2, 40, 41}};
    for (std::size_t request = 0; request < stop_ids.size(); ++request) {
      RequestInfo& info = decoder.info(request);
      decoder.engine().remove_request(info.handle);
      ++info.handle.generation;
      info.max_tokens = 10 + static_cast<std::int32_t>(request);
      info.sampling.min_tokens = static_cast<std::int32_t>(request % 2) * 4;
      info.sampling.stop_token_ids = stop_ids[request];
      decoder.engine().add_request(info);
    }
    std::size_t num_stops = 0;
    decoder.prefill();
    for (std::int32_t step = 0; step < kDecodeSteps; ++step) {
      if (step > 0) {
        decoder.decode(step);
      }
      const HostRows rows = decoder.engine().complete();
      const auto tokens = rows.find(Names::kNewToken).span<const std::int32_t>();
      std::vector<RequestHandle> expected;
      std::vector<RequestView> views;
      InputMetadata metadata;
      for (std::size_t request = 0; request < stop_ids.size(); ++request) {
        const RequestInfo& info = decoder.info(request);
        views.emplace_back(info, metadata);
        const auto token = tokens[static_cast<std::size_t>(rows.row_of(info.handle))];
        const bool met = step + 1 > info.sampling.min_tokens &&
                         std::ranges::find(info.sampling.stop_token_ids, token) !=
                             info.sampling.stop_token_ids.end();
        if (met || step + 1 >= info.max_tokens) {
          expected.push_back(info.handle);
        }
      }
      std::vector<RequestHandle> stopped;
      for (const LoopStop& stop : decoder.engine().check_stop(views, rows)) {
        stopped.push_back(stop.handle);
      }
      EXPECT_EQ(stopped, expected) << "step " << step;
      num_stops += stopped.size();
    }
    EXPECT_GT(num_stops, 20u);
  }
}

TEST_F(GraphDecode, T_KV_5_padding_writes_no_page) {
  Decoder decoder({.capture_sizes = {8}, .num_requests = 3});
  const std::int32_t last = decoder.num_pages() - 1;
  const auto sink_before = decoder.page(0);
  const auto last_before = decoder.page(last);
  std::ignore = decoder.run();
  EXPECT_EQ(decoder.page(0), sink_before);
  EXPECT_EQ(decoder.page(last), last_before);
}

TEST_F(GraphDecode, T_CG_8_a_thousand_replays_take_no_memory_of_host_or_device) {
  if (!counts_thread_costs()) {
    GTEST_SKIP() << "under a sanitizer";
  }
  Decoder decoder(
      {.capture_sizes = {1, 2, 4}, .num_requests = 3, .max_length = 1200, .num_turns = 2});
  decoder.prefill();
  std::ignore = decoder.engine().complete();
  ThreadCosts costs;
  bool is_warm = false;
  std::int64_t device_bytes = 0;
  for (std::int32_t step = 1; step < 1040; step += decoder.engine().completed_turns()) {
    if (step >= 40 && !std::exchange(is_warm, true)) {
      costs = thread_costs();
      device_bytes = decoder.free_device_bytes();
    }
    decoder.decode(step, 1 + step % 2);
    std::ignore = decoder.engine().complete();
    std::ignore = decoder.engine().rows_of_turn(decoder.engine().completed_turns() - 1);
  }
  EXPECT_EQ((thread_costs() - costs).allocations, 0);
  EXPECT_EQ(decoder.free_device_bytes(), device_bytes);
  EXPECT_THAT(decoder.engine().graph_misses().all(), IsEmpty());
}

TEST_F(GraphDecode,
       T_CG_1_a_request_with_more_biases_than_there_is_room_runs_eagerly_and_is_counted) {
  Decoder decoder({.capture_sizes = {4}, .num_requests = 2});
  for (std::int32_t index = 0; index < 400; ++index) {
    decoder.info(1).sampling.logit_bias.emplace_back(index, 0.0f);
  }
  decoder.prefill();
  std::ignore = decoder.engine().complete();
  decoder.decode(1);
  std::ignore = decoder.engine().complete();
  const auto& misses = decoder.engine().graph_misses().all();
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_EQ(misses[0].walk, Names::kDecode);
  EXPECT_EQ(misses[0].reason, GraphMissReason::kOverflow);
}

TEST(DecodeBatchSizes, T_CG_1_are_dense_where_padding_costs_and_sparse_where_captures_do) {
  const std::vector<std::int32_t> cuda = default_decode_batch_sizes(/*is_cuda=*/true, 512);
  EXPECT_EQ(cuda.size(), 3U + 32U + 16U);
  EXPECT_EQ((std::vector<std::int32_t>(cuda.begin(), cuda.begin() + 6)),
            (std::vector<std::int32_t>{1, 2, 4, 8, 16, 24}));
  EXPECT_EQ(cuda[35], 272);
  EXPECT_EQ(cuda.back(), 512);
  EXPECT_EQ(default_decode_batch_sizes(/*is_cuda=*/true, 5),
            (std::vector<std::int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(default_decode_batch_sizes(/*is_cuda=*/false, 100).size(), 64U);
  EXPECT_EQ(default_decode_batch_sizes(/*is_cuda=*/false, 1), (std::vector<std::int32_t>{1}));
}

}  // namespace
}  // namespace rigel
