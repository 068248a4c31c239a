// The denoising loop with a part of its forward captured alone, for the steps that are not captured whole.

#include "engine/piecewise_runners.h"
#include "tensor/host_function.h"
#include "tests/worker/composite_worker.h"

#include <gmock/gmock.h>

#include <deque>

namespace rigel {
namespace {

using testing::CompositeRequest;
using testing::CompositeScript;
using testing::Denoiser;

/// Takes its latents through a region of any lengths, which doubles and halves them: not a bit may differ.
class RegionDenoiser final : public Denoiser {
 public:
  static constexpr std::int64_t kMostTokens = 12;  // of a captured run; steps have up to 24

  RegionDenoiser(Device& device, StreamRef stream, CompositeScript& script)
      : Denoiser(device, stream, script),
        halves_(device, Dtype::kF32, {kRoom}),
        run_([this](const PiecewiseCallInputs& call) { return enqueue(call); }),
        allocator_(device),
        stream_(stream) {}

  std::vector<PiecewiseCudaGraphConfig> get_piecewise_cuda_graph_configs(Device&, Dtype dtype,
                                                                         int) const override {
    PiecewisePackedConfig region;
    region.label = "latents";
    region.batch_sizes = {4};
    region.token_counts = {4, kMostTokens};
    region.make_static_inputs = [this, dtype](const PiecewiseShape& shape) {
      EXPECT_EQ(dtype, Dtype::kBf16) << "what the engine computes in; latents are f32 all the same";
      return NamedTensors{
          {"latents", allocator_.allocate(stream_, Dtype::kF32, {shape.total_tokens})}};
    };
    region.capture = run_;
    return {region};
  }

 protected:
  ConstDeviceView latents_of(const ModelInputsFromEngine& inputs) override {
    const ConstDeviceView given = Denoiser::latents_of(inputs);
    if (inputs.piecewise_runners == nullptr) {
      return given;  // the whole step is captured
    }
    const PiecewiseInput input{"latents", given};
    std::vector<std::int64_t> lengths;
    for (const NodeInputs* row : inputs.inputs) {
      lengths.push_back(row->input_seq_len);
    }
    return (*inputs.piecewise_runners)[0]
        .run({.inputs = {&input, 1}, .seq_lens = lengths}, inputs)
        .get_view("latents");
  }

 private:
  static constexpr std::int64_t kRoom = 64;
  struct Job {
    const float* from = nullptr;
    float* to = nullptr;
    std::int64_t count = 0;
  };
  static void run(void* data) {
    const Job& job = *static_cast<const Job*>(data);
    for (std::int64_t index = 0; index < job.count; ++index) {
      job.to[index] = job.from[index] * 2.0F;
      job.to[index] *= 0.5F;
    }
  }
  NamedViews enqueue(const PiecewiseCallInputs& call) {
    const ConstDeviceView latents = call.static_inputs.front().second;
    const DeviceView halves = halves_.view(Dtype::kF32, latents.shape());
    jobs_.push_back({latents.data<float>(), halves.data<float>(), latents.dim(0)});
    enqueue_host_function(call.engine_inputs.context->stream(), "latents", run, &jobs_.back());
    return {{"latents", halves}};
  }

  DeviceBuffer halves_;
  std::function<NamedViews(const PiecewiseCallInputs&)> run_;
  mutable CachingAllocator allocator_;
  StreamRef stream_;
  std::deque<Job> jobs_;
};

class CompositeRegions : public testing::CompositeWorkerTest {};

TEST_F(CompositeRegions, T_CG_3_a_denoiser_with_a_region_gives_what_the_loop_on_the_host_gives) {
  Engine* engine = nullptr;
  script.make_denoiser = [](Device& on, StreamRef stream, CompositeScript& what) {
    return std::make_unique<RegionDenoiser>(on, stream, what);
  };
  on_model = [&](CompositeModel& model) {
    engine = model.engines.front().get();
    engine->capture_steps({.staging_bytes = 4096}).capture_all();
    for (const CaptureFailure& failure : engine->captures()->regions().runner().failures()) {
      ADD_FAILURE() << failure.message;
    }
  };
  const std::vector<CompositeRequest> requests = testing::requests_of_every_kind();
  for (const DeviceOrder each :
       {DeviceOrder::kAscending, DeviceOrder::kDescending, DeviceOrder::kRandom}) {
    order = each;
    start(/*one_step_ahead=*/order != DeviceOrder::kDescending, /*num_rows=*/6);
    check_together(requests);
    worker->stop();  // from here on its engines are ours
    const RegionCounts& counts = engine->captures()->regions()[0].counts();
    EXPECT_GT(counts.num_replays, 0U);
    for (const RegionMiss miss :
         {RegionMiss::kNotCaptured, RegionMiss::kNotLeased, RegionMiss::kOverflow}) {
      EXPECT_EQ(counts.misses[static_cast<std::size_t>(miss)], 0U);
    }
  }
}

}  // namespace
}  // namespace rigel
