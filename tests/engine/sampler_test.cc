#include "engine/resources/sampler.h"

#include "tests/engine/engine_test.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::int32_t kVocab = 8;
constexpr std::int32_t kSamplerRows = 6;
constexpr SamplerSignals kSignals{SignalId{1}, SignalId{2}, SignalId{3}, SignalId{4}};
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using Logits = std::vector<float>;

class SamplerTest : public testing::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (!IsSkipped()) {
      sampler = make_sampler();
    }
  }
  [[nodiscard]] std::unique_ptr<Sampler> make_sampler() const {
    auto made = std::make_unique<Sampler>(ResourceKey{0}, *device,
                                          SamplerConfig{.num_rows = kSamplerRows,
                                                        .vocab_size = kVocab,
                                                        .max_top_logprobs = 4,
                                                        .signals = kSignals});
    fill_bytes(stream->ref(), made->last_tokens(), 0xFF);
    return made;
  }
  RequestInfo request(std::int32_t row, const SamplingConfig& sampling, std::uint64_t seed = 7) {
    RequestInfo info = info_of(row, ++num_requests);
    info.sampling = sampling;
    info.seed = seed;
    info.num_prompt_tokens = 4;
    return info;
  }

  struct Draw {
    const RequestInfo* info = nullptr;  // null: padding
    std::int32_t num_generated = 0;
    Logits logits;
  };
  /// Draws a token for each lane in one step of the sampler. The step's inputs are one token a lane.
  std::vector<std::int32_t> draw(const std::vector<Draw>& draws, SamplerStep declaration = {}) {
    const RequestInfo padding = info_of(-1);
    std::vector<RequestHandle> handles;
    std::vector<const RequestInfo*> infos;
    std::vector<const NodeInputs*> inputs;
    std::vector<float> values;
    NodeInputs decode;
    decode.input_seq_len = 1;
    SubmoduleStep step;
    auto& lanes = step.declare<SamplerStep>(ResourceKey{0});
    lanes = std::move(declaration);
    for (const Draw& one : draws) {
      const RequestInfo& info = one.info != nullptr ? *one.info : padding;
      lanes.lanes.push_back(
          {info.handle, &info, one.num_generated, static_cast<std::int32_t>(handles.size())});
      handles.push_back(info.handle);
      infos.push_back(&info);
      inputs.push_back(&decode);
      values.insert(values.end(), one.logits.begin(), one.logits.end());
    }
    begin({WalkId{0}, handles, infos, {}, inputs});
    sampler->plan(step, *context);
    staging->upload(stream->ref());
    const Shape shape{static_cast<std::int64_t>(draws.size()), kVocab};
    const DeviceBuffer logits(*device, Dtype::kF32, shape);
    copy(stream->ref(), logits.view(Dtype::kF32, shape),
         const_host_view(std::span<const float>(values)));
    outputs.reset();
    sampler->enqueue(*context, logits.view(Dtype::kF32, shape), outputs);
    std::vector<std::int32_t> tokens = ints(outputs.row_outputs()[0].rows);
    return tokens;
  }
  std::int32_t draw_one(const RequestInfo& info, std::int32_t num_generated, const Logits& logits) {
    return draw({{&info, num_generated, logits}}).front();
  }
  /// Counts the tokens of one lane's input, a part of its prompt, without sampling.
  void prefill(const RequestInfo& info, const std::vector<std::int32_t>& tokens,
               std::int64_t chunk_start, SamplerStep declaration = {}) {
    NodeInputs part;
    part.input_seq_len = static_cast<std::int64_t>(tokens.size());
    part.chunk_start = chunk_start;
    part.chunk_total = info.num_prompt_tokens;
    const RequestInfo* const infos = &info;
    const NodeInputs* const inputs = &part;
    begin({WalkId{0}, {&info.handle, 1}, {&infos, 1}, {}, {&inputs, 1}});
    SubmoduleStep step;
    step.declare<SamplerStep>(ResourceKey{0}) = std::move(declaration);
    sampler->plan(step, *context);
    staging->upload(stream->ref());
    const Shape shape{part.input_seq_len};
    const DeviceBuffer ids(*device, Dtype::kI32, {std::max<std::int64_t>(part.input_seq_len, 1)});
    copy(stream->ref(), ids.view(Dtype::kI32, shape),
         const_host_view(std::span<const std::int32_t>(tokens)));
    sampler->enqueue_prompt_counts(*context, ids.view(Dtype::kI32, shape));
    stream->synchronize();
  }
  [[nodiscard]] std::vector<std::int32_t> ints(const ConstDeviceView& view) const {
    return read<std::int32_t>(view);
  }
  template <class T>
  [[nodiscard]] std::vector<T> read(const ConstDeviceView& view) const {
    PinnedBuffer host(*device, view.num_bytes() + 16);
    const HostView target = host.view(view.dtype(), view.shape());
    copy(stream->ref(), target, view);
    stream->synchronize();
    const auto elements = target.template span<T>();
    return {elements.begin(), elements.end()};
  }
  [[nodiscard]] std::vector<std::int32_t> last_tokens() const {
    return ints(sampler->last_tokens());
  }

  std::unique_ptr<Sampler> sampler;
  BatchedModelOutput outputs;
  std::uint32_t num_requests = 0;

 private:
  void begin(const BatchColumns& batch) {
    staging->reset();
    context->reset();
    context->batch = batch;
    for (const NodeInputs* row : batch.inputs) {
      context->num_tokens += row->input_seq_len;
    }
  }
};

const Logits kFlat{1, 1, 1, 1, 1, 1, 1, 1};
const Logits kTwoPeaks{0, 5, 0, 5, 0, 0, 0, 0};

TEST_F(SamplerTest, T_SA_1_greedy_takes_the_first_of_equals) {
  const RequestInfo greedy = request(0, {.temperature = 0.0f});
  EXPECT_EQ(draw_one(greedy, 0, kTwoPeaks), 1);
  EXPECT_EQ(draw_one(greedy, 0, kFlat), 0);
}

TEST_F(SamplerTest, B_44_the_best_token_alone_is_greedy_under_ties) {
  const RequestInfo best = request(0, {.temperature = 2.0f, .top_k = 1});
  for (std::int32_t position = 0; position < 8; ++position) {
    EXPECT_EQ(draw_one(best, position, kTwoPeaks), 1);
  }
}

TEST_F(SamplerTest, T_SA_2_filters_leave_what_the_request_allows) {
  const auto drawn = [this](const SamplingConfig& config) {
    std::set<std::int32_t> tokens;
    const RequestInfo info = request(0, config);
    for (std::int32_t position = 0; position < 60; ++position) {
      tokens.insert(draw_one(info, position, {2, 1.9f, 1.8f, 0, 0, 0, 0, 0}));
    }
    return tokens;
  };
  EXPECT_THAT(drawn({.top_k = 2}), ElementsAre(0, 1));
  EXPECT_THAT(drawn({.top_p = 0.3f}), ElementsAre(0, 1)) << "the first has 0.27 of the mass";
  EXPECT_THAT(drawn({.min_p = 0.8f}), ElementsAre(0, 1, 2));
  EXPECT_EQ(drawn({.temperature = 5.0f}).size(), 8u);
}

TEST_F(SamplerTest, T_SA_3_a_draw_depends_on_seed_and_position_and_not_on_the_steps_before) {
  const RequestInfo info = request(0, {});
  std::vector<std::int32_t> forwards;
  for (std::int32_t position = 0; position < 12; ++position) {
    forwards.push_back(draw_one(info, position, kFlat));
  }
  sampler = make_sampler();
  for (std::int32_t position = 11; position >= 0; --position) {
    EXPECT_EQ(draw_one(info, position, kFlat), forwards[static_cast<std::size_t>(position)]);
  }
}

TEST_F(SamplerTest, B_43_the_same_step_at_the_next_position_draws_anew) {
  const RequestInfo info = request(0, {});
  std::set<std::int32_t> tokens;
  for (std::int32_t position = 0; position < 16; ++position) {
    tokens.insert(draw_one(info, position, kFlat));
  }
  EXPECT_GT(tokens.size(), 3u);
}

TEST_F(SamplerTest, T_SA_4_a_request_draws_the_same_alone_and_in_company) {
  const RequestInfo alone = request(0, {.temperature = 1.3f}, 42);
  RequestInfo moved = alone;
  moved.handle = {4, 1};
  const RequestInfo other = request(1, {.top_k = 3}, 43);
  const RequestInfo third = request(2, {.temperature = 0.0f}, 44);
  for (std::int32_t position = 0; position < 10; ++position) {
    const std::int32_t token = draw_one(alone, position, kFlat);
    const std::vector<std::int32_t> company =
        draw({{&other, 3, kTwoPeaks}, {&third, 0, kFlat}, {&moved, position, kFlat}});
    EXPECT_EQ(company[2], token);
  }
}

TEST_F(SamplerTest, T_SA_5_padding_writes_nothing) {
  const RequestInfo first = request(0, {.temperature = 0.0f});
  const RequestInfo second = request(2, {.temperature = 0.0f});
  EXPECT_EQ(draw_one(first, 0, kTwoPeaks), 1);
  const auto tokens = draw({{&second, 0, kTwoPeaks}, {nullptr, 0, kFlat}, {nullptr, 0, kFlat}});
  EXPECT_THAT(tokens, ElementsAre(1, -1, -1));
  EXPECT_THAT(last_tokens(), ElementsAre(1, -1, 1, -1, -1, -1));
}

TEST_F(SamplerTest, T_SA_6_penalties_of_others_change_no_bit) {
  const RequestInfo plain = request(0, {.num_logprobs = 2});
  const RequestInfo penalised =
      request(1, {.temperature = 0.0f, .repetition_penalty = 2.0f, .frequency_penalty = 1.0f});
  sampler->ingest_request(penalised);
  for (std::int32_t position = 0; position < 6; ++position) {
    const std::int32_t alone = draw_one(plain, position, kTwoPeaks);
    const auto logprob = read<float>(outputs.row_outputs()[1].rows)[0];
    const auto company = draw({{&penalised, position, kTwoPeaks}, {&plain, position, kTwoPeaks}});
    EXPECT_EQ(company[1], alone);
    EXPECT_EQ(read<float>(outputs.row_outputs()[1].rows)[1], logprob);
  }
}

TEST_F(SamplerTest, T_SA_6_a_penalised_request_turns_away_from_what_it_said) {
  const RequestInfo info = request(0, {.temperature = 0.0f, .frequency_penalty = 3.0f});
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 0, {0, 5, 0, 4, 0, 0, 0, 0}), 1);
  EXPECT_EQ(draw_one(info, 1, {0, 5, 0, 4, 0, 0, 0, 0}), 3);
  SamplerStep plain;
  plain.apply_penalty = false;
  EXPECT_THAT(draw({{&info, 2, {0, 5, 0, 4, 0, 0, 0, 0}}}, std::move(plain)), ElementsAre(1))
      << "the step says that its logits are no text of the request";
}

TEST_F(SamplerTest, T_SA_7_a_request_that_changes_its_mind_is_heard) {
  RequestInfo info = request(0, {.temperature = 0.0f});
  EXPECT_EQ(draw_one(info, 0, kTwoPeaks), 1);
  EXPECT_EQ(draw_one(info, 1, kTwoPeaks), 1);
  info.sampling.logit_bias = {{3, 1.0f}};
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 2, kTwoPeaks), 3);
  info.sampling = {.temperature = 3.0f};
  sampler->ingest_request(info);
  std::set<std::int32_t> tokens;
  for (std::int32_t position = 3; position < 40; ++position) {
    tokens.insert(draw_one(info, position, kFlat));
  }
  EXPECT_GT(tokens.size(), 3u);
}

TEST_F(SamplerTest, T_SA_8_a_rows_next_owner_inherits_nothing) {
  const Logits logits{0, 5, 0, 4, 0, 0, 0, 0};
  const SamplingConfig config{.temperature = 0.0f, .presence_penalty = 3.0f};
  RequestInfo info = request(0, config);
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 0, logits), 1);
  EXPECT_EQ(draw_one(info, 1, logits), 3);
  sampler->remove_request(info.handle, 0);
  ++info.handle.generation;
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 0, logits), 1);
}

TEST_F(SamplerTest, B_20_ingesting_twice_keeps_the_counts) {
  const Logits logits{0, 5, 0, 4, 0, 0, 0, 0};
  RequestInfo info = request(0, {.temperature = 0.0f, .presence_penalty = 3.0f});
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 0, logits), 1);
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 1, logits), 3);
  info.sampling.presence_penalty =
      4.5f;  // both were said by now, so it changes nothing between them
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 2, logits), 1);
  // Without penalties for a while nothing is counted, so they begin anew.
  info.sampling.presence_penalty = 0.0f;
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 3, logits), 1);
  info.sampling.presence_penalty = 3.0f;
  sampler->ingest_request(info);
  EXPECT_EQ(draw_one(info, 4, logits), 1);
  EXPECT_EQ(draw_one(info, 5, logits), 3);
}

TEST_F(SamplerTest, RequestsThatWantLogprobsAreCountedOnceEach) {
  RequestInfo first = request(0, {.num_logprobs = 2});
  const RequestInfo second = request(1, {.num_logprobs = 0});
  const RequestInfo third = request(2, {});
  sampler->ingest_request(first);
  sampler->ingest_request(first);
  sampler->ingest_request(second);
  sampler->ingest_request(third);
  EXPECT_EQ(sampler->num_with_logprobs(), 2);
  first.sampling.num_logprobs = -1;
  sampler->ingest_request(first);
  sampler->remove_request({1, second.handle.generation + 1}, 0);  // not its owner
  EXPECT_EQ(sampler->num_with_logprobs(), 1);
  const RequestInfo next = request(1, {.num_logprobs = 1});  // nobody said that the row is free
  sampler->ingest_request(next);
  EXPECT_EQ(sampler->num_with_logprobs(), 1);
  sampler->remove_request(next.handle, 0);
  EXPECT_EQ(sampler->num_with_logprobs(), 0);
}

TEST_F(SamplerTest, B_06_two_requests_of_one_step_keep_their_own_seeds) {
  const RequestInfo first = request(0, {}, 1);
  const RequestInfo second = request(1, {}, 2);
  for (std::int32_t position = 0; position < 6; ++position) {
    const auto both = draw({{&first, position, kFlat}, {&second, position, kFlat}});
    EXPECT_EQ(both[0], draw_one(first, position, kFlat));
    EXPECT_EQ(both[1], draw_one(second, position, kFlat));
  }
}

TEST_F(SamplerTest, T_SA_9_a_part_that_samples_nothing_changes_no_token) {
  const RequestInfo info = request(0, {.temperature = 0.0f, .repetition_penalty = 3.0f});
  sampler->ingest_request(info);
  prefill(info, {1, 2}, 0);
  EXPECT_THAT(last_tokens(), Each(-1));
  EXPECT_EQ(draw_one(info, 0, {0, 5, 4, 3, 0, 0, 0, 0}), 3) << "1 and 2 stood in the prompt";
}

TEST_F(SamplerTest, B_49_a_prompt_in_parts_counts_like_a_whole_one) {
  const RequestInfo info = request(0, {.temperature = 0.0f, .repetition_penalty = 3.0f});
  const Logits logits{5, 4.9f, 4.8f, 4.7f, 2, 0, 0, 0};
  const auto tokens_after = [&](const std::vector<std::vector<std::int32_t>>& parts) {
    sampler = make_sampler();
    sampler->ingest_request(info);
    std::int64_t start = 0;
    for (const auto& part : parts) {
      prefill(info, part, start);
      start += static_cast<std::int64_t>(part.size());
    }
    std::vector<std::int32_t> tokens;
    for (std::int32_t position = 0; position < 3; ++position) {
      tokens.push_back(draw_one(info, position, logits));
    }
    return tokens;
  };
  const auto whole = tokens_after({{0, 1, 2, 3}});
  EXPECT_EQ(whole.front(), 4);
  EXPECT_EQ(tokens_after({{0}, {1, 2}, {3}}), whole);
}

TEST_F(SamplerTest, T_SA_9_tokens_that_a_prefix_cache_spared_are_tracked) {
  const RequestInfo info = request(0, {.temperature = 0.0f, .repetition_penalty = 3.0f});
  sampler->ingest_request(info);
  const std::vector<std::int32_t> spared{1, 2};
  SamplerStep declaration;
  declaration.prefill_tracked_tokens.push_back({info.handle, spared});
  prefill(info, {3}, 3, std::move(declaration));
  EXPECT_EQ(draw_one(info, 0, {0, 5, 4.9f, 4.8f, 2, 0, 0, 0}), 4);
}

TEST_F(SamplerTest, T_SA_10_logits_without_a_finite_one_fail_their_lane_alone) {
  const RequestInfo broken = request(0, {});
  const RequestInfo fine = request(1, {});
  const auto tokens = draw({{&broken, 0, Logits(kVocab, kMinusInfinity)},
                            {&fine,
                             0,
                             {kMinusInfinity, kMinusInfinity, 1, kMinusInfinity, kMinusInfinity,
                              kMinusInfinity, kMinusInfinity, kMinusInfinity}}});
  EXPECT_THAT(tokens, ElementsAre(-1, 2));
  EXPECT_EQ(last_tokens()[0], -1) << "a failed draw is nobody's next input";
}

TEST_F(SamplerTest, T_SA_9_min_tokens_bars_stop_tokens_until_it_is_reached) {
  const RequestInfo info =
      request(0, {.temperature = 0.0f, .min_tokens = 2, .stop_token_ids = {1}});
  EXPECT_EQ(draw_one(info, 0, {0, 5, 0, 4, 0, 0, 0, 0}), 3);
  EXPECT_EQ(draw_one(info, 1, {0, 5, 0, 4, 0, 0, 0, 0}), 3);
  EXPECT_EQ(draw_one(info, 2, {0, 5, 0, 4, 0, 0, 0, 0}), 1);
}

}  // namespace
}  // namespace rigel
