// Parts of a forward that are captured alone, without resources of their own.

#include "engine/piecewise_runner.h"

#include "tests/engine/allocation_count.h"
#include "tests/engine/piecewise_test.h"

#include <gmock/gmock.h>

#include <array>
#include <numeric>
#include <stdexcept>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Floats = std::vector<float>;

/// y[i] = 2 x[i] + the sum of all x: what the tail holds shows in every row.
void mix_rows(const float* x, float* y, std::int64_t count) {
  const float sum = std::accumulate(x, x + count, 0.0F);
  for (std::int64_t index = 0; index < count; ++index) {
    y[index] = 2 * x[index] + sum;
  }
}

Floats mixed(const Floats& x) {
  Floats y(x.size());
  mix_rows(x.data(), y.data(), std::ssize(x));
  return y;
}

/// Regions "tokens", packed, and "rows", rows of two, which leave their results in the same memory.
class PiecewiseRunnerTest : public testing::PiecewiseTest {
 protected:
  static constexpr std::size_t kTokens = 0;
  static constexpr std::size_t kRows = 1;

  void SetUp() override {
    PiecewiseTest::SetUp();
    if (!IsSkipped()) {
      configure();
      start();
    }
  }
  void configure() {
    PiecewisePackedConfig tokens;
    tokens.label = "tokens";
    tokens.batch_sizes = {2, 4};
    tokens.token_counts = {4, 8, 16};
    tokens.make_static_inputs = [this](const PiecewiseShape& shape) {
      return NamedTensors{{"x", make_static({shape.total_tokens})}};
    };
    tokens.capture = [this](const PiecewiseCallInputs& call) { return mix(call); };
    PiecewiseBatchedConfig rows;
    rows.label = "rows";
    rows.batch_sizes = {1, 3};
    rows.seq_len = 2;
    rows.num_parts = 2;
    rows.make_static_inputs = [this](const PiecewiseShape& shape) {
      return NamedTensors{{"x", make_static({shape.batch_size, 2})}};
    };
    rows.capture = [this](const PiecewiseCallInputs& call) { return mix(call); };
    regions = {tokens, rows};
  }
  NamedViews mix(const PiecewiseCallInputs& call) {
    ++num_calls;
    if (call.num_tokens == fails_at) {
      throw std::runtime_error("no kernel");
    }
    const ConstDeviceView x = call.static_inputs.at(0).second;
    const DeviceView y = workspace->slice(0, 0, x.num_elements()).device_view().reshape(x.shape());
    const auto part = static_cast<float>(call.part);
    enqueue(call.engine_inputs.context->stream(),
            [from = x.data<float>(), to = y.data<float>(), count = x.num_elements(), part] {
              mix_rows(from, to, count);
              to[0] += part * 100;
            });
    return {{"y", y}};
  }
  PiecewiseOutputs run_tokens(const ModelInputsFromEngine& step, const Floats& x,
                              std::vector<std::int64_t> seq_lens) {
    const Tensor given = floats({std::ssize(x)}, x);
    const std::array<PiecewiseInput, 2> inputs{{{"other", {}}, {"x", given.device_view()}}};
    return (*step.piecewise_runners)[kTokens].run({.inputs = inputs, .seq_lens = seq_lens}, step);
  }
  PiecewiseOutputs run_rows(const ModelInputsFromEngine& step, const Floats& x, int part = 0) {
    const std::int64_t num_rows = std::ssize(x) / 2;
    const Tensor given = floats({num_rows, 2}, x);
    const PiecewiseInput input{"x", given.device_view()};
    return (*step.piecewise_runners)[kRows].run(
        {.part = part, .inputs = {&input, 1}, .num_lanes = static_cast<std::int32_t>(num_rows)},
        step);
  }
  [[nodiscard]] const RegionCounts& counts(std::size_t region) const {
    return captures->regions()[region].counts();
  }
  [[nodiscard]] std::uint64_t misses(std::size_t region, RegionMiss miss) const {
    return counts(region).misses[static_cast<std::size_t>(miss)];
  }
  static Floats counting(std::size_t count) {
    Floats values(count);
    std::iota(values.begin(), values.end(), 1.0F);
    return values;
  }
  static std::string error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const CheckError& error) {
      return error.what();
    }
    return "";
  }

  int num_calls = 0;
  std::int64_t fails_at = -1;
};

TEST_F(PiecewiseRunnerTest, T_CG_3_a_region_gives_what_its_eager_run_gives_at_every_size) {
  for (const DeviceOrder order :
       {DeviceOrder::kAscending, DeviceOrder::kDescending, DeviceOrder::kRandom}) {
    DeviceOptions options;
    options.order = order;
    open(options);
    start();
    num_calls = 0;
    for (std::size_t count = 1; count <= 16; ++count) {
      const Floats x = counting(count);
      const auto half = static_cast<std::int64_t>(count / 2);
      poison();
      run(1, [&](const ModelInputsFromEngine& step) {
        EXPECT_EQ(floats_of(run_tokens(step, x, {std::ssize(x) - half, half}).get_view("y")),
                  mixed(x));
      });
    }
    for (const std::size_t count : {2U, 4U, 6U}) {
      poison();
      run(1, [&](const ModelInputsFromEngine& step) {
        const PiecewiseOutputs outputs = run_rows(step, counting(count));
        EXPECT_EQ(floats_of(outputs.get_view("y")), mixed(counting(count)));
        EXPECT_EQ(outputs.get_view("y").dim(0), std::int64_t(count) / 2) << "padding stays inside";
      });
    }
    EXPECT_EQ(num_calls, 0) << "nothing was enqueued anew";
    EXPECT_EQ(counts(kTokens).num_replays, 16u);
    EXPECT_EQ(counts(kRows).num_replays, 3u);
  }
}

TEST_F(PiecewiseRunnerTest,
       T_CG_2_buffers_are_those_of_the_largest_bucket_and_made_before_captures) {
  start({}, /*captures_later=*/true);
  const std::size_t num_made = tensors_made.size();
  const GraphRunner& runner = captures->regions().runner();
  EXPECT_EQ(runner.buckets()[0].num_tokens, 16) << "the largest first";
  const std::int64_t bytes_before = captures->regions().num_bytes();
  captures->capture_all();
  EXPECT_EQ(tensors_made.size(), num_made);
  EXPECT_EQ(bytes_before, (16 + 6) * 4) << "static inputs alone; smaller buckets have none";
  EXPECT_GE(captures->num_bytes(), bytes_before * 2 + runner.num_bytes()) << "outputs, too";
  EXPECT_THAT(runner.failures(), IsEmpty());
}

TEST_F(PiecewiseRunnerTest, T_CG_9_a_copy_stays_and_a_view_changes_with_the_next_run) {
  std::optional<Tensor> kept;
  run(1, [&](const ModelInputsFromEngine& step) {
    const PiecewiseOutputs first = run_tokens(step, {1, 2}, {1, 1});
    kept = first.get("y");
    const ConstDeviceView view = first.get_view("y");
    EXPECT_EQ(view.raw(), first.get_view("y").raw());
    const PiecewiseOutputs second = run_tokens(step, {5, 6}, {1, 1});
    EXPECT_EQ(floats_of(view), mixed({5, 6})) << "the same memory";
    EXPECT_EQ(floats_of(second.get("y").device_view()), mixed({5, 6}));
    EXPECT_THAT(error_of([&] { std::ignore = first.get("y"); }), HasSubstr("an earlier run"));
    EXPECT_THAT(error_of([&] { std::ignore = second.get("z"); }), HasSubstr("no output 'z'"));
  });
  EXPECT_EQ(floats_of(kept->device_view()), mixed({1, 2}));
  kept.reset();
}

TEST_F(PiecewiseRunnerTest, B_15_what_a_region_gave_is_there_after_another_has_run) {
  for (const std::size_t count : {4U, 40U}) {  // 40: no bucket, so the first one runs eagerly
    run(1, [&](const ModelInputsFromEngine& step) {
      const PiecewiseOutputs first =
          run_tokens(step, counting(count), {1, static_cast<std::int64_t>(count) - 1});
      const PiecewiseOutputs second = run_rows(step, {7, 8, 9, 10});
      EXPECT_EQ(floats_of(first.get_view("y")), mixed(counting(count)))
          << "both leave their results in one workspace";
      EXPECT_EQ(floats_of(second.get_view("y")), mixed({7, 8, 9, 10}));
    });
  }
  EXPECT_EQ(misses(kTokens, RegionMiss::kNoBucket), 1u);
}

TEST_F(PiecewiseRunnerTest, T_CG_1_what_no_bucket_holds_runs_eagerly_and_is_counted) {
  run(1, [&](const ModelInputsFromEngine& step) {
    PiecewiseRunner* const region = step.piecewise_runners->find("tokens");
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(step.piecewise_runners->find("token"), nullptr);
    EXPECT_TRUE(region->can_run(4, 16));
    EXPECT_FALSE(region->can_run(4, 17));
    EXPECT_FALSE(region->can_run(5, 16));
    EXPECT_EQ(floats_of(run_tokens(step, counting(17), {17}).get("y").device_view()),
              mixed(counting(17)));
    EXPECT_EQ(floats_of(run_tokens(step, counting(5), {1, 1, 1, 1, 1}).get_view("y")),
              mixed(counting(5)));
  });
  EXPECT_EQ(misses(kTokens, RegionMiss::kNoBucket), 2u);
  EXPECT_EQ(counts(kTokens).num_replays, 0u);
}

TEST_F(PiecewiseRunnerTest,
       B_14_a_region_that_cannot_be_captured_runs_eagerly_and_leaves_the_others) {
  fails_at = 8;
  start();
  EXPECT_THAT(captures->regions().runner().failures(), SizeIs(2)) << "of two and of four lanes";
  EXPECT_THAT(captures->regions().runner().failures()[0].message, HasSubstr("no kernel"));
  fails_at = -1;
  run(1, [&](const ModelInputsFromEngine& step) {
    EXPECT_EQ(floats_of(run_tokens(step, {1, 2, 3}, {3}).get_view("y")), mixed({1, 2, 3}));
    EXPECT_EQ(floats_of(run_tokens(step, counting(6), {6}).get_view("y")), mixed(counting(6)))
        << "in the bucket of sixteen";
  });
  EXPECT_EQ(counts(kTokens).num_replays, 2u);
  fails_at = 16;
  start();
  fails_at = -1;
  run(1, [&](const ModelInputsFromEngine& step) {
    EXPECT_EQ(floats_of(run_tokens(step, counting(9), {9}).get_view("y")), mixed(counting(9)));
    EXPECT_EQ(floats_of(run_tokens(step, counting(7), {7}).get_view("y")), mixed(counting(7)));
  });
  EXPECT_EQ(misses(kTokens, RegionMiss::kNotCaptured), 1u);
  EXPECT_EQ(counts(kTokens).num_replays, 1u);
}

TEST_F(PiecewiseRunnerTest,
       T_CG_6_regions_are_captured_behind_the_steps_and_one_by_one_when_asked) {
  BatchedGraphConfig whole;
  whole.capture_walk = WalkId{5};
  whole.batch_sizes = {1};
  auto lane = std::make_shared<NodeInputs>();
  lane->input_seq_len = 1;
  whole.row = lane;
  steps = {whole};
  start({}, /*captures_later=*/true);
  bool is_within = true;
  submodule->on_forward = [&](const ModelInputsFromEngine& step) {
    is_within = step.piecewise_runners != nullptr;
  };
  const std::size_t num_regions = captures->regions().runner().num_pending();
  ASSERT_EQ(captures->num_pending(), num_regions + 1);
  ASSERT_TRUE(captures->capture_next());
  EXPECT_FALSE(is_within) << "a captured forward has no regions";
  EXPECT_EQ(captures->num_pending(), num_regions);
  const auto ask = [&](const ModelInputsFromEngine& step) {
    EXPECT_EQ(floats_of(run_tokens(step, {1, 2}, {2}).get_view("y")), mixed({1, 2}));
  };
  run(1, ask);
  EXPECT_EQ(misses(kTokens, RegionMiss::kNotCaptured), 1u);
  ASSERT_TRUE(captures->capture_next());
  run(1, ask);
  EXPECT_EQ(counts(kTokens).num_replays, 1u) << "in the largest bucket";
  while (captures->capture_next()) {
  }
  EXPECT_EQ(captures->num_pending(), 0u);
  EXPECT_THAT(captures->regions().runner().failures(), IsEmpty());
}

TEST_F(PiecewiseRunnerTest, T_CG_3_parts_are_captured_and_run_one_by_one) {
  run(1, [&](const ModelInputsFromEngine& step) {
    EXPECT_THAT(floats_of(run_rows(step, {1, 2}, 0).get_view("y")), ElementsAre(5, 7));
    EXPECT_THAT(floats_of(run_rows(step, {1, 2}, 1).get_view("y")), ElementsAre(105, 7));
  });
}

TEST_F(PiecewiseRunnerTest, T_CG_8_a_thousand_runs_use_no_heap_and_no_memory_of_the_device) {
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  open(options);
  start();
  const Tensor given = allocator->allocate(stream(), Dtype::kF32, {3});
  const PiecewiseInput input{"x", given.device_view()};
  const std::vector<std::int64_t> seq_lens{3};
  std::uint64_t num_allocations = 0;
  std::int64_t free_bytes = 0;
  run(1, [&](const ModelInputsFromEngine& step) {
    PiecewiseRunner& region = (*step.piecewise_runners)[kTokens];
    for (int turn = 0; turn < 1010; ++turn) {
      if (turn == 10) {
        free_bytes = device->free_memory_bytes();
        num_allocations = testing::num_allocations();
      }
      std::ignore = region.run({.inputs = {&input, 1}, .seq_lens = seq_lens}, step).get_view("y");
    }
    num_allocations = testing::num_allocations() - num_allocations;
  });
  EXPECT_EQ(device->free_memory_bytes(), free_bytes);
  EXPECT_EQ(num_allocations, 0u);
  EXPECT_EQ(counts(kTokens).num_replays, 1010u);
}

TEST_F(PiecewiseRunnerTest, T_CG_9_a_run_that_cannot_be_is_refused_by_name) {
  run(1, [&](const ModelInputsFromEngine& step) {
    PiecewiseRunner& tokens = (*step.piecewise_runners)[kTokens];
    PiecewiseRunner& rows = (*step.piecewise_runners)[kRows];
    const std::vector<std::int64_t> two{1, 1};
    const Tensor wide = floats({2, 1}, {1, 2});
    const Tensor ids = device_ids({1, 2});
    const Tensor many = floats({5}, {1, 2, 3, 4, 5});
    const auto run_on = [&](const Tensor& given) {
      const PiecewiseInput input{"x", given.device_view()};
      std::ignore = tokens.run({.inputs = {&input, 1}, .seq_lens = two}, step);
    };
    EXPECT_THAT(error_of([&] { tokens.run({}, step); }), HasSubstr("nothing says how many lanes"));
    EXPECT_THAT(error_of([&] { tokens.run({.num_lanes = 2}, step); }),
                HasSubstr("0 seq_lens for 2 lanes"));
    EXPECT_THAT(error_of([&] { tokens.run({.seq_lens = two}, step); }),
                HasSubstr("reads 'x', which its run does not bring"));
    EXPECT_THAT(error_of([&] { run_on(wide); }), HasSubstr("'x' is float32 of shape (2, 1)"));
    EXPECT_THAT(error_of([&] { run_on(ids); }), HasSubstr("'x' is int32"));
    EXPECT_THAT(error_of([&] { run_on(many); }), HasSubstr("shape"))
        << "more than the bucket of four";
    EXPECT_THAT(error_of([&] { rows.run({.part = 2, .num_lanes = 1}, step); }),
                HasSubstr("has no part 2"));
  });
}

}  // namespace
}  // namespace rigel
