// Regions with resources of their own: states of requests, positions, a sampler.

#include "engine/piecewise_step.h"

#include "engine/resources/positions.h"
#include "engine/resources/sampler.h"
#include "engine/resources/slot_state.h"
#include "tests/engine/piecewise_test.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr std::int32_t kStateRows = 5;
constexpr std::int32_t kDrawVocab = 8;
constexpr SignalId kDrawn{1};

/// Refuses a row when it is told to.
class PickyState final : public Resource {
 public:
  explicit PickyState(ResourceKey key) : Resource(key) {}
  bool fits_capture(const SubmoduleStep&, const StepContext&) const override { return fits; }
  AdmitOutcome admit(const SubmoduleStep&, const StepContext& context) override {
    ++num_admitted;
    return context.batch.handles.front().row == refuses_row
               ? AdmitOutcome{AdmitOutcome::Reason::kNotReady, 0, context.batch.handles.front()}
               : AdmitOutcome{};
  }
  void plan(const SubmoduleStep&, StepContext&) override {}
  void abandon(const SubmoduleStep&) override { ++num_abandoned; }
  int refuses_row = -100;
  bool fits = true;
  int num_admitted = 0;
  int num_abandoned = 0;
};

/// Region "state": each lane's state goes up by one and is given; its position goes on by one. Region "draw" samples a token
/// of each lane from given logits.
class PiecewiseStepTest : public testing::PiecewiseTest {
 protected:
  static constexpr std::size_t kState = 0;
  static constexpr std::size_t kDraw = 1;

  void SetUp() override {
    PiecewiseTest::SetUp();
    if (!IsSkipped()) {
      begin(/*lease_before_step=*/false);
    }
  }
  void begin(bool lease_before_step) {
    NodeResources resources;
    resources.add("state",
                  std::make_unique<SlotState>(
                      resources.next_key(), *device,
                      SlotStateConfig{.num_rows = kStateRows, .dtype = Dtype::kF32, .shape = {1}}));
    resources.add("positions", std::make_unique<Positions>(resources.next_key(), kStateRows));
    resources.add("sampler",
                  std::make_unique<Sampler>(resources.next_key(), *device,
                                            SamplerConfig{.num_rows = kStateRows,
                                                          .vocab_size = kDrawVocab,
                                                          .max_top_logprobs = 1,
                                                          .signals = {kDrawn, {}, {}, {}}}));
    resources.add("picky", std::make_unique<PickyState>(resources.next_key()));
    state = &resources.get<SlotState>("state");
    positions = &resources.get<Positions>("positions");
    sampler = &resources.get<Sampler>("sampler");
    picky = &resources.get<PickyState>("picky");
    regions = {state_region(lease_before_step), draw_region()};
    start(std::move(resources));
    expect_all_captured();
    fill_bytes(stream(), state->pool(), 0);
  }
  void declare_state(const BatchColumns& lanes, SubmoduleStep& step) const {
    step.declare<SlotStateStep>(state->key());
    step.declare<PositionStep>(positions->key());
    step.declare<std::monostate>(picky->key());
    for (const RequestHandle handle : lanes.handles) {
      step.segments.push_back({handle, LabelId::kMain, 1});
    }
  }
  PiecewiseCudaGraphConfig state_region(bool lease_before_step) {
    PiecewiseBatchedConfig region;
    region.label = "state";
    region.batch_sizes = {1, 4};
    region.seq_len = 1;
    region.lease_before_step = lease_before_step;
    region.make_static_inputs = [](const PiecewiseShape&) { return NamedTensors(); };
    region.declare_step = [this](const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                                 SubmoduleStep& step) {
      EXPECT_EQ(seq_lens.size(), lanes.handles.size());
      EXPECT_THAT(seq_lens, Each(1));
      declare_state(lanes, step);
    };
    region.capture = [this](const PiecewiseCallInputs& call) {
      ++num_calls;
      const StepContext& context = *call.engine_inputs.context;
      const DeviceView counts = workspace->slice(0, 0, call.num_lanes).device_view();
      enqueue(
          context.stream(),
          [slots = context.plan<SlotStatePlan>(state->key()).slots.data<std::int32_t>(),
           pool = state->pool().data<float>(), to = counts.data<float>(), count = call.num_lanes] {
            for (std::int32_t lane = 0; lane < count; ++lane) {
              to[lane] = ++pool[slots[lane]];
            }
          });
      return NamedViews{{"counts", counts}};
    };
    return region;
  }
  PiecewiseCudaGraphConfig draw_region() {
    PiecewisePackedConfig region;
    region.label = "draw";
    region.batch_sizes = {4};
    region.token_counts = {4};
    region.make_static_inputs = [this](const PiecewiseShape& shape) {
      return NamedTensors{{"logits", make_static({std::int64_t{shape.batch_size}, kDrawVocab})}};
    };
    region.declare_step = [this](const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                                 SubmoduleStep& step) {
      auto& sampling = step.declare<SamplerStep>(sampler->key());
      for (std::size_t lane = 0; lane < lanes.handles.size(); ++lane) {
        step.segments.push_back(
            {lanes.handles[lane], LabelId::kMain, static_cast<std::int32_t>(seq_lens[lane])});
        sampling.lanes.push_back(
            {lanes.handles[lane], lanes.infos[lane], 0, static_cast<std::int32_t>(lane)});
      }
    };
    region.capture = [this](const PiecewiseCallInputs& call) {
      const StreamRef on = call.engine_inputs.context->stream();
      BatchedModelOutput outputs;
      // The sampler may write to the logits, and those that a run brings are not the region's.
      const ConstDeviceView given = call.static_inputs.at(0).second;
      const DeviceView logits =
          workspace->slice(0, 8, given.num_elements()).device_view().reshape(given.shape());
      copy(on, logits, given);
      sampler->enqueue(*call.engine_inputs.context, logits, outputs);
      const ConstDeviceView drawn = outputs.rows(kDrawn);
      const DeviceView tokens = workspace->slice(0, 0, drawn.dim(0)).device_view();
      enqueue(on, [from = drawn.data<std::int32_t>(), to = tokens.data<float>(),
                   count = drawn.dim(0)] { std::copy_n(from, count, to); });
      return NamedViews{{"tokens", tokens}};
    };
    return region;
  }
  static PiecewiseOutputs run_state(const ModelInputsFromEngine& step) {
    return (*step.piecewise_runners)[kState].run({.handles = step.handles}, step);
  }
  [[nodiscard]] const RegionCounts& counts(std::size_t region) const {
    return captures->regions()[region].counts();
  }
  [[nodiscard]] Floats last_tokens() const {
    const PinnedBuffer host(*device, kStateRows * 4);
    const HostView target = host.view(Dtype::kI32, {kStateRows});
    copy(stream(), target, ConstDeviceView(sampler->last_tokens()));
    stream().synchronize();
    const auto tokens = target.span<std::int32_t>();
    return {tokens.begin(), tokens.end()};
  }
  [[nodiscard]] std::uint64_t misses(RegionMiss miss) const {
    return counts(kState).misses[static_cast<std::size_t>(miss)];
  }

  SlotState* state = nullptr;
  Positions* positions = nullptr;
  Sampler* sampler = nullptr;
  PickyState* picky = nullptr;
  int num_calls = 0;
};

TEST_F(PiecewiseStepTest, T_CG_10_padding_writes_no_state_and_real_lanes_their_own) {
  fill_bytes(stream(), state->pool(), 0x42);  // canaries, where nobody has begun
  std::optional<Floats> given;
  run(3, [&](const ModelInputsFromEngine& step) {
    num_calls = 0;
    given = floats_of(run_state(step).get_view("counts"));
    EXPECT_EQ(num_calls, 0);
  });
  EXPECT_THAT(*given, ElementsAre(1, 1, 1)) << "states begin with zero; padding stays inside";
  const Floats pool = floats_of(state->pool());
  EXPECT_THAT(Floats(pool.begin(), pool.begin() + 3), Each(1.0F));
  Floats canary(1);
  std::memset(canary.data(), 0x42, sizeof(float));
  EXPECT_THAT(Floats(pool.begin() + 3, pool.begin() + kStateRows), Each(canary[0]));
  EXPECT_EQ(positions->next(infos[2].handle), 1);
  EXPECT_EQ(positions->next(infos[3].handle), 0);
  EXPECT_EQ(counts(kState).num_replays, 1u);
}

TEST_F(PiecewiseStepTest, T_CG_5_runs_of_steps_in_flight_read_their_own_columns) {
  DeviceOptions lazy;
  lazy.mode = DeviceMode::kLazy;  // nothing runs before somebody waits
  open(lazy);
  begin(false);
  std::vector<Tensor> given;
  const auto keep = [&](std::span<const RequestHandle> lanes, const ModelInputsFromEngine& step) {
    given.push_back((*step.piecewise_runners)[kState].run({.handles = lanes}, step).get("counts"));
  };
  // Of five lanes: the first three, then the last two, then the first three again.
  launch(5, [&](const ModelInputsFromEngine& step) {
    keep(step.handles.first(3), step);
    keep(step.handles.last(2), step);
    keep(step.handles.first(3), step);
  });
  launch(2, [&](const ModelInputsFromEngine& step) { keep(step.handles, step); });
  std::ignore = engine->complete();
  std::ignore = engine->complete();
  EXPECT_THAT(floats_of(given[0].device_view()), ElementsAre(1, 1, 1));
  EXPECT_THAT(floats_of(given[1].device_view()), ElementsAre(1, 1));
  EXPECT_THAT(floats_of(given[2].device_view()), ElementsAre(2, 2, 2));
  EXPECT_THAT(floats_of(given[3].device_view()), ElementsAre(3, 3));
  EXPECT_EQ(counts(kState).num_replays, 4u);
  EXPECT_EQ(positions->next(infos[0].handle), 3);
  given.clear();
}

TEST_F(PiecewiseStepTest, T_CG_3_a_region_of_its_own_step_gives_the_same_eagerly) {
  run(5, [&](const ModelInputsFromEngine& step) {
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), Each(1.0F));
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), Each(2.0F));
  });
  EXPECT_EQ(misses(RegionMiss::kNoBucket), 2u) << "five lanes";
  EXPECT_EQ(positions->next(infos[4].handle), 2);
  picky->fits = false;
  run(1, [&](const ModelInputsFromEngine& step) {
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), ElementsAre(3));
  });
  EXPECT_EQ(misses(RegionMiss::kOverflow), 1u);
  EXPECT_EQ(picky->num_abandoned, 3) << "by the captures, a bucket each, and where it did not fit";
}

TEST_F(PiecewiseStepTest, T_EN_8_a_region_that_is_refused_fails_its_batch_and_says_by_whom) {
  picky->refuses_row = 1;
  submodule->on_forward = [&](const ModelInputsFromEngine& step) { run_state(step); };
  batch.clear();
  batch.walk = kWalk;
  row.input_seq_len = 1;
  batch.add(infos[1].handle, infos[1], {}, row);
  try {
    std::ignore = engine->launch(batch);
    ADD_FAILURE() << "nothing was refused";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), HasSubstr("region 'state': its step was refused by resource 3"));
  }
  std::ignore = engine->complete();
  picky->refuses_row = -100;
  run(2, [&](const ModelInputsFromEngine& step) {
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), ElementsAre(1, 1));
  });
}

TEST_F(PiecewiseStepTest, T_CG_10_what_a_leased_region_declares_the_outer_step_leaves_out) {
  begin(/*lease_before_step=*/true);
  int num_outer = 0;
  submodule->on_declare = [&](const BatchColumns& lanes, SubmoduleStep& step) {
    if (lanes.region_leases.contains(kState)) {
      return false;
    }
    ++num_outer;
    declare_state(lanes, step);
    return true;
  };
  run(2, [&](const ModelInputsFromEngine& step) {
    EXPECT_EQ(step.step, nullptr);
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), ElementsAre(1, 1));
  });
  EXPECT_EQ(num_outer, 0);
  EXPECT_EQ(counts(kState).num_replays, 1u);
  run(5, [&](const ModelInputsFromEngine& step) {
    EXPECT_THAT(floats_of(run_state(step).get_view("counts")), ElementsAre(2, 2, 1, 1, 1));
  });
  EXPECT_EQ(num_outer, 1) << "no bucket for five lanes";
  EXPECT_EQ(misses(RegionMiss::kNotLeased), 1u);
  EXPECT_EQ(positions->next(infos[0].handle), 2);
  EXPECT_EQ(positions->next(infos[4].handle), 1) << "the outer step's own";
}

TEST_F(PiecewiseStepTest, T_CG_10_a_region_samples_for_its_real_lanes) {
  for (RequestInfo& info : infos) {
    info.seed = 40 + static_cast<std::uint64_t>(info.handle.row);
    info.sampling.temperature = info.handle.row == 0 ? 0.0F : 1.0F;
    info.num_prompt_tokens = 1;
    engine->remove_request(info.handle);
    ++info.handle.generation;
    engine->add_request(info);
  }
  fill_bytes(stream(), sampler->last_tokens(), 0xFF);
  Floats logits(5 * kDrawVocab);
  for (std::size_t index = 0; index < logits.size(); ++index) {
    logits[index] = static_cast<float>(index * 5 % 7) * 0.5F;
  }
  const auto draw = [&](std::size_t num_lanes) {
    Floats tokens;
    run(num_lanes, [&](const ModelInputsFromEngine& step) {
      const auto count = static_cast<std::int64_t>(num_lanes);
      const Floats given(logits.begin(), logits.begin() + count * kDrawVocab);
      const Tensor rows = floats({count, kDrawVocab}, given);
      const PiecewiseInput input{"logits", rows.device_view()};
      const std::vector<std::int64_t> seq_lens(num_lanes, 1);
      tokens = floats_of(
          (*step.piecewise_runners)[kDraw]
              .run({.inputs = {&input, 1}, .handles = step.handles, .seq_lens = seq_lens}, step)
              .get_view("tokens"));
    });
    return tokens;
  };
  const Floats captured = draw(3);
  EXPECT_EQ(counts(kDraw).num_replays, 1u);
  EXPECT_THAT(last_tokens(), ElementsAre(captured[0], captured[1], captured[2], -1, -1))
      << "padding published nothing";
  const Floats eager = draw(5);
  EXPECT_EQ(counts(kDraw).num_replays, 1u) << "no bucket of five";
  EXPECT_EQ(Floats(eager.begin(), eager.begin() + 3), captured);
  EXPECT_EQ(captured[0],
            static_cast<float>(std::max_element(logits.begin(), logits.begin() + kDrawVocab) -
                               logits.begin()));
}

}  // namespace
}  // namespace rigel
