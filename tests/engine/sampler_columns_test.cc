// Columns that stay from step to step are those that a sampler would write anew.

#include "engine/resources/sampler_columns.h"

#include "engine/resources/sampler.h"
#include "tests/engine/engine_test.h"

#include <array>
#include <cstring>
#include <random>

namespace rigel {
namespace {

constexpr std::int32_t kColumnRows = 12;
constexpr std::int32_t kColumnVocab = 8;
constexpr ResourceKey kColumnKey{0};
constexpr std::int64_t kColumnBytes = 64 * 1024;

using ColumnBytes = std::vector<std::byte>;

class SamplerColumnsTest : public testing::EngineTest {
 protected:
  [[nodiscard]] std::unique_ptr<Sampler> make_sampler() const {
    return std::make_unique<Sampler>(kColumnKey, *device,
                                     SamplerConfig{.num_rows = kColumnRows,
                                                   .vocab_size = kColumnVocab,
                                                   .max_top_logprobs = 4,
                                                   .signals = {}});
  }

  /// A request like few others, in a row of its own.
  [[nodiscard]] RequestInfo random_request(std::int32_t row) {
    RequestInfo info = info_of(row, ++num_requests_);
    info.seed = random_();
    info.num_prompt_tokens = draw(1, 9);
    SamplingConfig& sampling = info.sampling;
    sampling.temperature = static_cast<float>(draw(0, 3));
    sampling.top_k = draw(0, 5);
    sampling.top_p = 0.5f + 0.1f * static_cast<float>(draw(0, 5));
    sampling.min_p = 0.1f * static_cast<float>(draw(0, 5));
    sampling.repetition_penalty = draw(0, 2) == 0 ? 1.5f : 1.0f;
    sampling.presence_penalty = draw(0, 3) == 0 ? 0.5f : 0.0f;
    sampling.num_logprobs = draw(0, 3) == 0 ? draw(0, 4) : -1;
    if (draw(0, 3) == 0) {
      sampling.min_tokens = draw(1, 6);
      sampling.stop_token_ids = {draw(0, 7), draw(0, 7)};
    }
    for (std::int32_t count = draw(0, 3) == 0 ? draw(1, 3) : 0; count > 0; --count) {
      sampling.logit_bias.emplace_back(draw(0, 7), 1.0f + static_cast<float>(count));
    }
    return info;
  }
  [[nodiscard]] std::int32_t draw(std::int32_t least, std::int32_t most) {
    return std::uniform_int_distribution<std::int32_t>(least, most)(random_);
  }

  /// One step of `sampler` in `block`: its plan, and the bytes of each of its columns.
  [[nodiscard]] std::vector<ColumnBytes> plan(Sampler& sampler, StepStaging& block,
                                              const SubmoduleStep& step, const SlotLease* lease,
                                              bool asks_first = false) {
    block.reset();
    StepContext one(stream->ref());
    one.staging = &block;
    one.batch.slot_lease = lease;
    if (asks_first) {
      EXPECT_TRUE(sampler.fits_capture(step, one));
    }
    sampler.plan(step, one);
    block.upload(stream->ref());
    const auto& plan = one.plan<SamplerPlan>(kColumnKey);
    std::vector<ColumnBytes> columns;
    for (const ConstDeviceView& view :
         {plan.token_indices, plan.lanes, plan.rows, plan.temperature, plan.top_k, plan.top_p,
          plan.min_p, plan.seeds, plan.positions, plan.publish, plan.logprob_counts,
          plan.penalty_rows, plan.repetition, plan.presence, plan.frequency, plan.bias_lanes,
          plan.barred_lanes}) {
      columns.push_back(bytes_of(view));
    }
    // Places that stand for nobody hold anything.
    columns.push_back(entries_of(plan.bias_tokens, plan.bias_lanes));
    columns.push_back(entries_of(plan.bias_values, plan.bias_lanes));
    columns.push_back(entries_of(plan.barred_tokens, plan.barred_lanes));
    columns.push_back({std::byte(plan.max_logprobs + 1), std::byte(plan.has_penalties ? 1 : 0)});
    return columns;
  }
  [[nodiscard]] ColumnBytes bytes_of(const ConstDeviceView& view) {
    if (view.num_bytes() == 0) {
      return {};
    }
    const PinnedBuffer host(*device, view.num_bytes());
    copy(stream->ref(), host.view(view.dtype(), view.shape()), view);
    stream->synchronize();
    return {host.raw(), host.raw() + view.num_bytes()};
  }
  [[nodiscard]] ColumnBytes entries_of(const ConstDeviceView& values,
                                       const ConstDeviceView& lanes) {
    const ColumnBytes all = bytes_of(values);
    const ColumnBytes owners = bytes_of(lanes);
    ColumnBytes entries;
    for (std::size_t at = 0; at < owners.size(); at += 4) {
      std::int32_t lane = 0;
      std::memcpy(&lane, &owners[at], sizeof lane);
      if (lane >= 0) {
        entries.insert(entries.end(), &all[at], &all[at] + 4);
      }
    }
    return entries;
  }

  std::mt19937_64 random_{20};
  std::uint32_t num_requests_ = 0;
};

TEST_F(SamplerColumnsTest, T_SA_7_lanes_that_go_on_have_the_columns_of_a_step_written_anew) {
  struct Running {
    RequestInfo info;
    std::int32_t num_generated = 0;
  };
  std::vector<std::unique_ptr<Running>> running(kColumnRows);
  const RequestInfo padding = info_of(-1, 0);
  const SlotLease lease;
  const auto sampler = make_sampler();
  std::array<StepStaging, 2> blocks{StepStaging(*device, kColumnBytes),
                                    StepStaging(*device, kColumnBytes)};
  for (int number = 0; number < 400; ++number) {
    // Most steps are like the one before; now and then a request comes, goes, or does not take part.
    if (draw(0, 3) == 0) {
      auto& row = running[static_cast<std::size_t>(draw(0, kColumnRows - 1))];
      if (row == nullptr || draw(0, 2) == 0) {
        row = std::make_unique<Running>();
        row->info = random_request(static_cast<std::int32_t>(&row - running.data()));
        sampler->ingest_request(row->info);
      } else if (draw(0, 1) == 0) {
        row.reset();
      } else {
        const RequestInfo other = random_request(0);
        row->info.sampling = other.sampling;
        sampler->ingest_request(row->info);
      }
    }
    const bool is_captured = draw(0, 9) != 0;
    const std::int32_t left_out = draw(0, 9) == 0 ? draw(0, kColumnRows - 1) : -1;
    SubmoduleStep step;
    auto& declared = step.declare<SamplerStep>(kColumnKey);
    declared.apply_penalty = draw(0, 9) != 0;
    declared.captured_logprobs = is_captured ? 4 : -1;
    std::int32_t lane = draw(0, 9) == 0 ? 2 : 0;  // behind tokens of somebody who does not sample
    for (const auto& one : running) {
      if (one != nullptr && one->info.handle.row != left_out) {
        declared.lanes.push_back({one->info.handle, &one->info, one->num_generated++, lane++});
      }
    }
    while (is_captured && declared.lanes.size() % 4 != 0) {
      declared.lanes.push_back({padding.handle, &padding, 0, lane++});
    }
    StepStaging& block = blocks[static_cast<std::size_t>(number % 2)];
    if (draw(0, 19) == 0) {
      // Somebody else's step in between.
      block.reset();
      std::ranges::fill(block.column<std::int32_t>(2000).host, number);
    }
    const auto fresh = make_sampler();
    StepStaging elsewhere(*device, kColumnBytes);
    const SlotLease* const leased = is_captured ? &lease : nullptr;
    // As the engine does: whether a capture has room is asked before, and what was found then serves the plan.
    ASSERT_EQ(plan(*sampler, block, step, leased, is_captured),
              plan(*fresh, elsewhere, step, leased))
        << "step " << number;
  }
}

TEST_F(SamplerColumnsTest, WhatWasFoundOutAboutOtherLanesDoesNotServeThePlan) {
  const RequestInfo first = random_request(0);
  RequestInfo second = random_request(1);
  second.sampling.logit_bias = {{3, 1.0f}};
  const auto sampler = make_sampler();
  const SlotLease lease;
  SubmoduleStep asked;
  SubmoduleStep planned;
  const auto declare = [](SubmoduleStep& step, const RequestInfo& info) {
    auto& declared = step.declare<SamplerStep>(kColumnKey);
    declared.captured_logprobs = 4;
    declared.lanes.push_back({info.handle, &info, 2, 0});
  };
  declare(asked, first);
  declare(planned, second);
  StepStaging block(*device, kColumnBytes);
  StepStaging elsewhere(*device, kColumnBytes);
  StepContext one(stream->ref());
  one.staging = &block;
  EXPECT_TRUE(sampler->fits_capture(asked, one));
  EXPECT_EQ(plan(*sampler, block, planned, &lease),
            plan(*make_sampler(), elsewhere, planned, &lease));
}

TEST_F(SamplerColumnsTest, T_SA_7_only_a_lane_with_another_request_is_written_again) {
  const RequestInfo first = random_request(0);
  const RequestInfo second = random_request(1);
  const RequestInfo third = random_request(2);
  std::vector<SamplerStep::Lane> lanes = {{first.handle, &first, 3, 0},
                                          {second.handle, &second, 5, 1}};
  StagedLanes known;
  known.staging = staging.get();
  const auto write = [&] {
    staging->reset();
    const SamplerColumns columns(*staging, {.num_lanes = 2});
    columns.write(lanes, {{}, 0, known.are_of(lanes)}, known);
    SamplerPlan plan;
    columns.give(plan);
    return plan;
  };
  staging->reset();
  const std::span<std::int32_t> block = staging->column<std::int32_t>(200).host;
  write();
  std::ranges::fill(block, 77);
  SamplerPlan plan = write();
  EXPECT_EQ(staged<std::int32_t>(plan.top_k), (std::vector{77, 77}));
  EXPECT_EQ(staged<std::int32_t>(plan.positions),
            (std::vector{first.num_prompt_tokens + 3, second.num_prompt_tokens + 5}));
  lanes[1] = {third.handle, &third, 0, 1};
  plan = write();
  EXPECT_EQ(staged<std::int32_t>(plan.top_k), (std::vector{77, third.sampling.top_k}));
  staging->reset();  // somebody else's step
  plan = write();
  EXPECT_EQ(staged<std::int32_t>(plan.top_k),
            (std::vector{first.sampling.top_k, third.sampling.top_k}));
}

}  // namespace
}  // namespace rigel
